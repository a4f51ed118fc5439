"""The atomic writer: files and folders appear complete or not at all.

Every writer has its own draft beside the target and holds a lock on the target while it writes. A
second process that writes there at the same time waits, or gets an error. The drafts of a killed
process are removed by the next process that writes to the same target, or by `clear_drafts`.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import re
import secrets
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from counterpoint._util.errors import (
    CounterpointError,
    DataError,
    as_os_error,
    reason,
    uninterrupted,
)

_OLD: Final = ".counterpoint-old"
_DRAFT: Final = ".draft-"
_LOCK: Final = ".lock"
_LONGEST: Final = 255  # bytes of a name
_MOMENT: Final = 0.1  # seconds: `clear_drafts` of another process holds a lock for less
_HERE, _SWAP = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux


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


def write_json(path: Path, value: object, error: type[CounterpointError] = DataError) -> None:
    """A small file of plain values, written as a whole."""
    with whole_file(path, error) as draft:
        draft.write_text(json.dumps(value, indent=1) + "\n", encoding="utf-8")


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
    """Lock a path for this process; wait at most `wait` seconds for it (-1: without limit).

    The lock is a hidden file beside the path, removed when it is released. If a process is killed,
    the system releases its lock: the file that is left locks nothing.
    """
    path = _beside(place, _LOCK)
    lock = FileLock(path, timeout=wait if wait < 0 else max(wait, _MOMENT))
    try:
        lock.acquire()
    except Timeout:
        raise error(
            "E-OUTPUT-LOCKED",
            f"{place}: another process is writing it; wait for it, or choose another path.",
        ) from None
    try:
        yield
    finally:
        _release(lock)


@uninterrupted
def _release(lock: FileLock) -> None:
    with suppress(OSError):  # Windows removes no open file
        Path(lock.lock_file).unlink()
    lock.release()


def refuse_foreign(folder: Path, manifest: str, maker: str) -> None:
    """Raise unless a folder is new, empty or one that `maker` has written: it has the manifest."""
    known = (folder / manifest).is_file() or not folder.exists()
    if not known and not (folder.is_dir() and not any(folder.iterdir())):
        raise DataError(
            "E-OUTPUT-EXISTS",
            f"{folder} exists and was not written by {maker}; choose another folder.",
        )


def clear_drafts(top: Path) -> None:
    """Remove what killed processes left below a folder; what is being written now stays."""
    for left in sorted(top.rglob(f"{_DRAFT}*")):
        known = re.match(rf"{re.escape(_DRAFT)}[0-9a-f]{{16}}(?=[-.])", left.name)
        if known is None or not os.path.lexists(left):  # not ours, or gone with another one
            continue
        lock = FileLock(left.with_name(known[0] + _LOCK), timeout=0)
        with suppress(OSError, Timeout):
            lock.acquire()
            for draft in left.parent.glob(f"{known[0]}-*"):
                _remove(draft)
            _release(lock)
    for folder in list(left_by_kills(top)):
        with suppress(DataError), locked(folder):
            recover(folder)
            _remove(_old(folder))


def recover(folder: Path) -> None:
    """Put back a folder that a process had moved away for a new one before it was killed."""
    with suppress(OSError):  # not there, or another process was faster
        if not folder.exists():
            _old(folder).rename(folder)


def left_by_kills(folder: Path) -> Iterator[Path]:
    """The folders below this one that `recover` would put back."""
    for old in folder.glob(f"**/.*{_OLD}"):
        yield old.with_name(old.name[1 : -len(_OLD)])


@contextmanager
def _writing(
    asked: Path, error: type[CounterpointError], wait: float
) -> Iterator[tuple[Path, Path]]:
    """The path of a draft and the path it is for: the target of a link, not the link."""
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
            "E-OUTPUT-UNWRITABLE", f"{asked}: cannot be written: {reason(machine)}."
        ) from None


@uninterrupted
def _exchange(draft: Path, folder: Path) -> None:
    """Put the draft in the place of a folder, at once where the system can."""
    old = _old(folder)
    _remove(old)
    if folder.exists() and _exchanged(draft, folder):
        old = draft
    else:
        _rename_twice(draft, folder, old)
    _to_disk(folder.parent)
    _remove(old)


def _exchanged(one: Path, other: Path) -> bool:
    """Two paths change their names in one call: Linux can, on most file systems."""
    if sys.platform != "linux":
        return False
    try:
        swap = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an old libc, or another one
        return False
    return swap(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _SWAP) == 0


def _rename_twice(draft: Path, folder: Path, old: Path) -> None:
    """`recover` repairs a kill between the two renames."""
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
            # Another process has just put the old one back.


def _beside(place: Path, ending: str) -> Path:
    """A hidden name that belongs to a path, short even if the path's own name is long."""
    name = hashlib.sha256(os.fsencode(place.name)).hexdigest()[:16]
    return place.with_name(f"{_DRAFT}{name}{ending}")


def _old(folder: Path) -> Path:
    name = f".{folder.name}{_OLD}"
    fits = len(os.fsencode(name)) <= _LONGEST
    return folder.with_name(name) if fits else _beside(folder, _OLD)


@uninterrupted
def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with suppress(OSError):
            path.unlink()


def _to_disk(path: Path) -> None:
    """Contents must be on the disk before the rename is."""
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
