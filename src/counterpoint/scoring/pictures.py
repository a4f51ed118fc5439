"""Images by reference: their content key, and opening them. Nothing decoded is kept."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
from PIL import Image, UnidentifiedImageError

from counterpoint.cases import ImageRef
from counterpoint.errors import ImageError
from counterpoint.scoring.store import Store, digest

WORLD: Final = "world:"
MAX_PIXELS: Final = Image.MAX_IMAGE_PIXELS or 89_478_485  # Pillow's own limit: a quarter GiB of RGB
_BOMBS: Final = (Image.DecompressionBombError, Image.DecompressionBombWarning)


@dataclass(frozen=True, slots=True)
class Picture:
    """An image that can be opened. `root` is where a relative path starts."""

    ref: ImageRef
    root: Path | None = None

    def key(self, store: Store) -> bytes:
        """A digest of the content and the crop. Raises ImageError if there is no such image."""
        if self.ref.path.startswith(WORLD):
            from counterpoint.world.draw import PIXELS, VERSION

            content = digest(f"{WORLD}{VERSION}:{PIXELS}", self.ref.path)
        else:
            content = _file_digest(self.path(), store)
        return digest("image", content, repr(self.ref.box))

    def open(self) -> Image.Image:
        """Decode, crop and convert to RGB. Raises ImageError if that cannot be done."""
        if self.ref.path.startswith(WORLD):
            from counterpoint.world.draw import draw
            from counterpoint.world.scene import SceneCodeError, read_scene

            try:
                scene = read_scene(self.ref.path.removeprefix(WORLD))
            except SceneCodeError as error:
                raise ImageError(f"image {self.ref.path!r}: {error}") from None
            image = Image.fromarray(draw([scene])[0])
        else:
            image = _decode(_read(self.path()), self.path())
        return self._crop(image)

    def path(self) -> Path:
        path = Path(self.ref.path)
        if path.is_absolute() or self.root is None:
            return path
        try:
            inside = (self.root / path).resolve()
        except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a null character
            raise ImageError(f"image {self.ref.path!r}: not a path: {error}.") from None
        if not inside.is_relative_to(self.root.resolve()):
            raise ImageError(f"image {self.ref.path}: the path leads out of {self.root}.")
        return self.root / path

    def _crop(self, image: Image.Image) -> Image.Image:
        if self.ref.box is None:
            return image
        x, y, width, height = self.ref.box
        if x >= image.width or y >= image.height or x + width <= 0 or y + height <= 0:
            raise ImageError(
                f"image {self.ref.path}: the crop {self.ref.box} lies outside its "
                f"{image.width} x {image.height} pixels."
            )
        if width * height > MAX_PIXELS:
            raise ImageError(f"image {self.ref.path}: the crop {self.ref.box} is too large.")
        return image.crop((x, y, x + width, y + height))  # black where it leaves the image


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageError(f"image {path}: no such file.") from None
    except (OSError, ValueError) as error:
        raise ImageError(f"image {str(path)!r}: cannot be read: {error}.") from None


def _decode(data: bytes, path: Path) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data)) as image:
            if image.width * image.height > MAX_PIXELS:
                raise ImageError(
                    f"image {path}: {image.width} x {image.height} pixels are too many."
                )
            return _to_rgb(image)
    except UnidentifiedImageError:
        raise ImageError(f"image {path}: not an image that can be read.") from None
    except (OSError, SyntaxError, ValueError, *_BOMBS) as error:
        why = str(error).rstrip(".")
        raise ImageError(f"image {path}: broken: {why}.") from None


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16 bits: Pillow would cut at 255, not scale
        return Image.fromarray((np.asarray(image) / 257).clip(0, 255).astype(np.uint8)).convert(
            "RGB"
        )
    if image.mode == "P" and "transparency" in image.info:
        image = image.convert("RGBA")  # or Pillow warns
    return image.convert("RGB")


def _file_digest(path: Path, store: Store) -> bytes:
    """The digest of a file's bytes, remembered for as long as its size and times stay the same."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise ImageError(f"image {path}: no such file.") from None
    except (OSError, ValueError) as error:
        raise ImageError(f"image {str(path)!r}: cannot be read: {error}.") from None
    times = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
    name = digest("file", str(path.absolute()), times)
    [known] = store.get([name])
    if known is not None:
        return known
    content = digest(_read(path))
    store.remember(name, content)
    return content
