"""What a board shows: the numbers of runs, compared only over the same cases, and published values.

Runs come from many machines, so their folders are removed and images are never opened.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import Final, Literal, NamedTuple

from counterpoint._util.errors import CounterpointError
from counterpoint._util.progress import Progress
from counterpoint.benchmarks import find_benchmark, why_incomplete
from counterpoint.cases import gallery_rows
from counterpoint.evaluation import published
from counterpoint.metrics import ALL, GALLERY_METRICS, METRICS, get_protocol, headline, is_baseline
from counterpoint.reports.data import ReportData, ScoredPart, gather, shared
from counterpoint.reports.figures.intervals import is_shuffled
from counterpoint.reports.publishing import names_apart, safe_name
from counterpoint.reports.ranking import (
    Papers,
    RankedRow,
    Standing,
    alike,
    beside_papers,
    numbers_of,
)
from counterpoint.runs import Run

Kind = Literal["compositionality", "retrieval", "classification", "grades"]
_KINDS: Final[dict[str, Kind]] = {
    GALLERY_METRICS[0]: "retrieval",
    GALLERY_METRICS[1]: "classification",
    "rank_correlation": "grades",
}
_OTHER: Final = "other/"  # printed in papers, and no benchmark
_NO_MODELS: Final = ("Data set",)  # what published.csv says of the data themselves


class PaperValue(NamedTuple):
    """A line of published.csv."""

    model: str
    id: str
    benchmark: str
    group: str
    metric: str
    protocol: str
    average: str
    value: str
    source: str
    note: str

    @property
    def cited(self) -> str:
        return f"{self.source} ({self.note})" if self.note else self.source


@dataclass(frozen=True, slots=True)
class BoardRun:
    """A run under the name of its folder in the site and the label of its model."""

    name: str
    label: str
    run: Run


@dataclass(frozen=True)
class SameCases:
    """Runs of one benchmark over the same cases and under the same protocol: they are compared."""

    scored: list[ScoredPart]
    numbers: list[RankedRow]

    @property
    def labels(self) -> set[str]:
        return {one.label for one in self.scored}

    @property
    def cases(self) -> int:
        return len(self.scored[0].part.cases)

    @property
    def size(self) -> str:
        """How much was counted: queries, where there are galleries."""
        if gallery_rows(self.scored[0].part.cases).any():
            return f"{max(n.n for n in self.numbers):,} queries"
        return f"{self.cases:,} cases" if self.cases > 1 else "1 case"

    @property
    def part(self) -> str:
        """What was counted, if that is not the whole benchmark."""
        return self.size if self.lacks else ""

    @cached_property
    def lacks(self) -> str:
        """Why the cases are not the whole published benchmark; empty if they are."""
        first = self.scored[0]
        try:
            return why_incomplete(first.part, first.protocol, first.run.manifest.get("options", {}))
        except CounterpointError:  # of an id or an option that is unknown here
            return ""


@dataclass(frozen=True)
class BoardData:
    """`same_cases` by benchmark, the one with the most models first; `values` by benchmark."""

    runs: list[BoardRun]
    material: ReportData
    same_cases: dict[str, list[SameCases]]
    papers: Papers
    values: dict[str, list[PaperValue]]

    @cached_property
    def benchmarks(self) -> list[str]:
        """Those of runs first, then those with the most published models."""
        known = {name: len({v.model for v in mine}) for name, mine in self.values.items()}
        rest = sorted(known, key=lambda name: (is_shuffled(name), -known[name]))
        return list(dict.fromkeys([*self.same_cases, *rest]))

    @cached_property
    def published_models(self) -> list[str]:
        """The models of papers, those with the most values first."""
        counts = Counter(value.model for value in self.every_value)
        return sorted(counts, key=lambda name: -counts[name])

    @property
    def every_value(self) -> list[PaperValue]:
        return [value for mine in self.values.values() for value in mine]

    @property
    def main_numbers(self) -> list[RankedRow]:
        """Of every benchmark, those that are compared on the first page."""
        return [n for several in self.same_cases.values() for n in several[0].numbers]

    def run_of(self, label: str, benchmark: str) -> BoardRun:
        return next(r for r in self.runs if r.label == label and benchmark in r.run.parts)

    def official(self, benchmark: str) -> tuple[str, str] | None:
        """The protocol and the average whose numbers stand in one column."""
        if benchmark in self.same_cases:
            used = self.same_cases[benchmark][0].scored[0].protocol
            return used.name, used.average
        try:
            known = get_protocol(find_benchmark(benchmark).protocol)
        except CounterpointError:
            return None
        return known.name, known.average

    def paper_values(self, benchmark: str) -> list[PaperValue]:
        """The published values that belong in the columns of a benchmark."""
        official = self.official(benchmark)
        mine = (v for v in self.values.get(benchmark, []) if v.group == ALL)
        return [value for value in mine if (value.protocol, value.average) == official]

    def columns(self, benchmark: str) -> list[str]:
        """The metrics of a benchmark on the first page: the main one, and brittleness."""
        ours = [n for s in self.same_cases.get(benchmark, []) for n in s.numbers]
        found = {n.metric for n in ours if n.group == ALL}
        found |= {value.metric for value in self.paper_values(benchmark)}
        main = headline(found)
        return [m for m in (main, "brittleness") if m in found] if main else sorted(found)[:1]

    def kind(self, benchmark: str) -> Kind:
        [main] = self.columns(benchmark)[:1] or [""]
        return _KINDS.get(main, "compositionality")


def gather_board(
    runs: Sequence[Run], called: Mapping[str, str], resamples: int, progress: Progress
) -> BoardData:
    values: dict[str, list[PaperValue]] = {}
    for line in published().iter_rows():
        value = PaperValue(*line)
        plain = not value.benchmark.startswith(_OTHER) and value.metric in METRICS
        if plain and value.model not in _NO_MODELS:
            values.setdefault(value.benchmark, []).append(value)
    if not runs:
        return BoardData([], ReportData({}, {}), {}, Papers({}, {}), values)
    clean = shared(sorted(runs, key=lambda run: is_baseline(run.model)))
    without = []  # the folders of their images
    for run in clean.runs:
        parts = {n: replace(p, cases=p.cases.without_root()) for n, p in run.parts.items()}
        without.append(replace(run, parts=parts))
    labels = _labels(without)
    folders = [run.folder.name if run.folder else run.model for run in without]
    names = names_apart([safe_name(folder) for folder in folders])
    named = [BoardRun(*one) for one in zip(names, labels, without, strict=True)]
    material = gather(without, None, progress, labels)
    advance = progress.start("resampling", len(material.benchmarks))
    same = {}
    for name in material.benchmarks:
        same[name] = _same_cases(material, name, resamples)
        advance(1)
    numbers = [n for several in same.values() for one in several for n in one.numbers]
    names_of = {clean.models.get(name, name): theirs for name, theirs in called.items()}
    papers = beside_papers(material, numbers, names_of, progress)
    return BoardData(named, material, same, papers, values)


def _labels(runs: Sequence[Run]) -> list[str]:
    """One label for the runs of a model that have different benchmarks.

    A second run of the same benchmark, or of other weights under the same id, is a line of its own.
    """
    taken: dict[str, tuple[object, set[str]]] = {}
    labels = []
    for run in runs:
        precision = run.manifest.get("options", {}).get("precision")
        identity = (run.model, run.manifest.get("fingerprint"), precision)
        for label in _possible_labels(run):
            known, benchmarks = taken.setdefault(label, (identity, set()))
            if known == identity and not benchmarks & run.parts.keys():
                break
        benchmarks.update(run.parts)
        labels.append(label)
    return labels


def _possible_labels(run: Run) -> Iterator[str]:
    yield run.model
    if run.folder is not None:
        yield f"{run.model} ({run.folder.name})"
    yield from (f"{run.model} ({number})" for number in count(2))


def _same_cases(material: ReportData, benchmark: str, resamples: int) -> list[SameCases]:
    """Those with the most models first."""
    found = []
    for scored in alike(material.benchmarks[benchmark]):
        alone = ReportData(material.runs, {benchmark: scored})
        numbers = numbers_of(alone, resamples=resamples)
        blind = {one.label for one in scored if is_baseline(one.run.model)}
        same = SameCases(scored, _only_separated(numbers, blind))
        found.append((len(blind) - len(scored), bool(same.lacks), -same.cases, same))
    return [same for *_, same in sorted(found, key=lambda one: one[:3])]


def _only_separated(numbers: list[RankedRow], blind: set[str]) -> list[RankedRow]:
    """The best of a column is called so only if the test tells it from every other.

    Baselines are not ranked, even where no model is beside them.
    """
    numbers = [replace(n, standing="") if n.model in blind else n for n in numbers]
    near: Standing = "not separated"
    doubtful = {(n.group, n.metric) for n in numbers if n.standing in (near, "untested")}
    return [
        replace(n, standing=near) if n.standing and (n.group, n.metric) in doubtful else n
        for n in numbers
    ]
