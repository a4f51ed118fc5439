"""What adapters of torch models share: device, precision, memory, fingerprints, and images.

A preprocessing resizes and crops, then it scales and normalises. Here the first part makes bytes, a
quarter of the size, and the rest is computed on the device for a whole batch, by the same
operations: the values are the same. A JPEG may also be decoded on a GPU, with another decoder than
Pillow's and so with slightly other values.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import random
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple, ParamSpec, TypeVar, cast

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

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.processes import Switch, without_warnings
from counterpoint._util.registry import did_you_mean
from counterpoint.images import Reader, decode
from counterpoint.models.registry import PRECISIONS, LoadOptions

P = ParamSpec("P")
R = TypeVar("R")
_LANES: Final = 3  # batches on a GPU at a time: one is staged, one is computed, one comes back
_HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Runtime:
    """Where and how precisely a model runs."""

    def __init__(self, options: LoadOptions) -> None:
        if options.precision not in PRECISIONS:
            raise NotFoundError(
                "E-PRECISION-UNKNOWN", did_you_mean("precision", options.precision, PRECISIONS)
            )
        self.device = str(pick_device(options.device))
        self.precision = options.precision
        self.half, self.weights_cast = _HALF.get(self.precision), False
        self.unit = options.unit
        self.on_gpu = torch.device(self.device).type == "cuda"
        self.lanes = _LANES if self.on_gpu else 0
        self.decodes = options.decode == "gpu"
        if self.decodes and not self.on_gpu:
            raise ModelError(
                "E-DECODER-UNUSABLE",
                f"JPEGs cannot be decoded on {self.device}: the decoder is part of NVIDIA's GPUs; "
                "leave out --decode gpu.",
            )
        self._launching = threading.Lock()
        # A CPU without the instructions for half precision says so once, and goes on slower.
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")

    @property
    def hardware(self) -> str:
        return torch.cuda.get_device_name(self.device) if self.on_gpu else "cpu"

    @property
    def identity(self) -> str:
        """The precision in a fingerprint; in half precision also how it is had."""
        precision = f"{self.precision} weights" if self.half else self.precision
        return precision if self.unit else f"{precision}, vectors of any length"

    def cast(self, model: torch.nn.Module) -> None:
        """Put the weights into half precision, if that is asked for: twice as fast as a GPU that
        converts them for every batch, and the residual stream takes half of the memory traffic."""
        if self.half is not None:
            model.to(self.half)
            self.weights_cast = True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inference in this precision; autocast where weights are still float32."""
        set_arithmetic(tf32=self.precision == "tf32")
        kind, wanted = torch.device(self.device).type, self.half is not None
        cast = torch.autocast(kind, dtype=self.half, enabled=wanted and not self.weights_cast)
        with torch.inference_mode(), cast:
            yield

    def vectors(self, tower: Callable[[], torch.Tensor]) -> np.ndarray:
        """Vectors in float32, whatever they were computed in; of length 1 unless told not to."""
        if not self.unit:
            return self.outputs(lambda: tower().float())
        return self.outputs(lambda: torch.nn.functional.normalize(tower().float(), dim=-1))

    def outputs(self, tower: Callable[[], torch.Tensor]) -> np.ndarray:
        """What a tower gives, on the host.

        Threads launch one after the other and wait side by side: the device has the next batch
        before it is done with one.
        """
        if not self.on_gpu:
            with self.running():
                return tower().cpu().numpy()
        with self._launching, torch.cuda.device(self.device), self.running():
            found = tower()
            host = torch.empty(found.shape, dtype=found.dtype, pin_memory=True)
            host.copy_(found, non_blocking=True)
            done = torch.cuda.Event(blocking=True)  # type: ignore[no-untyped-call]
            done.record()
        done.synchronize()
        return host.numpy()

    def describe(self, model: torch.nn.Module) -> dict[str, Any]:
        parameters = list(model.parameters())
        return {
            "device": str(parameters[0].device),
            "dtype": str(parameters[0].dtype).removeprefix("torch."),
            "precision": self.precision,
            "parameters": sum(p.numel() for p in parameters),
        }


def set_arithmetic(tf32: bool = False) -> None:
    """How this process computes on a GPU.

    torch rounds convolutions to TF32 unless told not to, which moved scores by 1e-4 on an H200:
    float32 is made to mean it. Attention is not left to cuDNN, which makes a plan for every new
    shape: texts have many lengths, and each cost 1.3 s of training there.
    """
    torch.backends.cudnn.allow_tf32 = tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    torch.backends.cuda.enable_cudnn_sdp(False)


def pick_device(name: str) -> torch.device:
    """The device of a name as `models.is_device` knows them; a ModelError if it is not there."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    device, gpus = torch.device(name), torch.cuda.is_available() and torch.cuda.device_count()
    count = {"cpu": 1, "cuda": int(gpus), "mps": int(torch.backends.mps.is_available())}
    if (device.index or 0) >= count[device.type]:
        raise ModelError(
            "E-DEVICE-MISSING",
            f"there is no device {name} here: torch sees {count[device.type]} of the kind "
            f"{device.type}; use another device, cpu or auto.",
        )
    return device


def memory_errors(function: Callable[P, R]) -> Callable[P, R]:
    """A GPU that is full raises MemoryError, which the engine answers with smaller batches."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return function(*args, **kwargs)
        except torch.OutOfMemoryError as error:
            torch.cuda.empty_cache()
            raise MemoryError(str(error).splitlines()[0]) from None

    return run


def stacked(images: Sequence[torch.Tensor | np.ndarray], *, pinned: bool) -> torch.Tensor:
    """Images of one shape as one tensor on the host; a GPU copies from pinned memory without
    waiting. By numpy, in this thread: torch would use all cores, which processes that decode need.
    """
    arrays = [np.asarray(image) for image in images]
    kind = torch.from_numpy(np.empty(0, arrays[0].dtype)).dtype
    batch = torch.empty((len(arrays), *arrays[0].shape), dtype=kind, pin_memory=pinned)
    np.stack(arrays, out=batch.numpy())
    return batch


def unit(vectors: torch.Tensor) -> np.ndarray:
    """Unit vectors in float32, whatever they were computed in."""
    return torch.nn.functional.normalize(vectors.float(), dim=-1).cpu().numpy()


def fingerprint(model: torch.nn.Module, *identity: object) -> str:
    """A digest of weights, buffers and plain attributes of every module, and of `identity`.

    Weights do not show everything: activations, numbers of heads, pooling and masks are attributes
    and buffers of the modules. `identity` is what else outputs depend on: preprocessing, tokenizer,
    precision, template.
    """
    state = hashlib.blake2b(digest_size=16)
    state.update(repr(identity).encode())
    for name, module in model.named_modules():
        state.update(repr((name, type(module).__name__, plain(module))).encode())
    tensors = {**model.state_dict(), **dict(model.named_buffers())}
    for name, value in sorted(tensors.items()):
        state.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        state.update(value.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return state.hexdigest()


def plain(thing: object) -> list[tuple[str, Any]]:
    """The attributes of an object that are simple values."""
    simple = (bool, int, float, str, type(None))
    return sorted(
        (name, value if not isinstance(value, tuple) else repr(value))
        for name, value in vars(thing).items()
        if isinstance(value, simple) or (isinstance(value, tuple) and len(value) < 8)
    )


@Switch
@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep a library's log lines and warnings away: what matters is an error here."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with without_warnings():
            yield
    finally:
        logging.disable(level)


# --- images between a file and a tower ----------------------------------------------------------

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
    steps = list(getattr(transform, "transforms", ()))
    if len(steps) < 2 or not (isinstance(steps[-2], ToTensor) and isinstance(steps[-1], Normalize)):
        return None
    begin, last = Compose(steps[:-2]), steps[-1]

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
        found: dict[int, torch.Tensor] = {}
        for numbers in by_size.values():
            resized = self._on_device(torch.stack([decoded[n] for n in numbers]))
            found |= zip(numbers, resized, strict=True)
        return torch.stack([found[n] for n in range(len(files))]).permute(0, 2, 3, 1)

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
