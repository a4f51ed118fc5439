"""Batches on a cluster of Ray: the same bytes as in one process, whatever happens to an actor."""

from __future__ import annotations

import os
import pickle
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import worker_models
from crop_support import PHOTOGRAPHS, decoder, load_noting, noted, scattered
from errors import raises
from models_for_tests import is_sentence
from worker_models import (
    BATCH,
    WORLD,
    alive,
    command,
    die,
    die_once,
    evaluated,
    fail,
    fail_oddly,
    load,
    pids,
    placed,
    slow,
    stopped,
    table,
    tight,
)

from counterpoint import evaluate
from counterpoint._util.processes import ray_cluster

__all__ = ["decoder"]  # a fixture

pytest.importorskip("ray")
pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    support = str(Path(worker_models.__file__).parent)
    with pytest.MonkeyPatch.context() as patch:  # workers have the environment of the cluster
        patch.setenv("PYTHONPATH", support, prepend=os.pathsep)
        with ray_cluster("local", 4) as joined:
            yield joined


def answers(where: str, kind: str, trouble: Any, root: Path, ray: Any, batch: int = 4) -> Any:
    folder = root / f"{where}-{kind}-{trouble.__name__}"
    folder.mkdir()
    with placed(where, partial(load, kind, partial(trouble, folder)), ray) as model:
        found = evaluated(model, table(root / "images"), folder, batch)
    return *found, len(pids(folder))


@pytest.mark.parametrize(
    ("kind", "workers"), [("dual", "124"), ("pairs", "2"), ("blind", "2")], ids=lambda x: x
)
def test_actors_give_the_same_bytes(kind: str, workers: str, tmp_path: Path, ray: Any) -> None:
    *expected, _ = answers("here", kind, slow, tmp_path, ray)
    for count in workers:
        *found, used = answers(count, kind, slow, tmp_path, ray)
        assert found == expected
        assert 1 <= used <= int(count)


@pytest.mark.usefixtures("decoder")
def test_actors_decode_a_photograph_once_for_its_crops(tmp_path: Path, ray: Any) -> None:
    cases, results = scattered(tmp_path / "images"), []
    for where in ("here", "2"):
        folder = tmp_path / where
        folder.mkdir()
        with placed(where, partial(load_noting, folder / "log"), ray) as model:
            results.append(evaluated(model, cases, folder, batch=20))
        assert len(noted(folder / "log")) == PHOTOGRAPHS
    assert results[0] == results[1]


def test_what_does_not_fit_into_memory_is_halved(tmp_path: Path, ray: Any) -> None:
    *expected, _ = answers("here", "dual", tight, tmp_path, ray, batch=8)
    *found, _ = answers("2", "dual", tight, tmp_path, ray, batch=8)
    assert found == expected


@pytest.mark.parametrize("kind", ["dual", "pairs"])
def test_a_killed_actor_loses_and_doubles_nothing(
    kind: str, tmp_path: Path, ray: Any, capfd: pytest.CaptureFixture[str]
) -> None:
    *expected, _ = answers("here", kind, slow, tmp_path, ray)
    *found, used = answers("1", kind, die_once, tmp_path, ray)
    assert found == expected
    assert used == 2  # one in the place of the other
    assert capfd.readouterr().out == ""  # Ray would print its death between our rows


def test_an_actor_that_dies_every_time_is_one_sentence(tmp_path: Path, ray: Any) -> None:
    with raises("E-WORKER-DIED") as caught:
        answers("1", "dual", die, tmp_path, ray)
    assert is_sentence(caught.value)


class NoModule:
    """Pickled as something of a module that is nowhere."""

    def __reduce__(self) -> Any:
        return pickle.loads, (b"cnowhere\nload\n.",)

    def __call__(self) -> None:
        """As a model is loaded."""


def test_a_machine_without_the_packages_is_one_sentence(ray: Any) -> None:
    with raises("E-WORKER-DIED") as caught, placed("1", NoModule(), ray):
        pass
    assert is_sentence(caught.value) and "No module named 'nowhere'" in str(caught.value)


def test_errors_of_a_model_arrive(tmp_path: Path, ray: Any) -> None:
    with raises("E-MODEL-OUTPUT") as caught:
        answers("1", "dual", fail, tmp_path, ray)
    assert str(caught.value) == "the weights are gone."
    with pytest.raises(RuntimeError, match="OddError: no luck"):  # it cannot be unpickled
        answers("1", "dual", fail_oddly, tmp_path, ray)


def test_actors_for_which_there_is_no_room_hold_nothing_up(tmp_path: Path, ray: Any) -> None:
    *expected, _ = answers("here", "blind", slow, tmp_path, ray)
    *found, used = answers("6", "blind", slow, tmp_path, ray)
    assert found == expected and used <= 4


def test_models_through_the_front_door(
    tmp_path: Path, ray: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for model in ("world:base", "random"):
        place = tmp_path / model.replace(":", "-")
        for name, options in {"one": {}, "two": {"engine": "ray", "workers": 2}}.items():
            store = place / f"{name}.store"
            evaluate(model, "world-swap:size=20", out=place / name, store=store, **options)
        first, second = (place / name / "scores.parquet" for name in ("one", "two"))
        assert first.read_bytes() == second.read_bytes()


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_a_stop_ends_the_cluster(stop: signal.Signals, tmp_path: Path) -> None:
    status, said = stopped(tmp_path, stop, False, "--engine", "ray", "--workers", "1")
    assert status == 128 + stop, said
    assert "interrupted; what was computed is kept" in said and "Traceback" not in said
    assert not alive(tmp_path)


def test_a_killed_driver_leaves_no_actor_and_no_doubt(tmp_path: Path) -> None:
    options = ("--engine", "ray", "--workers", "2")
    status, _ = stopped(tmp_path, signal.SIGKILL, False, *options)
    assert status == -signal.SIGKILL
    assert not alive(tmp_path) and not (tmp_path / "run").exists()
    again = command(tmp_path, *options)
    assert again.wait() == 0, again.stderr
    model = load("dual", partial(slow, tmp_path, pause=0))
    whole = tmp_path / "whole"
    evaluate(("slow", model), WORLD, batch_size=BATCH, out=whole, store=tmp_path / "other")
    for file in ("scores.parquet", "cases.parquet"):
        assert (tmp_path / "run" / file).read_bytes() == (whole / file).read_bytes()
