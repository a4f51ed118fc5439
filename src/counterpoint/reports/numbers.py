"""The numbers of all runs at once: intervals, and which are as good as the best of their column.

`runs.rows` and `runs.compare` define each number. Runs that scored the same cases are resampled
together, in one draw, which gives the same numbers in a fraction of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.metrics import (
    ALL,
    METRICS,
    RESAMPLES,
    Estimate,
    Metric,
    QueryMetric,
    estimate,
    holm,
    is_baseline,
    verdict,
)
from counterpoint.reports.gathering import ReportData, ScoredPart
from counterpoint.runs import Row, Run, averaging_of, compare, means_of, members_in

# --- how numbers and names are written ----------------------------------------------------------


HUMAN: Final = "human"
# Invisible, or able to turn the direction of what follows: of no use in a name.
_CONTROLS: Final = re.compile("[\x00-\x1f\x7f-\x9f\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]+")


def is_human(model: str) -> bool:
    return model == HUMAN


def written(metric: str, value: float) -> str:
    """A share in per cent; ranks and scores as they are."""
    unit = METRICS[metric].unit
    return f"{100 * value:.1f}" if unit == "share" else f"{value:.{2 if unit == 'rank' else 4}f}"


def score(value: float) -> str:
    return f"{value:.4g}"


def one_line(name: str) -> str:
    """A name without what cannot be seen."""
    return _CONTROLS.sub(" ", name)


def shortened(name: str, length: int = 34) -> str:
    """A name for a figure; of a long one both ends, which tell models apart."""
    name = one_line(name)
    if len(name) <= length:
        return name
    end = (length - 1) * 2 // 3
    return f"{name[: length - 1 - end]}…{name[-end:]}"


Standing = Literal["", "best", "tied", "untested"]
Wanted = Callable[[Metric | QueryMetric], bool]


@dataclass(frozen=True, slots=True)
class RankedRow(Row):
    """A row whose `standing` and `p` come from the paired test against the best."""

    standing: Standing = ""
    p: float | None = None


@dataclass(frozen=True, slots=True)
class _Place:
    """A column of the table: a metric of a group."""

    group: str
    metric: str


@dataclass(frozen=True, slots=True)
class _Family:
    """Runs that scored the same cases under the same protocol, and the means of their metrics."""

    runs: list[ScoredPart]
    metrics: list[Metric | QueryMetric]
    members: dict[str, np.ndarray]
    means: dict[str, dict[str, np.ndarray]]  # by label of the run, then of the group

    def column(self, label: str, metric: str) -> np.ndarray:
        run = next(run for run in self.runs if run.label == label)
        place = run.metric(metric)
        assert place is not None
        return run.columns.values[:, place]


def is_main(metric: Metric | QueryMetric) -> bool:
    return metric.main


def numbers_of(
    material: ReportData,
    wanted: Wanted = is_main,
    *,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
) -> list[RankedRow]:
    """Every wanted metric of every run, benchmark and group."""
    advance = (progress or Quiet()).start("resampling", len(material.benchmarks))
    found = []
    for scored in material.benchmarks.values():
        found += list(_benchmark_numbers(scored, wanted, resamples))
        advance(1)
    return found


def _benchmark_numbers(
    scored: list[ScoredPart], wanted: Wanted, resamples: int
) -> Iterator[RankedRow]:
    families = [_family(runs, wanted) for runs in _alike(scored)]
    rivals = competing(scored)
    best = _best(families, rivals)
    gaps: dict[tuple[str, str, str], dict[str, float]] = {}
    numbers = []
    for family in families:
        made, tested = _estimates(family, best, resamples)
        numbers += made
        gaps |= tested
    order = {run.label: place for place, run in enumerate(scored)}
    numbers.sort(key=lambda number: order[number.model])
    tester = _Tester(scored, gaps, resamples)
    for number in numbers:
        winner = best.get(_Place(number.group, number.metric))
        rival = number.model in rivals
        yield _with_standing(number, winner, tester) if winner and rival else number


def competing(scored: list[ScoredPart]) -> set[str]:
    """The labels of models: people stand beside them, and so do baselines, unless they are alone.

    A baseline that gives every caption one score is never brittle, and better at nothing.
    """
    people = {run.label for run in scored if is_human(run.run.model)}
    baselines = {run.label for run in scored if is_baseline(run.run.model)}
    everyone = {run.label for run in scored}
    return (everyone - people - baselines) or (everyone - people)


def _alike(scored: list[ScoredPart]) -> list[list[ScoredPart]]:
    """Runs of the same cases, in the same order, under the same protocol."""
    families: list[list[ScoredPart]] = []
    for run in scored:
        for family in families:
            first = family[0]
            if first.protocol == run.protocol and first.part.cases is run.part.cases:
                family.append(run)
                break
        else:
            families.append([run])
    return families


def _family(runs: list[ScoredPart], wanted: Wanted) -> _Family:
    first = runs[0]
    members = first.columns.members(members_in(first.part.cases.frame, first.protocol))
    averaging = averaging_of(first.part, first.protocol)
    means = {run.label: means_of(run.columns.values, members, averaging) for run in runs}
    metrics = [metric for metric in first.columns.metrics if wanted(metric)]
    return _Family(runs, metrics, members, means)


def _best(families: list[_Family], rivals: set[str]) -> dict[_Place, str]:
    """The run with the best value of each column, the first of equals, if there are several."""
    found: dict[_Place, tuple[float, str]] = {}
    count: dict[_Place, int] = {}
    for family in families:
        for run in family.runs:
            if run.label not in rivals:
                continue
            for group, means in family.means[run.label].items():
                for metric in family.metrics:
                    value = float(means[run.columns.metrics.index(metric)])
                    if metric.better is None or math.isnan(value):
                        continue
                    place = _Place(group, metric.name)
                    count[place] = count.get(place, 0) + 1
                    merit = value if metric.better == "higher" else -value
                    if place not in found or merit > found[place][0]:
                        found[place] = merit, run.label
    return {place: label for place, (_, label) in found.items() if count[place] > 1}


def _estimates(
    family: _Family, best: dict[_Place, str], resamples: int
) -> tuple[list[RankedRow], dict[tuple[str, str, str], dict[str, float]]]:
    """The family's numbers, and p (Holm over groups) of its winners against its other runs."""
    first = family.runs[0]
    own = [(run, metric) for run in family.runs for metric in family.metrics]
    pairs = list(_pairs(family, best))
    values = [family.column(run.label, metric.name) for run, metric in own]
    values += [family.column(a, name) - family.column(b, name) for a, b, name in pairs]
    if not values:
        return [], {}
    found = estimate(
        np.column_stack(values),
        first.columns.clusters,
        family.members,
        averaging_of(first.part, first.protocol),
        shares=[metric.unit == "share" for _, metric in own] + [False] * len(pairs),
        resamples=resamples,
    )
    chances = means_of(
        first.columns.chance, family.members, averaging_of(first.part, first.protocol)
    )
    numbers = [
        _number(run, metric, label, found[label][place], family.members[label], chances[label])
        for label in family.members
        for place, (run, metric) in enumerate(own)
        if found[label][place].n
    ]
    tested = {pair: _corrected(found, len(own) + place) for place, pair in enumerate(pairs)}
    return numbers, tested


def _pairs(family: _Family, best: dict[_Place, str]) -> Iterator[tuple[str, str, str]]:
    """Every winner of some column against every other run, for that column's metric."""
    labels = [run.label for run in family.runs]
    for metric in family.metrics:
        winners = {label for place, label in best.items() if place.metric == metric.name}
        for winner in (label for label in labels if label in winners):
            yield from ((winner, other, metric.name) for other in labels if other != winner)


def _corrected(found: dict[str, list[Estimate]], column: int) -> dict[str, float]:
    """As `compare` does it: the whole is one question, the groups are many, and pay."""
    p = {label: estimates[column].p for label, estimates in found.items() if estimates[column].n}
    groups = [label for label in p if label != ALL]
    return {**p, **dict(zip(groups, holm([p[label] for label in groups]), strict=True))}


def _number(
    run: ScoredPart,
    metric: Metric | QueryMetric,
    label: str,
    e: Estimate,
    rows: np.ndarray,
    chances: np.ndarray,
) -> RankedRow:
    column = run.columns.metrics.index(metric)
    chance = float(chances[column])
    return RankedRow(
        run.label,
        run.part.benchmark,
        label,
        metric.name,
        e.value,
        e.low,
        e.high,
        e.n,
        int(run.columns.ties[rows, column].sum()),
        None if math.isnan(chance) else chance,
    )


class _Tester:
    """p-values of a winner against another run; those across families are made when asked for."""

    def __init__(
        self,
        scored: list[ScoredPart],
        gaps: dict[tuple[str, str, str], dict[str, float]],
        resamples: int,
    ) -> None:
        self.scored = {run.label: run for run in scored}
        self.gaps, self.resamples = gaps, resamples
        self.done: set[tuple[str, str]] = set()

    def p(self, winner: str, other: str, place: _Place) -> float | None:
        """None where the two cannot be compared."""
        key = (winner, other, place.metric)
        if key not in self.gaps and (winner, other) not in self.done:
            self._compare(winner, other)
        return self.gaps.get(key, {}).get(place.group)

    def _compare(self, winner: str, other: str) -> None:
        self.done.add((winner, other))
        a, b = self.scored[winner], self.scored[other]
        if a.protocol != b.protocol:
            return
        try:
            found = compare(_alone(a), _alone(b), a.protocol, resamples=self.resamples)
        except RunError:  # no case in common, or the cases of one id differ
            return
        for gap in found:
            self.gaps.setdefault((winner, other, gap.metric), {})[gap.group] = gap.p_holm


def _alone(scored: ScoredPart) -> Run:
    return replace(scored.run, parts={scored.part.benchmark: scored.part})


def _with_standing(number: RankedRow, winner: str, tester: _Tester) -> RankedRow:
    if number.model == winner:
        return replace(number, standing="best")
    p = tester.p(winner, number.model, _Place(number.group, number.metric))
    if p is None:
        return replace(number, standing="untested")
    tied = verdict(1.0, p, METRICS[number.metric].better or "higher") == "tied"
    return replace(number, standing="tied" if tied else "", p=p)
