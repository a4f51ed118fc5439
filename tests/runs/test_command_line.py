"""No password, key or token of a command is kept in a run or shown in a report."""

from __future__ import annotations

import sys

import polars as pl
import pytest
from campaigns import answer_all, campaign, opened, outcome, rightly

from counterpoint._util.untrusted import recorded_command
from counterpoint.cli.reports import made_now
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.evaluation.importing import import_scores
from counterpoint.reports.provenance import facts_of, page_facts
from counterpoint.runs import Run
from counterpoint.studio.annotate.human import human_run

SECRET = "hunter2"


def test_a_secret_is_not_kept():
    for word, kept in (
        ("postgresql://me:hunter2@db.example/studio", "postgresql://***@db.example/studio"),
        ("--db=postgresql://me:hunter2@db/x", "--db=postgresql://***@db/x"),
        ("postgresql://me:a@hunter2/b:c@db/x", "postgresql://***@db/x"),
        ("postgresql://:hunter2@db", "postgresql://***@db"),
        (
            "postgresql://db/x?user=me&password=hunter2&a=b",
            "postgresql://db/x?user=me&password=***&a=b",
        ),
        ("https://hunter2@example.org/a.git", "https://***@example.org/a.git"),
        ("http://127.0.0.1:8765/?token=hunter2", "http://127.0.0.1:8765/?token=***"),
        ("api:m,api_key=hunter2,side=8", "api:m,api_key=***,side=8"),
        ("--api-key=hunter2", "--api-key=***"),
        ("--HF-Token=hunter2", "--HF-Token=***"),
    ):
        assert recorded_command(["counterpoint", word]) == ["counterpoint", kept]
    for option in ("--api-key", "--token", "--password", "--hf-token", "-key"):
        assert recorded_command([option, SECRET, "eval"]) == [option, "***", "eval"]


def test_everything_else_is_kept_as_it_is():
    for word in (
        *("eval", "world-bi:size=6", "checkpoint:a@b.pt", "--limit=3", "monkey=1", "--tokens=77"),
        *("http://localhost:8000/v1", "http://localhost:8000/a@b", "postgresql://db/studio"),
        *("sqlite:///studio.db", "key", "https://example.org/@me/x", "a@b.example"),
    ):
        assert recorded_command([word]) == [word]


def test_it_is_the_command_that_runs_now(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["counterpoint", "--password", SECRET])
    assert recorded_command() == ["counterpoint", "--password", "***"]


@pytest.fixture
def argv(monkeypatch):
    found = ["counterpoint", "--db", f"postgresql://me:{SECRET}@db/x"]
    monkeypatch.setattr(sys, "argv", found)
    return found


@pytest.mark.slow
def test_no_run_keeps_a_password(argv, tmp_path):
    database = opened(tmp_path)
    campaign(database, "world-bi:size=2", "both-ways")
    answer_all(database, rightly)
    human = human_run(outcome(database))
    database.close()
    [scored] = evaluate(["random"], ["world-bi:size=2"], out=tmp_path / "random", store=None)
    scores = tmp_path / "scores.csv"
    load = pl.read_parquet(tmp_path / "random" / "scores.parquet").drop("benchmark")
    load.write_csv(scores)
    imported = import_scores(scores, "world-bi:size=2", "m", out=tmp_path / "imported")
    for run in (human, scored, imported):
        assert run.manifest["command"] == ["counterpoint", "--db", "postgresql://***@db/x"]


def test_a_report_shows_no_password_of_this_command_or_of_an_old_run(argv):
    made = page_facts(made_now())
    run = Run("m", {}, {"command": argv})
    shown = made + facts_of(run)
    commands = [fact.value for fact in shown if fact.what == "command"]
    assert len(commands) == 2 and SECRET not in "".join(commands)
