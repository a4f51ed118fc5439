"""Checkpoints: everything that the next step depends on, in a folder that is whole or not there.

    checkpoints/step-00001000/state.json          step, position in the data, random states
    checkpoints/step-00001000/weights.safetensors   trained weights, buffers, averaged weights
    checkpoints/step-00001000/optimiser.safetensors

Nothing is pickled. Frozen weights are not in it: they are the start's, whose fingerprint is.
"""

from __future__ import annotations

import json
import random
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from counterpoint.errors import RunError, reason
from counterpoint.untrusted import parse_json, shortened, shown
from counterpoint.writing import whole_folder

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
    told = {"format": _FORMAT, "step": checkpoint.step, **checkpoint.state}
    with whole_folder(folder, RunError) as draft:
        _save(checkpoint.weights, draft / _WEIGHTS)
        _save(checkpoint.optimiser, draft / _OPTIMISER)
        (draft / _STATE).write_text(json.dumps(told) + "\n", encoding="utf-8")
    for old in steps_in(run)[:-keep]:
        _remove(run / FOLDER / f"step-{old:08d}")
    return folder


def steps_in(run: Path) -> list[int]:
    """The steps that have a checkpoint, in order."""
    folder = run / FOLDER
    names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
    return sorted(int(found[1]) for name in names if (found := _NAME.fullmatch(name)))


def load_last(run: Path, device: torch.device) -> Checkpoint | None:
    """The last checkpoint; None if there is none."""
    steps = steps_in(run)
    if not steps:
        return None
    folder = run / FOLDER / f"step-{steps[-1]:08d}"
    try:
        state = parse_json((folder / _STATE).read_bytes(), _STATE)
        if not isinstance(state, dict) or state.get("step") != steps[-1]:
            raise ValueError(f"{_STATE} is not the state after its step")
        if state.get("format") != _FORMAT:
            raise ValueError(f"its format is {shown(state.get('format'))}, not {_FORMAT}")
        weights = load_file(folder / _WEIGHTS, device=str(device))
        optimiser = load_file(folder / _OPTIMISER)
        return Checkpoint(steps[-1], state, weights, optimiser)
    except Exception as error:  # readers of damaged files raise anything
        why = reason(error) if isinstance(error, OSError) else shortened(error)
        raise RunError(
            f"{folder} is damaged ({why.rstrip('.')}); remove it, and the run goes on from the one "
            "before it."
        ) from None


def _save(tensors: Mapping[str, Tensor], path: Path) -> None:
    # Copies: parameters may share memory (tied weights), which safetensors refuses.
    save_file({k: v.detach().to("cpu", copy=True).contiguous() for k, v in tensors.items()}, path)


def _remove(folder: Path) -> None:
    """Under another name first: half a checkpoint must not look like one."""
    gone = folder.with_name(".gone")
    shutil.rmtree(gone, ignore_errors=True)  # what a kill has left of another one
    try:
        folder.rename(gone)
    except OSError as error:
        raise RunError(f"{folder}: cannot be removed: {reason(error)}.") from None
    shutil.rmtree(gone, ignore_errors=True)


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
