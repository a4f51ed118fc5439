"""Images for training, decoded no larger than the model needs them."""

from __future__ import annotations

from typing import Final

from PIL import Image

from counterpoint.cases import TEXT
from counterpoint.errors import ImageError
from counterpoint.scoring import pictures
from counterpoint.scoring.pictures import MAX_RATIO, PARQUET, SHUFFLE, WORLD, Picture

_OTHER: Final = (TEXT, WORLD, PARQUET, SHUFFLE)  # references that are no plain files


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
    """The same for the bytes of a file."""
    image = pictures.decode(data, name, side=side)
    if max(image.size) > MAX_RATIO * min(image.size):
        raise ImageError(f"image {name}: {image.width} x {image.height} pixels are too narrow.")
    return image
