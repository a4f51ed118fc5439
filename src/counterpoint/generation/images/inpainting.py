"""Images by inpainting: a part of the caption's image is drawn again, after the negative text.

As GNM made its hard negative images: a mask covers what the text has changed, and a pipeline fills
it in. Everything outside the mask is the caption's image, pixel by pixel.

A mask is a PNG in a folder, `SOURCE.png` or `IMAGE.png` (the name of the image's file without its
ending), of which the light pixels are drawn again; or a box in a table with the columns `source`,
`x`, `y`, `width`, `height` in pixels of the whole image.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import polars as pl
from PIL import Image, ImageDraw

from counterpoint._util.errors import CounterpointError, DataError
from counterpoint._util.store import digest
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import inside
from counterpoint.cases import ImageRef
from counterpoint.generation.images.backends import DrawSettings, ImageFolder, Want
from counterpoint.generation.images.diffusion import (
    Diffusion,
    ImageOrder,
    LoadedPipeline,
)
from counterpoint.generation.pairs import Rejection
from counterpoint.images import Picture
from counterpoint.scoring import Work

NO_IMAGE: Final = Rejection("the caption has no image to draw into, or it cannot be read")
NO_MASK: Final = Rejection("there is no mask for the caption")
EMPTY_MASK: Final = Rejection("the mask covers nothing of the image")
_LIGHT: Final = 128  # grey levels from here on are drawn again
_SIDE: Final = 512  # where the pipeline does not say what it draws
_BOX: Final = ("x", "y", "width", "height")


class Masks:
    """The masks of captions: a folder of PNG files, or a table of boxes."""

    def __init__(self, place: Path) -> None:
        self.folder = place if place.is_dir() else None
        self.boxes: dict[str, tuple[int, int, int, int]] = {}
        if self.folder is None:
            columns = {"source": pl.String(), **{name: pl.Int64() for name in _BOX}}
            table = read_table(place, columns).select(*columns).drop_nulls()
            self.boxes = {source: (x, y, w, h) for source, x, y, w, h in table.iter_rows()}
            if not self.boxes:
                raise DataError("E-MASKS-EMPTY", f"{place}: has no boxes.")

    def of(self, want: Want, size: tuple[int, int]) -> Image.Image | None:
        """The mask of an image of this size, white where it is drawn again; None without one."""
        if self.folder is None:
            if want.source not in self.boxes:
                return None
            x, y, width, height = self.boxes[want.source]
            mask = Image.new("L", size)
            ImageDraw.Draw(mask).rectangle((x, y, x + width - 1, y + height - 1), fill=255)
            return mask
        for name in (want.source, PurePosixPath(want.image or "").stem):
            path = self._file(name)
            if path is not None:
                mask = Picture(ImageRef(path.name), path.parent).open().convert("L")
                return mask.resize(size, Image.Resampling.NEAREST).point(
                    lambda level: 255 if level >= _LIGHT else 0
                )
        return None

    def _file(self, name: str) -> Path | None:
        assert self.folder is not None
        try:
            path = inside(self.folder, f"{name}.png")
        except DataError:
            return None
        return path if name and path.is_file() else None


class Inpainting(Diffusion):
    """Draws into the caption's image. `photos` is the folder that its path starts from."""

    task = "inpainting"

    def __init__(
        self,
        opened: LoadedPipeline,
        settings: DrawSettings,
        folder: ImageFolder,
        work: Work,
        *,
        masks: Masks,
        photos: Path,
    ) -> None:
        super().__init__(opened, settings, folder, work)
        self.area = (self.side or _SIDE,) * 2  # of what is given to it
        self.how = self.call  # what is drawn gets the size of the caption's image
        self.masks, self.photos = masks, photos

    def _parts(self, want: Want) -> list[bytes] | Rejection:
        images = self._opened(want)
        if isinstance(images, Rejection):
            return images
        return [digest(image.mode, repr(image.size), image.tobytes()) for image in images]

    def _opened(self, want: Want) -> tuple[Image.Image, Image.Image] | Rejection:
        """The image and its mask, both cropped to the part that the caption is about."""
        if want.image is None:
            return NO_IMAGE
        try:
            image = Picture(ImageRef(want.image), self.photos).open().convert("RGB")
            mask = self.masks.of(want, image.size)
        except CounterpointError:
            return NO_IMAGE
        if mask is None:
            return NO_MASK
        if want.box is not None:
            x, y, width, height = want.box
            area = (x, y, x + width, y + height)
            image, mask = image.crop(area), mask.crop(area)
        return (image, mask) if mask.getbbox() else EMPTY_MASK

    def _inputs(self, orders: Sequence[ImageOrder]) -> dict[str, Any]:
        pairs = [self._again(order) for order in orders]
        return {
            "image": [image.resize(self.area, Image.Resampling.LANCZOS) for image, _ in pairs],
            "mask_image": [mask.resize(self.area, Image.Resampling.NEAREST) for _, mask in pairs],
        }

    def _finished(self, order: ImageOrder, drawn: Image.Image) -> Image.Image:
        """What was drawn, in the image's own size, and only where the mask is."""
        image, mask = self._again(order)
        whole = drawn.convert("RGB").resize(image.size, Image.Resampling.LANCZOS)
        return Image.composite(whole, image, mask)

    def _again(self, order: ImageOrder) -> tuple[Image.Image, Image.Image]:
        opened = self._opened(order.want)
        if isinstance(opened, Rejection):
            raise DataError("E-FILE-CHANGED", "an image or a mask changed while it was used.")
        return opened
