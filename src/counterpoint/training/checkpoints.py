"""Checkpoints of a training run, and the claim on its folder.

    checkpoints/step-00001000/state.json            step, position in the data, the scaler's state
    checkpoints/step-00001000/weights.safetensors   trained weights, buffers, averaged weights
    checkpoints/step-00001000/optimiser.safetensors

A checkpoint holds everything that the next step depends on. What a step draws depends on its number
alone, so random states are not kept. A checkpoint's folder is complete or not there, and nothing in
it is pickled. Frozen weights are not stored: they are the start's, whose fingerprint is.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor, distribute_tensor

from counterpoint._util.errors import CounterpointError, RunError, reason
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint._util.writing import clear_drafts, locked, whole_file, whole_folder, write_json
from counterpoint.evaluation import (
    TrainingRecord,
    photograph_digests,
    read_records,
    text_digests,
    write_record,
)
from counterpoint.models import TRAINED_ON
from counterpoint.training.data.loading import Problems
from counterpoint.training.recipe import Recipe
from counterpoint.training.steps import TrainingRun

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
            "E-CHECKPOINT-DAMAGED",
            f"{folder} is damaged ({why.rstrip('.')}); remove it, and the run goes on from the one "
            "before it.",
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
        raise RunError(
            "E-OUTPUT-UNWRITABLE", f"{folder}: cannot be removed: {reason(error)}."
        ) from None
    shutil.rmtree(gone, ignore_errors=True)


# --- a run as a checkpoint, and back -----------------------------------------------------------


RECIPE: Final = "recipe.json"
_AVERAGE: Final = "average/"
_BUFFER: Final = "buffer/"


def capture(run: TrainingRun, step: int) -> Checkpoint:
    """The state after `step` steps. Every rank must call it: shards are put together."""
    weights = {name: whole(p) for name, p in run.parameters.items()}
    weights |= {_BUFFER + name: b for name, b in run.model.buffers().items()}
    weights |= {_AVERAGE + name: whole(a) for name, a in run.averaged.items()}
    optimiser = {
        f"{name}/{key}": whole(value)
        for name, p in run.parameters.items()
        for key, value in run.optimiser.state[p].items()
    }
    scaler = run.stepper.scaler
    state = {
        "steps": run.steps,
        "batches": step * run.recipe.accumulate,  # where the data goes on: all the sampler's state
        "start": run.fingerprint,
        "data": run.data.contents,
        "scaler": None if scaler is None else scaler.state_dict(),
        "problems": problems_of(run).as_json(),
    }
    return Checkpoint(step, state, weights, optimiser)


def _exists(why: str) -> RunError:
    return RunError("E-OUTPUT-EXISTS", f"{why}; name another folder: out=FOLDER.")


def resume(run: TrainingRun) -> int:
    """Restore the last checkpoint; returns the number of steps that are done."""
    saved = load_last(run.recipe.folder, run.ranks.device)
    if saved is None:
        return 0
    restore(run, saved)
    return saved.step


def restore(run: TrainingRun, saved: Checkpoint) -> None:
    try:
        _restore(run, saved)
    except CounterpointError:
        raise
    except Exception as error:  # of values that are not those which were saved, anything comes
        raise RunError(
            "E-CHECKPOINT-DAMAGED",
            f"{run.recipe.folder}: the checkpoint of step {saved.step:,} does not fit this run "
            f"({type(error).__name__}: {shortened(error)}); remove it, and the run goes on from "
            "the one before it.",
        ) from None


@torch.no_grad()
def _restore(run: TrainingRun, saved: Checkpoint) -> None:
    folder = run.recipe.folder
    if saved.state["start"] != run.fingerprint:
        raise _exists(f"{folder} was begun from other weights than {run.recipe.model} has now")
    refuse_other_data(folder, saved.state.get("data"), run.data.contents, "data")
    if saved.state["steps"] != run.steps or set(run.parameters) - set(saved.weights):
        raise _exists(
            f"{folder} was begun for {shown(saved.state['steps'])} steps and it would be "
            f"{run.steps} now: the data has changed"
        )
    for name, parameter in run.parameters.items():
        _fill(parameter, saved.weights[name])
    for name, buffer in run.model.buffers().items():
        buffer.copy_(saved.weights[_BUFFER + name])
    for name, average in run.averaged.items():
        _fill(average, saved.weights[_AVERAGE + name])
    if run.recipe.ema_as == "teacher":
        run.loss.teach(run.averaged)
    described = run.optimiser.state_dict()
    names = _names_by_number(run)
    described["state"] = {
        number: {
            key.removeprefix(f"{name}/"): _like(value, run.parameters[name])
            for key, value in saved.optimiser.items()
            if key.rpartition("/")[0] == name
        }
        for number, name in names.items()
    }
    run.optimiser.load_state_dict(described)
    if run.stepper.scaler is not None:
        run.stepper.scaler.load_state_dict(saved.state["scaler"])
    if run.ranks.first:
        run.data.problems.clear()  # those of opening the data are among the saved ones
        run.data.problems.update(Problems.of(saved.state["problems"]))


def whole(tensor: Tensor) -> Tensor:
    """A tensor of all ranks' shards; others as they are."""
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def _fill(target: Tensor, value: Tensor) -> None:
    target.copy_(_like(value, target))


def _like(value: Tensor, target: Tensor) -> Tensor:
    """Sharded as the target is, if it is; a step's number is not."""
    if isinstance(target, DTensor) and value.shape == target.shape:
        return distribute_tensor(value.to(target.device), target.device_mesh, target.placements)
    return value


def _names_by_number(run: TrainingRun) -> dict[int, str]:
    """torch numbers parameters by their order in the groups."""
    names = {id(p): name for name, p in run.parameters.items()}
    ordered = [p for group in run.optimiser.param_groups for p in group["params"]]
    return {number: names[id(p)] for number, p in enumerate(ordered)}


def problems_of(run: TrainingRun) -> Problems:
    """What the data had to leave out or replace, of all ranks. Every rank must call it."""
    if run.ranks.size == 1:
        return run.data.problems
    states: list[Any] = [None] * run.ranks.size
    distributed.all_gather_object(states, run.data.problems)
    found = Problems()
    for own in states:
        found.update(own)
    return found


def refuse_other_data(folder: Path, before: object, now: Mapping[str, str], section: str) -> None:
    """Raise if the data of a section of the recipe is not what it was."""
    before = before if isinstance(before, dict) else {}
    changed = [part for part in sorted({*before, *now}) if before.get(part) != now.get(part)]
    if changed:
        key = f"{section}.vectors" if changed == ["vectors"] else f"{section}.path"
        raise RunError(
            "E-OUTPUT-EXISTS",
            f"{folder} was begun with other data: what {key} holds has changed since "
            f"({', '.join(map(shortened, changed))}); put the file back as it was, or name another "
            "folder: out=FOLDER.",
        )


def refuse_unlike(folder: Path, run: TrainingRun) -> None:
    """Raise if the run of a folder was trained on other data than this one would be."""
    for step in steps_in(folder)[-1:]:
        path = folder / FOLDER / f"step-{step:08d}" / _STATE
        said: Any = parse_json(path.read_bytes(), path, RunError)
        refuse_other_data(folder, said.get("data"), run.data.contents, "data")


# --- the folder and its recipe -----------------------------------------------------------------


@contextmanager
def claimed(recipe: Recipe, folder: Path) -> Iterator[None]:
    """Hold the folder for one training at a time.

    It remembers its recipe: a folder that belongs to another one is refused.
    """
    place = folder.absolute()  # `out=.` has no name
    with ExitStack() as stack:
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            stack.enter_context(locked(place))
            _claim(recipe, folder)
            clear_drafts(folder)  # of a killed process: what is there already is not written again
        except OSError as error:
            raise RunError(
                "E-OUTPUT-UNWRITABLE", f"{folder}: cannot be used: {reason(error)}."
            ) from None
        yield


def _claim(recipe: Recipe, folder: Path) -> None:
    path = folder / RECIPE
    settled = recipe.settled()
    if path.is_file():
        begun = parse_json(path.read_bytes(), path, RunError)
        try:
            _refuse_other(begun, settled, folder)
        except (AttributeError, KeyError, RecursionError, TypeError):
            raise RunError(
                "E-RUN-DAMAGED",
                f"{path}: not the recipe of a run; name another folder: out=FOLDER.",
            ) from None
        return
    if folder.is_dir() and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise _exists(f"{folder} exists and holds something else")
    write_json(path, settled, RunError)


def _refuse_other(begun: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    before, now = _flat(begun), _flat(asked)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            name = shortened(key)
            raise RunError(
                "E-OUTPUT-EXISTS",
                f"{folder} holds a run with {name}={_told(before.get(key))}, and this recipe has "
                f"{name}={_told(now.get(key))}; name another folder (out=FOLDER), or set it back.",
            )


def _flat(values: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in values.items():
        if key == "loss" and not above:
            terms = {term["term"]: {k: v for k, v in term.items() if k != "term"} for term in value}
            found |= _flat(terms, "loss.")
        elif isinstance(value, dict) and value:
            found |= _flat(value, f"{above}{key}.")
        else:
            found[above + key] = value
    return found


def _told(value: object) -> str:
    return "none" if value is None else shortened(value if isinstance(value, str) else shown(value))


# --- what a run trains on, as a file in its folder that goes with every model of it --------------


def record_data(run: TrainingRun, progress: Progress | None, *, begun: bool) -> None:
    """Write the record of a run, where something is known of its data. The start's own record is
    in it: a model was trained on all that its start was trained on."""
    path = run.recipe.folder / TRAINED_ON
    if begun and path.is_file():
        return  # of the same data, or the checkpoint would have been refused
    before = read_records(run.model.start.training_records)
    advance = (progress or Quiet()).start("texts to record", None)
    texts, photographs = [], [photograph_digests(run.data.all_photographs())]
    for some in run.data.all_texts():
        texts.append(text_digests(some))
        advance(len(some))
    if before is not None:
        texts.append(before.texts)
        photographs.append(before.photographs)
    record = TrainingRecord.of(texts, photographs)
    if len(record.texts) or len(record.photographs):
        with whole_file(path, RunError) as draft:
            write_record(draft, record)
