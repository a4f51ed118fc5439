"""Images for training, decoded no larger than the model needs them."""

from __future__ import annotations

import io
from typing import Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from counterpoint.cases import TEXT
from counterpoint.errors import ImageError
from counterpoint.scoring.pictures import (
    MAX_PIXELS,
    MAX_RATIO,
    PARQUET,
    SHUFFLE,
    WORLD,
    Picture,
)

_OTHER: Final = (TEXT, WORLD, PARQUET, SHUFFLE)  # references that are no plain files
_BOMBS: Final = (Image.DecompressionBombError, Image.DecompressionBombWarning)


def open_picture(picture: Picture, side: int) -> Image.Image:
    """A picture for a model that looks at `side` x `side` pixels. Raises ImageError."""
    if picture.ref.box is not None or picture.ref.path.startswith(_OTHER):
        return picture.open()
    try:
        data = picture.path().read_bytes()
    except (OSError, ValueError):
        return picture.open()  # says what is wrong
    return decode(data, picture.ref.path, side)


def decode(data: bytes, name: str, side: int) -> Image.Image:
    """The image in a file's bytes. Raises ImageError.

    A JPEG is decoded at a half, a quarter or an eighth of its size if both sides stay at least
    `side`: several times as fast, and the scaling that follows has less to do.
    """
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(
                    f"image {name}: {image.width} x {image.height} pixels are too many."
                )
            if max(image.size) > MAX_RATIO * min(image.size):
                raise ImageError(
                    f"image {name}: {image.width} x {image.height} pixels are too narrow."
                )
            image.draft("RGB", (side, side))  # does nothing to what is no JPEG
            if image.mode.startswith("I"):  # 16 bits: Pillow would cut at 255, not scale
                levels = (np.asarray(image) / 257).clip(0, 255).astype(np.uint8)
                return Image.fromarray(levels).convert("RGB")
            if image.mode == "P" and "transparency" in image.info:
                return image.convert("RGBA").convert("RGB")  # or Pillow warns
            return image.convert("RGB")
    except UnidentifiedImageError:
        raise ImageError(f"image {name}: not an image that can be read.") from None
    except (OSError, SyntaxError, ValueError, *_BOMBS) as error:
        raise ImageError(f"image {name}: broken: {str(error).rstrip('.')}.") from None
