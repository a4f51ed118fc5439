"""Encoded images: files read within bounds, decoded as RGB, and a digest of their content."""

from __future__ import annotations

import io
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from counterpoint._util.errors import ImageError, reason
from counterpoint._util.store import Store, digest
from counterpoint._util.untrusted import open_regular, shortened

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
