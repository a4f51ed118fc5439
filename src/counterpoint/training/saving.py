"""The finished model of a training run: its weights, and the folder they are saved in."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import torch
from torch import Tensor

from counterpoint._util.errors import RunError
from counterpoint._util.writing import whole_folder
from counterpoint.evaluation import mix_weights
from counterpoint.models.openclip import fill_folder
from counterpoint.training.building import Run
from counterpoint.training.checkpoints import whole
from counterpoint.training.model import merged_state

MODEL: Final = "model"
_DTYPES: Final = {"fp32": torch.float32, "fp16": torch.float16}


@torch.no_grad()
def final_state(run: Run) -> dict[str, Tensor]:
    """The weights as open_clip names them: averaged ones if there are, factors merged, and mixed
    with the start's if the recipe says so.

    Every rank must call it: shards are put together.
    """
    parameters = run.parameters
    own = {name: parameters[name].detach().clone() for name in run.averaged}
    for name, average in run.averaged.items():
        parameters[name].copy_(average)
    state = {name: whole(value) for name, value in merged_state(run.trained.towers.clip).items()}
    for name, value in own.items():
        parameters[name].copy_(value)
    for name, start in run.origin.items():
        state[name] = mix_weights(start.to(state[name].device), state[name], run.recipe.wise)
    return state


def save_model(run: Run, state: Mapping[str, Tensor], folder: Path, step: int) -> None:
    dtype = _DTYPES[run.recipe.save_as]
    stored = {k: v.to(dtype) if v.is_floating_point() else v for k, v in state.items()}
    about = {
        "start": {"id": run.recipe.model, "fingerprint": run.fingerprint},
        "steps": step,
        "recipe": run.recipe.settled(),
        "notes": list(run.trained.start.notes),
    }
    with whole_folder(folder, RunError) as draft:
        fill_folder(draft, run.recipe.model, run.trained.start, stored, about)
