"""Campaigns made in the browser and on the command line, with instructions of one's own."""

from __future__ import annotations

import html
import json
import subprocess
import sys

import pytest
from annotate_support import TOKEN, client, database, form_of
from campaigns import answer_all, outcome, rightly
from typer.testing import CliRunner

from counterpoint.cases.files import read_cases
from counterpoint.cli.campaign import app as commands
from counterpoint.runs import load_run
from counterpoint.studio.database import open_database

__all__ = ["client", "database"]  # fixtures
OWN = 'Look twice.\nNever <script>alert(1)</script> guess: {{ 7 * 7 }} & "more".'
TYPED = {
    "name": "mine",
    "source": "world-bi:size=4",
    "kind": "image-to-text",
    "limit": "",
    "annotators": "3",
    "overlap": "2",
    "checks": "20",
    "seed": "7",
    "benchmark": "",
    "instructions": OWN.replace("\n", "\r\n"),  # as browsers send it
}


@pytest.fixture
def admin(client):
    client.get(f"/?token={TOKEN}")
    return client


def make(admin, **typed):
    csrf = form_of(admin.get("/campaigns").text)
    return admin.post("/campaigns", data={**csrf, **TYPED, **typed})


@pytest.mark.slow
def test_a_campaign_is_made_in_the_browser_as_on_the_command_line(admin, database, tmp_path):
    made = make(admin, annotators="4", fixed="1")
    assert (made.status_code, made.headers["location"]) == (303, "/campaigns/mine")
    (tmp_path / "own.txt").write_text(OWN)
    words = ["new", "other", "world-bi:size=4", "--as", "image-to-text", "--annotators", "4"]
    words.append("--fixed")
    more = ["--checks", "0.2", "--seed", "7", "--instructions", str(tmp_path / "own.txt")]
    db = ["--db", str(tmp_path / "studio.db")]
    assert CliRunner().invoke(commands, [*words, *more, *db]).exit_code == 0
    mine, other = (outcome(database, name) for name in ("mine", "other"))
    assert mine.campaign.settings == other.campaign.settings
    assert mine.campaign.settings["instructions"] == OWN
    assert mine.campaign.source == other.campaign.source
    assert [s.case for s in mine.subjects.values()] == [s.case for s in other.subjects.values()]
    assert len(mine.people) == 4 and mine.campaign.settings["teams"] == 2
    page = admin.get("/campaigns/mine").text
    assert page.count("/a/") == 4 and "fixed teams" in page


def test_own_instructions_are_text_in_place_of_the_usual_ones(admin, database):
    make(admin)
    person = outcome(database, "mine").people[0]
    page = admin.get(f"/a/{person.token}").text
    assert "Never &lt;script&gt;alert(1)" in page and "<script>alert" not in page
    assert "{{ 7 * 7 }}" in html.unescape(page)
    usual = "You see an image and two descriptions."
    assert usual not in page and "Example:" in page
    make(admin, name="usual", instructions="")
    person = outcome(database, "usual").people[0]
    assert usual in admin.get(f"/a/{person.token}").text


@pytest.mark.slow
def test_what_cannot_be_made_is_said_above_the_form_with_what_was_typed(admin):
    for typed, why in (
        ({"name": "a b"}, "no name for a campaign"),
        ({"name": ""}, "no name for a campaign"),
        ({"source": ""}, "needs a source"),
        ({"source": "nothing-of-that-name"}, "nothing-of-that-name"),
        ({"source": "a\0b"}, ""),
        ({"source": "/etc/passwd"}, ""),
        ({"source": "/"}, "no run folder"),
        ({"kind": "guess"}, "kind of campaign"),
        ({"annotators": "1"}, "needs that many annotators"),
        ({"annotators": "9" * 5000}, "whole number"),
        ({"overlap": "-1"}, "whole number"),
        ({"checks": "many"}, "per cent"),
        ({"checks": "nan"}, "between 0 and 0.5"),
        ({"checks": "60"}, "between 0 and 0.5"),
        ({"limit": "0"}, "at least one case"),
        ({"seed": "x"}, "whole number"),
        ({"instructions": "Look twice." + "a" * 5001}, "at most 5,000 characters"),
    ):
        answer = make(admin, **typed)
        assert answer.status_code == 422 and 'role="alert"' in answer.text
        assert why in html.unescape(answer.text) and "Look twice." in answer.text
    assert "There are none yet." in admin.get("/campaigns").text


def test_a_name_is_taken_once(admin):
    assert make(admin).status_code == 303
    answer = make(admin)
    assert answer.status_code == 422 and "there is a campaign" in answer.text


def test_only_the_admin_makes_campaigns(client):
    assert client.post("/campaigns", data=TYPED).status_code == 403
    client.get(f"/?token={TOKEN}")
    assert client.post("/campaigns", data=TYPED).status_code == 403  # no page of ours sent it


# --- the command line ----------------------------------------------------------------------------


@pytest.fixture
def say(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*words, status=0):
        done = CliRunner().invoke(commands, list(words))
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


def test_instructions_that_cannot_be_read_are_a_sentence(say, tmp_path):
    words = ["new", "c", "world-bi:size=4", "--as", "image-to-text", "--instructions", "own.txt"]
    for code in ("E-FILE-UNREADABLE", "E-FILE-MALFORMED"):
        assert f"[{code}]" in say(*words, status=1).output
        (tmp_path / "own.txt").write_bytes(b"\xff\xfe\xff")


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
