"""What adapters of torch models share: device, precision, memory, unit vectors, fingerprints."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any, Final, ParamSpec, TypeVar

import numpy as np
import torch

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.models.registry import PRECISIONS, LoadOptions

P = ParamSpec("P")
R = TypeVar("R")
_HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Runtime:
    """Where and how precisely a model runs."""

    def __init__(self, options: LoadOptions) -> None:
        if options.precision not in PRECISIONS:
            raise NotFoundError(
                "E-PRECISION-UNKNOWN",
                did_you_mean("precision", options.precision, PRECISIONS),
                name=options.precision,
            )
        self.device = str(pick_device(options.device))
        self.precision = options.precision

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Inference in this precision. Weights stay float32: half precisions are autocast."""
        set_arithmetic(tf32=self.precision == "tf32")
        half = _HALF.get(self.precision)
        cast = torch.autocast(torch.device(self.device).type, dtype=half, enabled=half is not None)
        with torch.inference_mode(), cast, warnings.catch_warnings():
            # A CPU without the instructions for half precision says so once, and goes on slower.
            warnings.filterwarnings("ignore", "mkldnn_matmul failed")
            yield

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
            name=name,
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


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep a library's log lines and warnings away: what matters is an error here."""
    level = logging.root.manager.disable
    logging.disable(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(level)
