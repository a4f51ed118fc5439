"""Chooses the cases that a report shows: those that say most about the models."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final, NamedTuple

import numpy as np

from counterpoint.cases import Cases, gallery_rows
from counterpoint.metrics import ALL, COMPOSITION_METRICS, Protocol, Tie
from counterpoint.models.blind import SCORERS, BagOfWords, by_pair
from counterpoint.reports.data import ScoredPart
from counterpoint.runs import Part, columns_of, same_rows

RIGHT, WRONG, BRITTLE, TIED, PARTLY, ABSENT = (
    "right",
    "wrong",
    "brittle",
    "tied",
    "partly right",
    "not scored",
)
_SEED: Final = 0


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

    def said(self, case: int, run: int) -> str:
        value = self.value[case, run]
        if np.isnan(value):
            return ABSENT
        if value == 1:
            return RIGHT
        if self.brittle[case, run] == 1:
            return BRITTLE
        if self.tied[case, run] > 0:
            return TIED
        return WRONG if value == 0 else PARTLY


@dataclass(frozen=True, slots=True)
class ExampleKind:
    """A kind of example, and the cases of each group that are of it, the most telling first."""

    kind: str
    title: str
    found: dict[str, list[int]]


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
    columns = [
        np.column_stack([_values(s, name, rows[:, i], ties) for i, s in enumerate(several)])
        for name, ties in ((metric, False), ("brittleness", False), (metric, True))
    ]
    return Outcomes(metric, cases, list(several), rows, *columns)


def _values(scored: ScoredPart, name: str, rows: np.ndarray, ties: bool) -> np.ndarray:
    """A metric's values (or ties) of the cases at `rows`; NaN for -1."""
    found = np.full(len(rows), np.nan)
    column = scored.metric(name)
    if column is not None:
        table = scored.columns.ties if ties else scored.columns.values
        there = rows >= 0
        found[there] = table[np.searchsorted(scored.columns.cases, rows[there]), column]
    return found


# --- kinds -------------------------------------------------------------------------------------


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
    failed = every & ~right.any(axis=1) & ~brittle.all(axis=1)
    kinds = [
        ("disagree", "The models disagree", apart & ~brittle.any(axis=1), balance),
        ("brittle", "Brittle: right for one wording only", brittle.any(axis=1), -brittle.sum(1)),
        ("failed", "Every model fails", failed & ~brittle.any(axis=1), np.zeros(len(right))),
    ]
    return _choices(found, kinds, count), _missing(found, judged, kinds)


def opposed(
    found: Outcomes, names: tuple[str, str], count: int
) -> tuple[list[ExampleKind], list[str]]:
    """For the two runs of a comparison: what only one of them gets right."""
    if len(found.runs) < 2:
        return [], [f"Only {found.runs[0].label} was evaluated on it."]
    right, scored = found.value == 1, np.isfinite(found.value)
    both = scored.all(axis=1)
    none = np.zeros(len(both))
    kinds = [
        ("only-a", f"Only {names[0]} is right", both & right[:, 0] & ~right[:, 1], none),
        ("only-b", f"Only {names[1]} is right", both & right[:, 1] & ~right[:, 0], none),
        ("failed", "Neither is right", both & ~right.any(axis=1), none),
    ]
    return _choices(found, kinds, count), [
        f"{title}: there is no such case." for _, title, mask, _ in kinds if not mask.any()
    ]


Kinds = list[tuple[str, str, np.ndarray, np.ndarray]]


def _missing(found: Outcomes, judged: Sequence[int], kinds: Kinds) -> list[str]:
    said = []
    for kind, title, mask, _ in kinds:
        if mask.any():
            continue
        if kind == "disagree" and len(judged) < 2:
            said.append(f"{title}: it takes two models that are no baselines.")
        elif kind == "disagree":
            said.append(f"{title}: there is no such case beside the brittle ones.")
        elif kind == "brittle" and found.metric == "augmented_group":
            said.append(f"{title}: cases with re-renderings are shown as right or wrong.")
        elif kind == "brittle" and found.metric != "augmented_accuracy":
            said.append(f"{title}: these cases have no positives beside the original.")
        else:
            said.append(f"{title}: there is no such case.")
    return said


def _choices(found: Outcomes, kinds: Kinds, count: int) -> list[ExampleKind]:
    labels = found.cases.frame["groups"].list.first().fill_null(ALL).to_numpy()
    # Among equals, by chance, but the same for the same cases.
    chance = np.random.default_rng(_SEED).permutation(len(labels))
    made = []
    for kind, title, mask, rank in kinds:
        chosen = np.flatnonzero(mask)
        chosen = chosen[np.lexsort((chance[chosen], np.asarray(rank)[chosen]))]
        by_group: dict[str, list[int]] = {}
        for case in chosen.tolist():
            mine = by_group.setdefault(str(labels[case]), [])
            if len(mine) < count:
                mine.append(case)
        if by_group:
            made.append(ExampleKind(kind, title, by_group))
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


def ranked_scores(found: Outcomes, kept: Threes) -> np.ndarray:
    """Scores of original, negative and positive: (runs, cases, 3), NaN where a run lacks a case."""
    values = np.full((len(found.runs), len(kept.cases), len(ROLES)), np.nan)
    for number, run in enumerate(found.runs):
        rows = found.rows[kept.cases, number]
        there = rows >= 0
        starts = run.part.cases.pair_offsets[rows[there]]
        values[number, there] = run.part.scores[starts[:, None] + kept.places[there]]
    return values


def best_trio(values: np.ndarray) -> Trio:
    """Of all three models in the order given, those with the most cases of the paper's kinds."""
    original, negative, positive = np.moveaxis(values, 2, 0)
    right = np.minimum(original, positive) > negative
    brittle = (original > negative) & (negative > positive)
    wrong = negative > original

    def trio(runs: tuple[int, ...]) -> Trio:
        first, second, third = runs
        shared = brittle[second] & right[third]
        kinds = {"wrong": wrong[first] & shared, "right": right[first] & shared}
        return Trio(runs, {kind: np.flatnonzero(mask) for kind, mask in kinds.items()})

    found = map(trio, combinations(range(len(values)), TRIO))
    return max(found, key=lambda one: one.total)  # the first of equals


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
        columns = columns_of(Part("", cases, scores, protocol), _STRICT)
        place = [m.name for m in columns.metrics].index(metric)
        found[f"blind:{name}"] = columns.values[:, place] == 1
    return found


_STRICT: Final[Tie] = "wrong"  # a baseline that cannot tell captions apart has got nothing right
