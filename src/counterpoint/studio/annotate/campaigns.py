"""Makes a campaign with its attention checks, finds it again, and adds annotators."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Final, NamedTuple

import numpy as np
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from counterpoint._util.errors import CaseError, CounterpointError, DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.studio.annotate.questions import (
    BEST,
    RANK,
    AnnotationQuestion,
    Ask,
    CampaignKind,
    JudgedCase,
    chance,
    find_kind,
    questions_of,
)
from counterpoint.studio.annotate.sources import CampaignSource, SourceSelection, read_material
from counterpoint.studio.database import (
    Annotator,
    Campaign,
    Database,
    Item,
    Showing,
    Subject,
    count,
)
from counterpoint.studio.security import new_token

# --- attention checks ----------------------------------------------------------------------------
#
# Questions with an obvious answer, made from the campaign's own cases: the true option beside one
# of another source image. Of some that are drawn at random, it is the one that has the fewest words
# in common with the caption.


_DRAWN: Final = 40


def block_length(rate: float) -> int:
    """Of so many items in a row, one is a check."""
    return max(2, round(1 / rate))


class Asked(NamedTuple):
    """A question of a case: of its image, or its caption, number `place`."""

    subject: JudgedCase
    ask: Ask
    place: int
    question: AnnotationQuestion


def make_checks(
    asked: Sequence[Asked], rate: float, seed: int
) -> list[tuple[Ask, AnnotationQuestion]]:
    """As many checks as an annotator who judges everything will meet."""
    if rate == 0:
        return []
    if len({one.subject.case.cluster for one in asked}) < 2:
        raise DataError(
            "E-CAMPAIGN-CHECKS",
            "attention checks need cases of at least two images; use --checks 0.",
        )
    rng = chance(seed, "checks")
    wanted = -(-len(asked) // (block_length(rate) - 1))
    chosen = [asked[number] for number in rng.permutation(len(asked))[:wanted].tolist()]
    return [(one.ask, _check(asked, one, rng)) for one in chosen]


def _check(asked: Sequence[Asked], one: Asked, rng: np.random.Generator) -> AnnotationQuestion:
    ask, question = one.ask, one.question
    if ask.compares:  # a text, and the same words from its end to its start
        text = question.captions[0]
        jumbled = " ".join(reversed(text.split()))
        return AnnotationQuestion((), (text, jumbled), (0,), question.context)
    own = question.right[0] if question.right else 0
    caption = question.captions[own if ask.options == "captions" else 0]
    others = _elsewhere(asked, one.subject, caption, rng)
    if ask.options == "captions":
        false = [other.case.captions[0] for other in others]
        wanted = question.options(ask) - 1 if ask is RANK else 1
        return AnnotationQuestion(question.images, (caption, *false[:wanted]), (0,))
    images = [other.shown(0) for other in others]
    if ask is BEST:
        return AnnotationQuestion(tuple(images[: len(question.images)]), (caption,), ())
    return AnnotationQuestion((question.images[own], images[0]), (caption,), (0,))


def _elsewhere(
    asked: Sequence[Asked], subject: JudgedCase, caption: str, rng: np.random.Generator
) -> list[JudgedCase]:
    """Other subjects, those that have least in common with a caption first, each once."""
    found: dict[str, JudgedCase] = {}
    drawn = rng.integers(0, len(asked), _DRAWN).tolist()
    for number in [*drawn, *range(min(len(asked), _DRAWN))]:  # in a small campaign, all of them
        other = asked[number].subject
        first = other.case.captions[0]
        if first != caption and other.case.cluster != subject.case.cluster:
            found.setdefault(first, other)
    if not found:  # the draw was unlucky: look for one
        others = (one.subject for one in asked)
        apart = (other for other in others if other.case.cluster != subject.case.cluster)
        found = {other.case.captions[0]: other for other in apart}
    words = _words(caption)
    return sorted(found.values(), key=lambda other: len(words & _words(other.case.captions[0])))


def _words(caption: str) -> set[str]:
    return set(re.findall(r"\w+", caption.lower()))


PRIME: Final = 2**31 - 1  # orders are made by arithmetic modulo this
MOST: Final = 50_000  # items of a campaign
INSTRUCTIONS: Final = 5_000  # characters
_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_CHECK: Final = "attention check"  # an id of a case ends in "image N" or "caption N"


class CampaignError(CounterpointError):
    """A campaign cannot be made, or is not there, as asked."""


@dataclass(frozen=True, slots=True)
class CampaignDesign:
    """`overlap` people judge each item; a share `checks` of what is shown are attention checks.

    `instructions` are plain text that annotators see in place of the built-in ones. `fixed`: the
    first `overlap` annotators share their cases, the next as many theirs, and so on; else an item
    goes to the annotators who ask first.
    """

    overlap: int = 2
    checks: float = 0.1
    seed: int = 0
    instructions: str = ""
    fixed: bool = False


@dataclass(frozen=True, slots=True)
class Order:
    """A campaign that is asked for: of what, of which kind, for how many people."""

    name: str
    source: str
    kind: str
    settings: CampaignDesign
    annotators: int
    wanted: SourceSelection


@dataclass(frozen=True, slots=True)
class NewCampaign:
    """What `make_campaign` did."""

    name: str
    items: int
    checks: int
    links: tuple[str, ...]
    left_out: Counter[str]


def make_campaign(database: Database, order: Order) -> NewCampaign:
    """Read the source, and write the campaign and its annotators.

    What gives no question is counted by its reason.
    """
    kind, settings = find_kind(order.kind), order.settings
    _refuse(order)  # before a long read
    material = read_material(order.source, kind, order.wanted)
    left_out = Counter(material.left_out)
    asked = _asked(material, kind, left_out)
    checks = make_checks(asked, settings.checks, settings.seed)
    rng = chance(settings.seed, "shuffle")
    shuffles = rng.integers(1, PRIME, len(asked) + len(checks)).tolist()

    def work(session: Session) -> tuple[str, ...]:
        if session.scalar(select(Campaign.id).where(Campaign.name == order.name)) is not None:
            raise CampaignError(
                "E-CAMPAIGN-EXISTS",
                f"there is a campaign {order.name!r} already; choose another name.",
            )
        source = {**material.about, "left_out": dict(left_out)}
        row = Campaign(name=order.name, kind=kind.name, settings=asdict(settings), source=source)
        if settings.fixed:
            row.settings["teams"] = order.annotators // settings.overlap
        session.add(row)
        session.flush()
        _add_items(session, row, asked, checks, shuffles)
        return _add_annotators(session, row, order.annotators)

    links = tuple(link(token) for token in database.write(work))
    return NewCampaign(order.name, len(asked), len(checks), links, left_out)


def _refuse(order: Order) -> None:
    name, settings, annotators = order.name, order.settings, order.annotators
    if not _NAME.fullmatch(name):
        raise CampaignError(
            "E-CAMPAIGN-NAME",
            f"{name!r:.80} is no name for a campaign: letters, digits, dots, dashes, at most 64.",
        )
    overlap, text = settings.overlap, settings.instructions
    rules = {
        "a campaign has 1 to 1,000 annotators and an overlap of 1 to 100.": (
            1 <= overlap <= 100 and 1 <= annotators <= 1000
        ),
        f"an overlap of {overlap} needs that many annotators, not {annotators}.": (
            annotators >= overlap
        ),
        f"fixed teams of {overlap} do not divide {annotators} annotators.": (
            not settings.fixed or annotators % max(1, overlap) == 0
        ),
        "the share of attention checks must be between 0 and 0.5.": 0 <= settings.checks <= 0.5,
        f"instructions are text of at most {INSTRUCTIONS:,} characters.": (
            len(text) <= INSTRUCTIONS and "\0" not in text
        ),
    }
    for rule, kept in rules.items():
        if not kept:
            raise CampaignError("E-CAMPAIGN-INVALID", rule)


def _asked(material: CampaignSource, kind: CampaignKind, left_out: Counter[str]) -> list[Asked]:
    """Every question, in order. A case is asked about in every way of its kind, or not at all."""
    asked: list[Asked] = []
    for subject in material.subjects:
        try:
            asked += [
                Asked(subject, ask, place, question)
                for ask in kind.asks
                for place, question in questions_of(subject, ask)
            ]
        except CaseError as error:
            left_out[f"cases: {error}"] += 1
    if not asked:
        reasons = "; ".join(f"{cases:,} {reason}" for reason, cases in left_out.items())
        raise DataError(
            "E-CAMPAIGN-EMPTY",
            f"nothing to judge: {kind.name} needs {kind.needs} ({reasons or 'no cases'}).",
        )
    if len(asked) > MOST:
        raise DataError(
            "E-CAMPAIGN-TOO-LARGE",
            f"{len(asked):,} items are more than {MOST:,}: choose some with --limit.",
        )
    return asked


def _add_items(
    session: Session,
    row: Campaign,
    asked: list[Asked],
    checks: list[tuple[Ask, AnnotationQuestion]],
    shuffles: list[int],
) -> None:
    rows: dict[str, Subject] = {}
    for subject in (one.subject for one in asked):
        if subject.case.id not in rows:
            case, origin = subject.as_json(), {"rows": list(subject.rows)}
            number = len(rows)
            rows[subject.case.id] = Subject(
                campaign_id=row.id, number=number, case=case, origin=origin
            )
    if "teams" in row.settings:  # at random, in parts of one size
        order = chance(row.settings["seed"], "teams").permutation(len(rows)).tolist()
        for place, subject_row in zip(order, rows.values(), strict=True):
            subject_row.origin["team"] = place % row.settings["teams"]
    session.add_all(rows.values())
    session.flush()
    items: list[tuple[int | None, str, Ask, AnnotationQuestion]] = []
    for subject, ask, place, question in asked:
        what = ask.compares or ("image" if ask.options == "captions" else "caption")
        key = f"{subject.case.id} {what} {place}"
        items.append((rows[subject.case.id].id, key, ask, question))
    items += [(None, f"{_CHECK} {n}", ask, question) for n, (ask, question) in enumerate(checks)]
    for (owner, key, ask, question), shuffle in zip(items, shuffles, strict=True):
        item = Item(campaign_id=row.id, subject_id=owner, key=key, ask=ask.name, shuffle=shuffle)
        item.question, item.is_check = question.as_json(), owner is None
        session.add(item)


def _add_annotators(session: Session, row: Campaign, more: int) -> tuple[str, ...]:
    before = count(session, Annotator, Annotator.campaign_id == row.id)
    tokens = tuple(new_token() for _ in range(more))
    for number, token in enumerate(tokens, 1 + before):
        session.add(Annotator(campaign_id=row.id, number=number, token=token))
    return tokens


def add_annotators(database: Database, name: str, more: int) -> tuple[str, ...]:
    """More personal links for a campaign."""
    if not 1 <= more <= 1000:
        raise CampaignError("E-CAMPAIGN-INVALID", "add 1 to 1,000 annotators at a time.")
    tokens = database.write(lambda s: _add_annotators(s, find_campaign(s, name), more))
    return tuple(link(token) for token in tokens)


def link(token: str) -> str:
    """A personal link, without the studio's address."""
    return f"/a/{token}"


def find_campaign(session: Session, name: str) -> Campaign:
    found = session.scalar(select(Campaign).where(Campaign.name == name))
    if found is None:
        names = session.scalars(select(Campaign.name)).all()
        if not names:
            raise NotFoundError(
                "E-CAMPAIGN-UNKNOWN",
                f"there is no campaign {name!r:.80}; `campaign new` makes one.",
            )
        raise NotFoundError("E-CAMPAIGN-UNKNOWN", did_you_mean("campaign", name, names))
    return found


@dataclass(frozen=True, slots=True)
class Standing:
    """How far a campaign is: judgements that count, of those that are wanted."""

    name: str
    kind: str
    items: int
    annotators: int
    given: int
    wanted: int


def standings(session: Session) -> list[Standing]:
    """All campaigns, the newest first."""
    rows = session.scalars(select(Campaign).order_by(Campaign.id.desc())).all()
    return [standing(session, row) for row in rows]


def standing(session: Session, campaign: Campaign) -> Standing:
    real = (Item.campaign_id == campaign.id) & ~Item.is_check
    items = count(session, Item, real)
    people = count(session, Annotator, Annotator.campaign_id == campaign.id)
    given = session.scalar(
        select(func.count())
        .select_from(Showing)
        .join(Item, Item.id == Showing.item_id)
        .where(real, Showing.answered, ~Showing.released)
    )
    wanted = items * int(campaign.settings["overlap"])
    title = find_kind(campaign.kind).title
    return Standing(campaign.name, title, items, people, given or 0, wanted)
