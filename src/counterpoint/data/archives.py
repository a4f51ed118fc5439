"""Archives, extracted without trusting them: no way out of the folder, no links, no bombs."""

from __future__ import annotations

import fcntl
import lzma
import shutil
import stat
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Final

from counterpoint.data.paths import inside
from counterpoint.errors import DataError

_CHUNK: Final = 1 << 20
_FLOOR: Final = 1 << 30  # bytes that any archive may extract to
_RATIO: Final = 100  # and above that, how many times its own size
_BROKEN: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, EOFError),
    *(NotImplementedError, RuntimeError),  # unknown compression, encrypted
)

Member = tuple[str, IO[bytes] | None]  # a folder has no content


def extract(archive: Path, folder: Path, *, limit: int | None = None) -> None:
    """Extract into a temporary folder first; only a whole archive gets into the real one.

    Files that are there already are replaced. `limit` is the most bytes that may come out.
    """
    waiting = folder / f".{archive.name}.extracting"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with archive.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # another process may be extracting it
            shutil.rmtree(waiting, ignore_errors=True)  # of one that was killed
            waiting.mkdir()
            try:
                most = limit or max(_FLOOR, _RATIO * archive.stat().st_size)
                _unpack(file, archive, waiting, most)
                _move(waiting, folder)
            finally:
                shutil.rmtree(waiting, ignore_errors=True)
    except _BROKEN as error:
        why = (str(error).splitlines() or ["it is cut off"])[0].rstrip(".:")
        raise DataError(f"{archive}: cannot be extracted: {why}; get it again.") from None
    except OSError as error:
        raise DataError(f"{archive}: cannot be extracted: {error.strerror or error}.") from None


def _unpack(file: BinaryIO, archive: Path, folder: Path, left: int) -> None:
    for name, content in _members(file, archive):
        place = inside(folder, name)
        if content is None:
            place.mkdir(parents=True, exist_ok=True)
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        with content, place.open("wb") as out:
            while chunk := content.read(_CHUNK):  # sizes in headers are not believed
                left -= len(chunk)
                if left < 0:
                    raise DataError(f"{archive}: extracts to far too much; it is refused.")
                out.write(chunk)


def _members(file: BinaryIO, archive: Path) -> Iterator[Member]:
    if zipfile.is_zipfile(file):
        yield from _zip_members(file, archive)
    else:
        file.seek(0)
        yield from _tar_members(file, archive)


def _zip_members(file: BinaryIO, archive: Path) -> Iterator[Member]:
    with zipfile.ZipFile(file) as opened:
        for info in opened.infolist():
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(f"{archive}: {info.filename!r} is a link; it is refused.")
            yield info.filename, None if info.is_dir() else opened.open(info)


def _tar_members(file: BinaryIO, archive: Path) -> Iterator[Member]:
    with tarfile.open(fileobj=file) as opened:
        for info in opened:
            if not (info.isfile() or info.isdir()):
                raise DataError(f"{archive}: {info.name!r} is a link; it is refused.")
            yield info.name, opened.extractfile(info) if info.isfile() else None
        while opened.fileobj and opened.fileobj.read(_CHUNK):
            pass  # to the end: only there does a compressed stream say whether it is whole


def _move(source: Path, target: Path) -> None:
    """Children by one rename each, as high up as the target does not have them."""
    for child in source.iterdir():
        place = target / child.name
        if child.is_dir() and place.is_dir():
            _move(child, place)
        else:
            child.replace(place)
