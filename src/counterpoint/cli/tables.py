"""Tables for a terminal: results, differences, what training changed, and what a run lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

import typer
from rich.measure import Measurement

from counterpoint.cli.console import LEFT_OUT, counted, errors, output, print_json, say, warn
from counterpoint.metrics import (
    ALL,
    METRIC_HEADINGS,
    METRICS,
    TIES_MARK,
    TIES_NOTE,
    WHOLE,
    Protocol,
    depends_on_ties,
    heading,
    in_order,
    interval_text,
    intervals_note,
    p_value,
    ties_by_model,
    ties_matter,
)
from counterpoint.runs import (
    Difference,
    Row,
    Run,
    Sheet,
    as_json as rows_as_json,
    difference_sheets,
    differences_note,
    fitting,
    main_differences,
    main_rows,
    part_sizes,
    percent,
    results_table,
    rows as rows_of,
    side_by_side,
    ties_marked,
)

if TYPE_CHECKING:
    from counterpoint.evaluation import MetricChange, Outcome

_ROOM: Final = 16  # characters of a name that there has to be room for


def show_results(
    runs: Sequence[Run], *, groups: bool, as_json: bool, protocol: Protocol | None = None
) -> None:
    """Compute the numbers of runs, and print them as a table or all of them as JSON."""
    with errors.status("resampling"):
        found = [
            row
            for run in runs
            for row in rows_of(run, protocol, groups=groups or as_json, main=not as_json)
        ]
    if as_json:
        print_json(rows_as_json(found))
    else:
        print_results(runs, found, groups=groups, protocol=protocol)


def print_results(
    runs: Sequence[Run],
    rows: Sequence[Row],
    *,
    groups: bool = False,
    protocol: Protocol | None = None,
) -> None:
    """The table (in a narrow terminal several), with protocols and ties under it."""
    shown = main_rows(rows, groups=groups)
    for some in _fitting(shown):
        output.print(results_table(some, groups=groups, sizes=part_sizes(runs)))
    output.print(intervals_note(row.metric for row in shown), style="dim")
    protocols: dict[str, dict[str, None]] = {}
    for part in (part for run in runs for part in run.parts.values()):
        users = protocols.setdefault((protocol or part.protocol).describe(), {})
        users[part.benchmark] = None
    for description, users in protocols.items():
        output.print(f"Protocol {description} ({', '.join(users)})", style="dim")
    _print_averages(runs, protocol)
    if any(map(depends_on_ties, shown)):
        output.print(f"{TIES_MARK} {TIES_NOTE}", style="dim")
    for model, counts in ties_by_model(row for row in shown if row.group in WHOLE).items():
        output.print(f"Ties of {model}: {counts}", style="dim")


def _fitting(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    """All rows; where these are too wide for the terminal, those of each benchmark; and where it
    would leave no room for names, those of some of its metrics."""
    benchmarks = list(dict.fromkeys(row.benchmark for row in rows))
    metrics = in_order(row.metric for row in rows)
    if len(benchmarks) > 1 and _width(rows) > output.width:
        for name in benchmarks:
            yield from _fitting([row for row in rows if row.benchmark == name])
    elif len(metrics) > 1 and _width(rows, _ROOM) > output.width:
        half = metrics[: (len(metrics) + 1) // 2]
        yield from _fitting([row for row in rows if row.metric in half])
        yield from _fitting([row for row in rows if row.metric not in half])
    else:
        yield rows


def _width(rows: Sequence[Row], names: int | None = None) -> int:
    """Of a table of rows, if names have so many characters at most."""
    short = [replace(row, benchmark=row.benchmark[:names], model=row.model[:names]) for row in rows]
    table = results_table(short, groups=True)
    return Measurement.get(output, output.options.update(max_width=1000), table).maximum


def _print_averages(runs: Sequence[Run], protocol: Protocol | None) -> None:
    """All averages of benchmarks for which papers use several: they differ by points."""
    for run in runs:
        for part in run.parts.values():
            used = fitting(part, protocol)
            usual = used.average == "micro" and len(used.averages) <= 2
            if usual or not len(part.cases):
                continue
            found = side_by_side(part, used)
            metrics = []
            for name in in_order(n for n in next(iter(found.values())) if METRICS[n].main):
                values = (f"{average} {percent(mine[name])}" for average, mine in found.items())
                metrics.append(f"{heading(name)} {', '.join(values)}")
            line = f"Averages of {run.model} on {part.benchmark}: {'; '.join(metrics)}"
            output.print(line, style="dim", soft_wrap=True)


def left_out_lines(runs: Sequence[Run]) -> list[str]:
    """What reports say above their numbers, and the first case of each sentence."""
    from counterpoint.reports import told_of

    lines = []
    for run in runs:
        for notice in (notice for part in run.parts.values() for notice in told_of(part)):
            named = f" All are named in {run.folder}/run.json" if notice.cases else ""
            first = "; the first is {!r}: {}".format(*notice.cases[0]) if notice.cases else ""
            lines.append(f"{run.model} on {notice.text}{named}{first}")
    return lines


def print_differences(found: Sequence[Difference], a: str, b: str, *, groups: bool) -> None:
    output.print(f"A = {a}\nB = {b}")
    shown = main_differences(found, groups=groups)
    for sheet in difference_sheets(shown):
        output.print(sheet)
    output.print(differences_note(shown), style="dim")
    if ties_marked(shown):
        output.print(f"{TIES_MARK} {TIES_NOTE}", style="dim")


def averages_table(
    benchmark: str, model: str, found: dict[str, dict[str, float]], protocol: Protocol
) -> Sheet:
    """All averages in use for a benchmark, side by side."""
    metrics = in_order(n for n in next(iter(found.values())) if METRICS[n].main)
    counts = dict.fromkeys(map(heading, metrics), "count")
    sheet = Sheet({"average": "word", **counts}, f"{model} on {benchmark}: averages")
    for average, values in found.items():
        mark = " (the protocol's)" if average == protocol.average else ""
        sheet.add(f"{average}{mark}", *(percent(values[name]) for name in metrics))
    return sheet


# --- what training changed -----------------------------------------------------------------------


_NAMES: Final = {
    **METRIC_HEADINGS,
    "mean_score_original": "score, originals",
    "mean_score_positive": "score, positives",
    "mean_score_negative": "score, negatives",
}
_STYLES: Final = {"better": "green", "worse": "magenta"}


def print_outcome(found: Outcome, *, groups: bool = False) -> None:
    """One table with a section for each benchmark; lowered scores are named under it."""
    from counterpoint.evaluation import MEAN_SCORES

    known = {name for name, metric in METRICS.items() if metric.main} | {*MEAN_SCORES}
    shown = [c for c in found.changes if c.metric in known and (groups or c.group in WHOLE)]
    say(f"start = {found.start}\ntuned = {found.tuned}")
    output.print(_changes_table(shown))
    output.print(
        f"{intervals_note((c.metric for c in shown), 'Per cent (scores as they are)')} tuned - "
        "start stands with its interval; p (randomisation test over source images, of groups "
        "Holm-corrected) decides the verdict.",
        style="dim",
    )
    if any(TIES_MARK in cell for change in shown for cell in _change_cells(change)):
        output.print(f"{TIES_MARK} {TIES_NOTE}", style="dim")
    for line in found.warnings:
        output.print(f"warning: {line}", style="yellow", soft_wrap=True)
    for note in found.notes:
        warn(f"note: {note}")


def _changes_table(changes: Sequence[MetricChange]) -> Sheet:
    numbers = dict.fromkeys(("start", "tuned", "tuned - start", "p"), "number")
    sheet = Sheet({"benchmark": "name", **numbers, "verdict": "verdict"}, look="tight")
    for benchmark, label in dict.fromkeys((c.benchmark, c.group) for c in changes):
        mine = [c for c in changes if (c.benchmark, c.group) == (benchmark, label)]
        where = benchmark if label == ALL else f"{benchmark}, {label}"
        sheet.add(f"{where} ({counted(max(c.n for c in mine), 'case')})", style="bold")
        for change in mine:
            style = _STYLES.get(change.verdict, "")
            sheet.add(*_change_cells(change), style=style, last=change is mine[-1])
    return sheet


def _change_cells(c: MetricChange) -> tuple[str, ...]:
    scale, digits = (100, 1) if METRICS[c.metric].unit == "share" else (1, 3)

    def written(value: float) -> str:
        return f"{scale * value:.{digits}f}"

    def side(value: float, low: float, high: float, ties: int) -> str:
        mark = TIES_MARK if ties_matter(ties, c.n, max(high - value, value - low)) else " "
        return f"{written(value)} {interval_text(value, low, high, written)}{mark}"

    gap, low, high = (f"{scale * v:+.{digits}f}" for v in (c.difference, c.ci_low, c.ci_high))
    return (
        f"  {_NAMES[c.metric]}",
        side(c.start, c.start_low, c.start_high, c.start_ties),
        side(c.tuned, c.tuned_low, c.tuned_high, c.tuned_ties),
        f"{gap} [{low}, {high}]",
        p_value(c.p),
        c.verdict,
    )


# --- what a run lacks ---------------------------------------------------------------------------


def report_left_out(runs: Sequence[Run], allow_missing: bool) -> None:
    """Print what was left out; unless that is allowed, exit with a status of its own."""
    for line in left_out_lines(runs):
        warn(line)
    empty = [(run, part) for run in runs for part in run.parts.values() if not len(part.cases)]
    for run, part in empty:
        warn(
            f"{run.model} on {part.benchmark}: no case was scored, so there is no number; the "
            f"other benchmarks are kept in {run.folder}."
        )
    if empty:
        raise typer.Exit(LEFT_OUT)
    if any(run.left_out or run.surplus for run in runs) and not allow_missing:
        errors.print("Cases were left out; --allow-missing accepts that.", style="yellow")
        raise typer.Exit(LEFT_OUT)
