"""Images between a file and a tower: bytes where they are enough, floats on the device.

A preprocessing resizes and crops, then it scales and normalises. Here the first part makes bytes, a
quarter of the size, and the rest is computed on the device for a whole batch, by the same
operations: the values are the same. A JPEG may also be decoded on a GPU, with another decoder than
Pillow's and so with slightly other values.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np
import torch
from PIL import Image
from torchvision.io import ImageReadMode, decode_jpeg
from torchvision.transforms import (
    CenterCrop,
    Compose,
    InterpolationMode,
    Normalize,
    Resize,
    ToTensor,
)

from counterpoint.images import Reader, decode
from counterpoint.models.torch_models import stacked

_COLOURS: Final = {"MaybeConvertMode", "_convert_to_rgb"}  # images are RGB when they come here
_RESAMPLE: Final = {
    InterpolationMode.BICUBIC: Image.Resampling.BICUBIC,
    InterpolationMode.BILINEAR: Image.Resampling.BILINEAR,
}


Levels = Callable[[torch.Tensor], torch.Tensor]


def split_preprocess(
    whole: Callable[[Image.Image], torch.Tensor],
    first: Callable[[Image.Image], torch.Tensor],
    mean: Sequence[float],
    std: Sequence[float],
    scale: float = 1 / 255,
) -> Levels | None:
    """What `whole` does to an image after `first`, for bytes (n, 3, height, width) on a device;
    None if that is more than to scale and to normalise.

    Libraries do this by different operations, which round differently. Each way is tried on noise,
    and has to give the same floats. Both parts may augment: they see the same random numbers.
    """
    noise = np.random.default_rng(0).integers(0, 256, (300, 400, 3), dtype=np.uint8)
    try:
        expected, given = (_seeded(part, Image.fromarray(noise)) for part in (whole, first))
        middle, wide = (torch.as_tensor(v).float().view(1, -1, 1, 1) for v in (mean, std))
    except Exception:  # a preprocessing of another kind, which may raise anything
        return None

    def divided(pixels: torch.Tensor) -> torch.Tensor:
        """As torchvision. A GPU divides by a plain number with its reciprocal, which rounds."""
        most = torch.full((1, 1, 1, 1), 255.0, device=pixels.device)
        there = (one.to(pixels.device) for one in (middle, wide))
        return pixels.contiguous().float().div_(most).sub_(next(there)).div_(next(there))

    def unscaled(pixels: torch.Tensor) -> torch.Tensor:
        """As the fast processors of transformers: mean and deviation are scaled, not the pixels."""
        sub, div = (one.to(pixels.device) * (1 / scale) for one in (middle, wide))
        return (pixels.float() - sub) / div

    def multiplied(pixels: torch.Tensor) -> torch.Tensor:
        """As its slow ones."""
        sub, div = (one.to(pixels.device) for one in (middle, wide))
        return (pixels.float() * scale - sub) / div

    if given.dtype != torch.uint8:
        return None
    ways = (divided, unscaled, multiplied)
    return next((way for way in ways if torch.equal(way(given[None])[0], expected)), None)


def _seeded(part: Callable[[Image.Image], torch.Tensor], image: Image.Image) -> torch.Tensor:
    before = torch.get_rng_state(), random.getstate()
    torch.default_generator.manual_seed(0)
    random.seed(0)
    try:
        return part(image)
    finally:
        torch.set_rng_state(before[0])
        random.setstate(before[1])


def split_transform(transform: Any) -> tuple[Callable[[Image.Image], np.ndarray], Levels] | None:
    """A `Compose` of torchvision as a part that makes bytes (height, width, 3) and `Levels`; None
    if it does not end in a conversion to a tensor and a `Normalize`."""
    found: list[Any] = [None, None, *getattr(transform, "transforms", [])]
    *steps, before, last = found
    if not (isinstance(before, ToTensor) and isinstance(last, Normalize)):
        return None
    begin = Compose([step for step in steps if step is not None])

    def first(image: Image.Image) -> np.ndarray:
        return np.array(begin(image))

    def tensor(image: Image.Image) -> torch.Tensor:
        return torch.from_numpy(first(image)).permute(2, 0, 1)

    levels = split_preprocess(transform, tensor, last.mean, last.std)
    return None if levels is None else (first, levels)


class Staged(NamedTuple):
    """Prepared images as one tensor on the host, and those of files on the device."""

    batch: torch.Tensor | None
    decoded: torch.Tensor | None
    is_file: list[bool]  # of each image, in order
    ready: Any  # when the device has decoded


class TowerPixels:
    """One model's preprocessing."""

    def __init__(self, transform: Any, device: str, *, jpegs: bool = False) -> None:
        self.transform, self.device = transform, torch.device(device)
        self._split = split_transform(transform)
        steps = [] if self._split is None else transform.transforms[:-2]
        shapes = [step for step in steps if type(step).__name__ not in _COLOURS]
        self._decoding, self._stream = threading.Lock(), cast(Any, None)
        self.reader = _reader(shapes, jpegs)
        self.decodes = jpegs and self.reader is not None
        self._on_device = Compose(shapes)

    def prepare(self, image: Image.Image) -> torch.Tensor | np.ndarray:
        """An image on the host: bytes (height, width, 3), or floats of any other transform."""
        if self.reader is not None:
            return self.reader.prepare(image)
        if self._split is not None:
            return self._split[0](image)
        floats: torch.Tensor = self.transform(image)
        return floats

    def stage(self, prepared: Sequence[torch.Tensor | np.ndarray]) -> Staged:
        """A batch for `finish`, in memory from which a GPU copies without waiting."""
        is_file = [image.ndim == 1 for image in prepared]
        files = [torch.as_tensor(image) for image in prepared if image.ndim == 1]
        whole = [image for image in prepared if image.ndim > 1]
        decoded, ready = self._decoded_beside(files) if files else (None, None)
        if not whole:
            return Staged(None, decoded, is_file, ready)
        batch = stacked(whole, pinned=self.device.type == "cuda")
        return Staged(batch, decoded, is_file, ready)

    def finish(self, staged: Staged) -> torch.Tensor:
        """Normalised images on the device (n, 3, height, width)."""
        batch, decoded, is_file, ready = staged
        parts = [] if batch is None else [batch.to(self.device, non_blocking=True)]
        if decoded is not None:
            if ready is not None:
                torch.cuda.current_stream(self.device).wait_event(ready)
                decoded.record_stream(torch.cuda.current_stream(self.device))
            parts.append(decoded)
        elif self._split is None:
            return parts[0]
        pixels = parts[0]
        if len(parts) > 1:
            places = torch.tensor(is_file).argsort(stable=True).argsort().to(self.device)
            pixels = torch.cat(parts)[places]
        assert self._split is not None
        return self._split[1](pixels.permute(0, 3, 1, 2))

    def _decoded_beside(self, files: Sequence[torch.Tensor]) -> tuple[torch.Tensor, Any]:
        """On a stream of its own, while the towers compute another batch."""
        if self.device.type != "cuda":
            return self._decoded(files), None
        with self._decoding, torch.cuda.device(self.device), torch.inference_mode():
            if self._stream is None:
                self._stream = torch.cuda.Stream(self.device)  # type: ignore[no-untyped-call]
            with torch.cuda.stream(self._stream):
                decoded = self._decoded(files)
                ready = torch.cuda.Event()  # type: ignore[no-untyped-call]
                ready.record(self._stream)
        return decoded, ready

    def _decoded(self, files: Sequence[torch.Tensor]) -> torch.Tensor:
        """JPEGs as bytes (n, height, width, 3); those of one size are resized together."""
        try:
            decoded = decode_jpeg(list(files), mode=ImageReadMode.RGB, device=self.device)
        except RuntimeError:  # which does not say of which file
            decoded = [self._with_pillow(file) for file in files]
        by_size: dict[torch.Size, list[int]] = {}
        for number, image in enumerate(decoded):
            by_size.setdefault(image.shape, []).append(number)
        found: list[torch.Tensor] = [torch.empty(0)] * len(files)
        for numbers in by_size.values():
            resized = self._on_device(torch.stack([decoded[n] for n in numbers]))
            for number, image in zip(numbers, resized, strict=True):
                found[number] = image
        return torch.stack(found).permute(0, 2, 3, 1)

    def _with_pillow(self, file: torch.Tensor) -> torch.Tensor:
        image = decode(file.numpy().tobytes(), "a JPEG")
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).to(self.device)


def _reader(shapes: Sequence[Any], jpegs: bool) -> Reader | None:
    """What Pillow has to do; None if it is more than to resize and to crop."""
    match shapes:
        case [Resize() as resize]:
            crop = None
        case [Resize() as resize, CenterCrop() as middle]:
            crop = middle.size
        case _:
            return None
    size = resize.size if isinstance(resize.size, int) else tuple(resize.size)
    fits = type(resize) is Resize and resize.max_size is None and resize.antialias
    if isinstance(size, tuple) and len(size) == 1:
        [size] = size
    if not fits or resize.interpolation not in _RESAMPLE:
        return None
    if crop is not None and min(crop) > (size if isinstance(size, int) else min(size)):
        return None  # it would pad
    return Reader(size, crop and tuple(crop), _RESAMPLE[resize.interpolation], jpegs)
