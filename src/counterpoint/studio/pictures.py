"""Pictures for pages: looked up by whoever holds the reference, made small, and kept for a while.

No address of the studio holds a path: a page names a case and the number of one of its images, and
what the case refers to is what is shown.
"""

from __future__ import annotations

import hashlib
import io
import math
from collections import OrderedDict
from threading import Lock
from typing import Final, NamedTuple

from anyio import CapacityLimiter, to_thread
from PIL import Image
from starlette.requests import Request
from starlette.responses import Response

from counterpoint.errors import ImageError
from counterpoint.scoring.pictures import PARQUET, Picture
from counterpoint.studio.security import Refused

MAX_SIDE: Final = 20_000  # pixels from which an image is refused
SMALL, LARGE = 320, 1024  # the longer side of what is shown
_SMOOTH: Final = 256  # pixels up to which a picture is sent without loss
_HELD: Final = 64 * 2**20  # bytes of encoded pictures in memory
_BOMBS: Final = (Image.DecompressionBombError, Image.DecompressionBombWarning)
_AT_ONCE: Final = 4  # pictures decoded at the same time: each may take a quarter GiB

_NOTHING: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128">'
    '<text x="64" y="68" text-anchor="middle" font-family="sans-serif" font-size="12" '
    'fill="#808080">image not shown</text></svg>'
)


class Shown(NamedTuple):
    """An encoded picture."""

    data: bytes
    media: str


def refuse_size(width: int, height: int) -> None:
    """Raise Refused for a picture that is not worth the memory."""
    if max(width, height) >= MAX_SIDE or width * height > (Image.MAX_IMAGE_PIXELS or math.inf):
        raise Refused(
            f"The image has {width:,} x {height:,} pixels; at most {MAX_SIDE - 1:,} on a side and "
            f"{Image.MAX_IMAGE_PIXELS:,} in all are shown.",
            413,
        )


def shown(picture: Picture, side: int) -> Shown:
    """The picture, scaled down to `side`. Raises ImageError or Refused if it cannot be shown."""
    _refuse_large(picture)
    image = picture.open()
    refuse_size(*image.size)
    return encoded(image, side)


def _refuse_large(picture: Picture) -> None:
    """Look at the size before anything is decoded; a cell of a table is decoded up to 89 MP."""
    path = picture.file()
    if path is None or picture.ref.path.startswith(PARQUET):
        return
    try:
        with Image.open(path) as image:
            size = image.size
    except (OSError, ValueError, SyntaxError, *_BOMBS):
        return  # `Picture.open` says what is wrong with it
    refuse_size(*size)


def encoded(image: Image.Image, side: int) -> Shown:
    """Photographs as JPEG; small drawings as PNG, pixel by pixel as the model sees them."""
    buffer = io.BytesIO()
    if max(image.size) <= _SMOOTH:
        image.save(buffer, "PNG")
        return Shown(buffer.getvalue(), "image/png")
    image = image.copy()
    image.thumbnail((side, side))
    image.convert("RGB").save(buffer, "JPEG", quality=85)
    return Shown(buffer.getvalue(), "image/jpeg")


class Gallery:
    """Makes pictures for pages, and keeps those that were shown last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[tuple[object, ...], Shown] = OrderedDict()
        self._bytes = 0
        self._limiter: CapacityLimiter | None = None

    async def response(self, request: Request, picture: Picture, side: int = LARGE) -> Response:
        """The picture as an answer; Refused (404, 413) if it cannot be shown.

        Within a page, an image that cannot be shown is a drawing that says so.
        """
        if self._limiter is None:
            self._limiter = CapacityLimiter(_AT_ONCE)
        try:
            found = await to_thread.run_sync(self._get, picture, side, limiter=self._limiter)
        except (ImageError, Refused) as error:
            status = error.status if isinstance(error, Refused) else 404
            if request.headers.get("accept", "").startswith("image/"):
                return Response(_NOTHING, status, media_type="image/svg+xml")
            raise Refused(f"The image cannot be shown: {error}", status) from None
        mark = f'"{hashlib.sha256(found.data).hexdigest()[:20]}"'
        headers = {"Cache-Control": "private, max-age=300", "ETag": mark}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(found.data, media_type=found.media, headers=headers)

    def _get(self, picture: Picture, side: int) -> Shown:
        key = (picture.ref, picture.root, side)
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        found = shown(picture, side)
        with self._lock:
            if key not in self._held:
                self._held[key] = found
                self._bytes += len(found.data)
            while self._bytes > _HELD:
                self._bytes -= len(self._held.popitem(last=False)[1].data)
        return found
