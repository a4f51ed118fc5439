"""Who gets what: overlap is reached, nobody gets an item twice, also when all ask at once."""

from __future__ import annotations

import itertools
import os
import threading
from collections import Counter
from datetime import timedelta

import pytest
from campaigns import answer_all, campaign, database, opened, outcome, rightly
from errors import raises
from hypothesis import given, settings as hypothesis_settings, strategies as st
from sqlalchemy import func, select, update

from counterpoint.studio.annotate.assignment import HOLD, give, next_showing
from counterpoint.studio.database import (
    Annotator,
    Answer,
    Item,
    Showing,
    Subject,
    now,
    open_database,
)

__all__ = ["database"]  # a fixture


def people_of(database):
    with database.reading() as session:
        return session.scalars(select(Annotator).order_by(Annotator.number)).all()


def showings(database):
    with database.reading() as session:
        return session.execute(
            select(Annotator.number, Item, Showing)
            .join(Showing, Showing.annotator_id == Annotator.id)
            .join(Item, Item.id == Showing.item_id)
            .order_by(Annotator.number, Showing.number)
        ).all()


def everybody_at_once(database, people, overlap, cases):
    """All annotators answer, each in two threads, and then everything is as it should be."""
    annotators = people_of(database)
    failed = []

    def work(person):
        def step(session):
            showing = next_showing(session, person)
            if showing is not None:
                give(session, showing, "1,1,2")
            return showing

        try:
            while database.write(step) is not None:
                pass
        except Exception as error:
            failed.append(error)

    # Two threads for each annotator: somebody has the page open twice.
    threads = [threading.Thread(target=work, args=(one,)) for one in annotators * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failed == []
    rows = showings(database)
    real = Counter(item.id for _, item, _ in rows if not item.is_check)
    assert len(real) == cases and set(real.values()) == {overlap}
    assert max(Counter((n, item.id) for n, item, _ in rows).values()) == 1
    for number in range(1, people + 1):
        own = [showing.number for n, _, showing in rows if n == number]
        assert own == list(range(1, len(own) + 1))
    with database.reading() as session:
        assert set(session.scalars(select(Item.taken).where(~Item.is_check))) == {overlap}
        assert session.scalar(select(func.count()).select_from(Answer)) == len(rows)


@pytest.mark.slow
@hypothesis_settings(derandomize=True, deadline=None, max_examples=6)
@given(
    st.integers(2, 5).flatmap(lambda p: st.tuples(st.just(p), st.integers(1, p))),
    st.integers(1, 7),
    st.sampled_from([0.0, 0.2, 0.5]),
)
def test_overlap_is_reached_and_nothing_repeats_under_threads(
    tmp_path_factory, sizes, cases, checks
):
    people, overlap = sizes
    database = opened(tmp_path_factory.mktemp("db"))
    cases = max(cases, 2)
    campaign(
        database,
        f"world-replace:size={cases}",
        "rank",
        people=people,
        overlap=overlap,
        checks=checks,
    )
    everybody_at_once(database, people, overlap, cases)
    database.close()


def cases_of(database):
    """Which cases each annotator judged, and how many items."""
    cases, counts = {}, Counter()
    for number, item, _ in showings(database):
        cases.setdefault(number, set()).add(item.subject_id)
        counts[number] += 1
    return cases, counts


def test_annotators_without_overlap_have_whole_cases_of_their_own(database):
    """BiVLC's human baseline: 20 people, 25 cases each with their four questions, one answer."""
    campaign(database, "world-bi:size=12", "both-ways", people=4, overlap=1, fixed=True)
    answer_all(database, rightly)
    cases, counts = cases_of(database)
    assert counts == dict.fromkeys(range(1, 5), 12) and set(map(len, cases.values())) == {3}
    assert len(set.union(*cases.values())) == 12  # each case for one annotator


def test_a_team_shares_its_cases_and_no_others(database):
    """BiVLC's appendix I.3: five pairs of annotators, each with items of its own."""
    campaign(database, "world-replace:size=10", "rank", people=4, overlap=2, checks=0.2, fixed=True)
    people = people_of(database)
    with database.reading() as session:  # the second person of a pair has as much to do
        assert next_showing(session, people[1]) is not None
    answer_all(database, rightly)
    cases, _ = cases_of(database)
    teams = [cases[1] - {None}, cases[3] - {None}]  # checks have no case
    assert cases[1] == cases[2] and cases[3] == cases[4]
    assert [len(team) for team in teams] == [5, 5] and not teams[0] & teams[1]
    kappas = outcome(database).agreement[0].pairs
    assert [(pair.a, pair.b, pair.items) for pair in kappas] == [(1, 2, 5), (3, 4, 5)]


def test_teams_are_drawn_by_the_seed(tmp_path):
    parts = []
    for seed in (1, 1, 2):
        name = f"n{len(parts)}"
        database = opened(tmp_path)
        campaign(
            database, "world-replace:size=30", "rank", name=name, overlap=1, fixed=True, seed=seed
        )
        found = outcome(database, name).campaign
        with database.reading() as session:
            rows = session.scalars(select(Subject).where(Subject.campaign_id == found.id))
            parts.append([row.origin["team"] for row in rows])
        database.close()
    assert parts[0] == parts[1] != parts[2] and sorted(parts[0]) == [0] * 15 + [1] * 15
    assert parts[0] != [0, 1] * 15


@pytest.mark.slow
def test_the_order_and_the_sides_hang_on_the_seed_and_the_annotator(tmp_path):
    seen = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        database = opened(tmp_path / name)
        campaign(database, "world-bi:size=8", "both-ways", checks=0.2)
        answer_all(database, rightly)
        seen.append([(n, item.key, s.layout) for n, item, s in showings(database)])
        database.close()
    assert seen[0] == seen[1]  # the tokens are others, the order is not
    first, second = ([key for n, key, _ in seen[0] if n == who] for who in (1, 2))
    assert sorted(k for k in first if "check" not in k) == sorted(
        k for k in second if "check" not in k
    )
    assert first != second
    layouts = Counter(tuple(layout) for *_, layout in seen[0])
    assert set(layouts) == {(0, 1), (1, 0)} and min(layouts.values()) > 0.25 * len(seen[0])


@pytest.mark.slow
def test_checks_come_at_their_rate(database):
    made = campaign(database, "world-bi:size=10", "both-ways", checks=0.2)
    answer_all(database, rightly)
    for number in (1, 2):
        own = [item.is_check for n, item, _ in showings(database) if n == number]
        blocks = [own[start : start + 5] for start in range(0, len(own) - 4, 5)]
        assert all(sum(block) == 1 for block in blocks) and len(blocks) >= 9
    assert made.checks == 10
    assert all(p.checks >= 9 and p.failed == 0 for p in outcome(database).people)


def test_an_item_waits_for_its_answer_and_is_given_away_when_nobody_comes(database):
    campaign(database, "world-replace:size=2", "rank", people=3, overlap=1)
    (a, b, c) = people_of(database)

    def ask(person):
        return database.write(lambda session: next_showing(session, person))

    first = ask(a)
    assert ask(a).id == first.id  # a reload shows the same
    other = ask(b)
    assert other.item_id != first.item_id and ask(c) is None
    late = now() - HOLD - timedelta(minutes=1)
    database.write(lambda s: s.execute(update(Showing).values(shown=late)))
    database.write(lambda s: give(s, s.get_one(Showing, other.id), "1,1,2"))
    taken = ask(c)
    assert (taken.item_id, taken.number) == (first.item_id, 1)  # not the one that was answered
    database.write(lambda s: give(s, s.get_one(Showing, first.id), "1,2,3"))  # and A comes back
    database.write(lambda s: give(s, s.get_one(Showing, taken.id), "1,1,2"))
    assert len(outcome(database).kept) == 3  # nobody's work is thrown away


def test_many_threads_that_change_one_answer_leave_a_gapless_history(database):
    campaign(database, "world-replace:size=2", "rank", overlap=1)
    (person, _) = people_of(database)
    showing = database.write(lambda session: next_showing(session, person))
    values = [f"1,{n},2" for n in (1, 2, 3)] * 4

    def say(value):
        database.write(lambda s: give(s, s.get_one(Showing, showing.id), value))

    threads = [threading.Thread(target=say, args=(value,)) for value in values]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with database.reading() as session:
        rows = session.execute(
            select(Answer.revision, Answer.value).order_by(Answer.revision)
        ).all()
    assert [revision for revision, _ in rows] == list(range(len(rows)))
    assert all(a != b for (_, a), (_, b) in itertools.pairwise(rows))


def test_sqlite_is_set_up_to_keep_what_it_acknowledged(database):
    with database.reading() as session:
        pragmas = {
            name: session.connection().exec_driver_sql(f"PRAGMA {name}").scalar()
            for name in ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
        }
    assert pragmas == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }


def test_what_is_no_database_is_refused_in_one_sentence(tmp_path):
    for url in ("mysql://here/x", "sqlite://", "sqlite:///:memory:", "nope://"):
        with raises("E-DATABASE-URL"):
            open_database(url)
    path = tmp_path / "notes.db"
    path.write_text("these are no tables" * 100)
    with raises("E-DATABASE-UNREACHABLE"):
        open_database(str(path))


POSTGRES = os.environ.get("COUNTERPOINT_TEST_POSTGRES")


@pytest.mark.skipif(not POSTGRES, reason="COUNTERPOINT_TEST_POSTGRES names no server")
def test_postgresql_holds_the_same(monkeypatch):
    """In a schema of its own, which is dropped afterwards."""
    import psycopg

    monkeypatch.undo()  # a server is a network, too
    schema = f"counterpoint_{os.getpid()}"
    with psycopg.connect(POSTGRES, autocommit=True) as server:
        server.execute(f"CREATE SCHEMA {schema}")
        try:
            joint = "&" if "?" in POSTGRES else "?"
            database = open_database(f"{POSTGRES}{joint}options=-csearch_path%3D{schema}")
            source = "world-replace:size=9"
            campaign(database, source, "rank", people=5, overlap=3, checks=0.2)
            everybody_at_once(database, 5, 3, 9)
            assert len(outcome(database).kept) == 27
            campaign(database, "world-bi:size=4", "image-to-text", name="skips", checks=0.3)
            answer_all(database, lambda n, item: "skip" if n == 1 else rightly(n, item), "skips")
            found = outcome(database, "skips")
            assert {one.annotator for one in found.kept} == {2} and found.tally.judged == 8
            assert found.skipped == len(found.remarks) > 8
            database.close()
        finally:
            server.execute(f"DROP SCHEMA {schema} CASCADE")
