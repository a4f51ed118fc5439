"""The numbers of all runs at once: intervals, and which are as good as the best of their column.

`runs.rows` and `runs.compare` define each number. Runs that scored the same cases are resampled
together, in one draw, which gives the same numbers in a fraction of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final, Literal, NamedTuple

import numpy as np

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.metrics import (
    METRICS,
    RESAMPLES,
    AnyMetric,
    Pool,
    PooledMetric,
    Verdict,
    is_baseline,
)
from counterpoint.reports.gathering import ReportData, ScoredPart
from counterpoint.runs import Row, Run, compare, gap, undefined

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
Wanted = Callable[[AnyMetric], bool]


@dataclass(frozen=True, slots=True)
class RankedRow(Row):
    """A row whose `standing` and `p` come from the paired test against the best."""

    standing: Standing = ""
    p: float | None = None


class _Place(NamedTuple):
    """A column of the table: a metric of a group."""

    group: str
    metric: str


class _Test(NamedTuple):
    """The paired test of a winner against another run."""

    p: float
    verdict: Verdict


_Pair = tuple[str, str, str]  # winner, other run, metric
_Tests = dict[_Pair, dict[str, _Test]]  # then by group


@dataclass(frozen=True, slots=True)
class _Family:
    """Runs that scored the same cases under the same protocol, and the metrics that are wanted."""

    runs: list[ScoredPart]
    metrics: list[AnyMetric]

    def column(self, label: str, metric: str) -> np.ndarray:
        run = next(run for run in self.runs if run.label == label)
        return run.columns.values[:, run.metric(metric)]

    def pool(self, label: str, metric: str) -> Pool | None:
        """Where the metric is a number of all pairs."""
        run = next(run for run in self.runs if run.label == label)
        column = run.metric(metric)
        return None if column is None else run.columns.pools[column]


def is_main(metric: AnyMetric) -> bool:
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
    families = [
        _Family(runs, [metric for metric in runs[0].columns.metrics if wanted(metric)])
        for runs in alike(scored)
    ]
    rivals = competing(scored)
    best = _best(families, rivals)
    tests: _Tests = {}
    numbers = []
    for family in families:
        made, tested = _estimates(family, best, resamples)
        numbers += made
        tests |= tested
    order = {run.label: place for place, run in enumerate(scored)}
    numbers.sort(key=lambda number: order[number.model])
    pooled = any(isinstance(m, PooledMetric) and not m.main for f in families for m in f.metrics)
    tester = _Tester(scored, tests, resamples, main=not pooled)
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


def alike(scored: list[ScoredPart]) -> list[list[ScoredPart]]:
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


def _best(families: list[_Family], rivals: set[str]) -> dict[_Place, str]:
    """The run with the best value of each column, the first of equals, if there are several."""
    found: dict[_Place, tuple[float, str]] = {}
    count: dict[_Place, int] = {}
    for family in families:
        for run in family.runs:
            if run.label not in rivals:
                continue
            wanted = [
                pool if metric in family.metrics else None
                for metric, pool in zip(run.columns.metrics, run.columns.pools, strict=True)
            ]
            for group, means in run.means(run.columns.values, wanted).items():
                for metric in family.metrics:
                    value = float(means[run.columns.metrics.index(metric)])
                    if metric.better is None or metric.median or math.isnan(value):
                        continue
                    place = _Place(group, metric.name)
                    count[place] = count.get(place, 0) + 1
                    merit = value if metric.better == "higher" else -value
                    if place not in found or merit > found[place][0]:
                        found[place] = merit, run.label
    return {place: label for place, (_, label) in found.items() if count[place] > 1}


def _estimates(
    family: _Family, best: dict[_Place, str], resamples: int
) -> tuple[list[RankedRow], _Tests]:
    """The family's numbers, and the tests of its winners against its other runs, in one draw."""
    first = family.runs[0]
    own = [(run, metric) for run in family.runs for metric in family.metrics]
    pairs = list(_pairs(family, best))
    values = [family.column(run.label, metric.name) for run, metric in own]
    values += [family.column(a, name) - family.column(b, name) for a, b, name in pairs]
    pools = [family.pool(run.label, metric.name) for run, metric in own]
    pools += [gap(family.pool(a, name), family.pool(b, name)) for a, b, name in pairs]
    if not values:
        return [], {}
    found = first.tested(
        np.column_stack(values),
        shares=[metric.unit == "share" for _, metric in own] + [False] * len(pairs),
        medians=[metric.median for _, metric in own] + [False] * len(pairs),
        pools=pools,
        resamples=resamples,
    )
    numbers = [
        run.row(run.label, label, metric, tested, RankedRow)
        for label, several in found.items()
        for (run, metric), tested in zip(own, several, strict=False)
        if tested.n and not undefined(metric, tested.value)
    ]
    tests: _Tests = {
        pair: {
            label: _Test(test.p_holm, test.verdict(METRICS[pair[-1]].better))
            for label, several in found.items()
            if (test := several[place]).n
        }
        for place, pair in enumerate(pairs, start=len(own))
    }
    return numbers, tests


def _pairs(family: _Family, best: dict[_Place, str]) -> Iterator[_Pair]:
    """Every winner of some column against every other run, for that column's metric."""
    labels = [run.label for run in family.runs]
    for metric in family.metrics:
        winners = {label for place, label in best.items() if place.metric == metric.name}
        for winner in (label for label in labels if label in winners):
            yield from ((winner, other, metric.name) for other in labels if other != winner)


class _Tester:
    """Tests of a winner against another run; those across families are made when asked for."""

    def __init__(
        self, scored: list[ScoredPart], tests: _Tests, resamples: int, *, main: bool
    ) -> None:
        self.scored = {run.label: run for run in scored}
        self.tests, self.resamples, self.main = tests, resamples, main
        self.done: set[tuple[str, str]] = set()

    def test(self, winner: str, other: str, place: _Place) -> _Test | None:
        """None where the two cannot be compared."""
        key = (winner, other, place.metric)
        if key not in self.tests and (winner, other) not in self.done:
            self._compare(winner, other)
        return self.tests.get(key, {}).get(place.group)

    def _compare(self, winner: str, other: str) -> None:
        self.done.add((winner, other))
        a, b = self.scored[winner], self.scored[other]
        if a.protocol != b.protocol:
            return
        try:
            found = compare(
                _alone(a), _alone(b), a.protocol, resamples=self.resamples, main=self.main
            )
        except RunError:  # no case in common, or the cases of one id differ
            return
        for d in found:
            tests = self.tests.setdefault((winner, other, d.metric), {})
            tests[d.group] = _Test(d.p_holm, d.verdict)


def _alone(scored: ScoredPart) -> Run:
    return replace(scored.run, parts={scored.part.benchmark: scored.part})


def _with_standing(number: RankedRow, winner: str, tester: _Tester) -> RankedRow:
    if number.model == winner:
        return replace(number, standing="best")
    test = tester.test(winner, number.model, _Place(number.group, number.metric))
    if test is None:
        return replace(number, standing="untested")
    return replace(number, standing="tied" if test.verdict == "tied" else "", p=test.p)
