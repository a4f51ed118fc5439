"""Uploaded images: checked before they are decoded, and kept only in memory."""

from __future__ import annotations

import io
from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple

from PIL import Image, UnidentifiedImageError

from counterpoint._util.errors import ImageError
from counterpoint.cases import ImageRef
from counterpoint.images import MAX_RATIO, Picture, decode
from counterpoint.studio.security import StudioError, new_token

MAX_BYTES: Final = 10 * 2**20
MAX_PIXELS: Final = 25_000_000
_SIDE: Final = 2048  # pixels of the longer side that are kept
_FORMATS: Final = ("PNG", "JPEG", "WEBP")
_HELD_BYTES: Final = 64 * 2**20
_HELD: Final = 40  # images


class Uploaded(NamedTuple):
    """An upload as a picture that any model can open. The scoring room asks for no more."""

    data: bytes
    ref: ImageRef = ImageRef("upload")

    def open(self) -> Image.Image:
        return decode(self.data, "upload", formats=_FORMATS)


AnyPicture = Picture | Uploaded


def accepted(data: bytes) -> bytes:
    """The bytes of an image as they are kept; RequestError unless they are one that may be shown.

    The file's name says nothing. The header is read first, so that an image that would fill the
    memory is never decoded. A large one is kept scaled down: models decode it again and again.
    """
    if not data:
        raise StudioError("E-IMAGE-EMPTY", "The uploaded file is empty.", 400)
    if len(data) > MAX_BYTES:
        raise StudioError(
            "E-IMAGE-TOO-LARGE", f"The file is larger than {MAX_BYTES // 2**20} MB.", 413
        )
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise StudioError("E-IMAGE-TOO-LARGE", "The image has too many pixels.", 413) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise StudioError(
            "E-IMAGE-TYPE", "Only PNG, JPEG and WebP images can be uploaded.", 400
        ) from None
    if width * height > MAX_PIXELS:
        raise StudioError(
            "E-IMAGE-TOO-LARGE",
            f"The image has {width:,} x {height:,} pixels; at most {MAX_PIXELS:,} can be uploaded.",
            413,
        )
    if max(width, height) > MAX_RATIO * min(width, height):
        raise StudioError("E-IMAGE-NARROW", "The image is too narrow to be scaled.", 400)
    try:
        decoded = decode(data, "upload", side=_SIDE, formats=_FORMATS)
    except ImageError as error:
        raise StudioError("E-IMAGE-BROKEN", str(error).capitalize(), 400) from None
    if max(width, height) <= _SIDE:
        return data
    decoded.thumbnail((_SIDE, _SIDE))
    scaled = io.BytesIO()
    decoded.save(scaled, "JPEG", quality=95, subsampling=0)
    return scaled.getvalue()


class Uploads:
    """The images uploaded last, by a token. A restart forgets them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[str, Uploaded] = OrderedDict()

    def add(self, data: bytes) -> str:
        """Keep an image, after a look at it; returns its token."""
        kept, token = Uploaded(accepted(data)), new_token()
        with self._lock:
            self._held[token] = kept
            while len(self._held) > _HELD or self._bytes() > _HELD_BYTES:
                self._held.popitem(last=False)
        return token

    def get(self, token: str) -> Uploaded:
        with self._lock:
            if token not in self._held:
                raise StudioError(
                    "E-IMAGE-EXPIRED",
                    "That upload is not held any more: upload the image again.",
                    404,
                )
            self._held.move_to_end(token)
            return self._held[token]

    def _bytes(self) -> int:
        return sum(len(upload.data) for upload in self._held.values())
