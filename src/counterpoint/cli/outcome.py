"""The table of what training changed: `counterpoint train` prints it at its end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from counterpoint.cli.console import (
    counted,
    output,
    say,
    warn,
)
from counterpoint.evaluation import MEAN_SCORES, MetricChange, Outcome
from counterpoint.metrics import (
    ALL,
    METRIC_HEADINGS,
    METRICS,
    TIES_MARK,
    TIES_NOTE,
    WHOLE,
    interval_text,
    intervals_note,
    p_value,
    ties_matter,
)
from counterpoint.runs import Sheet

_NAMES: Final = {
    **METRIC_HEADINGS,
    "mean_score_original": "score, originals",
    "mean_score_positive": "score, positives",
    "mean_score_negative": "score, negatives",
}
_STYLES: Final = {"better": "green", "worse": "magenta"}


def print_outcome(found: Outcome, *, groups: bool = False) -> None:
    """One table with a section for each benchmark; lowered scores are named under it."""
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
