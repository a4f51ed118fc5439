"""Checkpoints of a training elsewhere: each complete one is evaluated once, and none is lost."""

from __future__ import annotations

import csv
import os
import shutil
import signal
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from cli_support import counterpoint, own_place
from errors import raises
from models_for_tests import is_sentence

import counterpoint as cp
from counterpoint.evaluation import Watch, watching
from counterpoint.evaluation.watching import find_checkpoints
from counterpoint.reports import CoursePoint, write_course
from counterpoint.runs import Row

__all__ = ["counterpoint", "own_place"]  # fixtures

SHIPPED = Path(cp.__file__).parent / "world" / "checkpoints"
BENCHMARK = "world-swap:size=12"
ASKED = ("-b", BENCHMARK, "-o", "out", "--once", "--settle", "0")


@pytest.fixture
def logs() -> Path:
    """Two checkpoints, as a training of open_clip would leave them as folders."""
    folder = Path("logs")
    for step, name in ((100, "base"), (200, "hn")):
        add(folder, step, name)
    return folder


def add(folder: Path, step: int, name: str) -> Path:
    place = folder / f"step_{step}"
    shutil.copytree(SHIPPED / name, place, dirs_exist_ok=True)
    at = 1_700_000_000 + step  # copies keep the time of their source
    for path in place.iterdir():
        os.utime(path, (at, at))
    return place


def course(folder: str = "out") -> list[dict[str, str]]:
    with (Path(folder) / "course.csv").open() as file:
        return list(csv.DictReader(file))


# --- what is found -------------------------------------------------------------------------------


def test_what_is_a_checkpoint() -> None:
    top = Path("logs")
    files = ["epoch_2.pt", "epoch_10.pt", ".epoch_3.pt", "notes.txt", "deep/model.safetensors"]
    files += ["checkpoint-500/config.json", "checkpoint-500/model.safetensors"]
    files += ["checkpoint-500/optimizer.pt", "best/open_clip_config.json", "best/weights.bin"]
    files += ["empty/config.json"]
    for number, name in enumerate(files):
        path = top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
        os.utime(path, (1000 + number, 1000 + number))
    (top / "latest.pt").symlink_to("epoch_10.pt")
    with raises("E-CHECKPOINT-KIND") as caught:
        find_checkpoints(top)
    assert is_sentence(caught.value) and "--as" in str(caught.value)
    found = find_checkpoints(top, "checkpoint:{}@RN50")
    assert [(one.name, one.step) for one in found] == [
        ("epoch_2.pt", 2),
        ("epoch_10.pt", 10),
        ("deep/model.safetensors", None),
        ("checkpoint-500", 500),
        ("best", None),
    ]
    assert found[1].model == f"checkpoint:{top / 'epoch_10.pt'}@RN50"
    for path in (*top.glob("*.pt"), top / "deep" / "model.safetensors"):
        path.unlink()
    assert [one.model for one in find_checkpoints(top)] == [
        f"hf:{top / 'checkpoint-500'}",
        f"open_clip:local-dir:{top / 'best'}",
    ]


def test_a_watch_that_cannot_begin(logs: Path) -> None:
    with raises("E-FILE-MISSING"):
        find_checkpoints(Path("nowhere"))
    with raises("E-CHECKPOINT-KIND"):
        Watch(logs, [BENCHMARK], Path("out"), template="hf:x")
    with raises("E-BENCHMARK-UNKNOWN"):
        Watch(logs, ["world-swop"], Path("out"))
    assert not Path("out").exists()
    Watch(logs, [BENCHMARK], Path("out"), settings={"limit": 3})
    with raises("E-OUTPUT-EXISTS"):
        Watch(logs, [BENCHMARK], Path("out"), settings={"limit": 4})


def test_a_checkpoint_is_complete_when_it_stays_as_it_is(logs: Path, monkeypatch) -> None:
    weights = logs / "step_200" / "open_clip_model.safetensors"
    ahead = time.time() + 3600  # the clock of another machine
    os.utime(weights, (ahead, ahead))
    watched = Watch(logs, [BENCHMARK], Path("out"), settle=60)
    new, written = watched.look()
    assert [one.name for one in new] == ["step_100"] and written == 1
    now = time.monotonic()
    monkeypatch.setattr(watching.time, "monotonic", lambda: now + 61)
    assert [one.name for one in watched.look()[0]] == ["step_100", "step_200"]
    os.utime(weights, (ahead + 1, ahead + 1))  # written to again
    assert watched.look() == (new, 1)


def test_one_that_is_written_meanwhile_is_evaluated_again(logs: Path, monkeypatch) -> None:
    watched = Watch(logs, [BENCHMARK], Path("out"), settle=0)
    done = watching.run_cell

    def overtaken(job, *rest) -> None:
        done(job, *rest)
        add(logs, 200, "hp-hn")
        os.utime(logs / "step_200" / "open_clip_config.json")

    monkeypatch.setattr(watching, "run_cell", overtaken)
    [why] = watched.evaluate(watched.look()[0][1])
    assert "written again" in why and watched.runs() == []
    monkeypatch.setattr(watching, "run_cell", done)
    [_, again] = watched.look()[0]
    assert watched.evaluate(again) == []
    [(one, [folder])] = watched.runs()
    run = cp.load_run(folder)
    expected = cp.evaluate("world:hp-hn", BENCHMARK)
    assert one.name == "step_200"
    assert run.results().to_dicts()[0]["value"] == expected.results().to_dicts()[0]["value"]


# --- the command ---------------------------------------------------------------------------------


@pytest.mark.slow
def test_each_checkpoint_is_evaluated_once(logs: Path, counterpoint) -> None:
    first = counterpoint("watch", str(logs), *ASKED)
    assert first.code == 0 and "2 checkpoints in" in first.out
    rows = course()
    assert [(row["checkpoint"], row["x"]) for row in rows if row["metric"] == "brittleness"] == [
        ("step_100", "100"),
        ("step_200", "200"),
    ]
    for model, name in (("world:base", "step_100"), ("world:hn", "step_200")):
        expected = {
            row["metric"]: row["value"]
            for row in cp.evaluate(model, BENCHMARK).results().to_dicts()
        }
        for row in rows:
            if row["checkpoint"] == name:
                assert float(row["value"]) == pytest.approx(expected[row["metric"]], abs=1e-9)
                assert (Path("out") / row["run"] / "scores.parquet").is_file()
    assert ET.parse("out/course.svg").getroot().tag.endswith("svg")
    shutil.rmtree(logs / "step_100")  # a training keeps its last ones; the numbers stay
    add(logs, 300, "counterpoint")
    later = counterpoint("watch", str(logs), *ASKED)
    assert later.code == 0 and "step_300" in later.out and "step_200" not in later.out
    assert {row["checkpoint"] for row in course()} == {"step_100", "step_200", "step_300"}


@pytest.mark.slow
def test_what_is_written_again_meanwhile_is_not_forgotten(logs, counterpoint, monkeypatch) -> None:
    """The command goes on until all is evaluated as it is now, and has not failed then."""
    done, calls = watching.run_cell, []

    def overtaken(job, *rest) -> None:
        done(job, *rest)
        calls.append(job.model)
        if len(calls) == 2:
            add(logs, 200, "hp-hn")
            os.utime(logs / "step_200" / "open_clip_config.json")

    monkeypatch.setattr(watching, "run_cell", overtaken)
    found = counterpoint("watch", str(logs), *ASKED)
    assert found.code == 0 and "written again" in found.err and len(calls) == 3
    assert {row["checkpoint"] for row in course()} == {"step_100", "step_200"}


@pytest.mark.slow
@pytest.mark.faults
def test_a_broken_checkpoint_costs_no_other(logs: Path, counterpoint) -> None:
    weights = logs / "step_100" / "open_clip_model.safetensors"
    whole = weights.read_bytes()
    weights.write_bytes(whole[: len(whole) // 2])
    found = counterpoint("watch", str(logs), *ASKED)
    assert found.code == 1 and "failed: step_100" in found.err and "step_200" in found.out
    assert {row["checkpoint"] for row in course()} == {"step_200"}
    weights.write_bytes(whole)
    assert counterpoint("watch", str(logs), *ASKED).code == 0
    assert {row["checkpoint"] for row in course()} == {"step_100", "step_200"}


@pytest.mark.slow
@pytest.mark.faults
def test_a_killed_watch_goes_on(logs: Path, counterpoint) -> None:
    command = [sys.executable, "-m", "counterpoint", "watch", str(logs), *ASKED]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not list(Path("out").glob("*/checkpoint.json")):  # the first is being evaluated
        assert process.poll() is None
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert counterpoint("watch", str(logs), *ASKED).code == 0
    after = Path("out/course.csv").read_bytes()
    shutil.rmtree("out")
    assert counterpoint("watch", str(logs), *ASKED).code == 0
    assert Path("out/course.csv").read_bytes() == after


def test_a_course_of_a_part_says_so(tmp_path: Path) -> None:
    row = Row("one", "sugarcrepe", "all", "original_accuracy", 0.5, 0.4, 0.6, 300, 0, 0.5)
    points = [
        CoursePoint("one", 1, [(row, "runs/one")], {"sugarcrepe": "300 of 7,511"}),
        CoursePoint("two", 2, [(row, "runs/two")], {"sugarcrepe": "300 of 7,511"}),
    ]
    table, figure = write_course(points, tmp_path)
    with table.open() as file:
        assert [line["part"] for line in csv.DictReader(file)] == ["300 of 7,511"] * 2
    assert "sugarcrepe (300 of 7,511)‡" in figure.read_text(encoding="utf-8")
