"""Killed runs: what was computed stays, nothing is half there, the end is the same to the byte."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from models_for_tests import SlowTowers
from processes import ended, start

from counterpoint import evaluate, load_run
from counterpoint._util import writing
from counterpoint._util.errors import RunError
from counterpoint.runs import find_runs, folders as runs
from counterpoint.runs.score_files import ScoreWriter

pytestmark = pytest.mark.faults

BENCHMARK = "world-swap:size=250,seed=5"
BATCH, PAUSE = 16, 0.004
SUPPORT = Path(__file__).parents[1] / "support"

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


def wait_for(folder: Path, lines: int, running: Callable[[], bool]) -> None:
    """Until the child has encoded so many items. Counting is steadier than a clock."""
    limit = time.monotonic() + 60
    while len(logged(folder)) < lines:
        assert running(), "it ended before it could be killed"
        assert time.monotonic() < limit
        time.sleep(0.001)


def visible_runs(folder: Path) -> list[Path]:
    try:
        return find_runs(folder / "runs")
    except RunError:
        return []


def finish(folder: Path, pause: float = 0, name: str = "slow") -> None:
    """The run that others break off, in this process."""
    model, out = SlowTowers(folder / "log", pause), folder / "runs" / name
    evaluate([("slow", model)], BENCHMARK, batch_size=BATCH, store=folder / "store", out=out)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("undisturbed")
    finish(folder)
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
        child = start(finish, tmp_path, PAUSE)
        try:
            wait_for(tmp_path, lines, child.is_alive)
            time.sleep(chance.uniform(0, 2 * PAUSE))
        finally:
            child.kill()
        assert ended(child) == -signal.SIGKILL
        assert visible_runs(tmp_path) == []
    finish(tmp_path)

    assert same_bytes(tmp_path, undisturbed)
    assert load_run(tmp_path / "runs").left_out == 0
    times = Counter(logged(tmp_path))
    assert set(times) == set(logged(undisturbed))
    assert max(times.values()) <= 1 + len(moments)
    # Only the batch at work when the kill came is done again.
    assert sum(times.values()) - len(times) <= len(moments) * BATCH


def test_a_finished_run_costs_nothing_again(tmp_path: Path, undisturbed: Path) -> None:
    finish(tmp_path)
    before = logged(tmp_path)
    finish(tmp_path)
    assert logged(tmp_path) == before
    assert same_bytes(tmp_path, undisturbed)


def test_two_at_once_come_to_the_same_end(tmp_path: Path, undisturbed: Path) -> None:
    """One store, two processes: work may be done twice, but the results are the same."""
    children = {name: start(finish, tmp_path, PAUSE, name) for name in ("one", "two")}
    for name, child in children.items():
        assert ended(child) == 0
        assert same_bytes(tmp_path, undisturbed, name)
    assert set(logged(tmp_path)) == set(logged(undisturbed))


# --- writing the run folder --------------------------------------------------------------------

# Before the draft has its manifest, when it is whole, between the renames, and after them. For a
# new folder two renames are tried that find nothing: of one to be put back, and of an older one.
NEW = ("add_scores 1 after", "file_digest 2 after", "_exchange 1 before", "rename 3 after")
IN_PLACE = ("_exchanged 1 before", "_exchanged 1 after")
TWO_RENAMES = ("rename 1 after", "rename 2 after")  # of a system that cannot exchange names


def save(folder: Path, size: int) -> None:
    out, store = folder / "runs" / "slow", folder / "store"
    evaluate("random", f"world-bi:size={size}", store=store, out=out, overwrite=True)


def save_and_die(folder: Path, size: int, step: str) -> None:
    """Killed before or after the n-th call of a function."""
    name, call, when = step.split()
    writers = dict.fromkeys(("_exchange", "_exchanged"), writing)
    owners: dict[str, Any] = {**writers, "rename": Path, "add_scores": ScoreWriter}
    owner = owners.get(name, runs)
    if step in TWO_RENAMES:
        writing._exchanged = lambda *_: False
    right, calls = getattr(owner, name), 0

    def dying(*inputs: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == int(call) and when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        result = right(*inputs, **options)
        if calls == int(call):
            os.kill(os.getpid(), signal.SIGKILL)
        return result

    setattr(owner, name, dying)
    save(folder, size)


@pytest.mark.parametrize("step", NEW)
def test_a_new_run_is_there_whole_or_not_at_all(tmp_path: Path, step: str) -> None:
    assert ended(start(save_and_die, tmp_path, 4, step)) == -signal.SIGKILL
    for run in visible_runs(tmp_path):
        [part] = load_run(run).parts.values()
        assert len(part.cases) == 4
    save(tmp_path, 4)
    assert visible_runs(tmp_path) == [tmp_path / "runs" / "slow"]


@pytest.mark.parametrize("step", [*IN_PLACE, *TWO_RENAMES])
def test_a_run_in_place_of_another_is_one_of_the_two(tmp_path: Path, step: str) -> None:
    save(tmp_path, 4)
    assert ended(start(save_and_die, tmp_path, 6, step)) == -signal.SIGKILL
    [part] = load_run(tmp_path / "runs" / "slow").parts.values()
    assert len(part.cases) in (4, 6)
    assert visible_runs(tmp_path) == [tmp_path / "runs" / "slow"]
    save(tmp_path, 6)
    [part] = load_run(tmp_path / "runs").parts.values()
    assert len(part.cases) == 6


# --- Ctrl-C ------------------------------------------------------------------------------------


def interrupted(folder: Path, lines: int) -> tuple[int, str]:
    """Press Ctrl-C when so many items are encoded; the exit status, and what it said."""
    child = start_command_line(folder, pause=0.02)
    wait_for(folder, lines, lambda: child.poll() is None)
    child.send_signal(signal.SIGINT)
    _, errors = child.communicate(timeout=60)
    return child.returncode, errors.decode()


@pytest.mark.parametrize("lines", [40, 400])  # in the images, in the captions
def test_ctrl_c_keeps_what_was_done(tmp_path: Path, undisturbed: Path, lines: int) -> None:
    status, errors = interrupted(tmp_path, lines)
    assert status == 130 and "Traceback" not in errors
    assert "interrupted; what was computed is kept" in errors
    assert visible_runs(tmp_path) == []
    assert len(logged(tmp_path)) < len(logged(undisturbed))

    finish(tmp_path)  # the same store, and no statistics to wait for
    times = Counter(logged(tmp_path))
    assert set(times) == set(logged(undisturbed))
    assert sum(times.values()) - len(times) <= BATCH
    assert same_bytes(tmp_path, undisturbed)
