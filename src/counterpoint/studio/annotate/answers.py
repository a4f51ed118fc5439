"""Writes answers to the database, and reads them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ScalarSelect, select
from sqlalchemy.orm import Session, aliased

from counterpoint.studio.annotate.assignment import give_back, take_again
from counterpoint.studio.annotate.kinds import ASKS, SKIP
from counterpoint.studio.annotate.questions import AnnotationQuestion
from counterpoint.studio.database import Annotator, Answer, Campaign, Flag, Item, Showing


def give(session: Session, showing: Showing, value: str) -> bool:
    """Keep an answer; whether anything was new.

    The same answer sent again (twice, or after a broken connection) changes nothing. Another one
    is kept behind the first, and counts from then on. An item that was skipped goes to someone
    else, unless it is answered after all.
    """
    last = last_answer(session, showing)
    if last is not None and last.value == value:
        return False
    revision = 0 if last is None else last.revision + 1
    session.add(Answer(showing_id=showing.id, revision=revision, value=value))
    showing.answered = True
    item = session.get_one(Item, showing.item_id)
    if value == SKIP:
        give_back(session, item, showing)
    elif last is not None and last.value == SKIP:
        take_again(session, item, showing)
    session.flush()
    return True


def flag(session: Session, showing: Showing, note: str | None) -> None:
    """Keep what an annotator reports of an item; None if nothing, or not any more."""
    last = last_flag(session, showing)
    if note == (None if last is None else last.note):
        return
    revision = 0 if last is None else last.revision + 1
    session.add(Flag(showing_id=showing.id, revision=revision, note=note))
    session.flush()


def last_flag(session: Session, showing: Showing) -> Flag | None:
    return session.scalar(
        select(Flag).where(Flag.showing_id == showing.id).order_by(Flag.revision.desc()).limit(1)
    )


def last_answer(session: Session, showing: Showing) -> Answer | None:
    return session.scalar(
        select(Answer)
        .where(Answer.showing_id == showing.id)
        .order_by(Answer.revision.desc())
        .limit(1)
    )


@dataclass(frozen=True, slots=True)
class Judgement:
    """The answer of one annotator to one item that counts: the last one."""

    annotator: int  # the number, from 1
    item: int
    subject: int | None
    key: str
    ask: str
    question: AnnotationQuestion
    is_check: bool
    number: int
    layout: tuple[int, ...]
    value: str
    revision: int
    given: datetime

    @property
    def is_right(self) -> bool:
        return ASKS[self.ask].is_right(self.value, self.question.right)


def judgements(session: Session, campaign: Campaign) -> Iterator[Judgement]:
    """All answers that count, by annotator and in the order of showing, checks too."""
    rows = session.execute(
        select(Annotator.number, Item, Showing, Answer)
        .join(Showing, Showing.annotator_id == Annotator.id)
        .join(Item, Item.id == Showing.item_id)
        .join(Answer, Answer.id == newest(Answer))
        .where(Annotator.campaign_id == campaign.id, Answer.value != SKIP)
        .order_by(Annotator.number, Showing.number)
    )
    for annotator, item, showing, answer in rows:
        yield Judgement(
            annotator,
            item.id,
            item.subject_id,
            item.key,
            item.ask,
            AnnotationQuestion.of(item.question),
            item.is_check,
            showing.number,
            tuple(showing.layout),
            answer.value,
            answer.revision,
            answer.given,
        )


def newest(table: type[Answer] | type[Flag]) -> ScalarSelect[int]:
    """The id of the last answer, or flag, of a showing, in a query that has the showing."""
    other = aliased(table)
    return (
        select(other.id)
        .where(other.showing_id == Showing.id)
        .order_by(other.revision.desc())
        .limit(1)
        .correlate(Showing)
        .scalar_subquery()
    )


@dataclass(frozen=True, slots=True)
class Remark:
    """An item that an annotator skipped, flagged, or both."""

    annotator: int
    number: int
    key: str
    is_check: bool
    skipped: bool
    note: str | None


def remarks(session: Session, campaign: Campaign) -> list[Remark]:
    """What was skipped or flagged, by annotator and in the order of showing."""
    rows = session.execute(
        select(Annotator.number, Showing.number, Item.key, Item.is_check, Answer.value, Flag.note)
        .join(Showing, Showing.annotator_id == Annotator.id)
        .join(Item, Item.id == Showing.item_id)
        .join(Answer, Answer.id == newest(Answer))
        .outerjoin(Flag, Flag.id == newest(Flag))
        .where(Annotator.campaign_id == campaign.id)
        .where((Answer.value == SKIP) | Flag.note.is_not(None))
        .order_by(Annotator.number, Showing.number)
    )
    return [
        Remark(annotator, number, key, is_check, value == SKIP, note)
        for annotator, number, key, is_check, value, note in rows
    ]
