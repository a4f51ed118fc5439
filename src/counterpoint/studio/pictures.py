"""Pictures for pages: made small, and cached for a while. Uploads: checked, and kept in memory.

No URL of the studio holds a path: a page names a case and the number of one of its images, and the
studio looks up the reference in the case.
"""

from __future__ import annotations

import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable
from threading import Lock
from typing import Any, Final, NamedTuple, TypeVar

from anyio import CapacityLimiter, to_thread
from PIL import Image, UnidentifiedImageError
from starlette.requests import Request
from starlette.responses import Response

from counterpoint._util.errors import ImageError
from counterpoint.cases import ImageRef
from counterpoint.images import MAX_RATIO, Picture, decode
from counterpoint.studio.security import StudioError, new_token

T = TypeVar("T")
SMALL, LARGE = 320, 1024  # the longer side of what is shown
_SMOOTH: Final = 256  # pixels up to which a picture is sent without loss
_HELD: Final = 64 * 2**20  # bytes of encoded pictures in memory
_AT_ONCE: Final = 2  # pictures decoded at the same time: each may take half a GiB

_NOTHING: Final = (
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 128 128">'
    '<text x="64" y="68" text-anchor="middle" font-family="sans-serif" font-size="12" '
    'fill="#808080">image not shown</text></svg>'
)
MAX_BYTES: Final = 10 * 2**20
MAX_PIXELS: Final = 25_000_000
_SIDE: Final = 2048  # pixels of the longer side that are kept
_FORMATS: Final = ("PNG", "JPEG", "WEBP")
_UPLOAD_BYTES: Final = 64 * 2**20
_UPLOADS: Final = 40  # images


class EncodedImage(NamedTuple):
    data: bytes
    media: str


def encoded(image: Image.Image, side: int) -> EncodedImage:
    """Photographs as JPEG; small drawings as PNG, pixel by pixel as the model sees them.

    The image is RGB, and is used up.
    """
    buffer = io.BytesIO()
    if max(image.size) <= _SMOOTH:
        image.save(buffer, "PNG")
        return EncodedImage(buffer.getvalue(), "image/png")
    image.thumbnail((side, side))  # in place: a copy of a large picture would double its memory
    image.save(buffer, "JPEG", quality=85)
    return EncodedImage(buffer.getvalue(), "image/jpeg")


class Gallery:
    """Makes pictures for pages, and keeps those that were shown last."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._held: OrderedDict[tuple[object, ...], EncodedImage] = OrderedDict()
        self._bytes = 0
        self._limiter: CapacityLimiter | None = None

    async def response(self, request: Request, picture: Picture, side: int = LARGE) -> Response:
        """The picture as an answer; RequestError (404) if it cannot be shown.

        Within a page, an image that cannot be shown is a drawing that says so.
        """
        try:
            found = await self.in_turn(self._get, picture, side)
        except ImageError as error:
            if request.headers.get("accept", "").startswith("image/"):
                return Response(_NOTHING, 404, media_type="image/svg+xml")
            raise not_shown(error) from None
        mark = f'"{hashlib.sha256(found.data).hexdigest()[:20]}"'
        headers = {"Cache-Control": "private, max-age=300", "ETag": mark}
        if request.headers.get("if-none-match") == mark:
            return Response(status_code=304, headers=headers)
        return Response(found.data, media_type=found.media, headers=headers)

    async def in_turn(self, work: Callable[..., T], *args: Any) -> T:
        """Do work that decodes a picture, in a thread, when it is its turn."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(_AT_ONCE)
        return await to_thread.run_sync(work, *args, limiter=self._limiter)

    def _get(self, picture: Picture, side: int) -> EncodedImage:
        key = (picture.ref, picture.root, side)
        with self._lock:
            if key in self._held:
                self._held.move_to_end(key)
                return self._held[key]
        found = encoded(picture.open(), side)
        with self._lock:
            if key not in self._held:
                self._held[key] = found
                self._bytes += len(found.data)
            while self._bytes > _HELD:
                self._bytes -= len(self._held.popitem(last=False)[1].data)
        return found


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
        raise _too_large(f"The file is larger than {MAX_BYTES // 2**20} MB.")
    try:
        with Image.open(io.BytesIO(data), formats=_FORMATS) as image:
            width, height = image.size
    except (Image.DecompressionBombError, Image.DecompressionBombWarning):
        raise _too_large("The image has too many pixels.") from None
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError):
        why = "Only PNG, JPEG and WebP images can be uploaded."
        raise StudioError("E-IMAGE-TYPE", why, 400) from None
    if width * height > MAX_PIXELS:
        size = f"{width:,} x {height:,} pixels; at most {MAX_PIXELS:,} can be uploaded"
        raise _too_large(f"The image has {size}.")
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


def _too_large(why: str) -> StudioError:
    return StudioError("E-IMAGE-TOO-LARGE", why, 413)


def not_shown(error: ImageError) -> StudioError:
    """RequestError (404) for an image that cannot be read."""
    return StudioError("E-IMAGE-UNAVAILABLE", f"The image cannot be shown: {error}", 404)


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
            while len(self._held) > _UPLOADS or self._bytes() > _UPLOAD_BYTES:
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
