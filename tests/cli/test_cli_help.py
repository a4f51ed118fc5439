"""What a newcomer sees: the demo, and help whose examples run."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest
import typer.main
from cli_support import Result, counterpoint, own_place
from filelock import FileLock

from counterpoint.cli.app import app
from counterpoint.cli.demo import BENCHMARKS as DEMO_BENCHMARKS, MODELS as DEMO_MODELS
from counterpoint.metrics.presentation import METRIC_HEADINGS, interval_text
from counterpoint.runs import load_run, percent, rows

__all__ = ["counterpoint", "own_place"]  # fixtures

pytestmark = pytest.mark.slow
VERBS = typer.main.get_command(app).commands
# `data` has commands of its own: `data ls` is one.
COMMANDS = {
    " ".join(path): command
    for name, verb in VERBS.items()
    for path, command in (
        [((name, below), c) for below, c in verb.commands.items()]
        if hasattr(verb, "commands")
        else [((name,), verb)]
    )
}


# --- the demo, once, as a user would -----------------------------------------------------------


class Demo(NamedTuple):
    place: Path
    path: str  # the folders of programs that it was started with
    result: Result


@pytest.fixture(scope="module")
def demo(tmp_path_factory, worker_id) -> Demo:
    """Run once for all workers of pytest; each has a copy of what it made."""
    base = tmp_path_factory.getbasetemp()
    place = (base if worker_id == "master" else base.parent) / "demo"
    path = "/usr/bin:/bin"  # the environment is not activated
    with FileLock(place.with_suffix(".lock")):
        if not place.exists():
            place.mkdir()
            done = subprocess.run(
                [sys.executable, "-m", "counterpoint", "demo", "--size", "40"],
                cwd=place,
                env={
                    **os.environ,
                    "PATH": path,
                    "COUNTERPOINT_CACHE": str(place / "cache"),
                    "PYTHONIOENCODING": "utf-8",
                },
                capture_output=True,
                encoding="utf-8",
                check=False,
            )
            said = [done.returncode, done.stdout, done.stderr]
            (place / "result.json").write_text(json.dumps(said))
    own = shutil.copytree(place, tmp_path_factory.mktemp("demo") / "own")
    return Demo(own, path, Result(*json.loads((own / "result.json").read_text())))


def test_the_demo_prints_every_main_number_with_interval_and_chance(demo):
    assert demo.result.code == 0
    out = demo.result.out
    for heading in ("original", "augmented", "brittleness", "I2T", "T2I", "group"):
        assert re.search(rf"[┃ ]{heading} ", out), heading
    for model in (*DEMO_MODELS, "chance"):
        assert out.count(f" {model} ") >= len(DEMO_BENCHMARKS)
    for run in DEMO_MODELS:
        loaded = load_run(demo.place / "runs" / "demo" / run.replace(":", "-"))
        for row in rows(loaded, groups=False):
            if row.metric in METRIC_HEADINGS:
                interval = interval_text(row.value, row.ci_low, row.ci_high, percent)
                assert f"{percent(row.value)} {interval}" in out
    assert {"50.0", "33.3", "25.0", "16.7"} <= set(re.findall(r"\b\d+\.\d\b", out))
    assert "…" not in out


def test_the_demo_shows_three_cases_with_their_scores(demo):
    out = demo.result.out
    assert [word for word in ("right:", "brittle:", "wrong:") if f"│ {word}" in out] == [
        "right:",
        "brittle:",
        "wrong:",
    ]
    shown = re.findall(r"│ (-?\d\.\d{5})  (original|positive|negative)  (\S.*?) +│", out)
    assert len(shown) == 9
    run = load_run(demo.place / "runs" / "demo" / "world-hn")
    part = run.parts["world-replace:size=40"]
    captions = part.cases.frame["captions"].explode().to_list()
    scores = dict(zip(captions, part.scores.tolist(), strict=True))
    by_kind = [{kind: float(s) for s, kind, _ in shown[i : i + 3]} for i in (0, 3, 6)]
    for score, _, caption in shown:
        assert float(score) == pytest.approx(scores[caption], abs=6e-5)
    right, brittle, wrong = by_kind
    assert right["negative"] < min(right["original"], right["positive"])
    assert brittle["positive"] <= brittle["negative"] <= brittle["original"]
    assert wrong["negative"] > max(wrong["original"], wrong["positive"])


def test_the_demo_says_where_it_was_saved_and_what_to_try_next(demo, counterpoint, monkeypatch):
    monkeypatch.chdir(demo.place)
    out = demo.result.out
    assert "Saved in runs/demo" in out
    assert len(list((demo.place / "runs" / "demo").glob("*/run.json"))) == len(DEMO_MODELS)
    lines = out.partition("Try next:")[2].splitlines()[1:]
    tips = [shlex.join(shlex.split(line)[1:]) for line in lines]
    assert [tip.split()[0] for tip in tips] == ["compare", "report", "rescore", "eval", "ls"]
    for tip in tips:
        if not tip.startswith("eval"):  # the model again; `eval` is tested with cheaper ones
            assert counterpoint(*shlex.split(tip)).code == 0
    # As printed, in a shell that knows nothing but the system's programs.
    done = subprocess.run(
        shlex.split(lines[-1]),
        cwd=demo.place,
        env={**os.environ, "PATH": demo.path},
        capture_output=True,
        check=False,
    )
    assert done.returncode == 0


def test_the_demo_ends_with_what_to_learn(demo):
    first, second, third = re.findall(
        r"^  (.+)$", demo.result.out.partition("What to learn:")[2].partition("Saved")[0], re.M
    )

    def loss(model: str) -> str:
        run = load_run(demo.place / "runs" / "demo" / model.replace(":", "-"))
        part = run.parts["world-replace:size=40"]
        scores = part.scores.reshape(-1, 3)
        original = (scores[:, 0] > scores[:, 2]).mean()
        return f"{100 * (original - (scores[:, :2].min(axis=1) > scores[:, 2]).mean()):.1f}"

    assert f"{loss('world:hn')} points less, against {loss('world:base')} of world:base" in first
    assert f"{loss('world:hp-hn')} and {loss('world:counterpoint')} points less" in second
    assert "0.0 with †" in third and re.search(r" 0\.0 \[.*?\]†", demo.result.out)


# --- help --------------------------------------------------------------------------------------


def test_help_shows_every_option_with_all_of_its_text(counterpoint):
    for name, command in COMMANDS.items():
        done = counterpoint(*name.split(), "--help")
        assert (done.code, done.err) == (0, ""), name
        assert counterpoint(*name.split(), "-h").out == done.out
        assert "<bool>" not in done.out  # flags take no value
        words = done.out.split()
        for parameter in command.params:
            # Brackets in a help text would be taken for markup, and vanish.
            told = (getattr(parameter, "help", "") or "").split()
            assert [word for word in told if word not in words] == [], name


def test_help_names_every_command(counterpoint):
    done = counterpoint("--help")
    assert done.code == 0
    assert {"demo", "ls", "eval", "rescore", "compare"} < set(VERBS)
    assert {"data", "doctor", "import", "verify"} < set(VERBS)
    assert all(re.search(rf"│ {name} ", done.out) for name in VERBS)
    below = counterpoint("data", "--help")
    assert below.code == 0
    assert {"data ls", "data get", "data path"} <= set(COMMANDS)
    assert all(re.search(rf"│ {name} ", below.out) for name in VERBS["data"].commands)


def example_lines(name: str) -> list[list[str]]:
    """The command lines in a command's help, as a shell would give them to it."""
    text = COMMANDS[name].help or ""
    lines = re.findall(r"^\s*counterpoint (.+)$", text.partition("Example")[2], re.MULTILINE)
    return [shlex.split(line.partition(">")[0]) for line in lines]


def test_the_examples_in_the_help_can_be_parsed():
    for name, command in COMMANDS.items():
        words = name.split()
        assert example_lines(name), name
        for line in example_lines(name):
            assert line[: len(words)] == words
            command.make_context(name, line[len(words) :])  # raises UsageError if it cannot


def test_the_cheap_examples_in_the_help_run(demo, counterpoint, monkeypatch):
    monkeypatch.chdir(demo.place)
    for line in [line for name in ("ls", "rescore", "compare") for line in example_lines(name)]:
        assert counterpoint(*line).code == 0


def test_the_cheap_example_of_eval_runs(counterpoint):
    [line] = [line for line in example_lines("eval") if "random" in line]
    done = counterpoint(*line)
    assert done.code == 0
    assert len({row["group"] for row in json.loads(done.out)}) > 10
