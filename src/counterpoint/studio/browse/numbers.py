"""The main numbers of every run on a benchmark, each a link to the cases behind it."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.metrics import ALL, METRICS, TIES_MARK, depends_on_ties, heading
from counterpoint.runs import Row
from counterpoint.studio.browse.library import Library, Listed
from counterpoint.studio.security import RequestError
from counterpoint.studio.web import url


@dataclass(frozen=True, slots=True)
class Number:
    """A value with half of its interval's width, in per cent, and where its cases are."""

    value: str
    half: str
    address: str


@dataclass(frozen=True, slots=True)
class Line:
    """One run's numbers, or why it has none. `part` names the cases that they are made from,

    if these are not all: those without positives have a line of their own.
    """

    run: Listed
    address: str
    cases: int
    numbers: dict[str, Number]
    part: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    benchmark: str
    headings: dict[str, str]  # by metric
    lines: list[Line]
    chance: dict[str, str]
    ties: bool  # whether some number hangs on them


def numbers_table(library: Library, benchmark: str) -> Table:
    """Every run's main numbers; a run that cannot be read says why."""
    lines: list[Line] = []
    found: list[Row] = []
    for run in library.having(benchmark):
        try:
            rows = [row for row in library.numbers(run, benchmark) if METRICS[row.metric].main]
        except RequestError as error:
            address = url("/browse", run=run.key, benchmark=benchmark)
            lines.append(Line(run, address, run.cases(benchmark), {}, failure=str(error)))
            continue
        found += rows
        parts = dict.fromkeys(row.group for row in rows)
        lines += [_line(run, part, [row for row in rows if row.group == part]) for part in parts]
    names = {row.metric for row in found}
    headings = {name: heading(name) for name in METRICS if name in names}
    chance = {r.metric: f"{100 * r.chance:.1f}" for r in found if r.chance and r.group == ALL}
    return Table(benchmark, headings, lines, chance, any(map(depends_on_ties, found)))


def _line(run: Listed, part: str, rows: list[Row]) -> Line:
    group = "" if part == ALL else part
    place = {"run": run.key, "benchmark": rows[0].benchmark, "group": group}
    numbers = {
        row.metric: Number(
            f"{100 * row.value:.1f}{TIES_MARK if depends_on_ties(row) else ''}",
            f"{100 * (row.ci_high - row.ci_low) / 2:.1f}",
            # Of a gallery, which is one case with many queries, this is the case.
            url("/browse", **place, metric=row.metric),
        )
        for row in rows
    }
    return Line(run, url("/browse", **place), max(row.n for row in rows), numbers, group)
