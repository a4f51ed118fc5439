"""`counterpoint refine`, as it is called."""

from __future__ import annotations

import json
import re
from pathlib import Path

import polars as pl
import pytest
import typer
from test_refine import Breaks, pair, some_pairs, write
from test_refine_fitted import shortcut_pairs
from typer.testing import CliRunner, Result

from counterpoint.cli import pairs as verb
from counterpoint.cli.console import plainly
from counterpoint.generation.refinement import scores

app = typer.Typer(rich_markup_mode="rich")
app.command("refine")(plainly(verb.refine, resumes=True))


@pytest.fixture(autouse=True)
def somewhere_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    write(tmp_path / "pairs.parquet", [*some_pairs(), pair(999, "a", "b", kind="positive")])


def call(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


def test_the_example_of_the_help_runs() -> None:
    shown = " ".join(call("--help").stdout.replace("│", " ").split())
    [example] = re.findall(
        r"counterpoint refine (pairs\S+ -o \S+ --blind length --blind format)", shown
    )
    result = call(*example.split())
    assert result.exit_code == 0, result.output
    assert (
        "50 ± 1" in result.stdout and "Within 50 ± 1 (groups x models): balanced: " in result.stdout
    )
    assert re.search(r"120 negatives, \d+ kept; 1 positive copied", result.stdout)
    assert Path("refined.parquet").is_file()


def test_rounds_ties_and_groups_that_cannot_be_balanced_are_told() -> None:
    write(Path("shortcuts.parquet"), shortcut_pairs(600))
    words = "shortcuts.parquet -o o.parquet --blind ngram --goal 55 --watch length --report r.json"
    result = call(*words.split())
    assert result.exit_code == 0, result.output
    report = json.loads(Path("r.json").read_text())
    first, *_, last = report["rounds"]
    assert f"Fit 1: 600 pairs, ngram {100 * first['accuracy']['ngram']:.1f}; above the goal: " in (
        result.stdout
    )
    assert f"Fit {len(report['rounds'])}: {last['pairs']} pairs, ngram " in result.stdout
    assert "At most the goal (groups x models): balanced: 2 of 3, 1 without pairs; watched" in (
        result.stdout
    )
    ties = {row["model"]: row["ties_before"] for row in report["rows"] if row["group"] == "all"}
    assert f"Ties, of 600 negatives: ngram {ties['ngram']}, length {ties['length']}" in (
        result.stdout
    )
    assert "replace/att: 0 of 200 pairs are left; refinement cannot balance" in result.stdout


def test_rows_as_json_and_the_report() -> None:
    result = call(
        "pairs.parquet", "-o", "o.parquet", "--blind", "length", "--json", "--report", "r.json"
    )
    rows = json.loads(result.stdout)
    assert result.exit_code == 0 and {row["group"] for row in rows} == {
        "all",
        "replace/att",
        "replace/obj",
        "replace/rel",
    }
    assert {row["accuracy_after"] for row in rows} == {0.5}
    report = json.loads(Path("r.json").read_text())
    accuracies = [row.pop("accuracy_before") for row in rows]  # printed to six digits
    exact = [row.pop("accuracy_before") for row in report["rows"]]
    assert accuracies == pytest.approx(exact, rel=1e-5)
    assert report["rows"] == rows and report["after"] == rows[0]["after"]
    assert len(pl.read_parquet("o.parquet")) == rows[0]["after"] + 1


def test_options_reach_the_refinement() -> None:
    Path("s.csv").write_text(
        "text,mine\n"
        + "".join(f"{text},{len(text)}\n" for p in some_pairs() for text in (p.caption, p.text))
    )
    words = "pairs.parquet -o o.parquet --scores s.csv --blind column:mine --watch length --top 0.5"
    result = call(
        *words.split(), "--scale", "rank", "--bins", "5", "--by", "none", "--seed", "3", "--json"
    )
    assert result.exit_code == 0, result.output
    rows = json.loads(result.stdout)
    assert [(row["model"], row["use"]) for row in rows] == [
        ("mine", "balanced"),
        ("length", "watched"),
    ]
    assert rows[0]["accuracy_before"] == pytest.approx(1 - rows[1]["accuracy_before"])
    from counterpoint.generation.pairs import read_about

    [step] = read_about(Path("o.parquet"))["refined"]
    settings = step["settings"]
    assert (settings["scale"], settings["bins"], settings["by"], settings["seed"]) == (
        "rank",
        5,
        [],
        3,
    )
    assert step["scales"] == {"mine": "rank"} and step["selected"] < 120


@pytest.mark.parametrize(
    ("words", "status", "says"),
    [
        ("", 2, "at least one blind model"),
        ("--watch length --top 0.5", 2, "needs --blind or --select"),
        ("--blind length --scale odd", 2, "max or rank"),
        ("--blind length --device tpu", 2, "auto, cpu, cuda, cuda:N or mps"),
        ("--blind length --top 1.5", 2, "--top"),
        ("--blind nothing", 1, "[E-MODEL-UNKNOWN]"),
        ("--blind column:vera", 1, "[E-SCORE-MISSING]"),
        ("--blind length --by typ", 1, "[E-COLUMN-UNKNOWN]"),
        ("--blind column:a --scores none.csv", 1, "[E-FILE-MISSING]"),
    ],
)
def test_wrong_usage_is_one_sentence(words: str, status: int, says: str) -> None:
    result = call("pairs.parquet", "-o", "o.parquet", *words.split())
    assert result.exit_code == status and "Traceback" not in result.output
    assert says in " ".join(result.output.replace("│", " ").split())
    assert not Path("o.parquet").exists()


def test_an_interrupt_says_that_the_command_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scores, "load_blind", lambda *_: Breaks(40))
    result = call("pairs.parquet", "-o", "o.parquet", "--blind", "length", "--batch-size", "16")
    assert result.exit_code == 130 and "the same command goes on from there" in result.output
    assert not Path("o.parquet").exists()


def test_nothing_left_and_markup_in_names() -> None:
    write(Path("one.parquet"), [pair(1, "a", "a b", method="[red]x[/red]")])
    result = call("one.parquet", "-o", "o.parquet", "--blind", "length", "--by", "method,type")
    assert result.exit_code == 0 and "no negative is left" in result.output
    assert "none left" in result.stdout
    write(Path("two.parquet"), [pair(1, "a", "b", method="[red]x[/red]"), pair(2, "a", "b")])
    result = call("two.parquet", "-o", "o.parquet", "--blind", "length", "--by", "method")
    assert "[red]x[/red]" in result.stdout
