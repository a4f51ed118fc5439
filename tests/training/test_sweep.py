"""Sweeps: one folder per cell, finished cells are left alone, the best is marked."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path

import polars as pl
import pytest
import torch
from errors import raises
from processes import ended, start
from train_data_support import training_file
from training import (
    SMALL,
    Killed,
    held_out,
    run_small,
    same,
    tiny_start,
    weights,
    written,
)
from typer.testing import CliRunner

from counterpoint.cli.app import app
from counterpoint.training import grids, load_recipe, loop, sweep
from counterpoint.training.grids import cells_of, finished, read_grid

pytestmark = pytest.mark.slow

GRID = "lr: [1e-3, 3e-2]\nhn_weight: [0.5, 1]\n"


def asked(folder: Path, *changes: str) -> tuple[str, Path, list[str]]:
    """A recipe, a grid, and what all cells have."""
    folder.mkdir(exist_ok=True)
    (folder / "grid.yaml").write_text(GRID)
    first = folder / "start"
    id = f"open_clip:local-dir:{first}" if first.is_dir() else tiny_start(first)
    common = [*SMALL, f"model={id}", held_out(folder), "validation.every=2", "steps=4", *changes]
    return "hp-hn", folder / "grid.yaml", common


def run(folder: Path, *changes: str, out: str = "sweep"):
    return sweep(*asked(folder, *changes), world=True, out=folder / out)


def test_a_cell_is_the_training_of_its_values(tmp_path):
    found = run(tmp_path)
    values = [cell.values for cell in found.cells]
    assert values == [{"lr": lr, "hn_weight": w} for lr in (1e-3, 3e-2) for w in (0.5, 1)]
    assert [cell.folder.name for cell in found.cells] == [
        f"lr={lr},hn_weight={w}" for lr in (0.001, 0.03) for w in (0.5, 1)
    ]
    alone = run_small(tmp_path, *asked(tmp_path)[2], "lr=3e-2", "hn_weight=0.5", out="alone")
    assert same(weights(found.cells[2].folder), weights(alone.folder))
    assert found.cells[2].best == alone.best
    best = max(cell.best.value for cell in found.cells)
    assert found.best is next(cell for cell in found.cells if cell.best.value == best)
    said = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert [cell["is_best"] for cell in said["cells"]] == [c is found.best for c in found.cells]
    assert said["metric"] == "accuracy"


def test_a_finished_cell_is_not_run_again(tmp_path, monkeypatch):
    before = run(tmp_path)
    monkeypatch.setattr(grids, "train", lambda *_: pytest.fail("trained again"))
    again = run(tmp_path)
    assert again.as_json() == before.as_json()


def test_broken_off_and_repeated_it_ends_the_same(tmp_path, monkeypatch):
    whole = run(tmp_path, out="whole")
    inner, count = loop.update, [0]

    def killed(training, step):
        count[0] += 1
        if count[0] == 7:  # in the second cell
            raise Killed
        return inner(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", killed)
        with pytest.raises(Killed):
            run(tmp_path)
    assert [finished(cell) is not None for cell in cells(tmp_path)] == [True, False, False, False]
    trained = []
    monkeypatch.setattr(loop, "update", lambda *a: trained.append(a[1]) or inner(*a))
    again = run(tmp_path)
    assert trained == [2, 3, 0, 1, 2, 3, 0, 1, 2, 3]  # the second goes on from its checkpoint
    for one, two in zip(again.cells, whole.cells, strict=True):
        assert one.best == two.best
        assert same(weights(one.folder), weights(two.folder))


def cells(folder: Path):
    name, grid, common = asked(folder)
    return cells_of(name, read_grid(grid), common, world=True, out=folder / "sweep")[1]


def sweep_slowly(folder: Path, recipe: str, pause: float) -> None:
    torch.set_num_threads(1)
    inner = loop.update

    def slowly(training, step):
        time.sleep(pause)
        return inner(training, step)

    loop.update = slowly
    sweep(recipe, folder / "grid.yaml", out=folder / "sweep")


def test_killed_by_the_system_and_repeated(tmp_path):
    name, _, common = asked(tmp_path)
    recipe = written(load_recipe(name, [*common, f"out={tmp_path / 'one'}"], world=True))
    (tmp_path / "grid.yaml").write_text("lr: [1e-3, 3e-2]\n")
    process = start(sweep_slowly, tmp_path, recipe, 0.3)
    until = time.monotonic() + 150
    while not list((tmp_path / "sweep").glob("*/cell.json")):
        assert process.is_alive() and time.monotonic() < until
        time.sleep(0.01)
    process.kill()
    assert ended(process) == -signal.SIGKILL
    [done] = (tmp_path / "sweep").glob("*/cell.json")
    before = done.stat().st_mtime_ns
    assert ended(start(sweep_slowly, tmp_path, recipe, 0)) == 0
    assert done.stat().st_mtime_ns == before
    said = json.loads((tmp_path / "sweep" / "sweep.json").read_text())
    assert len(said["cells"]) == 2 and sum(cell["is_best"] for cell in said["cells"]) == 1


def test_a_cell_that_diverges_is_told_and_the_others_go_on(tmp_path, monkeypatch):
    name, grid, common = asked(tmp_path)
    grid.write_text("lr: [1e-3, 0.9]\n")
    inner = loop.update

    def diverges(training, step):
        found = inner(training, step)
        if training.recipe.lr > 0.5:
            found["grad_norm"] = torch.tensor(float("nan"))
        return found

    monkeypatch.setattr(loop, "update", diverges)
    found = sweep(name, grid, common, world=True, out=tmp_path / "sweep")
    assert found.best is found.cells[0] and found.cells[1].best is None
    assert "finite" in found.cells[1].failed
    assert finished(found.cells[1]) is None


def test_the_command_prints_one_table(tmp_path):
    name, grid, common = asked(tmp_path)
    grid.write_text("hn_weight: [0, 1]\n")
    command = ["sweep", name, str(grid), *common, "--world", "-o", str(tmp_path / "sweep")]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "hn_weight" in done.stdout and "accuracy" in done.stdout and " *" in done.stdout
    told = CliRunner().invoke(app, [*command, "--json"])
    rows = json.loads(told.stdout)
    assert [row["values"] for row in rows] == [{"hn_weight": 0}, {"hn_weight": 1}]
    assert sum(row["is_best"] for row in rows) == 1


# --- refusals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["[]", "lr: 1e-3", "lr: []", "{}", "out: [a, b]", "lr: [2026-01-01]", "3"]
)
def test_a_grid_is_keys_with_values(tmp_path, text):
    name, grid, common = asked(tmp_path)
    grid.write_text(text)
    with raises("E-GRID-INVALID"):
        sweep(name, grid, common, world=True, out=tmp_path / "sweep")


def test_cells_are_not_trained_on_data_that_has_changed(tmp_path):
    """A sweep that goes on: the cells that are finished were trained on what the file was."""
    name, grid, common = asked(tmp_path, "steps=2", "data.kind=pairs")
    grid.write_text("lr: [1e-3]\n")
    common = [change for change in common if not change.startswith("data.size")]
    path = training_file(tmp_path / "data")
    common += [f"data.path={path}"]
    sweep(name, grid, common, out=tmp_path / "sweep")
    table = pl.read_parquet(path)
    table.with_columns(pl.col("caption").reverse()).write_parquet(path)
    grid.write_text("lr: [1e-3, 1e-2]\n")
    with raises("E-OUTPUT-EXISTS", "data.path", "caption"):
        sweep(name, grid, common, out=tmp_path / "sweep")
    table.write_parquet(path)
    assert len(sweep(name, grid, common, out=tmp_path / "sweep").cells) == 2


def test_too_many_cells(tmp_path):
    with raises("E-GRID-INVALID", "2,048"):
        cells_of("hp-hn", {f"key{n}": [0, 1] for n in range(11)})


def test_all_cells_are_checked_before_the_first(tmp_path, monkeypatch):
    name, grid, common = asked(tmp_path)
    grid.write_text("lr: [1e-3, -1]\n")
    monkeypatch.setattr(grids, "train", lambda *_: pytest.fail("trained"))
    with raises("E-RECIPE-INVALID", "lr"):
        sweep(name, grid, common, world=True, out=tmp_path / "sweep")
    with raises("E-RECIPE-INVALID", "validation"):
        sweep(name, asked(tmp_path)[1], [*common, "validation=none"], world=True)
    grid.write_text("validation.metric: [loss, recall]\n")
    with raises("E-GRID-INVALID", "metrics"):
        sweep(name, grid, common, world=True)


def test_another_recipe_in_the_folder_of_a_cell_is_refused(tmp_path):
    run(tmp_path)
    with raises("E-OUTPUT-EXISTS", "seed"):
        run(tmp_path, "seed=3")


def test_a_damaged_cell_is_one_sentence(tmp_path):
    [first, *_] = cells(tmp_path)
    first.folder.mkdir(parents=True)
    (first.folder / "cell.json").write_text("[]")
    with raises("E-RUN-DAMAGED"):
        run(tmp_path)


def test_names_of_folders_are_plain_and_differ(tmp_path):
    name, _, common = asked(tmp_path)
    grid = {"data.only": ["swap", "replace"], "benchmarks": [["a/b c"], ["a:b c"]]}
    found = [c.folder.name for c in cells_of(name, grid, common, world=True)[1]]
    assert len(set(found)) == 4 and not any(set(one) & set('/ "[]:') for one in found)
    assert sys.platform == "win32" or all(len(one) < 120 for one in found)
