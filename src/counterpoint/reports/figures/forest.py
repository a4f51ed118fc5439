"""The groups of a benchmark, one row per group: every model with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from counterpoint.metrics import ALL, PART_MARK, heading, headline
from counterpoint.reports.figures.drawing import (
    GRID,
    INK,
    NAME,
    Data,
    Drawn,
    Look,
    Made,
    Omitted,
    alternative,
    canvas,
    legend_below,
    looks,
    marks_caption,
    reach,
    svg_of,
)
from counterpoint.reports.gathering import ReportData
from counterpoint.reports.numbers import RankedRow, counts_text, shortened
from counterpoint.reports.parts import parts_of

TITLE: Final = "By group"
_GROUPS: Final = 20  # drawn; the CSV has them all
_COLUMNS: Final = ("group", "model", "value", "low", "high", "n", "chance")


def forest(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each benchmark that has groups."""
    made: list[Made] = []
    for benchmark in material.benchmarks:
        mine = [n for n in numbers if n.benchmark == benchmark]
        metric = headline(n.metric for n in mine)
        chosen = [n for n in mine if n.metric == metric]
        if metric is None or all(n.group == ALL for n in chosen):
            continue
        made.append(_drawn(material, benchmark, metric, chosen))
    return made or [Omitted(TITLE, "the cases of these runs have no groups.")]


def _drawn(material: ReportData, benchmark: str, metric: str, chosen: list[RankedRow]) -> Drawn:
    lines = [_line(number) for number in chosen]
    data = Data(_COLUMNS, lines)
    counts: dict[str, list[int]] = {}
    for number in chosen:
        counts.setdefault(number.group, []).append(number.n)
    sizes = {group: max(several) for group, several in counts.items()}
    part = PART_MARK if any(place[1] == benchmark for place in parts_of(material)) else ""
    cases = {group: f"{counts_text(several)}{part}" for group, several in counts.items()}
    largest = sorted((g for g in sizes if g != ALL), key=lambda g: -sizes[g])[:_GROUPS]
    shown = [ALL, *sorted(largest)]
    hidden = len(sizes) - len(shown)
    rest = f" The {hidden:,} smaller groups are in the CSV." if hidden > 0 else ""
    title = f"By group: {heading(metric)}, {benchmark}"
    return Drawn(
        f"by-group-{benchmark}",
        title,
        "Whiskers are 95% intervals (bootstrap over source images), the short dotted line is "
        f"chance. The number of cases stands behind each group.{rest}"
        f"{marks_caption(material, chosen)}",
        _svg(looks(material, chosen), data, shown, cases, title, heading(metric)),
        data,
    )


def _line(number: RankedRow) -> tuple[Any, ...]:
    chance = None if number.chance is None else 100 * number.chance
    ends = (100 * number.value, 100 * number.ci_low, 100 * number.ci_high)
    return (number.group, number.model, *ends, number.n, chance)


def _svg(
    look: dict[str, Look],
    data: Data,
    shown: list[str],
    cases: dict[str, str],
    title: str,
    said: str,
) -> str:
    rows = data.named()
    present = {row["model"] for row in rows}
    models = [label for label in look if label in present]
    step = min(0.8 / max(1, len(models)), 0.2)
    height = len(shown) * max(0.28, 0.09 * len(models) + 0.1) + 0.2 * (len(models) / 3) + 0.8
    with canvas(height, title) as figure:
        axes = figure.subplots()
        drawn = {}
        for number, model in enumerate(models):
            mine = [r for r in rows if r["model"] == model and r["group"] in shown]
            shift = (number - (len(models) - 1) / 2) * step
            drawn[model] = axes.errorbar(
                [r["value"] for r in mine],
                [shown.index(r["group"]) + shift for r in mine],
                xerr=reach(mine),
                fmt=look[model].marker,
                color=look[model].colour,
                markersize=4,
                elinewidth=1,
            )
        for place, group in enumerate(shown):
            chances = [r["chance"] for r in rows if r["group"] == group and r["chance"] is not None]
            if chances:
                axes.vlines(
                    chances[0], place - 0.45, place + 0.45, color=INK, linewidth=1, linestyle=":"
                )
        names = [f"{shortened(group, NAME)} ({cases[group]})" for group in shown]
        axes.set_yticks(range(len(shown)), names)
        axes.set_ylim(len(shown) - 0.45, -0.55)
        axes.grid(axis="y", visible=False)
        for place in range(1, len(shown)):
            axes.axhline(place - 0.5, color=GRID, linewidth=0.4)
        axes.set_xlabel(f"{said} (%)")
        legend_below(figure, list(drawn.values()), [look[model].name for model in models])
        whole = [f"{r['model']} {r['value']:.1f}" for r in rows if r["group"] == ALL]
        return svg_of(figure, alternative(title, whole))
