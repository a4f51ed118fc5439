"""Image files: read within bounds, decoded as RGB, and the images inside Parquet and tar files.

A Parquet file is read a row group at a time. The headers of a tar file are read once, and a member
is one seek and one read: nothing is extracted. Images are asked for in the order of their file, so
what was read last stays in memory for as long as the file stays as it was.
"""

from __future__ import annotations

import io
import os
import re
import tarfile
from collections import OrderedDict
from collections.abc import Callable
from functools import cache, partial
from pathlib import Path
from threading import Lock
from typing import Any, BinaryIO, Final, Generic, NamedTuple, TypeVar

import numpy as np
from PIL import Image, UnidentifiedImageError

from counterpoint._util.errors import DataError, ImageError, reason
from counterpoint._util.store import Store, digest
from counterpoint._util.untrusted import open_regular, shortened

T = TypeVar("T")
MAX_PIXELS: Final = Image.MAX_IMAGE_PIXELS or 89_478_485  # Pillow's own limit: a quarter GiB of RGB
MAX_BYTES: Final = 1 << 30  # of an image file


def named(reference: Path | str) -> str:
    """An image in a message."""
    return f"image {shortened(str(reference))}"


def read_file(path: Path) -> bytes:
    """The bytes of an image file. Raises ImageError."""
    try:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            # As much as there is: a buffer of MAX_BYTES for every file costs more than reading it.
            data = file.read(min(size, MAX_BYTES) + 1)
            if size < len(data) <= MAX_BYTES:  # it grew, or its size says nothing
                data += file.read(MAX_BYTES + 1 - len(data))
    except (OSError, ValueError) as error:  # a ValueError if there is a NUL in its name
        raise _unreadable(path, error) from None
    if len(data) > MAX_BYTES:
        what = f"{named(path)}: larger than {MAX_BYTES >> 30} GiB."
        raise ImageError("E-IMAGE-TOO-LARGE", what)
    return data


def _unreadable(path: Path, error: OSError | ValueError) -> ImageError:
    if isinstance(error, FileNotFoundError):
        return ImageError("E-IMAGE-MISSING", f"{named(path)}: no such file.")
    why = reason(error) if isinstance(error, OSError) else shortened(error)
    return ImageError("E-IMAGE-UNREADABLE", f"{named(path)}: cannot be read: {why}.")


def file_content(path: Path, part: str, read: Callable[[], bytes], store: Store) -> bytes:
    """The digest of (a part of) a file, remembered for as long as its size and times stay."""
    try:
        stat = path.stat()
    except (OSError, ValueError) as error:
        raise _unreadable(path, error) from None
    times = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
    name = digest("file", str(path.absolute()), times, *filter(None, [part]))
    [known] = store.get([name])
    if known is not None:
        return known
    content = digest(read())
    store.remember(name, content)
    return content


@cache
def _formats() -> tuple[str, ...]:
    """What Pillow reads, except PostScript: for that it starts another program."""
    Image.init()
    return tuple(name for name in Image.OPEN if name != "EPS")


def decode(
    data: bytes,
    name: Path | str,
    *,
    side: int | None = None,
    formats: tuple[str, ...] | None = None,
) -> Image.Image:
    """The image in a file's bytes as RGB. Raises ImageError.

    With `side`, a JPEG is decoded at a half, a quarter or an eighth of its size if both sides stay
    at least that long: several times as fast, and the scaling that follows has less to do.
    """
    try:
        with Image.open(io.BytesIO(data), formats=formats or _formats()) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(
                    "E-IMAGE-TOO-LARGE",
                    f"{named(name)}: {image.width} x {image.height} pixels are too many.",
                )
            if side is not None:
                image.draft("RGB", (side, side))  # changes nothing unless it is a JPEG
            return _to_rgb(image)
    except (ImageError, MemoryError):
        raise
    except UnidentifiedImageError:
        what = f"{named(name)}: not an image that can be read."
        raise ImageError("E-IMAGE-BROKEN", what) from None
    except Exception as error:  # a broken file may raise anything in some decoder
        why = shortened(error).rstrip(". ") or type(error).__name__
        raise ImageError("E-IMAGE-BROKEN", f"{named(name)}: broken: {why}.") from None


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "RGB":
        image.load()
        return image  # `convert` would copy it
    if image.mode.startswith("I"):  # 16 bits: Pillow would cut at 255, not scale
        levels = (np.asarray(image) / 257).clip(0, 255).astype(np.uint8)
        return Image.fromarray(levels).convert("RGB")
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # or Pillow warns
    return image.convert("RGB")


# --- images inside other files -------------------------------------------------------------------

_GROUPS_HELD: Final = 4  # row groups; a case has up to two columns, and threads read ahead
_TARS_HELD: Final = 64  # tar files whose members are known
_BRACES: Final = re.compile(r"\{(?:(\d{1,9})\.\.(\d{1,9})|([^{}]*,[^{}]*))\}")
_MOST: Final = 1_000_000  # files of a pattern
_PICTURES: Final = ("jpg", "jpeg", "png", "webp", "bmp", "gif", "tif", "tiff")


class _Latest(Generic[T]):
    """What was read last of files. A file that has changed is read again."""

    def __init__(self, most: int) -> None:
        self._most, self._lock = most, Lock()
        self._held: OrderedDict[tuple[object, ...], T] = OrderedDict()

    def get(self, path: Path, file: BinaryIO, read: Callable[[], T], *part: object) -> T:
        stat = os.fstat(file.fileno())
        times = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns, stat.st_ino)
        key = (path.absolute(), *times, *part)
        with self._lock:  # one read for all threads that want the same
            if key not in self._held:
                self._held[key] = read()
            self._held.move_to_end(key)
            while len(self._held) > self._most:
                self._held.popitem(last=False)
            return self._held[key]


class TarMember(NamedTuple):
    """Where the bytes of a member are."""

    start: int
    size: int


_GROUPS: Final = _Latest[Any](_GROUPS_HELD)
_TARS: Final = _Latest[dict[str, TarMember]](_TARS_HELD)


def read_cell(path: Path, column: str, row: int) -> bytes:
    """The encoded image in a cell of a Parquet file. Raises ImageError."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    where = named(f"{path}#{column}/{row}")
    try:
        with open_regular(path) as opened, pq.ParquetFile(path) as file:
            number, place = _row_group(file, row)
            read = partial(file.read_row_group, number, columns=[column])
            group = _GROUPS.get(path, opened, read, column, number)
            value = group.column(column)[place].as_py()
    except FileNotFoundError:
        raise _unreadable(path, FileNotFoundError()) from None
    except (KeyError, IndexError):
        raise ImageError("E-IMAGE-MISSING", f"{where}: the table has no such cell.") from None
    except (OSError, ValueError, pa.ArrowException) as error:
        why = shortened(error).rstrip(". ")
        raise ImageError("E-IMAGE-UNREADABLE", f"{where}: cannot be read: {why}.") from None
    data = value.get("bytes") if isinstance(value, dict) else value
    if not isinstance(data, bytes):
        raise ImageError("E-IMAGE-MISSING", f"{where}: the cell holds no image.")
    return data


def _row_group(file: Any, row: int) -> tuple[int, int]:
    """The row group of a row, and its place there."""
    for number in range(file.metadata.num_row_groups):
        size = file.metadata.row_group(number).num_rows
        if row < size:
            return number, row
        row -= size
    raise IndexError


def tar_members(path: Path) -> dict[str, TarMember]:
    """All regular members of an uncompressed tar file. Raises ImageError."""
    try:
        with open_regular(path) as file:
            return _TARS.get(path, file, partial(_scan, file))
    except FileNotFoundError as error:
        raise _unreadable(path, error) from None
    except Exception as error:  # of damaged headers the library raises anything
        why = reason(error) if isinstance(error, OSError) and error.errno else shortened(error)
        raise ImageError(
            "E-IMAGE-UNREADABLE",
            f"{named(path)}: not a readable, uncompressed tar file: {why.rstrip('. ')}.",
        ) from None


def _scan(file: BinaryIO) -> dict[str, TarMember]:
    """Regular members by name; of two with one name the last counts, as for tar itself."""
    found, size = {}, os.fstat(file.fileno()).st_size
    with tarfile.open(fileobj=file, mode="r:") as tar:
        for member in tar:
            if member.isfile() and not member.issparse():
                if not 0 <= member.size <= size - member.offset_data:
                    raise tarfile.ReadError("a member is longer than the file")
                found[member.name] = TarMember(member.offset_data, member.size)
            tar.members = []  # type: ignore[attr-defined]  # or it remembers every header
    return found


def read_member(path: Path, name: str) -> bytes:
    """The bytes of a member. Raises ImageError."""
    where = named(f"{path}#{name}")
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
