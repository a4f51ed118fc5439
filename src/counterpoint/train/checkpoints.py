"""Checkpoints: everything that the next step depends on, in a folder that is whole or not there.

    checkpoints/step-00001000/state.json          step, position in the data, random states
    checkpoints/step-00001000/weights.safetensors   trained weights, buffers, averaged weights
    checkpoints/step-00001000/optimiser.safetensors

Nothing is pickled. Frozen weights are not in it: they are the start's, whose fingerprint is.
"""

from __future__ import annotations

import json
import os
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterpoint.errors import RunError

FOLDER: Final = "checkpoints"
_STATE, _WEIGHTS, _OPTIMISER = "state.json", "weights.safetensors", "optimiser.safetensors"
_NAME: Final = re.compile(r"step-(\d{8,})")
_FORMAT: Final = 1


@dataclass(slots=True)
class Checkpoint:
    """`state` is plain values; tensors have names like `visual.proj` and `visual.proj/exp_avg`."""

    step: int
    state: dict[str, Any]
    weights: Mapping[str, Tensor] = field(default_factory=dict)
    optimiser: Mapping[str, Tensor] = field(default_factory=dict)


def save(run: Path, checkpoint: Checkpoint, keep: int) -> Path:
    """Write it beside the others; then all but the last `keep` are removed."""
    folder = run / FOLDER / f"step-{checkpoint.step:08d}"
    draft = folder.with_name(f".{folder.name}.partial")
    told = {"format": _FORMAT, "step": checkpoint.step, **checkpoint.state}
    try:
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        _save(checkpoint.weights, draft / _WEIGHTS)
        _save(checkpoint.optimiser, draft / _OPTIMISER)
        (draft / _STATE).write_text(json.dumps(told) + "\n", encoding="utf-8")
        for path in (*draft.iterdir(), draft):
            _to_disk(path)
        _remove(folder)
        draft.rename(folder)
        _to_disk(folder.parent)
    except (OSError, SafetensorError) as error:
        shutil.rmtree(draft, ignore_errors=True)
        raise RunError(
            f"{folder}: the checkpoint cannot be written: {error}; the one before it is kept."
        ) from None
    for old in steps_in(run)[:-keep]:
        _remove(run / FOLDER / f"step-{old:08d}")
    return folder


def steps_in(run: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    folder = run / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def load_last(run: Path, device: torch.device) -> Checkpoint | None:
    """The last checkpoint; None if there is none. What a kill left half done is removed."""
    for left in (run / FOLDER).glob(".*"):
        shutil.rmtree(left, ignore_errors=True)
    steps = steps_in(run)
    if not steps:
        return None
    folder = run / FOLDER / f"step-{steps[-1]:08d}"
    try:
        state = json.loads((folder / _STATE).read_text(encoding="utf-8"))
        if state["format"] != _FORMAT:
            raise ValueError(f"its format is {state['format']}, this version reads {_FORMAT}")
        weights = load_file(folder / _WEIGHTS, device=str(device))
        optimiser = load_file(folder / _OPTIMISER)
        return Checkpoint(int(state["step"]), state, weights, optimiser)
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        why = " ".join(str(error).split())
        raise RunError(
            f"{folder} is damaged ({why}); remove it, and the run goes on from the one before it."
        ) from None


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    # Copies: parameters may share memory (tied weights), which safetensors refuses.
    save_file({k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}, path)


def _to_disk(path: Path) -> None:
    """A rename must not come to the disk before what it renames."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(folder: Path) -> None:
    """Under another name first: half a checkpoint must not look like one."""
    if folder.exists():
        gone = folder.with_name(f".{folder.name}.gone")
        shutil.rmtree(gone, ignore_errors=True)
        folder.rename(gone)
        shutil.rmtree(gone)


# --- random states -----------------------------------------------------------------------------


def random_states() -> dict[str, Any]:
    """Of Python, NumPy and torch (and this rank's GPU), as plain values."""
    kind, keys, *rest = np.random.get_state(legacy=True)
    states = {
        "python": random.getstate(),
        "numpy": [kind, np.asarray(keys).tolist(), *rest],
        "torch": _hex(torch.get_rng_state()),
    }
    if torch.cuda.is_available():
        states["cuda"] = _hex(torch.cuda.get_rng_state())
    return states


def restore_random(states: Mapping[str, Any]) -> None:
    version, inner, gauss = states["python"]
    random.setstate((version, tuple(inner), gauss))
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, np.array(keys, dtype=np.uint32), *rest))
    torch.set_rng_state(_bytes(states["torch"]))
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(_bytes(states["cuda"]))


def _hex(state: Tensor) -> str:
    return state.cpu().numpy().tobytes().hex()


def _bytes(text: str) -> Tensor:
    return torch.frombuffer(bytearray.fromhex(text), dtype=torch.uint8)
