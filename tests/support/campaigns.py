"""Shared by the tests of annotation: small campaigns, and people who answer without a browser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import select

from counterpoint.generation.pairs import Pair, tabulate, write_pairs
from counterpoint.studio.annotate.assignment import give, next_showing
from counterpoint.studio.annotate.campaigns import (
    CampaignDesign,
    NewCampaign,
    Order,
    find_campaign,
    make_campaign,
)
from counterpoint.studio.annotate.questions import AnnotationQuestion
from counterpoint.studio.annotate.results import CampaignResults, outcome_of
from counterpoint.studio.annotate.sources import SourceSelection
from counterpoint.studio.database import Annotator, Database, Item, open_database

# What an annotator says of an item: annotator's number, item -> value.
Says = Callable[[int, Item], str]


def opened(folder: Path) -> Database:
    return open_database(str(folder / "studio.db"))


@pytest.fixture
def database(tmp_path) -> Iterator[Database]:
    made = opened(tmp_path)
    yield made
    made.close()


def campaign(
    database: Database,
    source: str | Path,
    kind: str,
    *,
    name: str = "c",
    people: int = 2,
    overlap: int = 2,
    checks: float = 0.0,
    limit: int | None = None,
    against: Path | None = None,
    fixed: bool = False,
    seed: int = 0,
) -> NewCampaign:
    wanted = SourceSelection(limit, seed, against=against)
    settings = CampaignDesign(overlap, checks, seed, fixed=fixed)
    return make_campaign(database, Order(name, str(source), kind, settings, people, wanted))


def answer_all(database: Database, says: Says, name: str = "c") -> None:
    """Everybody in turn, an item each, until nobody gets one."""
    with database.reading() as session:
        found = find_campaign(session, name)
        people = session.scalars(
            select(Annotator).where(Annotator.campaign_id == found.id).order_by(Annotator.number)
        ).all()

    def step(person: Annotator) -> bool:
        def work(session):
            showing = next_showing(session, person)
            if showing is None:
                return False
            item = session.get_one(Item, showing.item_id)
            give(session, showing, says(person.number, item))
            return True

        return database.write(work)

    while sum(step(person) for person in people):
        pass


def outcome(database: Database, name: str = "c", least: float = 0.0) -> CampaignResults:
    with database.reading() as session:
        return outcome_of(session, find_campaign(session, name), least)


def rightly(person: int, item: Item) -> str:
    """The known answer, whatever is asked."""
    del person
    question = AnnotationQuestion.of(item.question)
    if item.ask == "rank":
        ranks = ["1" if n in question.right else "2" for n in range(len(question.captions))]
        return ",".join(ranks)
    return str(question.right[0]) if question.right else "none"


def compared_files(folder: Path) -> tuple[Path, Path]:
    """Two pairs files of the same captions: ours without faults, theirs as rules make them."""
    ours, theirs = [], []
    for number, thing in enumerate(("cat", "dog", "bird", "cow")):
        about = (f"s{number}", None, f"A {thing} on a mat.")
        made = ("negative", "replace", "obj", "m", "1", 0)
        ours.append(Pair(*about, f"A {thing} on a chair.", *made))
        theirs.append(
            Pair(f"t{number}", None, f"a {thing} on a mat", f"A {thing} on an air.", *made)
        )
        added = ("negative", "add", "att", "m", "1", 0)
        ours.append(Pair(*about, f"A {thing} on a red mat.", *added))
        denied = ("negative", "negate", "", "m", "1", 0)
        theirs.append(Pair(*about, f"A {thing} on not a mat.", *denied))
    files = folder / "ours.parquet", folder / "theirs.parquet"
    for file, pairs in zip(files, (ours, theirs), strict=True):
        write_pairs(file, [tabulate(pairs)], {})
    return files
