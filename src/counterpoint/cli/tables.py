"""Tables of results for a terminal."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import typer
from rich import box
from rich.measure import Measurement
from rich.table import Table

from counterpoint.benchmarks import describe_absent
from counterpoint.cases import gallery_rows
from counterpoint.cli.console import LEFT_OUT, errors, output, percent
from counterpoint.metrics import (
    ALL,
    LEVEL,
    METRIC_HEADINGS,
    METRICS,
    TIES_MARK,
    TIES_NOTE,
    WHOLE,
    Protocol,
    count_reasons,
    depends_on_ties,
    p_value,
    ties_by_model,
    ties_matter,
)
from counterpoint.runs import Difference, Row, Run, fitting, side_by_side


def results_table(rows: Sequence[Row], *, groups: bool = False) -> Table:
    """Models by main metrics, one section per benchmark, chance last."""
    shown = _shown(rows, groups=groups)
    metrics = [name for name in METRIC_HEADINGS if any(row.metric == name for row in shown)]
    table = Table(title=None, header_style="bold")
    table.add_column("benchmark", overflow="fold")  # names give way, numbers stay whole
    table.add_column("model", overflow="fold")
    table.add_column("cases", justify="right", no_wrap=True)
    for name in metrics:
        table.add_column(METRIC_HEADINGS[name], justify="right", no_wrap=True)
    blank = " " if any(map(depends_on_ties, shown)) else ""  # where others have a mark
    for benchmark, label in dict.fromkeys((row.benchmark, row.group) for row in shown):
        mine = [row for row in shown if (row.benchmark, row.group) == (benchmark, label)]
        _add_section(table, benchmark, label, mine, metrics, blank)
    return table


def _shown(rows: Sequence[Row], *, groups: bool) -> list[Row]:
    return [row for row in rows if METRICS[row.metric].main and (groups or row.group in WHOLE)]


def _add_section(
    table: Table, benchmark: str, label: str, rows: list[Row], metrics: list[str], blank: str
) -> None:
    title = benchmark if label == ALL else f"  {label}"
    for model in _ordered(row.model for row in rows):
        cells = {row.metric: row for row in rows if row.model == model}
        n = max(row.n for row in cells.values())
        values = [_interval(cells[name], blank) if name in cells else "" for name in metrics]
        table.add_row(title, model, f"{n:,}", *values)
        title = ""
    chances = {row.metric: row.chance for row in rows}
    levels = [_chance(chances.get(name), blank) for name in metrics]
    table.add_row("", "chance", "", *levels, style="dim", end_section=True)


def _interval(row: Row, blank: str) -> str:
    """The value, half its interval's width, and a mark if it hangs on ties."""
    mark = TIES_MARK if depends_on_ties(row) else blank
    return f"{percent(row.value)} ±{percent((row.ci_high - row.ci_low) / 2)}{mark}"


def _chance(value: float | None, blank: str) -> str:
    # Padded as if "±0.0" followed, so that the numbers of a column stand under each other.
    return "" if value is None else f"{percent(value)}     {blank}"


def _ordered(values: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(values))


def print_results(
    runs: Sequence[Run],
    rows: Sequence[Row],
    *,
    groups: bool = False,
    protocol: Protocol | None = None,
) -> None:
    """The table (in a narrow terminal one per benchmark), with protocols and ties under it."""
    table = results_table(rows, groups=groups)
    unbounded = output.options.update(max_width=1000)
    if Measurement.get(output, unbounded, table).maximum <= output.width:
        output.print(table)
    else:
        for benchmark in _ordered(row.benchmark for row in rows):
            mine = [row for row in rows if row.benchmark == benchmark]
            output.print(results_table(mine, groups=groups))
    output.print(
        f"Per cent, ± half of the {LEVEL:.0%} interval (bootstrap over source images). "
        "Brittleness: lower is better.",
        style="dim",
    )
    protocols: dict[str, list[str]] = {}
    for run in runs:
        for part in run.parts.values():
            users = protocols.setdefault((protocol or part.protocol).describe(), [])
            if part.benchmark not in users:
                users.append(part.benchmark)
    for description, users in protocols.items():
        output.print(f"Protocol {description} ({', '.join(users)})", style="dim")
    _print_averages(runs, protocol)
    _print_ties(_shown(rows, groups=groups))


def _print_averages(runs: Sequence[Run], protocol: Protocol | None) -> None:
    """All averages of benchmarks for which papers use several: they differ by points."""
    for run in runs:
        for part in run.parts.values():
            used = fitting(part, protocol)
            usual = used.average == "micro" and len(used.averages) <= 2
            if usual or not len(part.cases):
                continue
            found = side_by_side(part, used)
            metrics = [name for name in METRIC_HEADINGS if name in next(iter(found.values()))]
            said = "; ".join(
                f"{METRIC_HEADINGS[name]} "
                + ", ".join(
                    f"{average} {percent(values[name])}" for average, values in found.items()
                )
                for name in metrics
            )
            output.print(
                f"Averages of {run.model} on {part.benchmark}: {said}", style="dim", soft_wrap=True
            )


def _print_ties(shown: Sequence[Row]) -> None:
    """What the mark means, and for each model how many values of each metric hang on ties."""
    if any(map(depends_on_ties, shown)):
        output.print(f"{TIES_MARK} {TIES_NOTE}", style="dim")
    for model, counts in ties_by_model(row for row in shown if row.group in WHOLE).items():
        output.print(f"Ties of {model}: {counts}", style="dim")


def left_out_lines(runs: Sequence[Run]) -> list[str]:
    """What was not scored, one line per model and benchmark, and captions that were cut."""
    lines = []
    for run in runs:
        for part in run.parts.values():
            where = f"{run.model} on {part.benchmark}"
            if part.absent:
                lines.append(
                    f"{where}: the data here are not the whole benchmark "
                    f"({describe_absent(part.absent)}), all named in {run.folder}/run.json"
                )
            if part.left_out:
                case, why = part.left_out[0]
                total = len(part.left_out) + len(part.cases)
                lines.append(
                    f"{where}: {len(part.cases):,} of {total:,} cases scored, "
                    f"{len(part.left_out):,} left out ({count_reasons(part.left_out)}), all named "
                    f"in {run.folder}/run.json; the first is {case!r}: {why}"
                )
            if part.left_out_images:
                lost = len(part.left_out_images)
                galleries = gallery_rows(part.cases)
                total = lost + int(part.cases.image_counts[galleries].sum())
                lines.append(
                    f"{where}: {total - lost:,} of {total:,} images scored, {lost:,} left out with "
                    "the captions that are theirs alone "
                    f"({count_reasons(part.left_out_images)}), all named in "
                    f"{run.folder}/run.json; the first: {part.left_out_images[0][1]}"
                )
            if part.cut_captions:
                lines.append(
                    f"{where}: {part.cut_captions:,} captions were longer than the model's context "
                    "and were cut, as the protocol does."
                )
    return lines


def print_differences(found: Sequence[Difference], a: str, b: str, *, groups: bool) -> None:
    """One table per benchmark (or group): narrow enough for any terminal."""
    output.print(f"A = {a}\nB = {b}")
    shown = [d for d in found if METRICS[d.metric].main and (groups or d.group in WHOLE)]
    for benchmark, label in dict.fromkeys((d.benchmark, d.group) for d in shown):
        mine = [d for d in shown if (d.benchmark, d.group) == (benchmark, label)]
        where = benchmark if label == ALL else f"{benchmark}, {label}"
        output.print(_differences_table(f"{where} ({mine[0].n:,} cases in both)", mine))
    output.print(
        f"A - B in points with its {LEVEL:.0%} interval (paired bootstrap over source images); "
        "p, from it and corrected over groups (Holm), decides the verdict; McNemar's exact test "
        "stands beside it.",
        style="dim",
    )
    if any(ties_matter(ties, d.n, d.reach) for d in shown for ties in (d.ties_a, d.ties_b)):
        output.print(f"{TIES_MARK} {TIES_NOTE}", style="dim")


def _differences_table(title: str, found: Sequence[Difference]) -> Table:
    table = Table(title=title, title_justify="left", header_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    table.add_column("metric", no_wrap=True)
    for name in ("A", "B", "A - B", "p", "McNemar"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for d in found:
        style = {"A is better": "green", "B is better": "magenta", "tied": ""}[d.verdict]
        table.add_row(
            METRIC_HEADINGS[d.metric],
            _marked(d.a, d.ties_a, d),
            _marked(d.b, d.ties_b, d),
            f"{100 * d.difference:+.1f} [{100 * d.ci_low:+.1f}, {100 * d.ci_high:+.1f}]",
            p_value(d.p_holm),
            "" if d.p_mcnemar is None else p_value(d.p_mcnemar),
            d.verdict,
            style=style,
        )
    return table


def _marked(value: float, ties: int, d: Difference) -> str:
    return percent(value) + (TIES_MARK if ties_matter(ties, d.n, d.reach) else " ")


def averages_table(
    benchmark: str, model: str, found: dict[str, dict[str, float]], protocol: Protocol
) -> Table:
    """All averages in use for a benchmark, side by side."""
    table = Table(
        title=f"{model} on {benchmark}: averages", header_style="bold", title_justify="left"
    )
    table.add_column("average", no_wrap=True)
    metrics = [name for name in METRIC_HEADINGS if name in next(iter(found.values()))]
    for name in metrics:
        table.add_column(METRIC_HEADINGS[name], justify="right")
    for average, values in found.items():
        mark = " (the protocol's)" if average == protocol.average else ""
        table.add_row(f"{average}{mark}", *(percent(values[name]) for name in metrics))
    return table


# --- What a run lacks, printed, and the exit status that follows from it ------------------------


def report_left_out(runs: Sequence[Run], allow_missing: bool) -> None:
    """Print what was left out; unless that is allowed, exit with a status of its own."""
    for line in left_out_lines(runs):
        errors.print(line, style="yellow", soft_wrap=True)
    if any(run.left_out for run in runs) and not allow_missing:
        errors.print("Cases were left out; --allow-missing accepts that.", style="yellow")
        raise typer.Exit(LEFT_OUT)
