"""The part of a file that has come so far, and which version it is of.

It is locked: two processes that want the same file do not get into each other's way. The lock lies
on the part itself, so that it goes with its process, even a killed one, and leaves nothing behind.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

_POLL: Final = 0.2  # seconds until a part that another process holds is asked for again

Pause = Callable[[float], None]


class Part:
    """An open, locked part. `length` counts what was written to it."""

    def __init__(self, place: Path, file: BinaryIO) -> None:
        self.place, self.file = place, file
        self.length = os.fstat(file.fileno()).st_size
        self._note = place.with_name(f"{place.name}.from")

    def write(self, chunk: bytes) -> None:
        self.file.write(chunk)
        self.length += len(chunk)

    def clear(self) -> None:
        self.file.flush()  # what is still buffered would come after the cut
        self.file.truncate(0)
        self.length = 0
        self._note.unlink(missing_ok=True)

    def remember(self, url: str, version: str | None) -> None:
        if version:
            self._note.write_text(json.dumps({"url": url, "version": version}), encoding="utf-8")

    def version(self, url: str) -> str | None:
        """The version of what has come, if it came from this address."""
        try:
            note = json.loads(self._note.read_text(encoding="utf-8"))
            return str(note["version"]) if note["url"] == url else None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def settle(self, path: Path) -> None:
        """Into its place, in one step, once it is safely on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.place.replace(path)
        self._note.unlink(missing_ok=True)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def is_ours(self) -> bool:
        """Whether the file we hold open is still the one at the part's place."""
        try:
            there = self.place.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(there, os.fstat(self.file.fileno()))

    def tidy(self) -> None:
        """An empty part is no use to anybody."""
        self.file.flush()
        if not self.length and self.is_ours():
            self._note.unlink(missing_ok=True)
            self.place.unlink()


@contextmanager
def locked_part(path: Path, pause: Pause) -> Iterator[Part]:
    """The part of a file, for this process alone, once no other has it."""
    place = path.with_name(f"{path.name}.part")
    while True:
        with place.open("ab") as file:
            while not _lock(file):
                pause(_POLL)
            part = Part(place, file)
            if part.is_ours():  # else another process finished it while we waited for the lock
                try:
                    yield part
                finally:
                    part.tidy()
                return


def _lock(file: BinaryIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks: rather unlocked than not at all
        return True
    return True
