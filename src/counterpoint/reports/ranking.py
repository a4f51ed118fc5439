"""The numbers of all runs at once: intervals, the best of each column, and what papers say beside.

`runs.rows` and `runs.compare` define each number. Runs that scored the same cases are resampled
together, in one draw, which gives the same numbers in a fraction of the time.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final, Literal

import numpy as np
import polars as pl

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.evaluation import Check, Verdict, judge, published, published_model, verify
from counterpoint.metrics import (
    LEVEL,
    METRICS,
    RESAMPLES,
    AnyMetric,
    Pool,
    PooledMetric,
    against_best,
    depends_on_ties,
    holm_over_groups,
    is_baseline,
)
from counterpoint.reports.data import ReportData, ScoredPart
from counterpoint.runs import Row, compare, undefined

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


def counts_text(counts: Iterable[int]) -> str:
    """Of one column: "7,511", or "731 to 7,511" where they differ."""
    found = sorted(counts)
    return " to ".join(f"{count:,}" for count in dict.fromkeys((found[0], found[-1])))


def score(value: float) -> str:
    return f"{value:.4g}"


def one_line(name: str) -> str:
    """A name without what cannot be seen."""
    return _CONTROLS.sub(" ", name)


def short_name(name: str, length: int = 34) -> str:
    """A name for a figure; of a long one both ends, which tell models apart."""
    name = one_line(name)
    if len(name) <= length:
        return name
    end = (length - 1) * 2 // 3
    return f"{name[: length - 1 - end]}…{name[-end:]}"


# The best, and which other models the test cannot tell from it.
Standing = Literal["", "best", "not separated", "untested"]


@dataclass(frozen=True, slots=True)
class RankedRow(Row):
    """A row whose `standing` and `p` come from the test against the best of its column.

    p holds over all models of the column, and over the groups of the benchmark.
    """

    standing: Standing = ""
    p: float | None = None


_Place = tuple[str, str]  # a column of the table: a group and a metric


@dataclass(frozen=True, eq=False)
class _Family:
    """Runs that scored the same cases under the same protocol, and the metrics that are wanted."""

    runs: list[ScoredPart]
    metrics: list[AnyMetric]

    @cached_property
    def own(self) -> list[tuple[ScoredPart, AnyMetric]]:
        """The columns: each metric of each run."""
        return [(run, metric) for run in self.runs for metric in self.metrics]

    @cached_property
    def values(self) -> np.ndarray:
        return np.column_stack([run.columns.values[:, run.metric(m.name)] for run, m in self.own])

    @cached_property
    def pools(self) -> list[Pool | None]:
        """Where a metric is a number of all pairs."""
        pools = {run.label: run.columns.pools for run in self.runs}
        return [pools[run.label][run.columns.metrics.index(m)] for run, m in self.own]


def numbers_of(
    material: ReportData,
    *,
    every: bool = False,
    resamples: int = RESAMPLES,
    progress: Progress | None = None,
) -> list[RankedRow]:
    """Every metric, or the main ones, of every run, benchmark and group."""
    advance = (progress or Quiet()).start("resampling", len(material.benchmarks))
    found = []
    for scored in material.benchmarks.values():
        found += list(_benchmark_numbers(scored, every, resamples))
        advance(1)
    return found


def _benchmark_numbers(
    scored: list[ScoredPart], every: bool, resamples: int
) -> Iterator[RankedRow]:
    families = [
        _Family(runs, [metric for metric in runs[0].columns.metrics if every or metric.main])
        for runs in alike(scored)
    ]
    numbers = [number for family in families for number in _estimates(family, resamples)]
    order = {run.label: place for place, run in enumerate(scored)}
    numbers.sort(key=lambda number: order[number.model])
    ranked = _ranked(numbers, competing(scored))
    found: dict[tuple[str, str], dict[str, float]] = {}  # p by metric and model, then by group
    tests = [_in_family(family, ranked, resamples) for family in families]
    tests.append(_across(families, ranked, resamples))
    for ((group, metric), model), p in (item for test in tests for item in test.items()):
        found.setdefault((metric, model), {})[group] = p
    held = {key: holm_over_groups(of_groups) for key, of_groups in found.items()}
    for number in numbers:
        models = ranked.get((number.group, number.metric), [])
        known = held.get((number.metric, number.model), {}).get(number.group)
        if number.model not in models:
            yield number
        elif number.model == models[0]:
            yield replace(number, standing="best")
        elif known is None:
            yield replace(number, standing="untested")
        else:
            near: Standing = "" if known < 1 - LEVEL else "not separated"
            yield replace(number, standing=near, p=known)


def _ranked(numbers: list[RankedRow], rivals: set[str]) -> dict[_Place, list[str]]:
    """The models of each column that can be compared, the best first, if they are several.

    A number that depends on ties is not compared.
    """
    found: dict[_Place, list[RankedRow]] = {}
    for number in numbers:
        metric = METRICS[number.metric]
        comparable = metric.better and not metric.median and not depends_on_ties(number)
        if number.model in rivals and comparable and not math.isnan(number.value):
            found.setdefault((number.group, number.metric), []).append(number)

    def merit(number: RankedRow) -> float:
        return number.value if METRICS[number.metric].better == "higher" else -number.value

    return {
        place: [n.model for n in sorted(several, key=merit, reverse=True)]
        for place, several in found.items()
        if len(several) > 1
    }


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


def _estimates(family: _Family, resamples: int) -> Iterator[RankedRow]:
    """The family's numbers, in one draw."""
    own = family.own
    if not own:
        return
    found = family.runs[0].estimates(
        family.values,
        shares=[metric.unit == "share" for _, metric in own],
        medians=[metric.median for _, metric in own],
        pools=family.pools,
        resamples=resamples,
    )
    for label, several in found.items():
        for (run, metric), one in zip(own, several, strict=True):
            if one.n and not undefined(metric, one.value):
                yield run.row(run.label, label, metric, one, RankedRow)


Ps = dict[tuple[_Place, str], float]  # by column and model


def _in_family(family: _Family, ranked: dict[_Place, list[str]], resamples: int) -> Ps:
    """Where the best is of this family: the family's other models, in one draw."""
    columns = {(run.label, metric.name): place for place, (run, metric) in enumerate(family.own)}
    contests: dict[str, list[tuple[_Place, list[str]]]] = {}
    for place, models in ranked.items():
        mine = [model for model in models if (model, place[1]) in columns]
        if len(mine) > 1 and mine[0] == models[0]:
            contests.setdefault(place[0], []).append((place, mine))
    if not contests:
        return {}
    first = family.runs[0]
    found = against_best(
        family.values,
        first.columns.clusters,
        first.members,
        {
            group: [[columns[model, place[1]] for model in mine] for place, mine in several]
            for group, several in contests.items()
        },
        first.averaging,
        pools=family.pools,
        resamples=resamples,
    )
    return {
        (place, model): min(1.0, p * _pairs(ranked[place]) / _pairs(mine))
        for group, several in contests.items()
        for (place, mine), ps in zip(several, found[group], strict=True)
        for model, p in zip(mine[1:], ps[1:], strict=True)
    }


def _across(families: list[_Family], ranked: dict[_Place, list[str]], resamples: int) -> Ps:
    """Models of other cases than the best: pair by pair over the cases of both.

    They cannot be flipped together, so each p is corrected for all pairs (Bonferroni).
    """
    family_of = {run.label: family for family in families for run in family.runs}
    scored = {run.label: run for family in families for run in family.runs}
    wanted: dict[tuple[str, str], list[_Place]] = {}
    for place, (best, *others) in ranked.items():
        for other in others:
            if family_of[best] is not family_of[other]:
                wanted.setdefault((best, other), []).append(place)
    found: Ps = {}
    pooled = any(isinstance(m, PooledMetric) and not m.main for f in families for m in f.metrics)
    for (best, other), places in wanted.items():
        a, b = scored[best], scored[other]
        if a.protocol != b.protocol:
            continue
        one, two = (replace(s.run, parts={s.part.benchmark: s.part}) for s in (a, b))
        try:
            gaps = compare(one, two, a.protocol, resamples=resamples, main=not pooled)
        except RunError:  # no case in common, or the cases of one id differ
            continue
        p = {(d.group, d.metric): d.p for d in gaps}
        for place in places:
            if place in p:
                found[place, other] = min(1.0, p[place] * _pairs(ranked[place]))
    return found


def _pairs(models: Sequence[str]) -> float:
    return len(models) * (len(models) - 1) / 2


# --- published values beside measured ones, and human accuracy ----------------------------------


_HUMAN: Final = "Human"  # as published.csv calls them
_OTHER_AVERAGE: Final = "another average"
_FEW: Final = 2  # resamples: intervals are known already, only the value is wanted


@dataclass(frozen=True, slots=True)
class Papers:
    """Published values: `values` by label, benchmark, group and metric; `human` by the last three.

    The verdict of a value that is of another average than the table says so: of ours, no interval
    is known there.
    """

    values: dict[tuple[str, str, str, str], list[Check]]
    human: dict[tuple[str, str, str], Check]

    def main(self, number: RankedRow) -> Check | None:
        """The value to print beside a number: of the same protocol and average, and cases."""
        mine = self.values.get((number.model, number.benchmark, number.group, number.metric), [])
        unlike = (_OTHER_AVERAGE, "cannot be compared")
        return next((check for check in mine if check.verdict not in unlike), None)


def theirs(check: Check | None) -> str:
    """The published value as it is written."""
    known = check is not None and check.published is not None
    return written(check.metric, check.published) if known else ""  # type: ignore[union-attr, arg-type]


def beside_papers(
    material: ReportData,
    numbers: Sequence[RankedRow],
    called: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Papers:
    """Look up every run's model (or what `called` says it is called in papers), and people."""
    names = {name: published_model(theirs) for name, theirs in (called or {}).items()}
    known = published()
    ids = set(known["id"]) | set(known["model"])
    parts = [scored for several in material.benchmarks.values() for scored in several]
    ours = {(n.model, n.benchmark, n.group, n.metric): n for n in numbers}
    advance = (progress or Quiet()).start("published values", len(parts))
    values: dict[tuple[str, str, str, str], list[Check]] = {}
    for scored in parts:
        model = scored.run.model
        if scored.label in names or model in names or model in ids - {""}:
            for check in _found(scored, names.get(scored.label, names.get(model)), ours):
                key = (scored.label, check.benchmark, check.group, check.metric)
                values.setdefault(key, []).append(check)
        advance(1)
    return Papers(values, _human(material, ours))


def _human(
    material: ReportData, ours: Mapping[tuple[str, str, str, str], RankedRow]
) -> dict[tuple[str, str, str], Check]:
    theirs = published().filter(pl.col("model") == _HUMAN)
    names = set(theirs["benchmark"])
    found: dict[tuple[str, str, str], Check] = {}
    for benchmark, several in material.benchmarks.items():
        if benchmark.partition(":")[0] not in names:
            continue
        for check in _found(several[0], _HUMAN, ours):
            if check.verdict != _OTHER_AVERAGE:
                found.setdefault((check.benchmark, check.group, check.metric), check)
    return found


def _found(
    scored: ScoredPart, model: str | None, ours: Mapping[tuple[str, str, str, str], RankedRow]
) -> list[Check]:
    """Each published value once, with all tables that print it."""
    run = replace(scored.run, parts={scored.part.benchmark: scored.part})
    merged: dict[tuple[str, str, str, float], Check] = {}
    for check in verify(run, model, resamples=_FEW):
        if check.published is None:
            continue
        key = (check.group, check.metric, check.average, check.published)
        if key not in merged:
            # Judged by the interval of our number in the table, if that is of the same average.
            number = ours.get((scored.label, check.benchmark, check.group, check.metric))
            verdict: Verdict = check.verdict if check.why else _OTHER_AVERAGE
            if number is not None and abs(number.value - check.ours) < 1e-9:
                interval = (number.value, number.ci_low, number.ci_high)
                verdict = judge(*interval, check.published, check.rounding or 0.0, check.why)
            merged[key] = replace(check, verdict=verdict)
        elif check.source not in (known := merged[key]).source:
            merged[key] = replace(known, source=f"{known.source}; {check.source}")
    return list(merged.values())
