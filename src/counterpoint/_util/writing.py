"""The one atomic writer: files and folders that appear when they are whole, or not at all.

Every writer has a draft of its own beside the place, and holds a lock on the place while it writes:
a second process that writes there at the same time waits or is refused. What a killed process left
behind is removed by the next one that writes to the same place.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from counterpoint._util.errors import CounterpointError, DataError, as_os_error, cause, reason

_OLD: Final = ".counterpoint-old"
_LONGEST: Final = 255  # bytes of a name


@contextmanager
def whole_file(
    path: Path, error: type[CounterpointError] = DataError, *, wait: float = 0
) -> Iterator[Path]:
    """A draft to write to; at the end it becomes `path`, or is removed if anything was raised.

    `wait`: for how many seconds another process may be writing the same file.
    """
    with _writing(path, error, wait) as (draft, place):
        if place.exists() and not place.is_file():  # a rename would replace even a device
            raise OSError(errno.EISDIR if place.is_dir() else errno.EEXIST, "")
        yield draft
        _to_disk(draft)
        draft.replace(place)


@contextmanager
def whole_folder(
    folder: Path, error: type[CounterpointError] = DataError, *, wait: float = 0
) -> Iterator[Path]:
    """A draft folder to write into; at the end it takes the place of `folder`."""
    with _writing(folder, error, wait) as (draft, place):
        if place.exists() and not place.is_dir():
            raise OSError(errno.ENOTDIR, "")
        recover(place)
        draft.mkdir()
        yield draft
        for path in (*draft.rglob("*"), draft):
            _to_disk(path)
        _exchange(draft, place)


@contextmanager
def locked(
    place: Path, error: type[CounterpointError] = DataError, *, wait: float = 0
) -> Iterator[None]:
    """Hold a place for this process, after `wait` seconds at most (-1: however long it takes).

    The lock is a hidden file beside the place, which goes when it is released. It goes with a
    killed process, too: what is left of it then locks nothing.
    """
    path = _beside(place, ".lock")
    lock = FileLock(path, timeout=wait)
    try:
        lock.acquire()
    except Timeout:
        raise error(
            "E-OUTPUT-LOCKED",
            f"{place}: another process is writing it; wait for it, or name another place.",
            path=place,
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
def _writing(
    asked: Path, error: type[CounterpointError], wait: float
) -> Iterator[tuple[Path, Path]]:
    """A draft's path, and the place it is for: where a link leads, not the link."""
    try:
        place = Path(os.path.realpath(asked))
        place.parent.mkdir(parents=True, exist_ok=True)
        with locked(place, error, wait=wait):
            for left in place.parent.glob(_beside(place, "-*").name):
                _remove(left)  # of a killed process: the lock is ours
            suffix = place.suffix if len(place.suffix) < 20 else ""  # libraries may look at it
            draft = _beside(place, f"-{secrets.token_hex(6)}{suffix}")
            try:
                yield draft, place
            finally:
                _remove(draft)
    except Exception as problem:
        if (machine := as_os_error(problem)) is None:
            raise
        raise error(
            "E-OUTPUT-UNWRITABLE",
            f"{asked}: cannot be written: {reason(machine)}.",
            path=asked,
            cause=cause(machine),
        ) from None


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


def _beside(place: Path, ending: str) -> Path:
    """A hidden name that belongs to a place, short enough however long the place's own name is."""
    name = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]
    return place.with_name(f".draft-{name}{ending}")


def _old(folder: Path) -> Path:
    name = f".{folder.name}{_OLD}"
    fits = len(os.fsencode(name)) <= _LONGEST
    return folder.with_name(name) if fits else _beside(folder, _OLD)


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
    except OSError:
        if not path.is_dir():  # some file systems cannot do it for folders
            raise
    finally:
        os.close(handle)
