"""Batches in other processes: the same bytes as in this one, whatever happens to a process."""

from __future__ import annotations

import os
import random
import signal
import time
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
from errors import raises
from models_for_tests import is_sentence
from processes import ended, start
from worker_models import (
    BATCH,
    KINDS,
    OddError,
    alive,
    die,
    die_once,
    evaluated,
    fail,
    fail_in_arithmetic,
    fail_oddly,
    load,
    load_badly,
    pids,
    placed,
    slow,
    stopped,
    stored,
    table,
    tight,
)

from counterpoint import evaluate
from counterpoint._util.processes import end_with_parent, starting

pytestmark = [pytest.mark.slow, pytest.mark.faults]

FOUR = "cpu,cpu,cpu,cpu"


def answers(where: str, kind: str, trouble: Any, root: Path, batch: int = BATCH) -> Any:
    folder = root / f"{where.count(',')}-{kind}-{trouble.__name__}"
    folder.mkdir()
    with placed(where, partial(load, kind, partial(trouble, folder))) as model:
        found = evaluated(model, table(root / "images"), folder, batch)
    return *found, pids(folder)


@pytest.mark.parametrize("kind", KINDS)
def test_processes_give_the_same_bytes(kind: str, tmp_path: Path) -> None:
    """With a broken and a missing image, and with inputs that the model of pairs refuses."""
    *expected, here = answers("here", kind, slow, tmp_path)
    assert here == {os.getpid()}
    assert len(expected[-1]) == {"dual": 2, "pairs": 4, "blind": 0}[kind]
    for where in ("cpu,cpu", FOUR):
        *found, used = answers(where, kind, slow, tmp_path)
        assert found == expected
        assert len(used) == len(where.split(",")) and os.getpid() not in used


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch", [5, 7, 8])
def test_what_does_not_fit_into_memory_is_halved(kind: str, batch: int, tmp_path: Path) -> None:
    """However many batches were begun before the first of them did not fit."""
    *expected, _ = answers("here", kind, tight, tmp_path, batch)
    *found, used = answers("cpu,cpu", kind, tight, tmp_path, batch)
    assert found == expected and len(used) == 2


@pytest.mark.parametrize("kind", KINDS)
def test_a_killed_process_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    *expected, _ = answers("here", kind, slow, tmp_path)
    *found, used = answers("cpu,cpu", kind, die_once, tmp_path)
    assert found == expected
    assert len(used) == 3  # one of them in the place of another


def test_a_process_that_dies_every_time_is_one_sentence(tmp_path: Path) -> None:
    with raises("E-WORKER-DIED") as caught:
        answers("cpu,cpu", "dual", die, tmp_path)
    assert is_sentence(caught.value)
    assert not alive(tmp_path / "1-dual-die")


@pytest.mark.parametrize("kind", KINDS)
def test_errors_of_a_model_arrive_as_themselves(kind: str, tmp_path: Path) -> None:
    with raises("E-MODEL-OUTPUT") as caught:
        answers("cpu,cpu", kind, fail, tmp_path)
    assert str(caught.value) == "the weights are gone."
    assert "worker_models.py" in caught.value.__notes__[0]  # where it was raised


def test_any_error_arrives(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError, match="the mean of nothing"):
        answers("cpu,cpu", "dual", fail_in_arithmetic, tmp_path)
    with pytest.raises(RuntimeError, match="OddError: no luck"):  # it cannot be unpickled
        answers("cpu,cpu", "dual", fail_oddly, tmp_path)
    assert not issubclass(OddError, RuntimeError)


def test_a_device_on_which_the_model_cannot_be_loaded(tmp_path: Path) -> None:
    with (
        raises("E-MODEL-OUTPUT") as caught,
        placed("cpu,cpu", partial(load_badly, tmp_path)) as model,
    ):
        evaluated(model, table(tmp_path / "images"), tmp_path)
    assert str(caught.value) == "there is no such device."


# --- the driver ----------------------------------------------------------------------------------


def drive(folder: Path) -> None:
    with placed("cpu,cpu", partial(load, "dual", partial(slow, folder))) as model:
        evaluated(model, table(folder.parent / "images"), folder)


def test_a_killed_driver_leaves_no_process_and_no_doubt(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir(), killed.mkdir()
    model = load("dual", partial(slow, whole))
    files, values, _ = evaluated(model, table(tmp_path / "images"), whole)
    chance = random.Random(3)
    for _ in range(3):
        child = start(drive, killed)
        before, limit = pids(killed), time.monotonic() + 60
        while pids(killed) == before and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.15))
        child.kill()
        assert ended(child) in (-signal.SIGKILL, 0)
        assert not alive(killed)
    assert ended(start(drive, killed)) == 0
    found = {path.name: path.read_bytes() for path in (killed / "run").glob("*.parquet")}
    assert (found, stored(killed / "store")) == (files, values)
    assert not alive(killed)


@pytest.mark.parametrize(
    ("stop", "group"), [(signal.SIGINT, True), (signal.SIGINT, False), (signal.SIGTERM, False)]
)
def test_a_stop_ends_all_processes(stop: signal.Signals, group: bool, tmp_path: Path) -> None:
    status, said = stopped(tmp_path, stop, group, "--devices", "cpu,cpu")
    assert status == 128 + stop, said
    assert "interrupted; what was computed is kept" in said and "Traceback" not in said
    assert not alive(tmp_path)
    assert stored(tmp_path / "store") and not (tmp_path / "run").exists()


def test_a_process_that_is_starting_does_not_get_the_stop() -> None:
    process = get_context("spawn").Process(target=end_with_parent)
    with starting():
        process.start()
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)  # before its first line runs
    process.join(60)
    assert process.exitcode == 0


# --- through the front door ----------------------------------------------------------------------


@pytest.mark.parametrize("model", ["random", "ensemble:blind:length+world:base"])
def test_what_cannot_be_distributed_is_computed_here(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    evaluate(model, "world-swap:size=12", out="one", store="one.store")
    evaluate(model, "world-swap:size=12", out="two", store="two.store", devices="cpu,cpu")
    assert Path("one/scores.parquet").read_bytes() == Path("two/scores.parquet").read_bytes()
