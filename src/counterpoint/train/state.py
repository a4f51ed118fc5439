"""A run as a checkpoint, and back; and the folder's memory of which recipe it belongs to."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, distributed
from torch.distributed.tensor import DTensor, distribute_tensor

from counterpoint.errors import CounterpointError, RunError, reason
from counterpoint.train.checkpoints import Checkpoint, random_states, restore_random
from counterpoint.train.problems import Problems
from counterpoint.train.recipe import Recipe
from counterpoint.untrusted import parse_json, shortened, shown
from counterpoint.writing import locked, whole_file

if TYPE_CHECKING:
    from counterpoint.train.building import Run

RECIPE: Final = "recipe.json"
_AVERAGE: Final = "average/"
_BUFFER: Final = "buffer/"


def capture(run: Run, step: int) -> Checkpoint:
    """The state after `step` steps. Every rank must call it: shards are put together."""
    weights = {name: whole(p) for name, p in run.parameters.items()}
    weights |= {_BUFFER + name: b for name, b in run.trained.buffers().items()}
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
        "scaler": None if scaler is None else scaler.state_dict(),
        "random": _of_all_ranks(random_states()),
        "problems": problems_of(run).as_json(),
    }
    return Checkpoint(step, state, weights, optimiser)


def restore(run: Run, saved: Checkpoint) -> None:
    try:
        _restore(run, saved)
    except CounterpointError:
        raise
    except Exception as error:  # of values that are not those which were saved, anything comes
        raise RunError(
            f"{run.recipe.folder}: the checkpoint of step {saved.step:,} does not fit this run "
            f"({type(error).__name__}: {shortened(error)}); remove it, and the run goes on from "
            "the one before it."
        ) from None


@torch.no_grad()
def _restore(run: Run, saved: Checkpoint) -> None:
    _refuse_other_start(run, saved)
    for name, parameter in run.parameters.items():
        _fill(parameter, saved.weights[name])
    for name, buffer in run.trained.buffers().items():
        buffer.copy_(saved.weights[_BUFFER + name])
    for name, average in run.averaged.items():
        _fill(average, saved.weights[_AVERAGE + name])
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
    if run.ranks.first and "problems" in saved.state:
        run.data.problems.clear()  # those of opening the data are among the saved ones
        run.data.problems.update(Problems.of(saved.state["problems"]))
    states = saved.state["random"]
    if run.ranks.rank < len(states):  # fewer ranks before: those are new, and seeded each step
        restore_random(states[run.ranks.rank])


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


def _names_by_number(run: Run) -> dict[int, str]:
    """torch numbers parameters by their order in the groups."""
    names = {id(p): name for name, p in run.parameters.items()}
    ordered = [p for group in run.optimiser.param_groups for p in group["params"]]
    return {number: names[id(p)] for number, p in enumerate(ordered)}


def problems_of(run: Run) -> Problems:
    """What the data had to leave out or replace, of all ranks. Every rank must call it."""
    found = Problems()
    for own in _of_all_ranks(run.data.problems.as_json()):
        found.update(Problems.of(own))
    return found


def _of_all_ranks(own: dict[str, Any]) -> list[dict[str, Any]]:
    if not (distributed.is_available() and distributed.is_initialized()):
        return [own]
    states: list[Any] = [None] * distributed.get_world_size()
    distributed.all_gather_object(states, own)
    return states


def _refuse_other_start(run: Run, saved: Checkpoint) -> None:
    if saved.state["start"] != run.fingerprint:
        raise RunError(
            f"{run.recipe.folder} was begun from other weights than {run.recipe.model} has now; "
            "name another folder: out=FOLDER."
        )
    if saved.state["steps"] != run.steps or set(run.parameters) - set(saved.weights):
        raise RunError(
            f"{run.recipe.folder} was begun for {shown(saved.state['steps'])} steps and it would "
            f"be {run.steps} now: the data has changed; name another folder: out=FOLDER."
        )


# --- the folder --------------------------------------------------------------------------------


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
        except OSError as error:
            raise RunError(f"{folder}: cannot be used: {reason(error)}.") from None
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
                f"{path}: not the recipe of a run; name another folder: out=FOLDER."
            ) from None
        return
    if folder.is_dir() and any(not p.name.startswith(".") for p in folder.iterdir()):
        raise RunError(
            f"{folder} exists and holds something else; name another folder: out=FOLDER."
        )
    with whole_file(path, RunError) as draft:
        draft.write_text(json.dumps(settled, indent=1) + "\n", encoding="utf-8")


def _refuse_other(begun: Mapping[str, Any], asked: Mapping[str, Any], folder: Path) -> None:
    before, now = _flat(begun), _flat(asked)
    for key in sorted({*before, *now}):
        if before.get(key) != now.get(key):
            name = shortened(key)
            raise RunError(
                f"{folder} holds a run with {name}={_told(before.get(key))}, and this recipe has "
                f"{name}={_told(now.get(key))}; name another folder (out=FOLDER), or set it back."
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
