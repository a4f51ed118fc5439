"""Files of weights, read without running anything: safetensors, or a pickle of tensors and values.

This is the only place that unpickles a file of weights. Errors do not name the model; the caller
puts its id in front of them (`explained_as`).
"""

from __future__ import annotations

import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from counterpoint._util.errors import ModelError
from counterpoint._util.untrusted import shortened

# Many checkpoints hold training arguments and NumPy numbers. These are values and run no code.
_SCALAR: Final = np.float64(0).__reduce__()[0]
_VALUES: Final[tuple[Any, ...]] = (
    *(Namespace, np.dtype, _SCALAR, (_SCALAR, "numpy.core.multiarray.scalar")),  # before NumPy 2
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8")),
)


@contextmanager
def explained_as(id: str) -> Iterator[None]:
    """Errors about a file begin with the id of the model."""
    try:
        yield
    except ModelError as error:
        raise ModelError(error.code, f"{id}: {error}") from None


def read_weights(path: Path) -> object:
    """Whatever a training script saved, if it can be read without running code."""
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise ModelError(
                "E-WEIGHTS-BROKEN", f"it is not a readable safetensors file: {shortened(error)}."
            ) from None
    if is_torchscript(path):
        raise ModelError(
            "E-CODE-REFUSED",
            "it is a TorchScript archive, which holds code; for OpenAI's own weights use "
            "open_clip:ViT-B-32-quickgelu/openai or another architecture's tag openai.",
        )
    try:
        with torch.serialization.safe_globals([*_VALUES]):
            return torch_load(path)
    except Exception as error:  # unpickling raises anything
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        if asked:
            raise ModelError(
                "E-CODE-REFUSED",
                f"loading it would run code ({asked[1]}), which is not done; "
                "save its state_dict() alone, best as safetensors.",
            ) from None
        why = shortened(error) or type(error).__name__
        raise ModelError(
            "E-WEIGHTS-BROKEN", f"it is not a readable checkpoint: {why.rstrip('.')}."
        ) from None


def is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.split("/", 1)[-1] == "constants.pkl" for name in archive.namelist())
    except Exception:  # of damaged archives the library raises anything
        return False  # loading it will say what is wrong, and runs no code either


def torch_load(path: Path) -> object:
    """The only call of `torch.load`. Tensors of files are mapped, not read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
    return torch.load(path, map_location="cpu", weights_only=True)  # the format before torch 1.6
