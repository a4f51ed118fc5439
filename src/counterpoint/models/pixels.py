"""Images between a file and a tower: bytes where they are enough, floats on the device.

A transform of torchvision resizes and crops, and ends with ToTensor and Normalize. Here the first
part makes bytes, a quarter of the size, and the rest is computed on the device for a whole batch,
by the same operations: the values are the same. A JPEG may also be decoded on a GPU, with another
decoder than Pillow's and so with slightly other values.
"""

from __future__ import annotations

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
        found: list[Any] = [None, None, *getattr(transform, "transforms", [])]
        *parts, before, last = found
        self._begin: Callable[[Any], Any] | None = None
        if isinstance(before, ToTensor) and isinstance(last, Normalize):
            self._begin = Compose([part for part in parts if part is not None])
            self._mean, self._std = (
                torch.tensor(values, device=self.device).view(1, 3, 1, 1)
                for values in (last.mean, last.std)
            )
        shapes = [p for p in parts if p is not None and type(p).__name__ not in _COLOURS]
        self._decoding, self._stream = threading.Lock(), cast(Any, None)
        self.reader = None if self._begin is None else _reader(shapes, jpegs)
        self.decodes = jpegs and self.reader is not None
        self._on_device = Compose(shapes)

    def prepare(self, image: Image.Image) -> torch.Tensor | np.ndarray:
        """An image on the host: bytes (height, width, 3), or floats of any other transform."""
        if self.reader is not None:
            return self.reader.prepare(image)
        if self._begin is not None:
            return np.array(self._begin(image))
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
        elif parts[0].is_floating_point():
            return parts[0]
        pixels = parts[0]
        if len(parts) > 1:
            places = torch.tensor(is_file).argsort(stable=True).argsort().to(self.device)
            pixels = torch.cat(parts)[places]
        floats = pixels.permute(0, 3, 1, 2).contiguous().float().div_(255)
        return floats.sub_(self._mean).div_(self._std)

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
