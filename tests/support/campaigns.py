"""Shared by the tests of annotation: small campaigns, and people who answer without a browser."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from sqlalchemy import select

from counterpoint.studio.annotate.campaigns import (
    CampaignDesign,
    NewCampaign,
    create,
    find_campaign,
)
from counterpoint.studio.annotate.kinds import KINDS
from counterpoint.studio.annotate.material import SourceSelection, read_material
from counterpoint.studio.annotate.outcomes import CampaignResults, outcome_of
from counterpoint.studio.annotate.questions import AnnotationQuestion
from counterpoint.studio.annotate.showings import give, next_showing
from counterpoint.studio.database import Annotator, Database, Item, open_database

# What an annotator says of an item: annotator's number, item -> value.
Says = Callable[[int, Item], str]


def opened(folder: Path) -> Database:
    return open_database(str(folder / "studio.db"))


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
) -> NewCampaign:
    material = read_material(str(source), KINDS[kind], SourceSelection(limit))
    settings = CampaignDesign(overlap, checks, 0)
    return create(database, name, KINDS[kind], material, settings, people)


def answer_all(database: Database, says: Says, name: str = "c") -> None:
    """Everybody in turn, an item each, until nobody gets one."""
    with database.reading() as session:
        found = find_campaign(session, name)
        people = session.scalars(
            select(Annotator).where(Annotator.campaign_id == found.id).order_by(Annotator.number)
        ).all()

    def step(person: Annotator) -> bool:
        def work(session):
            showing = next_showing(session, found, person)
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
