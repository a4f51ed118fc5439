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

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final, TypeVar

from sqlalchemy import ColumnElement, ScalarSelect, Select, and_, exists, func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session, aliased

from counterpoint.studio.annotate.campaigns import PRIME, block_length
from counterpoint.studio.annotate.questions import ASKS, SKIP, AnnotationQuestion, Ask, chance
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


def next_showing(session: Session, annotator: Annotator) -> Showing | None:
    """What to show now: the item that waits for its answer, or a new one, or None at the end."""
    waiting = session.scalar(
        select(Showing)
        .where(Showing.annotator_id == annotator.id, ~Showing.answered)
        .order_by(Showing.number)
        .limit(1)
    )
    if waiting is not None:
        return waiting
    number = _shown(session, annotator) + 1
    item = _needed(session, annotator) or _abandoned(session, annotator)
    if item is None:
        return None
    check = _check_due(session, annotator, number)
    if check is None:
        _count(session, item, 1)
    return _show(session, annotator, check or item, number)


def _shown(session: Session, annotator: Annotator) -> int:
    mine = Showing.annotator_id == annotator.id
    return session.scalar(select(func.max(Showing.number)).where(mine)) or 0


def _unseen(annotator: Annotator, *, check: bool) -> ColumnElement[bool]:
    settings = annotator.campaign.settings
    mine = aliased(Showing)  # apart from the showings that a query may look at besides
    seen = exists().where(mine.item_id == Item.id, mine.annotator_id == annotator.id)
    unseen = and_(Item.campaign_id == annotator.campaign_id, Item.is_check == check, ~seen)
    if check or "teams" not in settings:
        return unseen
    team = (annotator.number - 1) // settings["overlap"] % settings["teams"]
    own = exists().where(Subject.id == Item.subject_id, Subject.origin["team"].as_integer() == team)
    return unseen & own


def _wanted(annotator: Annotator) -> ColumnElement[bool]:
    """Items that the annotator has not seen and that need more judgements."""
    overlap = int(annotator.campaign.settings["overlap"])
    return and_(_unseen(annotator, check=False), Item.taken < overlap)


def _order(annotator: Annotator) -> ColumnElement[int]:
    """An order of the items that is the annotator's own: a random line, modulo a prime."""
    rng = chance(annotator.campaign.settings["seed"], "order", annotator.number)
    a, b = (int(value) for value in rng.integers(1, PRIME, 2))
    return (Item.shuffle * a + b) % PRIME


def _needed(session: Session, annotator: Annotator) -> Item | None:
    wanted = select(Item).where(_wanted(annotator))
    return session.scalar(wanted.order_by(Item.taken, _order(annotator), Item.id).limit(1))


def _abandoned(session: Session, annotator: Annotator) -> Item | None:
    """An item that another annotator got long ago, without an answer; it may still come."""
    old = and_(~Showing.answered, ~Showing.released, Showing.shown < now() - HOLD)
    held = session.scalar(
        select(Showing)
        .join(Item, Item.id == Showing.item_id)
        .where(_unseen(annotator, check=False), old)
        .order_by(Showing.shown, Item.id)
        .limit(1)
    )
    if held is None:
        return None
    freed = update(Showing).where(Showing.id == held.id, ~Showing.answered, ~Showing.released)
    _must_change(session, freed.values(released=True))
    _count(session, held.item, -1)
    session.refresh(held.item)
    return held.item


def _release(session: Session, showing: Showing, released: bool) -> None:
    """Let a showing count no more, or count after all. Checks have no limit."""
    if showing.released != released:
        showing.released = released
        if not showing.item.is_check:
            _count(session, showing.item, -1 if released else 1)


def _count(session: Session, item: Item, more: int) -> None:
    """Change how many showings of an item count, unless another request has just done so."""
    counted = update(Item).where(Item.id == item.id, Item.taken == item.taken)
    _must_change(session, counted.values(taken=Item.taken + more))


def _must_change(session: Session, statement: object) -> None:
    """Do an update; if another request was faster, the transaction is repeated."""
    changed = session.execute(statement)  # type: ignore[call-overload]
    if changed.rowcount != 1:
        raise IntegrityError("another request was faster", None, RuntimeError())


def _show(session: Session, annotator: Annotator, item: Item, number: int) -> Showing:
    options = AnnotationQuestion.of(item.question).options(ASKS[item.ask])
    rng = chance(annotator.campaign.settings["seed"], "layout", annotator.number, item.key)
    layout = [int(option) for option in rng.permutation(options)]
    showing = Showing(
        annotator_id=annotator.id, item=item, number=number, layout=layout, shown=now()
    )
    session.add(showing)
    session.flush()
    return showing


# --- attention checks: one in each row of so many items, at a random place in it -----------------


def _check_due(session: Session, annotator: Annotator, number: int) -> Item | None:
    rate = float(annotator.campaign.settings["checks"])
    if rate == 0:
        return None
    block, place = divmod(number - 1, block_length(rate))
    if place != _check_place(annotator, block):
        return None
    checks = select(Item).where(_unseen(annotator, check=True))
    return session.scalar(checks.order_by(_order(annotator), Item.id).limit(1))


def _check_place(annotator: Annotator, block: int) -> int:
    settings = annotator.campaign.settings
    rng = chance(settings["seed"], "place", annotator.number, block)
    return int(rng.integers(block_length(float(settings["checks"]))))


def left_for(session: Session, annotator: Annotator) -> int:
    """How many showings the annotator may still get, besides one that waits: checks, too.

    If checks were not counted, the counter would stand still on them and give them away.
    """
    items = count(session, Item, _wanted(annotator))
    checks = count(session, Item, _unseen(annotator, check=True))
    return items + min(checks, _checks_among(annotator, _shown(session, annotator), items))


def _checks_among(annotator: Annotator, last: int, items: int) -> int:
    """How many checks stand before the last of so many items, after `last` showings."""
    rate = float(annotator.campaign.settings["checks"])
    if rate == 0 or items == 0:
        return 0
    length = block_length(rate)
    block, used = divmod(last, length)
    ahead = _check_place(annotator, block) - used  # items before this block's check
    room = length - used - (ahead >= 0)
    if items <= room:
        return int(0 <= ahead < items)
    whole, more = divmod(items - room - 1, length - 1)  # blocks, and items behind them
    rest = _check_place(annotator, block + 1 + whole) <= more
    return int(ahead >= 0) + whole + int(rest)


# --- answers -------------------------------------------------------------------------------------


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
    if SKIP in (value, last and last.value):
        _release(session, showing, value == SKIP)
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
    ask: Ask
    question: AnnotationQuestion
    is_check: bool
    value: str

    @property
    def is_right(self) -> bool:
        return self.ask.is_right(self.value, self.question.right)


def judgements(session: Session, campaign: Campaign) -> list[Judgement]:
    """All answers that count, by annotator and in the order of showing, checks too."""
    rows = session.execute(
        _answered(campaign, Annotator.number, Item, Answer.value).where(Answer.value != SKIP)
    )
    return [
        Judgement(
            annotator,
            item.id,
            item.subject_id,
            ASKS[item.ask],
            AnnotationQuestion.of(item.question),
            item.is_check,
            value,
        )
        for annotator, item, value in rows
    ]


@dataclass(frozen=True, slots=True)
class Remark:
    """An item that an annotator skipped, flagged, or both."""

    annotator: int
    key: str
    skipped: bool
    note: str | None


def remarks(session: Session, campaign: Campaign) -> list[Remark]:
    """What was skipped or flagged, by annotator and in the order of showing."""
    rows = session.execute(
        _answered(campaign, Annotator.number, Item.key, Answer.value, Flag.note).where(
            (Answer.value == SKIP) | Flag.note.is_not(None)
        )
    )
    return [Remark(annotator, key, value == SKIP, note) for annotator, key, value, note in rows]


def _answered(campaign: Campaign, *columns: Any) -> Select[Any]:
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
