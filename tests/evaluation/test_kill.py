"""Killed runs: what was computed stays, nothing is half there, the end is the same to the byte."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from counterpoint import load_run
from counterpoint._util.errors import RunError
from counterpoint.runs.folders import find_runs

BENCHMARK = "world-swap:size=250,seed=5"
BATCH, PAUSE = 16, 0.004
SUPPORT = Path(__file__).parents[1] / "support"

EVALUATE = """
import sys
from pathlib import Path
from models_for_tests import SlowTowers
import counterpoint
folder, benchmark, batch, pause, name = sys.argv[1:]
folder = Path(folder)
counterpoint.evaluate([("slow", SlowTowers(folder / "log", float(pause)))], benchmark,
    batch_size=int(batch), store=folder / "store", out=folder / "runs" / name)
"""

COMMAND_LINE = """
import sys
from counterpoint import cli, models
models.FAMILIES.builtin["slow"] = "models_for_tests:load"
cli.main()
"""


def environment(folder: Path) -> dict[str, str]:
    """The tests' own modules can be imported, and the command line's store is here."""
    paths = os.pathsep.join([str(SUPPORT), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": paths, "COUNTERPOINT_CACHE": str(folder)}


def start(folder: Path, pause: float = PAUSE, name: str = "slow") -> subprocess.Popen[bytes]:
    asked = (str(folder), BENCHMARK, str(BATCH), str(pause), name)
    return subprocess.Popen([sys.executable, "-c", EVALUATE, *asked], env=environment(folder))


def start_command_line(folder: Path, pause: float = PAUSE) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-c", COMMAND_LINE, "eval", "-b", BENCHMARK]
    command += ["-m", f"slow:{folder / 'log'},{pause}", "--batch-size", str(BATCH)]
    command += ["--out", str(folder / "runs" / "slow")]
    return subprocess.Popen(
        command, env=environment(folder), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )


def logged(folder: Path) -> list[str]:
    log = folder / "log"
    return log.read_text().splitlines() if log.exists() else []


def wait_for(folder: Path, lines: int, child: subprocess.Popen[bytes]) -> None:
    """Until the child has encoded so many items. Counting is steadier than a clock."""
    limit = time.monotonic() + 60
    while len(logged(folder)) < lines:
        assert child.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < limit
        time.sleep(0.001)


def visible_runs(folder: Path) -> list[Path]:
    try:
        return find_runs(folder / "runs")
    except RunError:
        return []


def finish(child: subprocess.Popen[bytes]) -> None:
    assert child.wait(60) == 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(start(folder, pause=0))
    return folder


def same_bytes(folder: Path, other: Path, name: str = "slow") -> bool:
    files = ("cases.parquet", "scores.parquet")
    run, expected = folder / "runs" / name, other / "runs" / "slow"
    return all((run / name).read_bytes() == (expected / name).read_bytes() for name in files)


def test_an_undisturbed_run_encodes_each_item_once(undisturbed: Path) -> None:
    items = logged(undisturbed)
    part = load_run(undisturbed / "runs").parts[BENCHMARK]
    captions = set(part.cases.frame["captions"].explode().to_list())
    assert len(items) == len(set(items)) == 250 + len(captions)
    assert captions < set(items)


def test_a_run_killed_three_times_ends_as_if_undisturbed(tmp_path: Path, undisturbed: Path) -> None:
    chance, total = random.Random(7), len(logged(undisturbed))
    moments = sorted(chance.sample(range(1, total * 9 // 10), 3))
    assert moments[0] < 250 < moments[-1]  # in the images and in the captions
    for lines in moments:
        child = start(tmp_path)
        try:
            wait_for(tmp_path, lines, child)
            time.sleep(chance.uniform(0, 2 * PAUSE))
        finally:
            child.kill()
        assert child.wait() == -signal.SIGKILL
        assert visible_runs(tmp_path) == []
    finish(start(tmp_path, pause=0))

    assert same_bytes(tmp_path, undisturbed)
    assert load_run(tmp_path / "runs").left_out == 0
    times = Counter(logged(tmp_path))
    assert set(times) == set(logged(undisturbed))
    assert max(times.values()) <= 1 + len(moments)
    # Only the batch at work when the kill came is done again.
    assert sum(times.values()) - len(times) <= len(moments) * BATCH


def test_a_finished_run_costs_nothing_again(tmp_path: Path, undisturbed: Path) -> None:
    finish(start(tmp_path, pause=0))
    before = logged(tmp_path)
    finish(start(tmp_path, pause=0))
    assert logged(tmp_path) == before
    assert same_bytes(tmp_path, undisturbed)


def test_two_at_once_come_to_the_same_end(tmp_path: Path, undisturbed: Path) -> None:
    """One store, two processes: work may be done twice, but the results are the same."""
    children = {name: start(tmp_path, name=name) for name in ("one", "two")}
    for name, child in children.items():
        finish(child)
        assert same_bytes(tmp_path, undisturbed, name)
    assert set(logged(tmp_path)) == set(logged(undisturbed))


# --- writing the run folder --------------------------------------------------------------------

SAVE = """
import os, signal, sys
from pathlib import Path
from counterpoint import evaluate, runs, writing

def die_at(owner, name, call, after):
    right, calls = getattr(owner, name), []
    def dying(*inputs, **options):
        calls.append(name)
        if len(calls) == call and not after:
            os.kill(os.getpid(), signal.SIGKILL)
        result = right(*inputs, **options)
        if len(calls) == call:
            os.kill(os.getpid(), signal.SIGKILL)
        return result
    setattr(owner, name, dying)

folder, step, size = Path(sys.argv[1]), sys.argv[2], sys.argv[3]
owners = {"write_scores": runs, "file_digest": runs, "_exchange": writing, "rename": Path}
if step:
    name, call, after = step.split()
    die_at(owners[name], name, int(call), after == "after")
out = folder / "runs" / "slow"
evaluate("random", f"world-bi:size={size}", store=folder / "store", out=out, overwrite=True)
"""
# Before the draft has its manifest, when it is whole, between the renames, and after them. For a
# new folder two renames are tried that find nothing: of one to be put back, and of an older one.
NEW = ("write_scores 1 after", "file_digest 2 after", "_exchange 1 before", "rename 3 after")
IN_PLACE = ("_exchange 1 before", "rename 1 after", "rename 2 after")


def save(folder: Path, step: str, size: int) -> int:
    command = [sys.executable, "-c", SAVE, str(folder), step, str(size)]
    return subprocess.run(command, env=environment(folder)).returncode


@pytest.mark.parametrize("step", NEW)
def test_a_new_run_is_there_whole_or_not_at_all(tmp_path: Path, step: str) -> None:
    assert save(tmp_path, step, 4) == -signal.SIGKILL
    for run in visible_runs(tmp_path):
        [part] = load_run(run).parts.values()
        assert len(part.cases) == 4
    assert save(tmp_path, "", 4) == 0
    assert visible_runs(tmp_path) == [tmp_path / "runs" / "slow"]


@pytest.mark.parametrize("step", IN_PLACE)
def test_a_run_in_place_of_another_is_one_of_the_two(tmp_path: Path, step: str) -> None:
    assert save(tmp_path, "", 4) == 0
    assert save(tmp_path, step, 6) == -signal.SIGKILL
    [part] = load_run(tmp_path / "runs" / "slow").parts.values()
    assert len(part.cases) in (4, 6)
    assert visible_runs(tmp_path) == [tmp_path / "runs" / "slow"]
    assert save(tmp_path, "", 6) == 0
    [part] = load_run(tmp_path / "runs").parts.values()
    assert len(part.cases) == 6


# --- Ctrl-C ------------------------------------------------------------------------------------


def interrupted(folder: Path, lines: int) -> tuple[int, str]:
    """Press Ctrl-C when so many items are encoded; the exit status, and what it said."""
    child = start_command_line(folder, pause=0.02)
    wait_for(folder, lines, child)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    return child.returncode, errors.decode()


@pytest.mark.parametrize("lines", [40, 400])  # in the images, in the captions
def test_ctrl_c_keeps_what_was_done(tmp_path: Path, undisturbed: Path, lines: int) -> None:
    status, errors = interrupted(tmp_path, lines)
    assert status == 130 and "Traceback" not in errors
    assert visible_runs(tmp_path) == []
    assert len(logged(tmp_path)) < len(logged(undisturbed))

    finish(start(tmp_path, pause=0))  # the same store, and no statistics to wait for
    times = Counter(logged(tmp_path))
    assert set(times) == set(logged(undisturbed))
    assert sum(times.values()) - len(times) <= BATCH
    assert same_bytes(tmp_path, undisturbed)


def test_ctrl_c_says_how_to_go_on(tmp_path: Path) -> None:
    _, errors = interrupted(tmp_path, 40)
    assert "interrupted; what was computed is kept" in errors
