"""The findings of a report: sentences made from its numbers, and what its metrics mean.

A sentence claims no more than the numbers support. "Best" names all models that the test cannot
tell from the best, and is said of none that is not above chance; "most brittle" names all whose
intervals overlap. A value that depends on ties is compared neither with chance nor with others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import NormalDist

from counterpoint.metrics import (
    ALL,
    AXIS_LABELS,
    LEVEL,
    METRIC_MEANINGS,
    METRICS,
    Metric,
    depends_on_ties,
    heading,
    headline,
    interval_text,
    join_words,
)
from counterpoint.reports.data import ReportData
from counterpoint.reports.ranking import RankedRow, Standing, competing, written
from counterpoint.runs import Difference

ORIGINAL, AUGMENTED, BRITTLENESS = "original_accuracy", "augmented_accuracy", "brittleness"


@dataclass(frozen=True, slots=True)
class Findings:
    """`lead` opens the report; `each` has the sentences of each of several benchmarks."""

    lead: list[str]
    each: dict[str, list[str]]


@dataclass(frozen=True, slots=True)
class _Benchmark:
    """The numbers of the models that are ranked, by metric, in the order of the runs."""

    name: str
    metric: str  # the main one
    numbers: dict[str, list[RankedRow]]

    def of(self, metric: str, model: str) -> RankedRow | None:
        return next((n for n in self.numbers.get(metric, []) if n.model == model), None)

    @property
    def brittleness(self) -> list[RankedRow]:
        """Empty if its cases have no positives beside the original."""
        return [n for n in self.numbers.get(BRITTLENESS, []) if not depends_on_ties(n)]

    @property
    def best(self) -> list[RankedRow]:
        """The best in the main metric, then what the test cannot tell from it."""
        mine = self.numbers[self.metric]
        order: tuple[Standing, ...] = ("best", "not separated")
        found = [n for standing in order for n in mine if n.standing == standing]
        return found or mine[:1]  # a model alone has no standing

    @property
    def is_decided(self) -> bool:
        """Whether the best is above chance, as far as a chance level is known."""
        first, among = self.best[0], len(self.numbers[self.metric])
        known = first.chance is not None
        return first.standing == "best" and (not known or _above_chance(first, among))


def findings(
    material: ReportData, numbers: Sequence[RankedRow], found: Sequence[Difference] | None = None
) -> Findings:
    """Of a report, or with the differences that were found of the two runs of a comparison."""
    benchmarks = list(_benchmarks(material, numbers))
    brittle = {b.name: _most_brittle(b) for b in benchmarks}
    if found is not None:
        return Findings([*_differences(material, found), *chain(*brittle.values())], {})
    each = {b.name: [_best(b), *brittle[b.name]] for b in benchmarks}
    if len(benchmarks) == 1:
        return Findings(next(iter(each.values())), {})
    return Findings([*_best_overall(benchmarks), *_most_brittle_overall(benchmarks)], each)


def _benchmarks(material: ReportData, numbers: Sequence[RankedRow]) -> Iterator[_Benchmark]:
    for name, scored in material.benchmarks.items():
        rivals = competing(scored)
        mine: dict[str, list[RankedRow]] = {}
        for n in numbers:
            if (n.benchmark, n.group) == (name, ALL) and n.model in rivals:
                mine.setdefault(n.metric, []).append(n)
        metric = headline(mine)
        if metric is not None:
            yield _Benchmark(name, metric, mine)


# --- one benchmark -----------------------------------------------------------------------------


def _best(benchmark: _Benchmark) -> str:
    """One model is best only where it is above chance: else none is, or none can be ranked."""
    first, *near = benchmark.best
    mine = benchmark.numbers[benchmark.metric]
    said = f"{_value(first)} {AXIS_LABELS[first.metric]}, {_against_chance(first, len(mine))}"
    if len(mine) == 1:
        return f"{first.model} reaches {said} on {benchmark.name}."
    if first.standing != "best":
        return f"The models cannot be ranked on {benchmark.name}: {first.model} has {said}."
    if not benchmark.is_decided:
        return (
            f"No model is above chance on {benchmark.name}: the highest value is that of "
            f"{first.model}, {said}."
        )
    rest = f"; the test cannot tell {_models(near)} from it" if near else ""
    return f"{first.model} is best on {benchmark.name}: {said}{rest}."


def _most_brittle(benchmark: _Benchmark) -> list[str]:
    """Nothing if the benchmark has no positives beside its originals."""
    mine = benchmark.brittleness
    if not mine:
        return []
    worst, least = (choose(mine, key=lambda n: n.value) for choose in (max, min))
    loss = f"{_value(worst)}, {_loss(benchmark, worst.model)}"
    if len(mine) == 1:
        return [f"The brittleness of {worst.model} is {loss}."]
    if worst.value == least.value:
        return [f"The models are equally brittle: {worst.model} {loss}."]
    best = f"{least.model} is the least brittle: {_value(least)}"
    return [f"{_superlative(worst, mine)}: {loss}; {best}."]


def _superlative(worst: RankedRow, others: Sequence[RankedRow]) -> str:
    overlapping = [n for n in others if n is not worst and n.ci_high >= worst.ci_low]
    also = f" (the interval of {_models(overlapping)} overlaps)" if overlapping else ""
    return f"{worst.model} is the most brittle{also}"


def _loss(benchmark: _Benchmark, model: str) -> str:
    original, augmented = benchmark.of(ORIGINAL, model), benchmark.of(AUGMENTED, model)
    assert original is not None and augmented is not None
    points = 100 * (original.value - augmented.value)
    return (
        f"with {_value(original)} of the original captions right, {_against_chance(original)}, and "
        f"{points:.1f} points less when reworded captions must be right too"
    )


# --- all benchmarks ----------------------------------------------------------------------------


def _best_overall(benchmarks: Sequence[_Benchmark]) -> Iterator[str]:
    """How often each model is best, or cannot be told from the best."""
    tested = [b for b in benchmarks if len(b.numbers[b.metric]) > 1]
    if not tested:
        yield from _how_often_above_chance(benchmarks)
        return
    decided = [b for b in tested if b.is_decided]
    if not decided:
        yield f"No model is best on any of {len(tested)} benchmarks: none is above chance."
        return
    wins = Counter(b.best[0].model for b in decided)
    among = Counter(n.model for b in decided for n in b.best)
    model = max(among, key=lambda name: (wins[name], among[name]))
    won = [b for b in decided if b.best[0].model == model]
    shared = sum(len(b.best) > 1 for b in won)
    rest = f"; on {shared} of them the test cannot tell another model from it" if shared else ""
    none = len(tested) - len(decided)
    rest += f"; on {none} no model is above chance" if none else ""
    yield f"{model} is best on {len(won)} of {len(tested)} benchmarks by {_metrics(won)}{rest}."


def _metrics(benchmarks: Sequence[_Benchmark]) -> str:
    """The main metrics, each with its benchmarks, if they are several."""
    of: dict[str, list[str]] = {}
    for benchmark in benchmarks:
        of.setdefault(AXIS_LABELS[benchmark.metric], []).append(benchmark.name)
    if len(of) == 1:
        return next(iter(of))
    return join_words([f"{metric} on {join_words(names)}" for metric, names in of.items()])


def _how_often_above_chance(benchmarks: Sequence[_Benchmark]) -> Iterator[str]:
    """Of models that have no rival."""
    mine = [n for b in benchmarks for n in b.numbers[b.metric]]
    above = Counter(n.model for n in mine if _above_chance(n))
    for model, count in Counter(n.model for n in mine).items():
        yield f"{model} is above chance on {above[model]} of {count} benchmarks."


def _most_brittle_overall(benchmarks: Sequence[_Benchmark]) -> Iterator[str]:
    """The model and the benchmark with the highest brittleness."""
    found = [(n, benchmark) for benchmark in benchmarks for n in benchmark.brittleness]
    if found:
        worst, benchmark = max(found, key=lambda pair: pair[0].value)
        yield (
            f"{_superlative(worst, benchmark.brittleness)}: {_value(worst)} on {benchmark.name}, "
            f"{_loss(benchmark, worst.model)}."
        )


# --- two runs ----------------------------------------------------------------------------------


def _differences(material: ReportData, found: Sequence[Difference]) -> Iterator[str]:
    names = material.labels
    for benchmark in dict.fromkeys(d.benchmark for d in found):
        mine = {d.metric: d for d in found if (d.benchmark, d.group) == (benchmark, ALL)}
        metric = headline(mine)
        if metric is None:
            continue
        d = mine[metric]
        gap = (
            f"{written(metric, d.a)}% against {written(metric, d.b)}% {AXIS_LABELS[metric]}, "
            f"{100 * d.difference:+.1f} points [{100 * d.ci_low:+.1f}, {100 * d.ci_high:+.1f}]"
        )
        if d.verdict == "tied":
            within = f"within ±{d.margin:g} points"
            yield f"{names[0]} and {names[1]} are tied on {benchmark} ({within}): {gap}."
        elif d.verdict == "depends on ties":
            yield f"{names[0]} against {names[1]} on {benchmark} depends on ties: {gap}."
        elif d.verdict == "no difference shown":
            yield f"The test cannot tell {names[0]} from {names[1]} on {benchmark}: {gap}."
        else:
            better, other = names if d.verdict == "A is better" else names[::-1]
            order = "" if better == names[0] else f" ({names[0]} first)"
            yield f"{better} is better than {other} on {benchmark}: {gap}{order}."


# --- words -------------------------------------------------------------------------------------


def _value(number: RankedRow) -> str:
    write = partial(written, number.metric)
    reach = interval_text(number.value, number.ci_low, number.ci_high, write)
    return f"{write(number.value)}%\u00a0{reach}"


def _models(numbers: Sequence[RankedRow]) -> str:
    return join_words([number.model for number in numbers])


def _above_chance(number: RankedRow, among: int = 1) -> bool:
    """`among` so many models, of which the highest was chosen: further above than its interval."""
    if number.chance is None or depends_on_ties(number):
        return False
    normal = NormalDist()
    tail = (1 - LEVEL) / 2
    farther = normal.inv_cdf(tail / among) / normal.inv_cdf(tail)
    return number.value - farther * (number.value - number.ci_low) > number.chance


def _against_chance(number: RankedRow, among: int = 1) -> str:
    if depends_on_ties(number):
        return f"which depends on how ties are counted ({number.ties:,} of {number.n:,})"
    if number.chance is None:
        return "for which no chance level is known"
    level = f"{written(number.metric, number.chance)}%"
    if _above_chance(number, among):
        return f"above chance ({level})"
    if number.ci_high < number.chance:
        return f"below chance ({level})"
    chosen = f", as the highest of {among} models" if _above_chance(number) else ""
    return f"which cannot be told from chance ({level}){chosen}"


def meanings(metrics: Sequence[str]) -> dict[str, str]:
    """What each of the metrics means, under the headings of the table."""
    found = {}
    for metric in metrics:
        known = METRICS[metric]
        described = (isinstance(known, Metric) and known.values.__doc__) or ""
        found[heading(metric)] = METRIC_MEANINGS.get(metric) or " ".join(described.split())
    return found
