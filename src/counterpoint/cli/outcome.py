"""The table of what training did, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from rich import box
from rich.table import Table

from counterpoint.cli.console import counted, errors, output
from counterpoint.metric_registry import METRICS
from counterpoint.statistics import ALL, LEVEL, WHOLE
from counterpoint.train.outcome import MEAN_SCORES, Change, Outcome
from counterpoint.wording import HEADINGS, TIES, TIES_MEANING, p_value, ties_matter

_NAMES: Final = {
    **HEADINGS,
    "mean_score_original": "score, originals",
    "mean_score_positive": "score, positives",
    "mean_score_negative": "score, negatives",
}
_STYLES: Final = {"better": "green", "worse": "magenta"}


def print_outcome(found: Outcome, *, groups: bool = False) -> None:
    """One table with a section for each benchmark; lowered scores are named under it."""
    shown = [c for c in found.changes if is_shown(c) and (groups or c.group in WHOLE)]
    output.print(f"start = {found.start}\ntuned = {found.tuned}", soft_wrap=True)
    output.print(_table(shown))
    output.print(
        f"Per cent (scores as they are), ± half of the {LEVEL:.0%} interval; tuned - start with "
        "its interval, paired over source images; p decides the verdict. Brittleness: lower is "
        "better.",
        style="dim",
    )
    if any(TIES in cell for change in shown for cell in _cells(change)):
        output.print(f"{TIES} {TIES_MEANING}", style="dim")
    for line in found.warnings:
        output.print(f"warning: {line}", style="yellow", soft_wrap=True)
    for note in found.notes:
        errors.print(f"note: {note}", style="yellow", soft_wrap=True)


def is_shown(change: Change) -> bool:
    return METRICS[change.metric].main or change.metric in MEAN_SCORES


def _table(changes: Sequence[Change]) -> Table:
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    table.padding, table.pad_edge = (0, 1, 0, 0), False
    table.add_column("benchmark", overflow="fold")
    for name in ("start", "tuned", "tuned - start", "p"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    for benchmark, label in dict.fromkeys((c.benchmark, c.group) for c in changes):
        mine = [c for c in changes if (c.benchmark, c.group) == (benchmark, label)]
        where = benchmark if label == ALL else f"{benchmark}, {label}"
        table.add_row(f"{where} ({counted(max(c.n for c in mine), 'case')})", style="bold")
        for change in mine:
            table.add_row(*_cells(change), style=_STYLES.get(change.verdict, ""))
        table.add_section()
    return table


def _cells(c: Change) -> tuple[str, ...]:
    scale, digits = (100, 1) if METRICS[c.metric].unit == "share" else (1, 3)

    def side(value: float, low: float, high: float, ties: int) -> str:
        mark = TIES if ties_matter(ties, c.n, max(high - value, value - low)) else " "
        return f"{scale * value:.{digits}f} ±{scale * (high - low) / 2:.{digits}f}{mark}"

    gap, low, high = (f"{scale * v:+.{digits}f}" for v in (c.difference, c.ci_low, c.ci_high))
    return (
        f"  {_NAMES[c.metric]}",
        side(c.start, c.start_low, c.start_high, c.start_ties),
        side(c.tuned, c.tuned_low, c.tuned_high, c.tuned_ties),
        f"{gap} [{low}, {high}]",
        p_value(c.p),
        c.verdict,
    )
