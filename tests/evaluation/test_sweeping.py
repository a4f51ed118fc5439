"""Sweeps of evaluations: cells that are done stay done, and what failed says why."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from cli_support import counterpoint, own_place, write_cases
from errors import raises
from models_for_tests import is_sentence

import counterpoint as cp
from counterpoint._util.progress import Quiet
from counterpoint.evaluation import (
    EvalSweep,
    forecast,
    read_plan,
    sweep_engines,
    sweep_evaluations,
    sweeping,
)
from counterpoint.evaluation.devices import device_names

__all__ = ["counterpoint", "own_place"]  # fixtures

BENCHMARKS = ("world-swap:size=12", "world-bi:size=6")


def plan(models=("random", "blind:length"), benchmarks=BENCHMARKS, **settings: object) -> Path:
    path = Path("plan.yaml")
    values = {"models": [*models], "benchmarks": [*benchmarks], **settings}
    path.write_text(json.dumps(values))  # JSON is YAML
    return path


def states(found: EvalSweep) -> dict[tuple[str, str], str]:
    return {(cell.model, cell.benchmark): cell.state for cell in found.cells}


def tables(folder: Path) -> dict[str, bytes]:
    """The scores and cases of all runs, by their place."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*.parquet")}


# --- plans ---------------------------------------------------------------------------------------


def test_a_plan_that_is_none(tmp_path: Path) -> None:
    lists = ("", "[1]", "models: [a]", "models: a\nbenchmarks: [b]", "models: []\nbenchmarks: [b]")
    options = (f"models: [a]\nbenchmarks: [b]\nlimit{end}" for end in ("s: 3", ": many", ": true"))
    for text in (*lists, "models: [1]\nbenchmarks: [b]", *options):
        (tmp_path / "plan.yaml").write_text(text)
        with raises("E-PLAN-INVALID") as caught:
            read_plan(tmp_path / "plan.yaml")
        assert is_sentence(caught.value)


def test_a_plan_names_everything_once(tmp_path: Path) -> None:
    found = read_plan(plan(("random", "random"), ("a", "b", "a"), devices=[0, 1], limit=3))
    assert (found.models, found.benchmarks, found.devices) == (("random",), ("a", "b"), "0,1")
    assert found.settings == {"limit": 3}


def test_devices() -> None:
    assert device_names("0,1") == ["cuda:0", "cuda:1"]
    assert device_names("cpu,cpu") == ["cpu", "cpu"]
    assert device_names("") == []
    with raises("E-OPTION-INVALID"):
        device_names("0,gpu")
    with raises("E-OPTION-INVALID"):
        sweep_evaluations(plan(), engine="abacus")


# --- cells ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_cell_is_the_evaluation_itself(tmp_path: Path) -> None:
    found = cp.sweep(plan(), out="all")
    assert set(states(found).values()) == {"done"} and len(found.cells) == 4
    own = cp.evaluate("random", list(BENCHMARKS), out="own")
    [folder] = {Path(cell.folder) for cell in found.cells if cell.model == "random"}
    assert (folder / "scores.parquet").read_bytes() == Path("own/scores.parquet").read_bytes()
    assert json.loads(Path("all/sweep.json").read_text())["cells"] == found.as_json()
    assert {run.model for run in cp.load_runs("all")} == {"random", "blind:length"}
    assert own.model == "random"


@pytest.mark.slow
def test_what_is_done_is_not_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def noted(model, benchmarks, **options):
        asked.append((model, [one.name for one in benchmarks]))
        return cp.evaluate(model, benchmarks, **options)

    monkeypatch.setattr(sweeping, "evaluate", noted)
    cp.sweep(plan(), out="all")
    before = tables(Path("all"))
    assert asked == [(model, list(BENCHMARKS)) for model in ("random", "blind:length")]
    asked.clear()
    cp.sweep(plan(), out="all")
    assert asked == []
    more = (*BENCHMARKS, "world-replace:size=12")
    found = cp.sweep(plan(("random", "blind:length", "blind:format"), more), out="all")
    assert asked == [
        ("random", [more[2]]),
        ("blind:length", [more[2]]),
        ("blind:format", list(more)),
    ]
    assert set(states(found).values()) == {"done"}
    after = tables(Path("all"))
    assert {name: after[name] for name in before} == before


@pytest.mark.slow
def test_failures_cost_their_cells_and_are_tried_again(tmp_path: Path) -> None:
    asked = plan(("random", "vectors:mine"), ("world-swap:size=12", "mine.jsonl", "probe/none"))
    found = cp.sweep(asked, out="all")
    assert states(found) == {
        ("random", "world-swap:size=12"): "done",
        ("random", "mine.jsonl"): "failed",
        ("random", "probe/none"): "failed",
        ("vectors:mine", "world-swap:size=12"): "failed",
        ("vectors:mine", "mine.jsonl"): "failed",
        ("vectors:mine", "probe/none"): "failed",
    }
    why = {(cell.model, cell.benchmark): cell.why for cell in found.failed}
    assert "mine.jsonl: no such file" in why["random", "mine.jsonl"]
    assert "E-MODEL-MISSING" in why["vectors:mine", "world-swap:size=12"]
    write_cases("mine", count=6)
    again = cp.sweep(asked, out="all")
    assert states(again)["random", "mine.jsonl"] == "done"
    assert states(again)["random", "probe/none"] == "failed"


def test_a_benchmark_that_does_not_suit_costs_only_itself(monkeypatch) -> None:
    """Evaluated together they fail; one by one, the others are done."""

    def picky(model, benchmarks, **options):
        if any(one.name == BENCHMARKS[1] for one in benchmarks):
            raise cp.CounterpointError("E-MODEL-UNSUITABLE", "not this one.")
        return cp.evaluate(model, benchmarks, **options)

    monkeypatch.setattr(sweeping, "evaluate", picky)
    found = cp.sweep(plan(("random",)), out="all")
    assert [cell.state for cell in found.cells] == ["done", "failed"]
    assert found.cells[1].why == "not this one. [E-MODEL-UNSUITABLE]"


@pytest.mark.slow
def test_a_damaged_run_is_run_again() -> None:
    found = cp.sweep(plan(("random",)), out="all")
    whole = tables(Path("all"))
    (Path(found.cells[0].folder) / "run.json").write_text("{")
    (Path("all") / "sweep.json").write_text("{")
    assert set(states(cp.sweep(plan(("random",)), out="all")).values()) == {"done"}
    assert tables(Path("all")) == whole


@pytest.mark.slow
def test_other_settings_need_another_folder() -> None:
    cp.sweep(plan(("random",), limit=5), out="all")
    with raises("E-OUTPUT-EXISTS"):
        cp.sweep(plan(("random",), limit=6), out="all")
    first, second = (cp.sweep(plan(("random",), limit=n)).folder for n in (5, 6))
    assert first != second
    assert len(cp.load_run(first).parts[BENCHMARKS[0]].cases) == 5


@pytest.mark.slow
def test_a_forecast_knows_after_the_first_cell() -> None:
    asked = read_plan(plan(("colours:a", "colours:b")))
    counts, cells = forecast(asked, Path("all"))
    assert [(one.images, one.pairs) for one in counts] == [(12, 36), (12, 24)]
    assert [cell.seconds for cell in cells] == [None, None]
    first = sweep_evaluations(plan(("colours:a",)), out=Path("all"), progress=Quiet())
    _, [left] = forecast(asked, Path("all"))
    [cost] = json.loads((Path(first.cells[0].folder).parent / "costs.json").read_text())["costs"]
    assert (left.model, left.images) == ("colours:b", 24)
    assert left.seconds == pytest.approx(cost["seconds"])
    assert left.bytes == pytest.approx(cost["stored"] + cost["run"])
    _, nothing = forecast(read_plan(plan(("colours:a",))), Path("all"))
    assert nothing == []


@pytest.mark.slow
def test_the_command(counterpoint) -> None:
    asked = str(plan(("random", "nothing:x")))
    dry = counterpoint("sweep", asked, "--dry-run")
    assert dry.code == 0 and "unknown until the first cell is done" in dry.out
    assert not Path("all").exists()
    done = counterpoint("sweep", asked, "-o", "all", "--json")
    rows = json.loads(done.out)
    assert [row["state"] for row in rows] == ["done", "done", "failed", "failed"]
    assert done.code == 1 and "nothing:x on world-swap:size=12 and 1 more" in done.err
    shown = counterpoint("sweep", str(plan(("random",))), "-o", "all")
    assert shown.code == 0 and "2 of 2 cells done" in shown.out
    for wrong in (("hp-hn", "grid.yaml", "--dry-run"), (asked, "--world")):
        assert counterpoint("sweep", *wrong).code == 2


# --- other processes -----------------------------------------------------------------------------


@pytest.mark.slow
def test_devices_give_the_same_bytes() -> None:
    cp.sweep(plan(), out="one")
    found = cp.sweep(plan(), out="two", devices="cpu,cpu")
    assert set(states(found).values()) == {"done"}
    assert tables(Path("one")) == tables(Path("two"))


def dies(job, device: str, here: str) -> None:
    """Instead of a cell: the process of one model is killed, the other's works."""
    if job.model == "random":
        os.kill(os.getpid(), signal.SIGKILL)
    work_of_a_cell(job, device, here)


work_of_a_cell = sweep_engines._work


@pytest.mark.slow
@pytest.mark.faults
def test_a_killed_process_costs_its_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep_engines, "_work", dies)
    found = cp.sweep(plan(), out="all", devices="cpu,cpu")
    assert [cell.state for cell in found.cells] == ["failed", "failed", "done", "done"]
    assert "signal 9" in found.cells[0].why
    monkeypatch.setattr(sweep_engines, "_work", work_of_a_cell)
    assert not cp.sweep(plan(), out="all", devices="cpu,cpu").failed


@pytest.mark.slow
@pytest.mark.faults
def test_killed_and_started_again_gives_the_same_bytes(tmp_path: Path) -> None:
    benchmarks = ("world-swap:size=150", "world-bi:size=80")
    asked = plan(("world:base",), benchmarks, batch_size=16)

    def start(cache: str, out: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "counterpoint", "sweep", str(asked), "-o", out],
            env={**os.environ, "COUNTERPOINT_CACHE": str(tmp_path / cache)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    assert start("first", "whole").wait() == 0
    killed, store = start("second", "again"), tmp_path / "second/store/results.sqlite"
    while killed.poll() is None and not (store.is_file() and store.stat().st_size > 100_000):
        time.sleep(0.02)
    killed.kill()
    killed.wait()
    assert not tables(tmp_path / "again")  # in the middle
    assert start("second", "again").wait() == 0
    assert tables(tmp_path / "again") == tables(tmp_path / "whole")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("cluster", ["debug", "local"])
def test_slurm_by_submitit(cluster: str) -> None:
    pytest.importorskip("submitit")
    cp.sweep(plan(), out="one")
    settings = {"cluster": cluster, "slurm_partition": "gpu", "slurm_time": "0:10:00"}
    found = cp.sweep(plan(), out="two", engine="slurm", slurm=settings)
    assert set(states(found).values()) == {"done"}
    assert tables(Path("one")) == tables(Path("two"))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")
def test_ray_with_two_workers() -> None:
    pytest.importorskip("ray")
    cp.sweep(plan((*["random", "blind:length", "blind:format"], "nothing:x")), out="one")
    asked = plan((*["random", "blind:length", "blind:format"], "nothing:x"))
    found = cp.sweep(asked, out="two", engine="ray", devices="cpu,cpu")
    assert [cell.model for cell in found.failed] == ["nothing:x"] * 2
    assert tables(Path("one")) == tables(Path("two"))
