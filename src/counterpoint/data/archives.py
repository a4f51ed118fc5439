"""Archives, extracted without trust: no paths outside the folder, no links, no bombs."""

from __future__ import annotations

import lzma
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, BinaryIO, Final, Self

from counterpoint._util.errors import DataError, reason
from counterpoint._util.untrusted import inside, open_regular, shortened, shown
from counterpoint._util.writing import locked

_CHUNK: Final = 1 << 20
_FLOOR: Final = 1 << 28  # bytes that every archive may extract to
_RATIO: Final = 100  # a larger archive may extract to this many times its own size
_MEMBER: Final = 8192  # bytes of the disk that a member is counted with, even if it is empty
_HEADER: Final = 1 << 20  # bytes of a tar header; they are read into memory
_REST: Final = 1 << 24  # bytes of zeros after the last member of a tar file
_BROKEN: Final = (
    *(tarfile.TarError, zipfile.BadZipFile, zlib.error, lzma.LZMAError, struct.error, EOFError),
    *(NotImplementedError, RuntimeError),  # unknown compression, encrypted
    *(ValueError, OverflowError, IndexError),  # names that are not UTF-8, sizes below 0
)

Member = tuple[str, int, IO[bytes] | None]  # with its size; a folder has no content


def extract(archive: Path, folder: Path, *, limit: int | None = None) -> None:
    """Extract into a temporary folder first; only a complete archive is moved to the real one.

    Existing files are replaced. `limit` is the maximum number of extracted bytes.
    """
    waiting = folder / f".{archive.name}.extracting"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # Opened first: another process may remove the archive after it has extracted it.
        with open_regular(archive) as file, locked(waiting, wait=-1):
            shutil.rmtree(waiting, ignore_errors=True)  # of a process that was killed
            waiting.mkdir()
            try:
                most = limit or max(_FLOOR, _RATIO * archive.stat().st_size)
                _unpack(file, archive, waiting, most)
                _refuse_others(waiting, folder, archive)
                _move(waiting, folder)
            finally:
                shutil.rmtree(waiting, ignore_errors=True)
    except _BROKEN as error:
        why = shortened(str(error).partition("\n")[0]).rstrip(".:") or "it is cut off"
        raise DataError(
            "E-ARCHIVE-BROKEN", f"{archive}: cannot be extracted: {why}; get it again."
        ) from None
    except OSError as error:
        raise DataError(
            "E-ARCHIVE-EXTRACTION", f"{archive}: cannot be extracted: {reason(error)}."
        ) from None


def _unpack(file: BinaryIO, archive: Path, folder: Path, left: int) -> None:
    made = {folder}
    for name, size, content in _members(file, archive, left):
        place = inside(folder, name)
        left -= _MEMBER
        if size > left:  # as it says of itself: not a byte of it is written
            raise _too_large(archive)
        parent = place if content is None else place.parent
        if parent not in made:
            parent.mkdir(parents=True, exist_ok=True)
            made.add(parent)
        if content is not None:
            left -= _write(content, place, left)
        if left < 0:  # sizes in headers may be wrong
            raise _too_large(archive)


def _write(content: IO[bytes], place: Path, most: int) -> int:
    """How many bytes it has, or more than `most`, of which no more are written."""
    written = 0
    with content, place.open("wb") as out:
        while written <= most and (chunk := content.read(_CHUNK)):
            written += len(chunk)
            out.write(chunk)
    return written


def _too_large(archive: Path) -> DataError:
    return DataError(
        "E-ARCHIVE-TOO-LARGE", f"{archive}: extracts to far too many bytes; it is not extracted."
    )


def _members(file: BinaryIO, archive: Path, left: int) -> Iterator[Member]:
    if zipfile.is_zipfile(file):
        yield from _zip_members(file, archive, left)
    else:
        file.seek(0)
        yield from _tar_members(file, archive)


def _zip_members(file: BinaryIO, archive: Path, left: int) -> Iterator[Member]:
    with zipfile.ZipFile(file) as opened:
        infos = opened.infolist()
        if sum(info.file_size + _MEMBER for info in infos) > left:
            raise _too_large(archive)
        for info in infos:
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise DataError(
                    "E-ARCHIVE-LINK",
                    f"{archive}: {shown(info.filename)} is a link; the archive is not extracted.",
                )
            yield info.filename, info.file_size, None if info.is_dir() else opened.open(info)


class _Header(tarfile.TarInfo):
    """A header of a tar file. Headers with long names are read into memory, so they are limited."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if not found.isreg() and found.size > _HEADER:
            raise OverflowError("a header is too large")
        return found


def _tar_members(file: BinaryIO, archive: Path) -> Iterator[Member]:
    with tarfile.open(fileobj=file, tarinfo=_Header) as opened:
        for info in opened:
            if not (info.isfile() or info.isdir()):
                raise DataError(
                    "E-ARCHIVE-LINK",
                    f"{archive}: {shown(info.name)} is a link; the archive is not extracted.",
                )
            yield info.name, info.size, opened.extractfile(info) if info.isfile() else None
        _need_end(opened, archive)


def _need_end(opened: tarfile.TarFile, archive: Path) -> None:
    """Check that the file ends in zeros: tarfile takes a damaged header for the end.

    Reading to the end also shows whether a compressed stream is complete.
    """
    assert opened.fileobj is not None
    opened.fileobj.seek(opened.offset)
    rest = opened.fileobj.read(_CHUNK)
    ended, size = bool(rest), 0
    while rest:
        ended, size = ended and not rest.strip(b"\0"), size + len(rest)
        if size > _REST:
            raise _too_large(archive)
        rest = opened.fileobj.read(_CHUNK)
    if not ended:
        raise tarfile.ReadError("it is damaged or cut off")


def _refuse_others(source: Path, target: Path, archive: Path) -> None:
    """What stands in the target already decides before anything is moved there.

    Nothing is written outside of the target's real path, nor in the place of what is of another
    kind, or into the folder of this extraction.
    """
    real, folders = target.resolve(), [(source, target)]
    while folders:
        new, old = folders.pop()
        for child in new.iterdir():
            place = old / child.name
            if not os.path.lexists(place):  # nor anything below it
                continue
            if place == source or child.is_dir() != place.is_dir():
                raise DataError(
                    "E-ARCHIVE-EXTRACTION",
                    f"{archive}: cannot be extracted: {shown(str(place))} is in the way.",
                )
            if child.is_dir() and place.is_symlink() and not place.resolve().is_relative_to(real):
                raise DataError(
                    "E-PATH-OUTSIDE",
                    f"{archive}: {shown(str(place))} is a link out of {target}; extract the "
                    "archive there by hand, or make the whole folder a link.",
                )
            if child.is_dir():
                folders.append((child, place))


def _move(source: Path, target: Path) -> None:
    """One rename per child; folders that the target has already are merged."""
    for child in source.iterdir():
        place = target / child.name
        if child.is_dir() and place.is_dir():
            _move(child, place)
        else:
            child.replace(place)
