"""The main numbers of every run on a benchmark; each number links to its cases."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.metrics import ALL, METRICS, TIES_MARK, depends_on_ties, heading
from counterpoint.runs import Row
from counterpoint.studio.browse.library import Library, Listed
from counterpoint.studio.security import StudioError
from counterpoint.studio.web import url


@dataclass(frozen=True, slots=True)
class LinkedNumber:
    """A value with half of its interval's width, in per cent, and where its cases are."""

    value: str
    half: str
    address: str


@dataclass(frozen=True, slots=True)
class RunLine:
    """One run's numbers, or why it has none. `part` names the cases that they are made from,

    if these are not all: those without positives have a line of their own.
    """

    run: Listed
    address: str
    cases: int
    numbers: dict[str, LinkedNumber]
    part: str = ""
    failure: str = ""


@dataclass(frozen=True, slots=True)
class NumbersTable:
    benchmark: str
    headings: dict[str, str]  # by metric
    lines: list[RunLine]
    chance: dict[str, str]
    ties: bool  # whether some number depends on them


def numbers_table(library: Library, benchmark: str) -> NumbersTable:
    """Every run's main numbers; a run that cannot be read says why."""
    lines: list[RunLine] = []
    found: list[Row] = []
    for run in library.having(benchmark):
        try:
            rows = [row for row in library.numbers(run, benchmark) if METRICS[row.metric].main]
        except StudioError as error:
            address = url("/browse", run=run.key, benchmark=benchmark)
            lines.append(RunLine(run, address, run.cases(benchmark), {}, failure=str(error)))
            continue
        found += rows
        parts = dict.fromkeys(row.group for row in rows)
        lines += [_line(run, part, [row for row in rows if row.group == part]) for part in parts]
    names = {row.metric for row in found}
    headings = {name: heading(name) for name in METRICS if name in names}
    chance = {r.metric: f"{100 * r.chance:.1f}" for r in found if r.chance and r.group == ALL}
    return NumbersTable(benchmark, headings, lines, chance, any(map(depends_on_ties, found)))


def _line(run: Listed, part: str, rows: list[Row]) -> RunLine:
    group = "" if part == ALL else part
    place = {"run": run.key, "benchmark": rows[0].benchmark, "group": group}
    numbers = {
        row.metric: LinkedNumber(
            f"{100 * row.value:.1f}{TIES_MARK if depends_on_ties(row) else ''}",
            f"{100 * (row.ci_high - row.ci_low) / 2:.1f}",
            # Of a gallery, which is one case with many queries, this is the case.
            url("/browse", **place, metric=row.metric),
        )
        for row in rows
    }
    return RunLine(run, url("/browse", **place), max(row.n for row in rows), numbers, group)
