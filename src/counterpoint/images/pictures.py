"""Images by reference: their content key, opening them, and reading them as towers take them.

A picture keeps nothing decoded. Pictures that share `Photographs` decode a file once for its crops.
A `Reader` does with Pillow what torchvision's Resize and CenterCrop do, bit for bit, and needs no
torch: it works in small processes.
"""

from __future__ import annotations

import io
import os
import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Final

import numpy as np
from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint._util.store import Store, digest
from counterpoint.cases import ImageRef
from counterpoint.images.files import MAX_PIXELS, named
from counterpoint.images.schemes import Scheme, path_below, scheme_of

MAX_RATIO: Final = 100  # of the sides
_HELD: Final = 1 << 26  # bytes of decoded photographs: fifty of 640 x 480 pixels
_PIXEL: Final = 4  # bytes that Pillow takes for one
_LONGEST: Final = 8192  # pixels of a side that a GPU decodes
_BEGIN, _END = b"\xff\xd8\xff", b"\xff\xd9"  # of a JPEG
Photograph = tuple[str, Path | None]  # a reference and its root


class Photographs:
    """The photographs that were decoded last, for threads that want crops of them.

    Of the threads that want the same one, the first decodes it and the others wait. At most `most`
    bytes stay, or a single photograph that is larger. One that cannot be decoded does not stay.
    """

    def __init__(self, most: int = _HELD) -> None:
        self._most, self._lock = most, Lock()
        self._held: OrderedDict[Photograph, Future[Image.Image]] = OrderedDict()

    def __reduce__(self) -> tuple[type[Photographs], tuple[int]]:
        return Photographs, (self._most,)  # empty in another process

    def get(self, name: Photograph, decode: Callable[[], Image.Image]) -> Image.Image:
        """Shared with others: it must not be changed."""
        with self._lock:
            known = self._held.get(name)
            found = self._held.setdefault(name, Future())
            self._held.move_to_end(name)
        if known is None:
            self._fill(name, found, decode)
        return found.result()

    def known(self, name: Photograph) -> Image.Image | None:
        with self._lock:
            found = self._held.get(name)
        return None if found is None else found.result()

    def _fill(
        self, name: Photograph, found: Future[Image.Image], decode: Callable[[], Image.Image]
    ) -> None:
        try:
            image = decode()
        except BaseException as error:
            with self._lock:
                del self._held[name]
            found.set_exception(error)
            return
        with self._lock:
            found.set_result(image)
            self._forget()

    def _forget(self) -> None:
        """The oldest of those that are decoded, if they are too many."""
        done = [(name, one.result()) for name, one in self._held.items() if one.done()]
        room = self._most
        for place, (name, image) in enumerate(reversed(done)):
            room -= _PIXEL * image.width * image.height
            if room < 0 and place:
                del self._held[name]


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that can be opened. `root` is where a relative path starts."""

    ref: ImageRef
    root: Path | None = None
    photographs: Photographs | None = field(default=None, compare=False, repr=False)

    @property
    def scheme(self) -> Scheme:
        return scheme_of(self.ref.path)

    @property
    def photograph(self) -> Photograph:
        """What crops of one image have in common."""
        return self.ref.path, self.root

    def sharing(self, photographs: Photographs) -> Picture:
        """Itself, decoded once with others that share these photographs."""
        return replace(self, photographs=photographs)

    def key(self, store: Store) -> bytes:
        """A digest of the content and the crop. Raises ImageError if there is no such image."""
        content = self.scheme.content(self.ref.path, self.root, store)
        return digest("image", content, repr(self.ref.box))

    def read(self) -> bytes | None:
        """The bytes of an encoded image that is used whole, else None. Raises ImageError."""
        return None if self.ref.box else self.scheme.read(self.ref.path, self.root)

    def open(self) -> Image.Image:
        """Decode, crop and convert to RGB. Raises ImageError if that cannot be done."""
        image = self._crop()
        if max(image.size) > MAX_RATIO * min(image.size):
            # Preprocessing scales the shorter side up: a line of pixels would fill the memory.
            size = f"{image.width} x {image.height} pixels"
            what = f"{named(self.ref.path)}: {size} are too narrow to be scaled."
            raise ImageError("E-IMAGE-NARROW", what)
        return image

    def file(self) -> Path | None:
        """The file that holds the image, if it is in one."""
        return self.scheme.file(self.ref.path, self.root)

    def path(self) -> Path:
        """The path of a plain file."""
        return path_below(self.root, self.ref.path)

    def _decode(self) -> Image.Image:
        return self.scheme.open(self.ref.path, self.root)

    def _crop(self) -> Image.Image:
        if self.ref.box is None:  # used whole, once: not worth holding
            held = self.photographs and self.photographs.known(self.photograph)
            return held.copy() if held else self._decode()
        if self.photographs is None:
            image = self._decode()
        else:
            image = self.photographs.get(self.photograph, self._decode)
        x, y, width, height = self.ref.box
        if x >= image.width or y >= image.height or x + width <= 0 or y + height <= 0:
            where = f"lies outside its {image.width} x {image.height} pixels"
            raise self._bad_crop("E-CROP-OUTSIDE", where)
        if width * height > MAX_PIXELS:
            raise self._bad_crop("E-CROP-TOO-LARGE", "is too large")
        return image.crop((x, y, x + width, y + height))  # black where it leaves the image

    def _bad_crop(self, code: str, what: str) -> ImageError:
        path, box = self.ref
        return ImageError(code, f"{named(path)}: the crop {box} {what}.")


def by_photograph(pictures: Iterable[Picture]) -> np.ndarray:
    """The order in which each photograph is wanted once, photographs in the order of the pictures.

    An image that is used whole comes behind its crops, for which the photograph is held.
    """
    firsts: dict[Photograph, int] = {}
    ranks = [
        (firsts.setdefault(picture.photograph, len(firsts)), picture.ref.box is None)
        for picture in pictures
    ]
    return np.array(sorted(range(len(ranks)), key=ranks.__getitem__), dtype=np.int64)


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


# --- whether two photographs are one: by what they are called, or by their looks
#
# The look is the same for copies in another size, shape or quality. An image is made gray and 16 x
# 16 pixels large, whatever its shape was. Two images look the same if these pixels correlate by
# 0.99 or more. Of 145 photographs of COCO the copies that were squeezed, enlarged, halved or saved
# at a JPEG quality of 30 correlate by 0.997 at least; of 26 million pairs of different photographs
# the nearest correlate by 0.968. A crop by 2 % at each side is not found.

_COCO: Final = re.compile(r"(?:^|[/#_])(\d{12})\.\w+$")
_FLICKR: Final = re.compile(r"(?:^|[/#])(\d{8,11})(?:_[0-9a-f]{8,})?\.\w+$")
SAME_LOOK: Final = 0.99
_SIDE: Final = 16
LOOK: Final = _SIDE * _SIDE  # numbers
_FLAT: Final = 4.0  # levels of 255: the deviation below which only noise is compared
_BLOCK: Final = 1024  # images that are compared at a time
_VERSION: Final = "look 1"


def look(image: Image.Image) -> np.ndarray | None:
    """The gray levels (256) of a small copy; None for an image without contrast."""
    small = image.convert("L").resize((_SIDE, _SIDE), Image.Resampling.BOX)
    levels = np.asarray(small).ravel()
    return None if levels.std() < _FLAT else levels


def look_of(picture: Picture, store: Store) -> np.ndarray | None:
    """The same of a picture, remembered by its content. Raises ImageError."""
    key = digest(_VERSION, picture.key(store))
    [known] = store.get([key])
    if known is None:
        found = look(picture.open())
        known = b"" if found is None else found.tobytes()
        store.remember(key, known)
    return np.frombuffer(known, np.uint8) if known else None


def same_looks(ones: np.ndarray, others: np.ndarray) -> Iterator[tuple[int, int]]:
    """Of looks (n, 256) and (m, 256): each of the first that looks like one of the others, and the
    nearest of these."""
    if not len(others):
        return
    theirs = _standard(others)
    for start in range(0, len(ones), _BLOCK):
        correlation = _standard(ones[start : start + _BLOCK]) @ theirs.T
        nearest = correlation.argmax(1)
        for row, place in enumerate(nearest.tolist()):
            if correlation[row, place] >= SAME_LOOK:
                yield start + row, place


def _standard(looks: np.ndarray) -> np.ndarray:
    """With mean zero and length one, so that a product is a correlation."""
    centred = looks.astype(np.float32) - looks.mean(1, dtype=np.float32, keepdims=True)
    found: np.ndarray = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    return found


def photograph_id(path: str) -> str | None:
    """The number that COCO or Flickr has given a photograph, if its name has one."""
    for kind, pattern in (("COCO", _COCO), ("Flickr", _FLICKR)):
        if match := pattern.search(path):
            return f"{kind} {int(match[1])}"
    return None


def photograph_names(picture: Picture) -> list[str]:
    """Its path, and its number at COCO or Flickr if it has one."""
    number = photograph_id(picture.ref.path)
    where = os.path.abspath(os.path.join(picture.root or ".", picture.ref.path))  # noqa: PTH100, PTH118
    return [where, *([number] if number else [])]
