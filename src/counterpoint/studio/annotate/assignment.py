"""Which item an annotator gets next, and their answers.

The next item is decided at each request, so no annotator waits.

Of the items that an annotator has not seen and that need more judgements, those with the fewest
come first. Among these, the order is random by the seed and the annotator. In a campaign of fixed
teams they are those of the annotator's team. What was shown stays shown: until it is answered, the
same item comes again.

If two requests conflict, one transaction is repeated: the count of an item is incremented by
compare-and-set, and the showings of an annotator are numbered without a gap.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, ScalarSelect, Select, and_, exists, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from counterpoint.studio.annotate.campaigns import PRIME, block_length
from counterpoint.studio.annotate.questions import ASKS, SKIP, AnnotationQuestion, chance
from counterpoint.studio.database import (
    Annotator,
    Answer,
    Campaign,
    Flag,
    Item,
    Showing,
    Subject,
    count,
    now,
)

Record = TypeVar("Record", Answer, Flag)
HOLD: Final = timedelta(hours=1)  # how long an item waits for who has it, once nothing else is left


def next_showing(session: Session, campaign: Campaign, annotator: Annotator) -> Showing | None:
    """What to show now: the item that waits for its answer, or a new one, or None at the end."""
    mine = Showing.annotator_id == annotator.id
    waiting = session.scalar(
        select(Showing).where(mine, ~Showing.answered).order_by(Showing.number).limit(1)
    )
    if waiting is not None:
        return waiting
    last = session.scalar(select(func.max(Showing.number)).where(mine)) or 0
    item = _needed(session, campaign, annotator) or _abandoned(session, campaign, annotator)
    if item is None:
        return None
    check = _check_due(session, campaign, annotator, last + 1)
    if check is None:
        _count(session, item, 1)
    return _show(session, campaign, annotator, check or item, last + 1)


def _unseen(campaign: Campaign, annotator: Annotator, *, check: bool) -> ColumnElement[bool]:
    mine = aliased(Showing)  # apart from the showings that a query may look at besides
    seen = exists().where(mine.item_id == Item.id, mine.annotator_id == annotator.id)
    unseen = and_(Item.campaign_id == campaign.id, Item.is_check == check, ~seen)
    if check or "teams" not in campaign.settings:
        return unseen
    team = (annotator.number - 1) // campaign.settings["overlap"] % campaign.settings["teams"]
    own = exists().where(Subject.id == Item.subject_id, Subject.origin["team"].as_integer() == team)
    return unseen & own


def _order(campaign: Campaign, annotator: Annotator) -> ColumnElement[int]:
    """An order of the items that is the annotator's own: a random line, modulo a prime."""
    rng = chance(campaign.settings["seed"], "order", annotator.number)
    a, b = (int(value) for value in rng.integers(1, PRIME, 2))
    return (Item.shuffle * a + b) % PRIME


def _needed(session: Session, campaign: Campaign, annotator: Annotator) -> Item | None:
    wanted = Item.taken < int(campaign.settings["overlap"])
    return session.scalar(
        select(Item)
        .where(_unseen(campaign, annotator, check=False), wanted)
        .order_by(Item.taken, _order(campaign, annotator), Item.id)
        .limit(1)
    )


def _abandoned(session: Session, campaign: Campaign, annotator: Annotator) -> Item | None:
    """An item that another annotator got long ago, without an answer; it may still come."""
    old = and_(~Showing.answered, ~Showing.released, Showing.shown < now() - HOLD)
    found = session.execute(
        select(Item, Showing)
        .join(Showing, Showing.item_id == Item.id)
        .where(_unseen(campaign, annotator, check=False), old)
        .order_by(Showing.shown, Item.id)
        .limit(1)
    ).first()
    if found is None:
        return None
    item, held = found
    freed = update(Showing).where(Showing.id == held.id, ~Showing.answered, ~Showing.released)
    _must_change(session, freed.values(released=True))
    _count(session, item, -1)
    session.refresh(item)
    return item


def give_back(session: Session, item: Item, showing: Showing) -> None:
    """A showing counts no more: the item needs another judgement. Checks have no limit."""
    if not showing.released:
        showing.released = True
        if not item.is_check:
            _count(session, item, -1)


def take_again(session: Session, item: Item, showing: Showing) -> None:
    """A showing that was given back counts after all."""
    showing.released = False
    if not item.is_check:
        _count(session, item, 1)


def _count(session: Session, item: Item, more: int) -> None:
    """Change how many showings of an item count, unless another request has just done so."""
    counted = update(Item).where(Item.id == item.id, Item.taken == item.taken)
    _must_change(session, counted.values(taken=Item.taken + more))


def _must_change(session: Session, statement: object) -> None:
    """Do an update; if another request was faster, the transaction is repeated."""
    changed = session.execute(statement)  # type: ignore[call-overload]
    if changed.rowcount != 1:
        raise IntegrityError("another request was faster", None, RuntimeError())


def _check_due(
    session: Session, campaign: Campaign, annotator: Annotator, number: int
) -> Item | None:
    """A check, if one is due: one in each row of so many items, at a random place in it."""
    rate = float(campaign.settings["checks"])
    if rate == 0:
        return None
    block, place = divmod(number - 1, block_length(rate))
    if place != _check_place(campaign, annotator, block):
        return None
    return session.scalar(
        select(Item)
        .where(_unseen(campaign, annotator, check=True))
        .order_by(_order(campaign, annotator), Item.id)
        .limit(1)
    )


def _check_place(campaign: Campaign, annotator: Annotator, block: int) -> int:
    """Where in a row of so many items the check stands."""
    rng = chance(campaign.settings["seed"], "place", annotator.number, block)
    return int(rng.integers(block_length(float(campaign.settings["checks"]))))


def _show(
    session: Session, campaign: Campaign, annotator: Annotator, item: Item, number: int
) -> Showing:
    options = AnnotationQuestion.of(item.question).options(ASKS[item.ask])
    rng = chance(campaign.settings["seed"], "layout", annotator.number, item.key)
    layout = [int(option) for option in rng.permutation(options)]
    showing = Showing(
        annotator_id=annotator.id, item_id=item.id, number=number, layout=layout, shown=now()
    )
    session.add(showing)
    session.flush()
    return showing


def left_for(session: Session, campaign: Campaign, annotator: Annotator) -> int:
    """How many showings the annotator may still get, besides one that waits: checks, too.

    If checks were not counted, the counter would stand still on them and give them away.
    """

    wanted = Item.taken < int(campaign.settings["overlap"])
    items = count(session, Item, _unseen(campaign, annotator, check=False), wanted)
    checks = count(session, Item, _unseen(campaign, annotator, check=True))
    mine = Showing.annotator_id == annotator.id
    last = session.scalar(select(func.max(Showing.number)).where(mine)) or 0
    return items + min(checks, _checks_among(campaign, annotator, last, items))


def _checks_among(campaign: Campaign, annotator: Annotator, last: int, items: int) -> int:
    """How many checks stand before the last of so many items, after `last` showings."""
    rate = float(campaign.settings["checks"])
    if rate == 0 or items == 0:
        return 0
    length = block_length(rate)
    block, used = divmod(last, length)
    ahead = _check_place(campaign, annotator, block) - used  # items before this block's check
    room = length - used - (ahead >= 0)
    if items <= room:
        return int(0 <= ahead < items)
    whole, more = divmod(items - room - 1, length - 1)  # blocks, and items behind them
    rest = _check_place(campaign, annotator, block + 1 + whole) <= more
    return int(ahead >= 0) + whole + int(rest)


def give(session: Session, showing: Showing, value: str) -> bool:
    """Keep an answer; whether anything was new.

    The same answer sent again (twice, or after a broken connection) changes nothing. Another one
    is kept behind the first, and counts from then on. An item that was skipped goes to someone
    else, unless it is answered after all.
    """
    last = latest(session, Answer, showing)
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
    last = latest(session, Flag, showing)
    if note == (None if last is None else last.note):
        return
    revision = 0 if last is None else last.revision + 1
    session.add(Flag(showing_id=showing.id, revision=revision, note=note))
    session.flush()


def latest(session: Session, table: type[Record], showing: Showing) -> Record | None:
    """The answer, or the flag, of a showing that counts."""
    mine = select(table).where(table.showing_id == showing.id)
    return session.scalar(mine.order_by(table.revision.desc()).limit(1))


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
        answered(campaign, Annotator.number, Item, Showing, Answer).where(Answer.value != SKIP)
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


def answered(campaign: Campaign, *columns: Any) -> Select[Any]:
    """What counts, by annotator and in the order of showing; with flags where there are any."""
    return (
        select(*columns)
        .join(Showing, Showing.annotator_id == Annotator.id)
        .join(Item, Item.id == Showing.item_id)
        .join(Answer, Answer.id == newest(Answer))
        .outerjoin(Flag, Flag.id == newest(Flag))
        .where(Annotator.campaign_id == campaign.id)
        .order_by(Annotator.number, Showing.number)
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
    columns = (Showing.number, Item.key, Item.is_check, Answer.value, Flag.note)
    rows = session.execute(
        answered(campaign, Annotator.number, *columns).where(
            (Answer.value == SKIP) | Flag.note.is_not(None)
        )
    )
    return [
        Remark(annotator, number, key, is_check, value == SKIP, note)
        for annotator, number, key, is_check, value, note in rows
    ]
