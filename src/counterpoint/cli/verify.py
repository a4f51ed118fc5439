"""`counterpoint verify`: ours beside the published value."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table

from counterpoint.cli.console import errors, output, print_json
from counterpoint.cli.options import AsJson

if TYPE_CHECKING:
    from counterpoint.published import Check


def verify(
    run: Annotated[Path, typer.Argument(help="A run folder.")],
    model: Annotated[
        str | None,
        typer.Option("--as", help="The published model to compare with, by name or model id."),
    ] = None,
    groups: Annotated[
        bool, typer.Option("--groups", help="Also show groups that have no published value.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Put a run's numbers beside the papers': agrees, differs, or no value.

    A published value agrees if it lies within our 95% interval, give or take its rounding.

    Examples:

    counterpoint verify runs/clip

    counterpoint verify runs/mine --as "NegCLIP" --json
    """
    from counterpoint.published import verify as check_run
    from counterpoint.results import as_json as plain
    from counterpoint.runs import load_run
    from counterpoint.statistics import ALL

    loaded = load_run(run)
    found = check_run(loaded, model)
    if as_json:
        print_json(plain(found))
        return
    shown = [c for c in found if groups or c.published is not None or c.group == ALL]
    for benchmark in dict.fromkeys(c.benchmark for c in shown):
        output.print(_table(loaded.model, [c for c in shown if c.benchmark == benchmark]))
    for note in dict.fromkeys(f"{c.source}: {c.note}" for c in shown if c.note):
        output.print(note, style="dim", soft_wrap=True)
    lines = {(c.benchmark, c.group, c.metric, c.average, c.published): c.verdict for c in shown}
    counts = [list(lines.values()).count(verdict) for verdict in ("agrees", "differs", "no value")]
    output.print("{} agree, {} differ, {} have no published value".format(*counts))
    for check in {c.benchmark: c for c in shown if c.left_out}.values():
        errors.print(
            f"{check.benchmark}: {check.left_out:,} cases or images were left out of this run, so "
            "it is not the benchmark that the papers measured.",
            style="yellow",
            soft_wrap=True,
        )
    if limit := loaded.manifest.get("options", {}).get("limit"):
        errors.print(
            f"This run was limited to {limit:,} cases of each benchmark; the papers used all.",
            style="yellow",
        )
    if not any(c.published is not None for c in found):
        errors.print(
            f"Nothing is published of {model or loaded.model!r} on these benchmarks; --as names "
            "another model of published.csv.",
            style="yellow",
            soft_wrap=True,
        )


def _table(model: str, found: list[Check]) -> Table:
    from counterpoint.wording import HEADINGS

    theirs = ", ".join(dict.fromkeys(c.model for c in found if c.model))
    title = f"{model} on {found[0].benchmark}" + (f" beside {theirs}" if theirs else "")
    table = Table(title=title, title_justify="left", header_style="bold")
    for name in ("group", "metric", "average"):
        table.add_column(name, overflow="fold")
    for name in ("ours", "published"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("source", overflow="fold")
    for check, sources in _merged(found):
        style = {"agrees": "green", "differs": "red", "no value": "dim"}[check.verdict]
        table.add_row(
            check.group,
            HEADINGS.get(check.metric, check.metric),
            check.average,
            f"{_shown(check, check.ours)} [{_shown(check, check.ci_low)}, "
            f"{_shown(check, check.ci_high)}]",
            "" if check.published is None else _shown(check, check.published),
            check.verdict,
            sources,
            style=style,
        )
    return table


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
    from counterpoint.metric_registry import METRICS

    return f"{100 * value:.1f}" if METRICS[check.metric].unit == "share" else f"{value:.3f}"
