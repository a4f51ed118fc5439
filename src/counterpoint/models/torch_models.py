"""What adapters of torch models share: device, precision, memory, unit vectors, fingerprints, and
image towers without their projection."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.processes import Switch, without_warnings
from counterpoint._util.registry import did_you_mean
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


# --- image towers without their projection -------------------------------------------------------

_IMAGES: Final = 1024  # whose features are added up at a time


class ImageTrunk(ABC):
    """What locked-image tuning keeps of a start's image tower: what comes before its projection, or
    all of it where the two cannot be parted.

    For `scoring.encode_images` it is the image half of a dual encoder, whose outputs are stored
    under the image's content. Its fingerprint is of the trunk alone: models that were tuned with a
    locked trunk share what is stored.

    `shape` is that of one image's features: (width,), or (tokens, width) if a pool that trains
    comes next. Methods that take a `model` work on any network of the start's architecture.
    """

    fingerprint: str
    shape: tuple[int, ...]
    stored_as: Any = np.float32
    reader: Any = None
    noise: float = 0.0  # of training, in standard deviations of the features
    _deviations: Tensor | None = None

    def __init__(self, dual: Any, runtime: Runtime) -> None:
        self.dual, self.runtime = dual, runtime
        self.lanes, self.device = runtime.lanes, runtime.hardware

    def preprocess(self, image: Image.Image) -> Any:
        return self.dual.preprocess(image)

    @memory_errors
    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """The features of preprocessed images, one flat row each."""
        found = self.runtime.outputs(lambda: self.features(images).flatten(1).float())
        return found.astype(self.stored_as, copy=False)

    @abstractmethod
    def features(self, images: Sequence[Any]) -> Tensor:
        """Of preprocessed images: (n, *shape), on the device."""

    @abstractmethod
    def head(self, model: Any, features: Tensor) -> Tensor:
        """Image vectors of features: what is left of the tower."""

    @abstractmethod
    def head_parameters(self, model: Any) -> list[nn.Parameter]:
        """The weights of `head`; none where the whole tower is the trunk."""

    def learn(self, features: Tensor) -> None:
        """From the features of all training images, before the first step: how much they differ.

        What is learned stays: later features are those of a validation.
        """
        if self.noise and self._deviations is None:
            total = features.new_zeros(self.shape, dtype=torch.float64)
            squares = torch.zeros_like(total)
            for some in torch.split(features, _IMAGES):
                total += some.double().sum(0)
                squares += some.double().square().sum(0)
            variance = squares / len(features) - (total / len(features)).square()
            self._deviations = variance.clamp(min=0).sqrt().float()

    def noisy(self, features: Tensor) -> Tensor:
        """Features with noise, in training."""
        if self._deviations is None:
            return features
        deviations = self._deviations.to(features.device)
        return features + self.noise * deviations * torch.randn_like(features)

    def agrees(self, model: Any, vectors: Tensor, features: Tensor) -> bool:
        """Whether `head` makes these vectors of these features."""
        with torch.inference_mode():
            found = self.head(model, features)
        return found.shape == vectors.shape and torch.allclose(
            found, vectors, rtol=1e-4, atol=1e-5 * float(vectors.abs().max())
        )
