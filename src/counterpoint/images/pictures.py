"""Images by reference: their content key, and opening them. Nothing decoded is kept."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from counterpoint._util.errors import ImageError, reason
from counterpoint._util.store import Store, digest
from counterpoint._util.untrusted import open_regular, shortened
from counterpoint.cases import TEXT, ImageRef
from counterpoint.images.shuffles import PIECES, shuffled

WORLD: Final = "world:"
PARQUET: Final = "parquet:"
SHUFFLE: Final = "shuffle-"
_NO_PICTURE: Final = "a text stands in the image's place, and this model compares no texts."
MAX_PIXELS: Final = Image.MAX_IMAGE_PIXELS or 89_478_485  # Pillow's own limit: a quarter GiB of RGB
MAX_RATIO: Final = 100  # of the sides
MAX_BYTES: Final = 1 << 30  # of an image file
_DIGITS: Final = 40  # of a row or a seed
_SHUFFLES: Final = 9  # of a shuffled image


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that can be opened. `root` is where a relative path starts.

    The reference is a path, or `world:CODE`, or `parquet:FILE#COLUMN/ROW` (an image inside a
    table), or `shuffle-rows:SEED:REFERENCE` and its like (the pieces of another in random order).
    """

    ref: ImageRef
    root: Path | None = None

    def key(self, store: Store) -> bytes:
        """A digest of the content and the crop. Raises ImageError if there is no such image."""
        return digest("image", self._content(store), repr(self.ref.box))

    def _content(self, store: Store) -> bytes:
        reference = self.ref.path
        if reference.startswith(TEXT):
            raise ImageError("E-IMAGE-IS-TEXT", _NO_PICTURE, path=reference)
        if reference.startswith(WORLD):
            from counterpoint.world import PIXELS, VERSION

            return digest(f"{WORLD}{VERSION}:{PIXELS}", reference)
        if reference.startswith(SHUFFLE):
            how, seed, inner = _read_shuffle(reference)
            return digest(how, str(seed), self._other(inner)._content(store))
        if reference.startswith(PARQUET):
            path, cell = self._cell()
            return _digest(path, repr(cell), lambda: _cell_bytes(path, *cell), store)
        path = self.path()
        return _digest(path, "", lambda: _read(path), store)

    def open(self) -> Image.Image:
        """Decode, crop and convert to RGB. Raises ImageError if that cannot be done."""
        image = self._crop(self._open())
        if max(image.size) > MAX_RATIO * min(image.size):
            # Preprocessing scales the shorter side up: a line of pixels would fill the memory.
            raise ImageError(
                "E-IMAGE-NARROW",
                f"{_named(self.ref.path)}: {image.width} x {image.height} pixels are too "
                "narrow to be scaled.",
                path=self.ref.path,
            )
        return image

    def _open(self) -> Image.Image:
        reference = self.ref.path
        if reference.startswith(WORLD):
            return _draw(reference)
        if reference.startswith(SHUFFLE):
            how, seed, inner = _read_shuffle(reference)
            return shuffled(self._other(inner)._open(), how, seed)
        if reference.startswith(PARQUET):
            path, cell = self._cell()
            return decode(_cell_bytes(path, *cell), reference)
        if reference.startswith(TEXT):
            raise ImageError("E-IMAGE-IS-TEXT", _NO_PICTURE, path=reference)
        return decode(_read(self.path()), self.path())

    def _cell(self) -> tuple[Path, tuple[str, int]]:
        """`parquet:a.parquet#image/7` is the file's path and (image, 7)."""
        file, _, cell = self.ref.path.removeprefix(PARQUET).rpartition("#")
        column, _, row = cell.rpartition("/")
        if not file or not column or not _is_number(row):
            raise ImageError(
                "E-IMAGE-REFERENCE",
                f"{_named(self.ref.path)}: should be {PARQUET}FILE#COLUMN/ROW.",
                path=self.ref.path,
            )
        return self._other(file).path(), (column, int(row))

    def _other(self, path: str) -> Picture:
        return Picture(ImageRef(path), self.root)

    def path(self) -> Path:
        """The path of a plain file. Links may lead where their maker wants, `..` may not."""
        path = Path(self.ref.path)
        if path.is_absolute() or self.root is None:
            return path
        if ".." in path.parts:
            raise ImageError(
                "E-PATH-OUTSIDE",
                f"{_named(self.ref.path)}: the path leads out of {self.root}.",
                name=self.ref.path,
                folder=self.root,
            )
        return self.root / path

    def file(self) -> Path | None:
        """The file that holds the image, if it is in one."""
        if self.ref.path.startswith((WORLD, TEXT)):
            return None
        if self.ref.path.startswith(SHUFFLE):
            return self._other(_read_shuffle(self.ref.path)[2]).file()
        return self._cell()[0] if self.ref.path.startswith(PARQUET) else self.path()

    def _crop(self, image: Image.Image) -> Image.Image:
        if self.ref.box is None:
            return image
        x, y, width, height = self.ref.box
        if x >= image.width or y >= image.height or x + width <= 0 or y + height <= 0:
            raise ImageError(
                "E-CROP-OUTSIDE",
                f"{_named(self.ref.path)}: the crop {self.ref.box} lies outside its "
                f"{image.width} x {image.height} pixels.",
                path=self.ref.path,
                box=self.ref.box,
            )
        if width * height > MAX_PIXELS:
            raise ImageError(
                "E-CROP-TOO-LARGE",
                f"{_named(self.ref.path)}: the crop {self.ref.box} is too large.",
                path=self.ref.path,
                box=self.ref.box,
            )
        return image.crop((x, y, x + width, y + height))  # black where it leaves the image


def _named(reference: Path | str) -> str:
    return f"image {shortened(str(reference))}"


def _draw(reference: str) -> Image.Image:
    from counterpoint.world import SceneCodeError, draw, read_scene

    try:
        scene = read_scene(reference.removeprefix(WORLD))
    except SceneCodeError as error:
        raise ImageError("E-IMAGE-REFERENCE", f"image {WORLD}: {error}", path=reference) from None
    return Image.fromarray(draw([scene])[0])


def _read_shuffle(reference: str) -> tuple[str, int, str]:
    """`shuffle-rows:1:a.jpg` is rows, 1, a.jpg."""
    how, _, rest = reference.removeprefix(SHUFFLE).partition(":")
    seed, _, inner = rest.partition(":")
    if how not in PIECES or not _is_number(seed) or not inner:
        raise ImageError(
            "E-IMAGE-REFERENCE",
            f"{_named(reference)}: should be {SHUFFLE}{'|'.join(PIECES)}:SEED:REFERENCE.",
            path=reference,
        )
    if reference.count(f":{SHUFFLE}") > _SHUFFLES:
        raise ImageError(
            "E-IMAGE-REFERENCE", f"{_named(reference)}: shuffled too many times.", path=reference
        )
    return how, int(seed), inner


def _is_number(text: str) -> bool:
    return text.isdecimal() and len(text) <= _DIGITS


def _cell_bytes(path: Path, column: str, row: int) -> bytes:
    from counterpoint.images.tables import read_cell

    return read_cell(path, column, row)


def _read(path: Path) -> bytes:
    try:
        with open_regular(path) as file:
            data = file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # the latter of a NUL in its name
        raise _unreadable(path, error) from None
    if len(data) > MAX_BYTES:
        raise ImageError(
            "E-IMAGE-TOO-LARGE", f"{_named(path)}: larger than {MAX_BYTES >> 30} GiB.", path=path
        )
    return data


def _unreadable(path: Path, error: OSError | ValueError) -> ImageError:
    if isinstance(error, FileNotFoundError):
        return ImageError("E-IMAGE-MISSING", f"{_named(path)}: no such file.", path=path)
    why = reason(error) if isinstance(error, OSError) else shortened(error)
    return ImageError("E-IMAGE-UNREADABLE", f"{_named(path)}: cannot be read: {why}.", path=path)


@cache
def _formats() -> tuple[str, ...]:
    """What Pillow reads, but PostScript: for that it starts another program."""
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
                    f"{_named(name)}: {image.width} x {image.height} pixels are too many.",
                    path=name,
                )
            if side is not None:
                image.draft("RGB", (side, side))  # does nothing to what is no JPEG
            return _to_rgb(image)
    except (ImageError, MemoryError):
        raise
    except UnidentifiedImageError:
        raise ImageError(
            "E-IMAGE-BROKEN", f"{_named(name)}: not an image that can be read.", path=name
        ) from None
    except Exception as error:  # a broken file may raise anything in some decoder
        why = shortened(error).rstrip(". ") or type(error).__name__
        raise ImageError("E-IMAGE-BROKEN", f"{_named(name)}: broken: {why}.", path=name) from None


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: Pillow would cut at 255, not scale
        return Image.fromarray((np.asarray(image) / 257).clip(0, 255).astype(np.uint8)).convert(
            "RGB"
        )
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # or Pillow warns
    return image.convert("RGB")


def _digest(path: Path, part: str, read: Callable[[], bytes], store: Store) -> bytes:
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
