"""Chooses the cases that a report shows: those that say most about the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from counterpoint.cases import Cases, gallery_rows
from counterpoint.metrics import ALL, COMPOSITION_METRICS, Protocol
from counterpoint.models.blind import SCORERS, BagOfWords, by_pair
from counterpoint.reports.data import ScoredPart
from counterpoint.runs import Part, measure, same_rows


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Every case of a benchmark under every run: (cases, runs), NaN where a run lacks the case.

    `rows` says where the case stands in each run's table, -1 if it does not.
    """

    metric: str
    cases: Cases
    runs: list[ScoredPart]
    rows: np.ndarray
    value: np.ndarray
    brittle: np.ndarray
    tied: np.ndarray

    def outcome(self, case: int, run: int) -> str:
        value = self.value[case, run]
        if np.isnan(value):
            return "not scored"
        if value == 1:
            return "right"
        if self.brittle[case, run] == 1:
            return "brittle"
        if self.tied[case, run] > 0:
            return "tied"
        return "wrong" if value == 0 else "partly right"


def outcomes(several: Sequence[ScoredPart]) -> Outcomes | None:
    """Of the cases with few images; None if there are none, or no metric that counts them."""
    largest = max(several, key=lambda scored: len(scored.part.cases))
    known = {m.name for m in largest.columns.metrics}
    metric = next((name for name in COMPOSITION_METRICS if name in known), None)
    normal = ~gallery_rows(largest.part.cases)
    if metric is None or not normal.any():
        return None
    cases = largest.part.cases if normal.all() else largest.part.cases.keep(normal)
    rows = np.column_stack([same_rows(cases, scored.part.cases) for scored in several])

    def column(run: int, name: str, ties: bool) -> np.ndarray:
        """A metric's values (or ties) of the cases; NaN for those that the run lacks."""
        scored, there = several[run], rows[:, run] >= 0
        found, place = np.full(len(rows), np.nan), scored.metric(name)
        if place is not None:
            table = scored.columns.ties if ties else scored.columns.values
            found[there] = table[np.searchsorted(scored.columns.cases, rows[there, run]), place]
        return found

    tables = [
        np.column_stack([column(run, name, ties) for run in range(len(several))])
        for name, ties in ((metric, False), ("brittleness", False), (metric, True))
    ]
    return Outcomes(metric, cases, list(several), rows, *tables)


# --- kinds -------------------------------------------------------------------------------------


class ExampleKind(NamedTuple):
    """A kind of example, and the cases of each group that are of it, the most telling first."""

    kind: str
    title: str
    found: dict[str, list[int]]


Kinds = list[tuple[str, str, np.ndarray, np.ndarray | None]]  # which cases, and in which order


def telling(
    found: Outcomes, judged: Sequence[int], count: int
) -> tuple[list[ExampleKind], list[str]]:
    """For runs numbered `judged`: disagreements, brittle cases, and cases that all of them fail.

    The second value says of each kind that is missing why it is.
    """
    right, scored = found.value[:, judged] == 1, np.isfinite(found.value[:, judged])
    wrong, brittle = scored & ~right, found.brittle[:, judged] == 1
    every = scored.all(axis=1) & (len(judged) > 0)
    apart = right.any(axis=1) & wrong.any(axis=1)
    balance = np.abs(right.sum(axis=1) - wrong.sum(axis=1)).astype(float)
    failed, any_brittle = every & ~right.any(axis=1), brittle.any(axis=1)
    kinds: Kinds = [
        ("disagree", "The models disagree", apart & ~any_brittle, balance),
        ("brittle", "Brittle: right for one wording only", any_brittle, -brittle.sum(1)),
        ("failed", "Every model fails", failed & ~any_brittle, None),
    ]
    missing = {kind: "there is no such case." for kind, *_ in kinds}
    missing["disagree"] = "there is no such case beside the brittle ones."
    if len(judged) < 2:
        missing["disagree"] = "it takes two models that are no baselines."
    if found.metric == "augmented_group":
        missing["brittle"] = "cases with re-renderings are shown as right or wrong."
    elif found.metric != "augmented_accuracy":
        missing["brittle"] = "these cases have no positives beside the original."
    told = [f"{title}: {missing[kind]}" for kind, title, mask, _ in kinds if not mask.any()]
    return _choices(found, kinds, count), told


def opposed(
    found: Outcomes, count: int, names: tuple[str, str]
) -> tuple[list[ExampleKind], list[str]]:
    """For the two runs of a comparison: what only one of them gets right."""
    if len(found.runs) < 2:
        return [], [f"Only {found.runs[0].label} was evaluated on it."]
    right, both = found.value == 1, np.isfinite(found.value).all(axis=1)
    kinds: Kinds = [
        ("only-a", f"Only {names[0]} is right", both & right[:, 0] & ~right[:, 1], None),
        ("only-b", f"Only {names[1]} is right", both & right[:, 1] & ~right[:, 0], None),
        ("failed", "Neither is right", both & ~right.any(axis=1), None),
    ]
    told = [f"{title}: there is no such case." for _, title, mask, _ in kinds if not mask.any()]
    return _choices(found, kinds, count), told


def _choices(found: Outcomes, kinds: Kinds, count: int) -> list[ExampleKind]:
    labels = found.cases.frame["groups"].list.first().fill_null(ALL).to_numpy()
    # Among equals, by chance, but the same for the same cases.
    chance = np.random.default_rng(0).permutation(len(labels))
    made = []
    for kind, title, mask, rank in kinds:
        chosen = np.flatnonzero(mask)
        keys = (chance[chosen],) if rank is None else (chance[chosen], rank[chosen])
        by_group: dict[str, list[int]] = {}
        for case in chosen[np.lexsort(keys)].tolist():
            by_group.setdefault(str(labels[case]), []).append(case)
        if by_group:
            made.append(ExampleKind(kind, title, {g: c[:count] for g, c in by_group.items()}))
    return made


# --- three captions under three models -----------------------------------------------------------

TRIO: Final = 3  # models
ROLES: Final = ("original", "negative", "positive")


class Trio(NamedTuple):
    """Three models by their numbers, and the cases of each kind that they have."""

    runs: tuple[int, ...]
    cases: dict[str, np.ndarray]

    @property
    def total(self) -> int:
        return sum(map(len, self.cases.values()))


class Threes(NamedTuple):
    """Cases of one image with three captions, and where each role stands among them."""

    cases: np.ndarray
    places: np.ndarray  # (cases, roles)


def threes_of(found: Outcomes) -> Threes | None:
    cells = found.cases.frame["truth"]
    shaped = (found.cases.image_counts == 1) & (found.cases.caption_counts == 3)
    cases = np.flatnonzero(shaped & (cells.list.len() == 2).to_numpy())
    if not len(cases):
        return None
    true = np.sort(np.array(cells[cases].to_list()), axis=1)
    return Threes(cases, np.column_stack([true[:, 0], 3 - true.sum(axis=1), true[:, 1]]))


def best_trio(found: Outcomes, kept: Threes) -> Trio:
    """Of all three models in the order given, those with the most cases of the paper's kinds."""
    values = np.full((len(found.runs), len(kept.cases), len(ROLES)), np.nan)
    for number, run in enumerate(found.runs):
        rows = found.rows[kept.cases, number]
        there = rows >= 0
        starts = run.part.cases.pair_offsets[rows[there]]
        values[number, there] = run.part.scores[starts[:, None] + kept.places[there]]
    original, negative, positive = np.moveaxis(values, 2, 0)
    right = np.minimum(original, positive) > negative
    brittle = (original > negative) & (negative > positive)
    wrong = negative > original
    trios = []
    for first, second, third in combinations(range(len(values)), TRIO):
        shared = brittle[second] & right[third]
        kinds = {"wrong": wrong[first] & shared, "right": right[first] & shared}
        cases = {kind: np.flatnonzero(mask) for kind, mask in kinds.items()}
        trios.append(Trio((first, second, third), cases))
    return max(trios, key=lambda one: one.total)  # the first of equals


# --- blind baselines ---------------------------------------------------------------------------


def blind_right(cases: Cases, protocol: Protocol, metric: str) -> dict[str, np.ndarray]:
    """Which cases each cheap blind baseline gets right."""
    found = {}
    for name, scorer in SCORERS.items():
        made = scorer()
        if isinstance(made, BagOfWords):
            scores = made.score_cases(cases)
        else:
            texts = cases.frame["captions"].explode().to_list()
            scores = by_pair(cases, made.score_captions(texts))
        # A baseline that cannot tell captions apart has got nothing right.
        measured = measure(Part("", cases, scores, protocol), tie="wrong")
        found[f"blind:{name}"] = measured.columns.values[:, measured.metric(metric)] == 1
    return found
