"""Taking answers, and reading them back."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from counterpoint.studio.annotate.kinds import ASKS
from counterpoint.studio.annotate.questions import Question
from counterpoint.studio.database import Annotator, Answer, Campaign, Item, Showing


def give(session: Session, showing: Showing, value: str) -> bool:
    """Keep an answer; whether anything was new.

    The same answer sent again (twice, or after a broken connection) changes nothing. Another one
    is kept behind the first, and counts from then on.
    """
    last = last_answer(session, showing)
    if last is not None and last.value == value:
        return False
    revision = 0 if last is None else last.revision + 1
    session.add(Answer(showing_id=showing.id, revision=revision, value=value))
    showing.answered = True
    session.flush()
    return True


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
    question: Question
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
    newest = (
        select(Answer.showing_id, func.max(Answer.revision).label("revision"))
        .group_by(Answer.showing_id)
        .subquery()
    )
    rows = session.execute(
        select(Annotator.number, Item, Showing, Answer)
        .join(Showing, Showing.annotator_id == Annotator.id)
        .join(Item, Item.id == Showing.item_id)
        .join(newest, newest.c.showing_id == Showing.id)
        .join(
            Answer,
            (Answer.showing_id == Showing.id) & (Answer.revision == newest.c.revision),
        )
        .where(Annotator.campaign_id == campaign.id)
        .order_by(Annotator.number, Showing.number)
    )
    for annotator, item, showing, answer in rows:
        yield Judgement(
            annotator,
            item.id,
            item.subject_id,
            item.key,
            item.ask,
            Question.of(item.question),
            item.is_check,
            showing.number,
            tuple(showing.layout),
            answer.value,
            answer.revision,
            answer.given,
        )
