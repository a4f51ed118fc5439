"""Results of a campaign: annotators, agreement beyond chance, accepted items."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from sqlalchemy import select
from sqlalchemy.orm import Session

from counterpoint.studio.annotate.assignment import Judgement, Remark, judgements, remarks
from counterpoint.studio.annotate.campaigns import Standing, standing
from counterpoint.studio.annotate.questions import (
    BOTH,
    CampaignKind,
    JudgedCase,
    any_or_none,
    find_kind,
)
from counterpoint.studio.database import Annotator, Campaign, Item, Subject

# --- agreement beyond chance --------------------------------------------------------------------


Judgements = Mapping[int, Mapping[int, Hashable]]  # annotator -> item -> what was said


def cohen(a: Sequence[Hashable], b: Sequence[Hashable]) -> float:
    """Cohen's kappa (1960) of two annotators over the same items, nominal.

    kappa = (p_o - p_e) / (1 - p_e). NaN if there is nothing to agree on: no items, or one
    category in all of them.
    """
    if not a or len(a) != len(b):
        return math.nan
    observed = sum(x == y for x, y in zip(a, b, strict=True)) / len(a)
    left, right = Counter(a), Counter(b)
    expected = sum(left[value] * right[value] for value in left) / len(a) ** 2
    return math.nan if expected == 1 else (observed - expected) / (1 - expected)


def fleiss(counts: np.ndarray) -> float:
    """Fleiss' kappa (1971): a row per item, a column per category, each row the same sum.

    NaN if there are no items, fewer than two annotators to an item, or one category in all.
    """
    if counts.size == 0:
        return math.nan
    totals = counts.sum(axis=1)
    raters = int(totals[0])
    if (totals != raters).any():
        raise ValueError("Fleiss' kappa needs equally many judgements of every item")
    if raters < 2:
        return math.nan
    agreeing = ((counts * (counts - 1)).sum(axis=1) / (raters * (raters - 1))).mean()
    expected = float(((counts.sum(axis=0) / counts.sum()) ** 2).sum())
    return math.nan if expected == 1 else float((agreeing - expected) / (1 - expected))


def fleiss_of(judgements: Judgements, raters: int) -> tuple[float, int]:
    """Fleiss' kappa over the items that exactly `raters` people judged, and how many they are."""
    rows = [Counter(said) for said in by_item(judgements).values() if len(said) == raters]
    values = dict.fromkeys(value for row in rows for value in row)
    return fleiss(np.array([[row[value] for value in values] for row in rows])), len(rows)


def krippendorff_alpha(judgements: Judgements) -> float:
    """Krippendorff's alpha, nominal; items may be judged by any number of annotators."""
    shared = {item: said for item, said in by_item(judgements).items() if len(said) > 1}
    known = dict.fromkeys(value for said in shared.values() for value in said)
    values = {value: number for number, value in enumerate(known)}
    if len(values) < 2:
        return math.nan
    import krippendorff

    table = [
        [values[own[item]] if item in own else np.nan for item in sorted(shared)]
        for own in judgements.values()
    ]
    return float(krippendorff.alpha(np.array(table, float), level_of_measurement="nominal"))


def by_item(judgements: Judgements) -> dict[int, list[Hashable]]:
    """All answers to each item."""
    said: dict[int, list[Hashable]] = {}
    for own in judgements.values():
        for item, value in own.items():
            said.setdefault(item, []).append(value)
    return said


@dataclass(frozen=True, slots=True)
class PairAgreement:
    """Two annotators over the items that both judged."""

    a: int
    b: int
    items: int
    same: float
    kappa: float


def pairwise(judgements: Judgements) -> list[PairAgreement]:
    """Every two annotators who share an item."""
    found = []
    for a, b in combinations(sorted(judgements), 2):
        shared = sorted(judgements[a].keys() & judgements[b].keys())
        if shared:
            left = [judgements[a][item] for item in shared]
            right = [judgements[b][item] for item in shared]
            same = sum(x == y for x, y in zip(left, right, strict=True)) / len(shared)
            found.append(PairAgreement(a, b, len(shared), same, cohen(left, right)))
    return found


def mean_kappa(pairs: Sequence[PairAgreement]) -> float:
    """The plain mean over pairs, as in BiVLC's Table 7; pairs without a kappa are left out."""
    known = [pair.kappa for pair in pairs if not math.isnan(pair.kappa)]
    return sum(known) / len(known) if known else math.nan


@dataclass(frozen=True, slots=True)
class Person:
    """An annotator: items answered, checks met and failed, and whether they are left out."""

    number: int
    token: str
    answered: int
    checks: int
    failed: int
    skipped: int
    flagged: int
    excluded: bool


@dataclass(frozen=True, slots=True)
class Agreement:
    """How far annotators agree on one thing. `fleiss_items` are those judged `overlap` times."""

    what: str
    pairs: list[PairAgreement]
    mean: float
    fleiss: float
    fleiss_items: int
    alpha: float


@dataclass(frozen=True, slots=True)
class Tally:
    """Items by what most people said of them."""

    items: int
    judged: int
    accepted: int
    right: int  # answers that agree with the source
    all_right: int  # items that all their annotators got right
    answers: int


@dataclass(frozen=True, slots=True)
class CampaignResults:
    """Everything about a campaign.

    `kept` are the answers that count: without checks and excluded annotators. `wanted` has, for
    each subject, the ids of its items. `remarks` are what annotators skipped or flagged.
    """

    campaign: Campaign
    kind: CampaignKind
    standing: Standing
    people: list[Person]
    kept: list[Judgement]
    agreement: list[Agreement]
    tally: Tally
    subjects: dict[int, JudgedCase]
    wanted: dict[int, list[int]]
    remarks: list[Remark]

    @property
    def skipped(self) -> int:
        return sum(remark.skipped for remark in self.remarks)

    @property
    def flagged(self) -> int:
        return sum(remark.note is not None for remark in self.remarks)


def outcome_of(session: Session, campaign: Campaign, least: float = 0.0) -> CampaignResults:
    """`least` is the share of attention checks that an annotator must pass to be counted."""
    kind = find_kind(campaign.kind)
    said, noted = judgements(session, campaign), remarks(session, campaign)
    people = _people(session, campaign, said, noted, least)
    out = {person.number for person in people if person.excluded}
    kept = [one for one in said if not one.is_check and one.annotator not in out]
    subjects = select(Subject).where(Subject.campaign_id == campaign.id)
    rows = session.scalars(subjects.order_by(Subject.number)).all()
    wanted: dict[int, list[int]] = {row.id: [] for row in rows}
    items = session.execute(
        select(Item.id, Item.subject_id)
        .where(Item.campaign_id == campaign.id, ~Item.is_check)
        .order_by(Item.id)
    ).all()
    for item, subject in items:
        wanted[subject or 0].append(item)  # only checks have none
    return CampaignResults(
        campaign,
        kind,
        standing(session, campaign),
        people,
        kept,
        _agreements(kept, kind, int(campaign.settings["overlap"])),
        _tally(kept, len(items)),
        {row.id: JudgedCase.of(row.case, row.origin) for row in rows},
        wanted,
        noted,
    )


def _people(
    session: Session,
    campaign: Campaign,
    said: Sequence[Judgement],
    noted: Sequence[Remark],
    least: float,
) -> list[Person]:
    answered = Counter(one.annotator for one in said if not one.is_check)
    checks = Counter(one.annotator for one in said if one.is_check)
    failed = Counter(one.annotator for one in said if one.is_check and not one.is_right)
    skipped = Counter(one.annotator for one in noted if one.skipped)
    flagged = Counter(one.annotator for one in noted if one.note is not None)
    people = select(Annotator).where(Annotator.campaign_id == campaign.id)
    found = []
    for row in session.scalars(people.order_by(Annotator.number)):
        n = row.number
        excluded = checks[n] > 0 and (checks[n] - failed[n]) / checks[n] < least
        counts = (answered[n], checks[n], failed[n], skipped[n], flagged[n])
        found.append(Person(n, row.token, *counts, excluded))
    return found


def _agreements(kept: Sequence[Judgement], kind: CampaignKind, overlap: int) -> list[Agreement]:
    on: list[tuple[str, Iterable[Judgement], Callable[[str], str]]] = [("the answer", kept, str)]
    if kind.compares:
        on = [(ask.compares, [one for one in kept if one.ask is ask], str) for ask in kind.asks]
    elif kind.any_or_none:
        on = [("some image or none", kept, any_or_none), ("which image", kept, str)]
    found = []
    for what, answers, category in on:
        table: dict[int, dict[int, str]] = {}
        for one in answers:
            table.setdefault(one.annotator, {})[one.item] = category(one.value)
        pairs = pairwise(table)
        measures = (mean_kappa(pairs), *fleiss_of(table, overlap), krippendorff_alpha(table))
        found.append(Agreement(what, pairs, *measures))
    return found


def votes(kept: Iterable[Judgement]) -> dict[int, list[Judgement]]:
    """The answers to each item."""
    found: dict[int, list[Judgement]] = {}
    for one in kept:
        found.setdefault(one.item, []).append(one)
    return found


def is_accepted(said: Sequence[Judgement]) -> bool:
    """Whether more than half of the answers speak for an item; a draw does not."""
    return majority([one.ask.accepts(one.value, one.question.right) for one in said])


def majority(yes: Sequence[bool]) -> bool:
    return 2 * sum(yes) > len(yes)


def _tally(kept: Sequence[Judgement], items: int) -> Tally:
    said = votes(kept)
    return Tally(
        items,
        len(said),
        sum(is_accepted(answers) for answers in said.values()),
        sum(one.is_right for one in kept),
        sum(all(one.is_right for one in answers) for answers in said.values()),
        len(kept),
    )


# --- two texts compared -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """How many items of a group most people found better on either side, or the same."""

    group: str
    what: str  # commonsense or grammar
    first: int
    second: int
    ties: int

    @property
    def items(self) -> int:
        return self.first + self.second + self.ties


def comparison(outcome: CampaignResults) -> list[ComparisonRow]:
    """A row for every group and question that was answered. No majority is a tie."""
    counts: dict[tuple[str, str], Counter[str]] = {}
    for answers in votes(outcome.kept).values():
        subject = answers[0].subject
        if subject is None:
            continue
        group = outcome.subjects[subject].case.groups[0]
        said = Counter(one.value for one in answers)
        value, most = said.most_common(1)[0]
        winner = value if 2 * most > len(answers) else BOTH
        counts.setdefault((group, answers[0].ask.compares), Counter())[winner] += 1
    return [
        ComparisonRow(group, what, found["0"], found["1"], found[BOTH])
        for (group, what), found in sorted(counts.items())
    ]
