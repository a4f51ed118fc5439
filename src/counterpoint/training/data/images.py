"""Images for training: decoded no larger than the model needs, normalised on the device."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from counterpoint._util.errors import ImageError
from counterpoint.images import MAX_RATIO, PLAIN, Picture, decode as decode_image
from counterpoint.training.data.base import Preprocess
from counterpoint.training.data.loading import seeded


def open_picture(picture: Picture, side: int) -> Image.Image:
    """A picture for a model that looks at `side` x `side` pixels. Raises ImageError."""
    if picture.ref.box is not None or picture.scheme is not PLAIN:
        return picture.open()
    try:
        data = picture.path().read_bytes()
    except (OSError, ValueError):
        return picture.open()  # says what is wrong
    return decode(data, picture.ref.path, side)


def decode(data: bytes, name: str, side: int) -> Image.Image:
    """The same for the bytes of a file."""
    image = decode_image(data, name, side=side)
    if max(image.size) > MAX_RATIO * min(image.size):
        raise ImageError(
            "E-IMAGE-NARROW", f"image {name}: {image.width} x {image.height} pixels are too narrow."
        )
    return image


# --- normalisation on the device -----------------------------------------------------------------
#
# Images travel as whole levels (uint8), not floats: batches between processes and to the GPU are a
# quarter as large, and workers have less to do.


class Pixels:
    """A preprocessing in two parts, where it is a torchvision `Compose` that ends in a conversion
    to a tensor and a `Normalize`. Whether it is, is tried; if not, all of it is the first part."""

    def __init__(self, preprocess: Preprocess) -> None:
        self.preprocess = preprocess
        self._there: dict[torch.device, list[Tensor]] = {}
        steps: list[Any] = list(getattr(preprocess, "transforms", ()))
        last = steps[-1] if len(steps) > 1 else None
        self.head, self.splits = steps[:-2], False
        if hasattr(last, "mean") and hasattr(last, "std"):
            self.mean, self.std = (
                torch.as_tensor(v).float()[:, None, None]
                for v in (last.mean, last.std)  # type: ignore[union-attr]
            )
            self.splits = self._agrees()

    def first(self, image: Image.Image) -> Tensor:
        """(3, H, W), as whole levels if the rest is left to `rest`."""
        if not self.splits:
            return self.preprocess(image)
        for step in self.head:
            image = step(image)
        return torch.from_numpy(np.array(image)).permute(2, 0, 1)

    def rest(self, images: Tensor) -> Tensor:
        """What is left to do, for many, on the device where they are."""
        if images.dtype != torch.uint8:
            return images
        # A GPU divides by a plain number with its reciprocal, which rounds otherwise than a CPU.
        levels, mean, std = self._on(images.device)
        return images.contiguous().float().div_(levels).sub_(mean).div_(std)

    def _on(self, device: torch.device) -> list[Tensor]:
        if device not in self._there:
            here = (torch.full((1, 1, 1), 255.0), self.mean, self.std)
            self._there[device] = [value.to(device) for value in here]
        return self._there[device]

    def _agrees(self) -> bool:
        rng = np.random.default_rng(0)
        image = Image.fromarray(rng.integers(0, 255, (300, 400, 3), dtype=np.uint8))
        self.splits = True
        with seeded() as seed:
            seed(0)
            whole = self.preprocess(image)
            seed(0)
            try:
                parts = self.rest(self.first(image))
            except (AttributeError, TypeError, ValueError, RuntimeError):
                return False
        return parts.shape == whole.shape and torch.equal(parts, whole)


def side_by_side(first: Image.Image, second: Image.Image) -> Image.Image:
    """Two pictures as one square one: beside each other, or wide ones one above the other, as CLIC
    has it (Peleg et al. 2025). The first says which; each is squeezed to its half."""
    side = max(first.size)
    wide = first.width >= first.height
    half = (side, side // 2) if wide else (side // 2, side)
    joined = Image.new("RGB", (half[0], 2 * half[1]) if wide else (2 * half[0], half[1]))
    for place, picture in enumerate((first, second)):
        part = picture.convert("RGB").resize(half, Image.Resampling.BICUBIC)
        joined.paste(part, (0, place * half[1]) if wide else (place * half[0], 0))
    return joined
