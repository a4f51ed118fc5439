"""Images by reference: their content key, and opening them. Nothing decoded is kept."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint._util.store import Store, digest
from counterpoint.cases import ImageRef
from counterpoint.images.decoding import MAX_PIXELS, named
from counterpoint.images.schemes import Scheme, path_below, scheme_of

MAX_RATIO: Final = 100  # of the sides


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that can be opened. `root` is where a relative path starts."""

    ref: ImageRef
    root: Path | None = None

    @property
    def scheme(self) -> Scheme:
        return scheme_of(self.ref.path)

    def key(self, store: Store) -> bytes:
        """A digest of the content and the crop. Raises ImageError if there is no such image."""
        content = self.scheme.content(self.ref.path, self.root, store)
        return digest("image", content, repr(self.ref.box))

    def read(self) -> bytes | None:
        """The bytes of an encoded image that is used whole, else None. Raises ImageError."""
        return None if self.ref.box else self.scheme.read(self.ref.path, self.root)

    def open(self) -> Image.Image:
        """Decode, crop and convert to RGB. Raises ImageError if that cannot be done."""
        image = self._crop(self.scheme.open(self.ref.path, self.root))
        if max(image.size) > MAX_RATIO * min(image.size):
            # Preprocessing scales the shorter side up: a line of pixels would fill the memory.
            size = f"{image.width} x {image.height} pixels"
            what = f"{named(self.ref.path)}: {size} are too narrow to be scaled."
            raise ImageError("E-IMAGE-NARROW", what, path=self.ref.path)
        return image

    def file(self) -> Path | None:
        """The file that holds the image, if it is in one."""
        return self.scheme.file(self.ref.path, self.root)

    def path(self) -> Path:
        """The path of a plain file."""
        return path_below(self.root, self.ref.path)

    def _crop(self, image: Image.Image) -> Image.Image:
        if self.ref.box is None:
            return image
        x, y, width, height = self.ref.box
        if x >= image.width or y >= image.height or x + width <= 0 or y + height <= 0:
            where = f"lies outside its {image.width} x {image.height} pixels"
            raise self._bad_crop("E-CROP-OUTSIDE", where)
        if width * height > MAX_PIXELS:
            raise self._bad_crop("E-CROP-TOO-LARGE", "is too large")
        return image.crop((x, y, x + width, y + height))  # black where it leaves the image

    def _bad_crop(self, code: str, what: str) -> ImageError:
        path, box = self.ref
        return ImageError(code, f"{named(path)}: the crop {box} {what}.", path=path, box=box)
