"""Members of tar files, read in place: nothing is ever extracted.

The headers of a tar file are read once. The positions of its members are kept for as long as the
file stays as it was, and a member is one seek and one read.
"""

from __future__ import annotations

import os
import re
import tarfile
from collections import OrderedDict
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, NamedTuple

from counterpoint._util.errors import DataError, ImageError, reason
from counterpoint._util.untrusted import open_regular, shortened
from counterpoint.images.decoding import MAX_BYTES

_BRACES: Final = re.compile(r"\{(?:(\d{1,9})\.\.(\d{1,9})|([^{}]*,[^{}]*))\}")
_MOST: Final = 1_000_000  # files of a pattern
_PICTURES: Final = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff")
_HELD: Final = 64  # tar files whose members are known; images are asked for in their order


class TarMember(NamedTuple):
    """Where the bytes of a member are."""

    start: int
    size: int


class _Indexes:
    """The members of the tar files that were read last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[tuple[object, ...], dict[str, TarMember]] = OrderedDict()

    def of(self, path: Path, file: BinaryIO) -> dict[str, TarMember]:
        stat = os.fstat(file.fileno())
        times = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        key = (path.absolute(), *times)
        with self._lock:  # one scan for all threads that want the same file
            if key not in self._held:
                self._held[key] = _scan(file, stat.st_size)
            self._held.move_to_end(key)
            while len(self._held) > _HELD:
                self._held.popitem(last=False)
            return self._held[key]


def _scan(file: BinaryIO, size: int) -> dict[str, TarMember]:
    """Regular members by name; of two with one name the last counts, as for tar itself."""
    found = {}
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            if member.isfile() and not member.issparse():
                if not 0 <= member.size <= size - member.offset_data:
                    raise tarfile.ReadError("a member is longer than the file")
                found[member.name] = TarMember(member.offset_data, member.size)
            tar.members = []  # type: ignore[attr-defined]  # or it remembers every header
    return found


_INDEXES: Final = _Indexes()


def tar_members(path: Path) -> dict[str, TarMember]:
    """All regular members of an uncompressed tar file. Raises ImageError."""
    try:
        with open_regular(path) as file:
            return _INDEXES.of(path, file)
    except FileNotFoundError:
        what = f"image {shortened(path)}: no such file."
        raise ImageError("E-IMAGE-MISSING", what) from None
    except Exception as error:  # of damaged headers the library raises anything
        why = reason(error) if isinstance(error, OSError) and error.errno else shortened(error)
        raise ImageError(
            "E-IMAGE-UNREADABLE",
            f"image {shortened(path)}: not a readable, uncompressed tar file: {why.rstrip('. ')}.",
        ) from None


def read_member(path: Path, name: str) -> bytes:
    """The bytes of a member. Raises ImageError."""
    where = f"image {shortened(f'{path}#{name}')}"
    member = tar_members(path).get(name)
    if member is None:
        what = f"{where}: the tar file has no such member."
        raise ImageError("E-IMAGE-MISSING", what)
    if member.size > MAX_BYTES:
        what = f"{where}: larger than {MAX_BYTES >> 30} GiB."
        raise ImageError("E-IMAGE-TOO-LARGE", what)
    try:
        with open_regular(path) as file:
            file.seek(member.start)
            data = file.read(member.size)
    except OSError as error:
        what = f"{where}: cannot be read: {reason(error)}."
        raise ImageError("E-IMAGE-UNREADABLE", what) from None
    if len(data) != member.size:
        what = f"{where}: cannot be read: the file was cut."
        raise ImageError("E-IMAGE-UNREADABLE", what)
    return data


def expand_braces(pattern: str) -> list[str]:
    """`a-{000..015}.tar` is sixteen names, `{a,b}.tar` two."""
    found = _BRACES.search(pattern)
    if found is None:
        return [pattern]
    first, last, words = found.groups()
    numbers = range(int(first or 0), int(last or 0) + 1)
    ends = expand_braces(pattern[found.end() :])
    if not numbers or len(numbers) * len(ends) > _MOST:
        raise DataError(
            "E-OPTION-INVALID", f"{shortened(pattern)}: names no files, or more than {_MOST:,}."
        )
    parts = words.split(",") if words else [f"{n:0{len(first)}}" for n in numbers]
    return [f"{pattern[: found.start()]}{part}{end}" for part in parts for end in ends]


def tar_samples(path: Path) -> dict[str, dict[str, str]]:
    """The samples of a WebDataset shard, in the order of the file: members that share a name but
    for what follows its first dot, by that ending; pictures of any kind are `image`.
    """
    samples: dict[str, dict[str, str]] = {}
    for member in tar_members(path):
        folder, slash, last = member.rpartition("/")
        key, _, ending = last.partition(".")
        kind = "image" if ending.lower() in _PICTURES else ending.lower()
        samples.setdefault(f"{folder}{slash}{key}", {})[kind] = member
    return samples
