"""Images by reference: their content key, and opening them. Nothing decoded is kept."""

from __future__ import annotations

import io
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from PIL import Image, UnidentifiedImageError

from counterpoint.cases import ImageRef
from counterpoint.errors import ImageError
from counterpoint.scoring.store import Store, digest

WORLD: Final = "world:"


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
            from counterpoint.world.scene import read_scene

            image = Image.fromarray(draw([read_scene(self.ref.path.removeprefix(WORLD))])[0])
        else:
            image = _decode(_read(self.path()), self.path())
        return self._crop(image)

    def path(self) -> Path:
        path = Path(self.ref.path)
        if path.is_absolute() or self.root is None:
            return path
        inside = (self.root / path).resolve()
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
        return image.crop((x, y, x + width, y + height))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise ImageError(f"image {path}: no such file.") from None
    except OSError as error:
        raise ImageError(f"image {path}: cannot be read: {error.strerror}.") from None


def _decode(data: bytes, path: Path) -> Image.Image:
    try:
        with Image.open(io.BytesIO(data)) as image:
            return image.convert("RGB")
    except UnidentifiedImageError:
        raise ImageError(f"image {path}: not an image that can be read.") from None
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise ImageError(f"image {path}: broken: {error}.") from None


def _file_digest(path: Path, store: Store) -> bytes:
    """The digest of a file's bytes, remembered for as long as its size and times stay the same."""
    try:
        stat = path.stat()
    except FileNotFoundError:
        raise ImageError(f"image {path}: no such file.") from None
    except OSError as error:
        raise ImageError(f"image {path}: cannot be read: {error.strerror}.") from None
    times = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns} {stat.st_ino}"
    name = digest("file", str(path.absolute()), times)
    [known] = store.get([name])
    if known is not None:
        return known
    content = digest(_read(path))
    store.put({name: content})
    return content
