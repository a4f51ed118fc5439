"""`counterpoint campaign` from the command line."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from campaigns import answer_all, rightly
from typer.testing import CliRunner

from counterpoint.cases.files import read_cases
from counterpoint.cli.campaign import app
from counterpoint.runs import load_run
from counterpoint.studio.database import open_database


@pytest.fixture
def say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words, status=0):
        done = CliRunner().invoke(app, list(words))
        assert done.exit_code == status, done.output
        return done

    return run


@pytest.mark.slow
def test_from_new_to_results(say, tmp_path):
    made = say("new", "humans", "world-bi:size=5", "--as", "both-ways", "--checks", "0.2", "--json")
    links = [row["link"] for row in json.loads(made.stdout)]
    assert len(set(links)) == 2 and all(link.startswith("/a/") for link in links)
    database = open_database("studio.db")
    answer_all(database, rightly, "humans")
    database.close()
    assert "humans  Both directions  20 items  40 of 40 answers  2 annotators" in say("ls").stdout
    done = say(
        *("results", "humans", "--human", "runs/human", "--export", "kept.parquet"),
        *("--answers", "answers.csv"),
    )
    assert "mean kappa 1.000, Fleiss 1.000, Krippendorff's alpha 1.000" in done.stdout
    assert load_run(tmp_path / "runs/human").model == "human"
    assert len(read_cases(tmp_path / "kept.parquet")) == 5
    assert (tmp_path / "answers.csv").read_text().startswith("campaign,annotator,number,item")
    rows = json.loads(say("results", "humans", "--json").stdout)
    assert [row.get("kappa") for row in rows] == [pytest.approx(1.0), None]


def test_what_can_go_wrong_is_one_sentence(say):
    for words, code in (
        ("new a world-bi --as rang", "E-CAMPAIGN-KIND"),
        ("new a/b world-bi:size=2 --as rank", "E-CAMPAIGN-NAME"),
        ("new a nothing-there --as rank", "E-BENCHMARK-UNKNOWN"),
        ("results nobody", "E-CAMPAIGN-UNKNOWN"),
        ("ls --db mysql://x/y", "E-DATABASE-URL"),
    ):
        done = say(*words.split(), status=1)
        assert f"[{code}]" in done.stderr and "Traceback" not in done.output


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", [("ls",), ("new", "c", "world-bi:size=2", "--as", "both-ways"), ("results", "c")]
)
def test_without_its_packages_it_says_what_to_install(words):
    """In a process of its own, where nothing of the studio has been imported yet."""
    script = (
        "import sys; sys.modules['sqlalchemy'] = None; "
        "from counterpoint.cli import main; sys.argv[0] = 'counterpoint'; main()"
    )
    command = [sys.executable, "-c", script, "campaign", *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 1
    assert "[E-EXTRA-MISSING]" in done.stderr and "Traceback" not in done.stderr
