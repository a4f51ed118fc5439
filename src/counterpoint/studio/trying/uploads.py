"""Images that somebody uploads: looked at before they are decoded, and kept in memory alone."""

from __future__ import annotations

import io
from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple

from PIL import Image, UnidentifiedImageError

from counterpoint.cases import ImageRef
from counterpoint.errors import ImageError
from counterpoint.scoring.pictures import Picture, decode
from counterpoint.studio.pictures import refuse_size
from counterpoint.studio.security import Refused, new_token

MAX_BYTES: Final = 10 * 2**20
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


def refuse_upload(data: bytes) -> None:
    """Raise Refused unless the bytes are an image that may be shown; the file's name says nothing.

    Only the header is read before the size is known: an image that would fill the memory is never
    decoded.
    """
    if not data:
        raise Refused("The uploaded file is empty.", 400)
    if len(data) > MAX_BYTES:
        raise Refused(f"The file is larger than {MAX_BYTES // 2**20} MB.", 413)
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            refuse_size(*image.size)
            if max(image.size) > 100 * min(image.size):
                raise Refused("The image is too narrow to be scaled.", 400)
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise Refused("The image has too many pixels.", 413) from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        raise Refused("Only PNG, JPEG and WebP images can be uploaded.", 400) from None
    try:
        Uploaded(data).open()
    except ImageError as error:
        raise Refused(str(error).capitalize(), 400) from None


class Uploads:
    """The images uploaded last, by a token. A restart forgets them."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[str, Uploaded] = OrderedDict()

    def add(self, data: bytes) -> str:
        """Keep an image, after a look at it; returns its token."""
        refuse_upload(data)
        token = new_token()
        with self._lock:
            self._held[token] = Uploaded(data)
            while len(self._held) > _HELD or self._bytes() > _HELD_BYTES:
                self._held.popitem(last=False)
        return token

    def get(self, token: str) -> Uploaded:
        with self._lock:
            if token not in self._held:
                raise Refused("That upload is not held any more: upload the image again.", 404)
            self._held.move_to_end(token)
            return self._held[token]

    def _bytes(self) -> int:
        return sum(len(upload.data) for upload in self._held.values())
