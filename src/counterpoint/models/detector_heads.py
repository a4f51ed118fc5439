"""A detector's two heads, and the folder they are kept in."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from safetensors.numpy import load_file, save_file
from scipy.special import expit

from counterpoint.errors import DataError, ModelError, NotFoundError
from counterpoint.untrusted import parse_json, shortened, shown
from counterpoint.writing import whole_folder

CONFIG: Final = "detector.json"
WEIGHTS: Final = "detector.safetensors"
_FORMAT: Final = 1


class Head(NamedTuple):
    """A linear classifier of unit vectors."""

    weight: np.ndarray  # (d,) float32
    bias: np.ndarray  # (1,) float32

    def probabilities(self, vectors: np.ndarray) -> np.ndarray:
        """That each is synthetic (n,), in float64: in float32 those of a sure head would tie."""
        found = np.einsum("nd,d->n", vectors.astype(np.float64), self.weight.astype(np.float64))
        return np.asarray(expit(found + self.bias))


class Heads(NamedTuple):
    """Both give the probability of being synthetic."""

    image: Head
    caption: Head


class Saved(NamedTuple):
    """What a detector's folder holds."""

    heads: Heads
    encoder: str  # a model id
    fingerprint: str  # of the encoder that the heads were trained on
    info: Mapping[str, Any]  # how they were trained


def save(folder: Path, detector: Saved) -> None:
    """Write the folder, in place of an older one."""
    tensors = {
        f"{name}.{part}": np.ascontiguousarray(array, dtype=np.float32)
        for name, head in detector.heads._asdict().items()
        for part, array in head._asdict().items()
    }
    told = {
        "format": _FORMAT,
        "encoder": detector.encoder,
        "encoder_fingerprint": detector.fingerprint,
        **detector.info,
    }
    with whole_folder(folder, ModelError) as draft:
        save_file(tensors, draft / WEIGHTS)
        (draft / CONFIG).write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
        shutil.copymode(draft / CONFIG, draft / WEIGHTS)  # safetensors writes for its owner only


def read(folder: Path) -> Saved:
    if not (folder / CONFIG).is_file():
        raise NotFoundError(
            f"detector:{folder}: there is no {CONFIG} in it; `counterpoint detector train` makes "
            "such a folder."
        )
    try:
        told = parse_json((folder / CONFIG).read_bytes(), CONFIG)
        known = told.pop("format")
        encoder, fingerprint = (told.pop(name) for name in ("encoder", "encoder_fingerprint"))
        if not (isinstance(encoder, str) and isinstance(fingerprint, str)):
            raise TypeError("the encoder is not named by texts")
    except (OSError, DataError, KeyError, AttributeError, TypeError) as error:
        why = f"{type(error).__name__}: {shortened(error)}"
        raise ModelError(f"detector:{folder}: {CONFIG} is damaged ({why}); train again.") from None
    if known != _FORMAT:
        raise ModelError(
            f"detector:{folder}: {CONFIG} has format {shown(known)}, this version reads {_FORMAT}; "
            "train again."
        )
    return Saved(_read_heads(folder), encoder, fingerprint, told)


def _read_heads(folder: Path) -> Heads:
    try:
        tensors = load_file(folder / WEIGHTS)
        heads = Heads(*(_head(tensors, name) for name in Heads._fields))
    except Exception as error:  # a damaged file makes the library raise anything
        why = shortened(error)
        raise ModelError(f"detector:{folder}: {WEIGHTS} cannot be used ({why}).") from None
    return heads


def _head(tensors: Mapping[str, np.ndarray], name: str) -> Head:
    weight, bias = tensors[f"{name}.weight"], tensors[f"{name}.bias"]
    if weight.ndim != 1 or bias.shape != (1,):
        raise ValueError(f"the {name} head has shapes {weight.shape} and {bias.shape}")
    if not (np.isfinite(weight).all() and np.isfinite(bias).all()):
        raise ValueError(f"the {name} head has numbers that are not finite")
    return Head(weight.astype(np.float32), bias.astype(np.float32))
