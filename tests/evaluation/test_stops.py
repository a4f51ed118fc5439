"""Sweeps and watches that are stopped at any change of their folder end as undisturbed ones."""

from __future__ import annotations

import json
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

import pytest
from faults import command
from processes import ended, start

import counterpoint as cp
from counterpoint._util.errors import RunError
from counterpoint.runs import find_runs, load_run

pytestmark = [pytest.mark.faults, pytest.mark.slow]

PLAN = {
    "models": ["random", "blind:length"],
    "benchmarks": ["world-swap:size=12", "world-bi:size=6"],
}
SWEEP = ("sweep", "plan.yaml", "-o", "out")
WATCH = ("watch", "logs", "-b", "world-swap:size=12", "-o", "out", "--once", "--settle", "0")
SHIPPED = Path(cp.__file__).parent / "world" / "checkpoints"
COSTS = "costs.json"  # what an evaluation took differs, and nothing depends on it
UNLIKE = {"created", "command"}  # of run.json


def contents(out: Path) -> dict[str, object]:
    """What two sweeps have to have in common: every file, without times and costs."""
    found: dict[str, object] = {}
    for path in sorted(out.rglob("*")):
        if not path.is_file() or path.name == COSTS:
            continue
        said: object = path.read_bytes()
        if path.name == "run.json":
            said = {k: v for k, v in json.loads(path.read_text()).items() if k not in UNLIKE}
        found[path.relative_to(out).as_posix()] = said
    return found


def whole_runs(out: Path) -> list[Path]:
    """The runs that are seen, each of which can be read as a whole."""
    try:
        found = find_runs(out)
    except RunError:
        return []
    for folder in found:
        assert all(len(part.scores) for part in load_run(folder).parts.values())
    return found


def prepare(place: Path) -> None:
    place.mkdir()
    (place / "plan.yaml").write_text(json.dumps(PLAN))
    for name in ("base", "hn"):
        shutil.copytree(SHIPPED / name, place / "logs" / f"step_{name}")


def run(place: Path, words: Sequence[str], change: int = 0, number: int = signal.SIGKILL) -> int:
    cache = {"COUNTERPOINT_CACHE": str(place / "cache")}
    return ended(start(command, words, place, change, number, "out", environment=cache))


@pytest.mark.parametrize(("words", "every"), [(SWEEP, 5), (WATCH, 7)])
def test_stopped_at_any_change_it_ends_as_if_undisturbed(
    tmp_path: Path, words: Sequence[str], every: int
) -> None:
    calm = tmp_path / "calm"
    prepare(calm)
    assert run(calm, words) == 0
    expected = contents(calm / "out")
    assert len(whole_runs(calm / "out")) == 2

    change, stops = 1, 0
    while True:
        place, number = tmp_path / str(change), (signal.SIGKILL, signal.SIGTERM)[stops % 2]
        prepare(place)
        status = run(place, words, change, number)
        if status == 0:  # there are no more changes
            break
        assert status == (-signal.SIGKILL if number == signal.SIGKILL else 143)
        before = whole_runs(place / "out")
        if number == signal.SIGTERM:
            assert not list((place / "out").rglob(".*"))
        assert run(place, words) == 0
        assert set(before) <= set(whole_runs(place / "out"))
        assert contents(place / "out") == expected
        assert not list((place / "out").rglob(".*"))
        stops, change = stops + 1, change + every
        shutil.rmtree(place)
    assert stops > 4
