"""`counterpoint verify`: measured values beside published ones."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer
from rich.table import Table

from counterpoint.cli.console import AsJson, errors, output, print_json

if TYPE_CHECKING:
    from counterpoint.evaluation import Check
    from counterpoint.runs import Run


NOT_CONFIRMED: Final = 4  # the exit status of --strict
_CONFIRMED: Final = ("same to the digit", "within the interval")
_COUNTED: Final = {
    "same to the digit": "same to the digit",
    "within the interval": "within the interval",
    "differs": "differ",
    "cannot be compared": "cannot be compared",
    "no value": "without a published value",
}
_STYLES: Final = {
    "same to the digit": "green",
    "within the interval": "green",
    "differs": "red",
    "cannot be compared": "yellow",
    "no value": "dim",
}


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    model: Annotated[
        str | None,
        typer.Option("--as", help="The published model to compare with, by name or model id."),
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Also show groups without a published value.")
    ] = False,
    strict: Annotated[
        bool,
        typer.Option(
            "--strict",
            help="Exit with status 4 unless there are published values and all are confirmed.",
        ),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compare a run's numbers with the published ones.

    Verdicts: same to the digit; within the interval (the published value, give or take its
    rounding, lies within our 95% interval); differs; cannot be compared (the run is not of the
    whole benchmark, or was scored under another protocol).

    Examples:

    counterpoint verify runs/clip

    counterpoint verify runs/mine --as "NegCLIP" --strict --json
    """
    from counterpoint.evaluation import verify as check_run
    from counterpoint.metrics import ALL
    from counterpoint.runs import as_json as plain, load_run

    with errors.status("resampling"):
        loaded = load_run(run)
        found = check_run(loaded, model)
    if as_json:
        print_json(plain(found))
    else:
        shown = [c for c in found if groups or c.published is not None or c.group == ALL]
        _print(loaded.model, shown)
    for line in _warnings(loaded, model, found):
        errors.print(line, style="yellow", soft_wrap=True)
    beside = [c for c in found if c.published is not None]
    if strict and not (beside and all(c.verdict in _CONFIRMED for c in beside)):
        raise typer.Exit(NOT_CONFIRMED)


def _print(model: str, shown: list[Check]) -> None:
    for benchmark in dict.fromkeys(c.benchmark for c in shown):
        output.print(_table(model, [c for c in shown if c.benchmark == benchmark]))
    for note in dict.fromkeys(f"{c.source}: {c.note}" for c in shown if c.note):
        output.print(note, style="dim", soft_wrap=True)
    lines = {(c.benchmark, c.group, c.metric, c.average, c.published): c.verdict for c in shown}
    counts: Counter[str] = Counter(lines.values())
    output.print(", ".join(f"{counts[verdict]} {said}" for verdict, said in _COUNTED.items()))


def _warnings(run: Run, model: str | None, found: list[Check]) -> Iterator[str]:
    """What a reader of the verdicts must know."""
    from counterpoint.evaluation import half_precision, near_models, not_the_model, tied_captions

    if model is not None and (why := not_the_model(run, model)):
        yield f"Note: {why}."
    for why in filter(None, (half_precision(run, found), tied_captions(found))):
        yield f"Note: {why}."
    yield from dict.fromkeys(f"{c.benchmark} cannot be compared: {c.why}" for c in found if c.why)
    if not any(c.published is not None for c in found):
        name = model or run.model
        close = ", ".join(repr(other) for other in near_models(name, run)[:3] if other != name)
        hint = f" There are values of {close}." if close else ""
        yield (
            f"Nothing is published of {name!r} on these benchmarks; --as names another model of "
            f"published.csv.{hint}"
        )


def _table(model: str, found: list[Check]) -> Table:
    from counterpoint.metrics import METRIC_HEADINGS

    theirs = ", ".join(dict.fromkeys(c.model for c in found if c.model))
    title = f"{model} on {found[0].benchmark}" + (f" beside {theirs}" if theirs else "")
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("group", "metric", "average"):
        table.add_column(name, overflow="fold")
    for name in ("ours", "cases", "published"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("source", overflow="fold")
    for check, sources in _merged(found):
        table.add_row(
            check.group,
            METRIC_HEADINGS.get(check.metric, check.metric),
            check.average,
            _interval(check),
            f"{check.n:,}",
            "" if check.published is None else _shown(check, check.published),
            check.verdict,
            sources,
            style=_STYLES[check.verdict],
        )
    return table


def _interval(check: Check) -> str:
    if math.isnan(check.ours):
        return "unknown"
    low, high = _shown(check, check.ci_low), _shown(check, check.ci_high)
    return f"{_shown(check, check.ours)} [{low}, {high}]"


def _merged(found: list[Check]) -> Iterator[tuple[Check, str]]:
    """Papers print a number in several tables: one line for it, with all its sources."""
    same: dict[object, list[Check]] = {}
    for check in found:
        same.setdefault((check.group, check.metric, check.average, check.published), []).append(
            check
        )
    for checks in same.values():
        yield checks[0], _sources(checks)


def _sources(checks: list[Check]) -> str:
    """ "A, Table 1" and "A, Table 3" are "A, Table 1, 3"."""
    tables: dict[str, list[str]] = {}
    for check in checks:
        paper, _, table = check.source.partition(", Table ")
        tables.setdefault(paper, []).append(table)
    return "; ".join(
        f"{paper}, Table {', '.join(dict.fromkeys(numbers))}" if numbers[0] else paper
        for paper, numbers in tables.items()
    )


def _shown(check: Check, value: float) -> str:
    """A number with as many decimals as the published one has."""
    from counterpoint.metrics import METRICS

    share = METRICS[check.metric].unit == "share"
    scale, usual = (100, 1) if share else (1, 3)
    decimals = usual if check.rounding is None else -round(math.log10(2 * scale * check.rounding))
    return f"{scale * value:.{decimals}f}"
