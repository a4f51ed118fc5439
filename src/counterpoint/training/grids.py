"""A sweep: one training for every cell of a grid over recipe values.

    lr: [1e-5, 5e-6, 1e-6]     grid.yaml: keys as `counterpoint train` takes them, each with values
    hn_weight: [0.5, 1]

Every cell is a training run in a folder of its own, with `cell.json` when it is finished. A cell
that is finished is not run again, and one that was stopped goes on from its last checkpoint.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError, RunError
from counterpoint._util.progress import Progress
from counterpoint._util.untrusted import parse_json, read_yaml, shortened, shown
from counterpoint._util.writing import clear_drafts, write_json
from counterpoint.training.logs import Display
from counterpoint.training.loop import train
from counterpoint.training.processes import processes
from counterpoint.training.reading import load_recipe
from counterpoint.training.recipe import Recipe
from counterpoint.training.validation import Validated, best_of

CELL: Final = "cell.json"
SWEEP: Final = "sweep.json"
_MOST: Final = 1000  # cells
_DIVERGED: Final = "E-LOSS-NON-FINITE"


@dataclass(frozen=True, slots=True)
class Cell:
    """One training of a sweep. `best` is its best validation; none before it is finished, or if
    its loss became non-finite (`failed` is the sentence that says so)."""

    values: Mapping[str, Any]
    recipe: Recipe
    model: str = ""
    best: Validated | None = None
    failed: str = ""

    @property
    def folder(self) -> Path:
        return self.recipe.folder


@dataclass(frozen=True, slots=True)
class Sweep:
    """All cells in the order of the grid. `best` is the one with the best validation."""

    folder: Path
    metric: str
    cells: list[Cell]

    @property
    def best(self) -> Cell | None:
        found = [cell.best for cell in self.cells if cell.best is not None]
        best = best_of(found)
        return next((cell for cell in self.cells if best is not None and cell.best is best), None)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for `sweep.json` and `--json`."""
        best = self.best
        cells = [
            {
                **_cell_json(cell),
                "folder": str(cell.folder),
                "failed": cell.failed or None,
                "is_best": cell is best,
            }
            for cell in self.cells
        ]
        return {"metric": self.metric, "cells": cells}


def sweep(
    name: str,
    grid: Path,
    changes: Sequence[str] = (),
    *,
    world: bool = False,
    out: Path | None = None,
    display: Display | None = None,
    progress: Progress | None = None,
) -> Sweep:
    """Train every cell of the grid that is not finished, one after the other.

    All cells are checked before the first one is trained, and cells of the same data are trained
    on data that has not changed. Under torchrun every process calls this.
    """
    folder, cells = cells_of(name, read_grid(grid), changes, world=world, out=out)
    metric = cells[0].recipe.validation
    assert metric is not None
    done: list[Cell] = []
    with processes(cells[0].recipe) as ranks:
        if ranks.first:
            clear_drafts(folder)
        for number, cell in enumerate(cells, 1):
            found = finished(cell)
            ranks.wait()  # all have looked before the first one begins to write
            if found is None:
                if display is not None and ranks.first:
                    display.say(f"cell {number} of {len(cells)}: {cell.folder.name}")
                same = (one for one in done if one.model and one.recipe.data == cell.recipe.data)
                like = next((one.folder for one in same), None)
                found = _run(cell, display, progress, like)
                ranks.wait()
                found = found or finished(cell) or cell  # of the other ranks
            done.append(found)
        whole = Sweep(folder, metric.metric, done)
        if ranks.first:
            write_json(folder / SWEEP, whole.as_json(), RunError)
    return whole


def _run(
    cell: Cell, display: Display | None, progress: Progress | None, like: Path | None
) -> Cell | None:
    try:
        trained = train(cell.recipe, display, progress, like=like)
    except RunError as error:
        if error.code != _DIVERGED:
            raise
        return replace(cell, failed=str(error))  # one of the grid may be too bold
    if trained is None:
        return None
    found = replace(cell, model=trained.model, best=trained.best)
    write_json(cell.folder / CELL, _cell_json(found), RunError)
    return found


# --- the grid ------------------------------------------------------------------------------------


def read_grid(path: Path) -> dict[str, list[Any]]:
    """Keys with their values, in the order of the file."""
    values = read_yaml(path, "grid")
    good = isinstance(values, dict) and values
    if not good or not all(isinstance(v, list) and v for v in values.values()):
        raise DataError(
            "E-GRID-INVALID",
            f"{path}: a grid has keys of a recipe, each with a list of values, as in "
            "lr: [1e-5, 1e-6].",
        )
    if "out" in values:
        raise DataError(
            "E-GRID-INVALID", f"{path}: every cell has a folder of its own: no key out."
        )
    return {str(key): list(found) for key, found in values.items()}


def cells_of(
    name: str,
    grid: Mapping[str, list[Any]],
    changes: Sequence[str] = (),
    *,
    world: bool = False,
    out: Path | None = None,
) -> tuple[Path, list[Cell]]:
    """The folder of the sweep, and its cells; all recipes are checked."""
    count = 1
    for found in grid.values():
        count *= len(found)
    if count > _MOST:
        raise DataError("E-GRID-INVALID", f"the grid has {count:,} cells; {_MOST:,} at most.")
    chosen = [
        dict(zip(grid, combined, strict=True)) for combined in itertools.product(*grid.values())
    ]
    recipes = [
        load_recipe(name, [*changes, *map(_change, one, one.values())], world=world)
        for one in chosen
    ]
    if any(recipe.validation is None for recipe in recipes):
        raise DataError(
            "E-RECIPE-INVALID",
            f"recipe {name}: a sweep needs a validation: validation.path=FILE "
            "(`counterpoint export PAIRS --as training --validation 0.2` makes one).",
        )
    if len({recipe.validation.metric for recipe in recipes if recipe.validation}) > 1:
        raise DataError("E-GRID-INVALID", "cells with different metrics cannot be compared.")
    together = " ".join(recipe.digest() for recipe in recipes)
    digest = hashlib.blake2b(together.encode(), digest_size=4).hexdigest()
    folder = out or Path("runs") / f"sweep-{Path(name).stem}-{digest}"
    cells = []
    for values, recipe, place in zip(chosen, recipes, _names(chosen), strict=True):
        cells.append(Cell(values, recipe.model_copy(update={"out": folder / place})))
    return folder, cells


def _change(key: str, value: Any) -> str:
    try:
        return f"{key}={json.dumps(value)}"
    except (TypeError, ValueError):
        raise DataError(
            "E-GRID-INVALID", f"{key}: {shown(value)} is not a value of a recipe."
        ) from None


def _names(chosen: Sequence[Mapping[str, Any]]) -> list[str]:
    """A folder's name for each cell: its values, and a digest where that is not enough."""
    texts = [",".join(map(_change, one, one.values())) for one in chosen]
    plain = [re.sub(r"[^A-Za-z0-9._=,+-]+", "_", text.replace('"', "")) for text in texts]
    found = []
    for text, name in zip(texts, plain, strict=True):
        if len(name) > 100 or plain.count(name) > 1:
            name = f"{name[:80]}-{hashlib.blake2b(text.encode(), digest_size=4).hexdigest()}"
        found.append(name)
    return found


# --- what is written -----------------------------------------------------------------------------


def finished(cell: Cell) -> Cell | None:
    """The cell as it was when it was finished; None if it has to be trained (on)."""
    path = cell.folder / CELL
    if not path.is_file():
        return None
    said = parse_json(path.read_bytes(), path, RunError)
    try:
        if said["recipe"] != cell.recipe.digest():
            return None  # training refuses the folder, and says which value differs
        best = said["best"]
        value = None if best is None else Validated(best["step"], best["value"], best["metric"])
        return replace(cell, model=str(said["model"]), best=value)
    except (KeyError, TypeError):
        raise RunError(
            "E-RUN-DAMAGED",
            f"{path}: not the result of a cell ({shortened(said)}); remove it, and the cell is "
            "finished again.",
        ) from None


def _cell_json(cell: Cell) -> dict[str, Any]:
    best = cell.best
    return {
        "values": dict(cell.values),
        "recipe": cell.recipe.digest(),
        "model": cell.model,
        "best": None
        if best is None
        else {"step": best.step, "metric": best.metric, "value": best.value},
    }
