"""The one atomic writer: files and folders that appear when they are whole, or not at all.

Every writer has a draft of its own beside the place, and holds a lock on the place while it writes:
a second process that writes there at the same time is refused. What a killed process left behind is
removed by the next one that writes to the same folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import shutil
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from counterpoint.errors import CounterpointError, DataError, as_os_error, reason

# Process ids are those of one machine: drafts of other machines on a shared disk are left alone.
_HOST: Final = hashlib.sha256(socket.gethostname().encode()).hexdigest()[:8]
_DRAFT: Final = re.compile(rf"\.draft-{_HOST}-(\d+)-[0-9a-f]{{12}}")
_OLD: Final = ".old"


@contextmanager
def whole_file(path: Path, error: type[CounterpointError] = DataError) -> Iterator[Path]:
    """A draft to write to; at the end it becomes `path`, or is removed if anything was raised."""
    with _writing(path, error) as draft:
        yield draft
        _to_disk(draft)
        draft.replace(path)


@contextmanager
def whole_folder(folder: Path, error: type[CounterpointError] = DataError) -> Iterator[Path]:
    """A draft folder to write into; at the end it takes the place of `folder`."""
    with _writing(folder, error) as draft:
        draft.mkdir()
        yield draft
        for path in (*draft.rglob("*"), draft):
            _to_disk(path)
        _exchange(draft, folder)


@contextmanager
def locked(place: Path, *, wait: float = 0) -> Iterator[None]:
    """Hold a place for this process, after `wait` seconds at most (-1: however long it takes).

    The lock is a hidden file beside the place, which goes when it is released. It goes with a
    killed process, too: what is left of it then locks nothing.
    """
    name = place.name.encode()
    short = name[:60].decode(errors="ignore") + "-" + hashlib.sha256(name).hexdigest()[:8]
    path = place.with_name(f".{short}.lock")
    lock = FileLock(path, timeout=wait)
    try:
        lock.acquire()
    except Timeout:
        raise DataError(
            f"{place}: another process is writing it; wait for it, or name another place."
        ) from None
    try:
        yield
    finally:
        with suppress(OSError):  # Windows removes no open file
            path.unlink()
        lock.release()


def recover(folder: Path) -> None:
    """Put back the folder that a process moved away for a new one and then was killed."""
    with suppress(OSError):  # not there, or another process was faster
        if not folder.exists():
            _old(folder).rename(folder)


def left_by_kills(folder: Path) -> Iterator[Path]:
    """The folders below this one that `recover` would bring back."""
    for old in folder.glob(f"**/.*{_OLD}"):
        yield old.with_name(old.name[1 : -len(_OLD)])


@contextmanager
def _writing(place: Path, error: type[CounterpointError]) -> Iterator[Path]:
    draft = place.with_name(f".draft-{_HOST}-{os.getpid()}-{secrets.token_hex(6)}{place.suffix}")
    try:
        with ExitStack() as stack:
            place.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(place))
            stack.callback(_remove, draft)
            _sweep(place.parent)
            yield draft
    except Exception as problem:
        if (machine := as_os_error(problem)) is None:
            raise
        raise error(f"{place}: cannot be written: {reason(machine)}.") from None


def _exchange(draft: Path, folder: Path) -> None:
    """Two renames, since no portable call does both; `recover` mends a kill between them."""
    old = _old(folder)
    _remove(old)
    while True:
        with suppress(FileNotFoundError):
            folder.rename(old)
        try:
            draft.rename(folder)
            break
        except OSError:
            if not folder.exists():
                recover(folder)
                raise
            # A reader has just put the old one back.
    _to_disk(folder.parent)
    _remove(old)


def _old(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}{_OLD}")


def _sweep(folder: Path) -> None:
    """Remove the drafts of processes that are gone."""
    for left in folder.glob(f".draft-{_HOST}-*"):
        found = _DRAFT.match(left.name)
        if found and not _is_alive(int(found[1])):
            _remove(left)


def _is_alive(pid: int) -> bool:
    if os.name == "nt":  # there, signal 0 ends a process
        return True
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's, and alive
        pass
    return True


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _to_disk(path: Path) -> None:
    """A rename must not come to the disk before what it renames."""
    if os.name == "nt":
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
