"""The main numbers of every run on a benchmark, each a link to the cases behind it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from counterpoint.metric_registry import METRICS
from counterpoint.results import Row
from counterpoint.studio.browse.library import Library, Listed
from counterpoint.studio.security import Refused
from counterpoint.studio.web import url
from counterpoint.wording import heading

# The outcome that a number counts, where it counts just one.
_COUNTS: Final = {
    "augmented_accuracy": "right",
    "brittleness": "brittle",
    "group": "right",
    "text_only_accuracy": "right",
}


@dataclass(frozen=True, slots=True)
class Number:
    """A value with half of its interval's width, in per cent, and where its cases are."""

    value: str
    half: str
    address: str


@dataclass(frozen=True, slots=True)
class Line:
    """One run's numbers, or why it has none."""

    run: Listed
    address: str
    cases: int
    numbers: dict[str, Number]
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    benchmark: str
    headings: dict[str, str]  # by metric
    lines: list[Line]
    chance: dict[str, str]


def numbers_table(library: Library, benchmark: str) -> Table:
    """Every run's main numbers; a run that cannot be read says why."""
    found: list[tuple[Listed, list[Row], str]] = []
    for run in library.having(benchmark):
        try:
            found.append((run, _main(library.numbers(run, benchmark)), ""))
        except Refused as error:
            found.append((run, [], str(error)))
    names = {row.metric for _, rows, _ in found for row in rows}
    headings = {name: heading(name) for name in METRICS if name in names}
    chance = {r.metric: f"{100 * r.chance:.1f}" for _, rows, _ in found for r in rows if r.chance}
    lines = [_line(run, benchmark, rows, failure) for run, rows, failure in found]
    return Table(benchmark, headings, lines, chance)


def _main(rows: list[Row]) -> list[Row]:
    return [row for row in rows if METRICS[row.metric].main]


def _line(run: Listed, benchmark: str, rows: list[Row], failure: str) -> Line:
    def address(outcome: str) -> str:
        return url("/browse", run=run.key, benchmark=benchmark, outcome=outcome)

    numbers = {
        row.metric: Number(
            f"{100 * row.value:.1f}",
            f"{100 * (row.ci_high - row.ci_low) / 2:.1f}",
            address(_COUNTS.get(row.metric, "")),
        )
        for row in rows
    }
    return Line(run, address(""), run.cases(benchmark), numbers, failure)
