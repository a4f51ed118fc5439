"""Images as towers take them: read, resized, cropped, as bytes (height, width, 3).

A `Reader` does with Pillow what torchvision's Resize and CenterCrop do, bit for bit, and needs no
torch: it works in small processes.
"""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Final

import numpy as np
from PIL import Image

from counterpoint.images.pictures import MAX_RATIO, Picture

_LONGEST: Final = 8192  # pixels of a side that a GPU decodes
_BEGIN, _END = b"\xff\xd8\xff", b"\xff\xd9"  # of a JPEG


@dataclass(frozen=True, slots=True)
class Reader:
    """`resize`: the shorter side, or height and width; `crop`: height and width of the middle.

    With `files`, a JPEG is left encoded, as bytes (length,), for a GPU to decode.
    """

    resize: int | tuple[int, int]
    crop: tuple[int, int] | None
    resample: int
    files: bool = False

    def __call__(self, picture: Picture) -> np.ndarray:
        """Raises ImageError."""
        data = picture.read() if self.files else None
        if data is not None and is_plain_jpeg(data):
            return np.frombuffer(bytearray(data), dtype=np.uint8)  # torch wants to write
        return self.prepare(picture.open())

    def prepare(self, image: Image.Image) -> np.ndarray:
        """An RGB image."""
        size = self._size(*image.size)
        if image.size != size:
            image = image.resize(size, self.resample)
        if self.crop is not None and (image.height, image.width) != self.crop:
            height, width = self.crop
            left, top = round((image.width - width) / 2), round((image.height - height) / 2)
            image = image.crop((left, top, left + width, top + height))
        return np.array(image)

    def _size(self, width: int, height: int) -> tuple[int, int]:
        if isinstance(self.resize, tuple):
            return self.resize[1], self.resize[0]
        if width <= height:
            return self.resize, int(self.resize * height / width)
        return int(self.resize * width / height), self.resize


def is_plain_jpeg(data: bytes) -> bool:
    """Whether a GPU may decode it. Pillow judges all else: broken files, other colours."""
    if not (data.startswith(_BEGIN) and data.endswith(_END)):
        return False
    with Image.open(io.BytesIO(data), formats=("JPEG",)) as image:  # reads its head only
        short, long = sorted(image.size)
        return image.mode == "RGB" and long <= min(_LONGEST, MAX_RATIO * short)
