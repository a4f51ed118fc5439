"""The part of a file that has come so far, and which version it is of.

It is locked: two processes that want the same file do not get into each other's way.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from counterpoint.errors import DataError
from counterpoint.untrusted import parse_json
from counterpoint.writing import locked

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
            note = parse_json(self._note.read_bytes(), self._note)
            return str(note["version"]) if note["url"] == url else None
        except (OSError, DataError, KeyError, TypeError):
            return None

    def settle(self, path: Path) -> None:
        """Into its place, in one step, once it is safely on the disk."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()  # Windows renames no open file
        self.place.replace(path)
        self._note.unlink(missing_ok=True)

    def remove(self) -> None:
        self.place.unlink(missing_ok=True)
        self._note.unlink(missing_ok=True)


@contextmanager
def locked_part(path: Path, pause: Pause) -> Iterator[Part]:
    """The part of a file, for this process alone, once no other has it."""
    place = path.with_name(f"{path.name}.part")
    with ExitStack() as stack:
        while not _entered(stack, place):
            pause(_POLL)  # which may raise: a worker that waits can be stopped
        part = Part(place, stack.enter_context(place.open("ab")))
        try:
            yield part
        finally:
            part.file.close()
            if not part.length:  # it is no use to anybody
                part.remove()


def _entered(stack: ExitStack, place: Path) -> bool:
    try:
        stack.enter_context(locked(place))
    except DataError:
        return False
    return True
