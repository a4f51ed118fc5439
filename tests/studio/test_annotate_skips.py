"""Items that annotators skip or flag, and attention checks that look like any other item."""

from __future__ import annotations

import csv
import io
import re

import pytest
from annotate_support import TOKEN, at, client, database, form_of, send
from campaigns import campaign, outcome
from sqlalchemy import select
from typer.testing import CliRunner

from counterpoint.cli.campaign import app as commands
from counterpoint.studio.annotate.assignment import give, next_showing
from counterpoint.studio.annotate.campaigns import find_campaign
from counterpoint.studio.annotate.exporting import answers_csv
from counterpoint.studio.annotate.pages import progress_of
from counterpoint.studio.database import Annotator, Answer, Flag, Item, Showing

__all__ = ["client", "database"]  # fixtures


def one_item(database, people=2, overlap=1, source="world-bi:size=1"):
    return campaign(database, source, "image-to-text", people=people, overlap=overlap).links


def csv_rows(database):
    with database.reading() as session:
        found = answers_csv(session, find_campaign(session, "c"))
    return list(csv.DictReader(io.StringIO(found)))


# --- skips -------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_skipped_item_goes_to_somebody_else(client, database):
    first, second = one_item(database)
    send(client, first, skip="1")
    send(client, first, skip="1")
    assert client.get(f"{first}/next").headers["location"].endswith("/done")
    for _ in range(2):
        send(client, second, answer="0")
    found = outcome(database)
    assert found.tally.judged == 2 and {one.annotator for one in found.kept} == {2}
    assert (found.standing.given, found.standing.wanted) == (2, 2)
    assert [person.skipped for person in found.people] == [2, 0]
    assert [row["value"] for row in csv_rows(database)[:2]] == ["skip", "skip"]
    assert [row["right"] for row in csv_rows(database)[:2]] == ["", ""]


def test_a_skipped_item_can_still_be_answered_and_an_answered_one_skipped(client, database):
    first, _ = one_item(database)
    place = send(client, first, skip="1")
    page = client.get(place).text
    assert "You have skipped this one" in page and "checked" not in page
    client.post(place, data={**form_of(page), "answer": "0"})
    assert (len(outcome(database).kept), outcome(database).skipped) == (1, 0)
    assert taken(database) == [1, 0]
    client.post(place, data={**form_of(page), "skip": "1"})
    assert (len(outcome(database).kept), outcome(database).skipped) == (0, 1)
    assert taken(database) == [0, 0]
    values = [row["value"] for row in csv_rows(database)]
    assert values[0] == values[2] == "skip" and len(values) == 3  # nothing is lost


def taken(database):
    with database.reading() as session:
        rows = session.scalars(select(Item.taken).where(~Item.is_check)).all()
    return sorted(rows, reverse=True)


def test_sending_a_skip_twice_gives_the_item_back_once(client, database):
    first, _ = one_item(database, overlap=2)
    place, page = at(client, first)
    for _ in range(2):
        client.post(place, data={**form_of(page), "skip": "1"})
    assert taken(database) == [0, 0] and len(csv_rows(database)) == 1


@pytest.mark.slow
def test_ranks_and_checks_can_be_skipped_too(client, database):
    made = campaign(database, "world-replace:size=4", "rank", people=1, overlap=1, checks=0.5)
    for _ in range(8):
        send(client, made.links[0], skip="1")
    assert client.get(f"{made.links[0]}/next").headers["location"].endswith("/done")
    [person] = outcome(database).people
    assert (person.skipped, person.checks, person.failed) == (8 - person.answered, 0, 0)


# --- flags -------------------------------------------------------------------------------------

FORMULA = '=HYPERLINK("http://evil.example") <b>bold</b>'


@pytest.mark.slow
def test_a_flag_is_kept_with_its_note_and_shown_in_results_and_csv(client, database):
    first, second = one_item(database)
    send(client, first, answer="0", note=f" {FORMULA}\0 ")
    send(client, first, skip="1", flagged="1")
    send(client, second, answer="0")
    found = outcome(database)
    assert [(r.skipped, r.note) for r in found.remarks] == [(False, FORMULA), (True, "")]
    assert [(p.skipped, p.flagged) for p in found.people] == [(1, 2), (0, 0)]
    flags = [row["flag"] for row in csv_rows(database)]
    assert flags[0].startswith('"=HYP') and flags[1:] == ['""', ""]  # no formula, no loss
    client.get(f"/?token={TOKEN}")
    page = client.get("/campaigns/c").text
    assert "1 skipped, 2 flagged" in page and "&lt;b&gt;bold" in page and "<b>bold" not in page


def test_a_flag_can_be_changed_and_taken_back_and_is_not_lost(client, database):
    first, _ = one_item(database)
    place, page = at(client, first)
    for note in ("blurred", "blurred", "very blurred", ""):
        client.post(place, data={**form_of(page), "answer": "0", "note": note})
    assert outcome(database).remarks == []
    with database.reading() as session:
        assert session.scalars(select(Flag.note).order_by(Flag.revision)).all() == [
            *("blurred", "very blurred", None)
        ]
        assert len(session.scalars(select(Answer)).all()) == 1


def test_a_note_that_is_too_long_is_refused_with_the_answer(client, database):
    first, _ = one_item(database)
    place, page = at(client, first)
    sent = client.post(place, data={**form_of(page), "answer": "0", "note": "a" * 501})
    assert sent.status_code == 422 and "longer than 500" in sent.text
    assert csv_rows(database) == []


def test_the_command_line_counts_them(client, database, tmp_path):
    first, _ = one_item(database)
    send(client, first, skip="1", note="blurred")
    done = CliRunner().invoke(commands, ["results", "c", "--db", str(tmp_path / "studio.db")])
    assert "1 skipped, 1 flagged by annotators" in done.output


# --- attention checks ---------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("source", "checks"), [("world-bi:size=7", 0.5), ("world-bi:size=9", 0.2)])
def test_the_counter_moves_on_checks_as_on_any_item(client, database, source, checks):
    """One person alone: nobody else changes what is left."""
    [link] = campaign(database, source, "image-to-text", people=1, overlap=1, checks=checks).links
    shown, steps = [], set()
    while not (place := client.get(f"{link}/next").headers["location"]).endswith("/done"):
        page = client.get(place).text
        done, total = map(int, re.search(r"<span>(\d+) of (\d+)</span>", page).groups())
        shown.append((done, total))
        steps.add(re.sub(r"/\d+|\d+ of \d+|value=\"\w+\"", "", re.sub(r">[^<]*<", "><", page)))
        client.post(place, data={**form_of(page), "answer": "0"})
    with database.reading() as session:
        met = session.scalars(select(Item.is_check).join(Showing).order_by(Showing.number)).all()
    assert [done for done, _ in shown] == list(range(len(met)))
    assert {total for _, total in shown} == {len(met)} and 0 < sum(met) < len(met)
    assert len(steps) == 2  # but for words and numbers: the first has nothing to undo
    last = client.get(f"{link}/done").text
    assert f"{len(met)} of {len(met)}" in last and f"through {len(met)} items" in last


@pytest.mark.slow
def test_the_total_is_right_from_every_place(database):
    """What is promised at each step is what comes: over many people, each in an own order."""
    campaign(database, "world-bi:size=5", "image-to-text", people=12, overlap=12, checks=0.3)
    with database.reading() as session:
        people = session.scalars(select(Annotator)).all()
    for person in people:
        totals = []
        while True:
            with database.reading() as session:
                totals.append(progress_of(session, person).total)

            def work(session, person=person):
                showing = next_showing(session, person)
                if showing is not None:
                    give(session, showing, "0")
                return showing

            if database.write(work) is None:
                break
        assert set(totals) == {len(totals) - 1}
