"""The course of a training: the main numbers of its checkpoints, one after the other.

Written by `counterpoint watch`, as a table and as a figure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import RunError
from counterpoint._util.writing import whole_file
from counterpoint.metrics import AXIS_LABELS, PART_MARK
from counterpoint.reports.figures.drawing import (
    XML,
    Data,
    alternative,
    canvas,
    legend_below,
    look,
    reach,
    svg_of,
)
from counterpoint.reports.numbers import shortened
from counterpoint.runs import Row, main_rows

_TITLE: Final = "Course of a training"
_COLUMNS: Final = (
    *("checkpoint", "step", "x", "benchmark", "metric"),
    *("value", "ci_low", "ci_high", "n", "run", "part"),
)


class CoursePoint(NamedTuple):
    """A checkpoint: its name, the number in it, and its rows, each with the run it comes from."""

    checkpoint: str
    step: int | None
    rows: Sequence[tuple[Row, str]]
    parts: Mapping[str, str] = {}  # by benchmark how much was scored, if not all of it


def write_course(points: Sequence[CoursePoint], folder: Path) -> tuple[Path, Path]:
    """`course.csv` and `course.svg`, both written as a whole."""
    data = _data(points)
    table, figure = folder / "course.csv", folder / "course.svg"
    with whole_file(table, RunError) as partial:
        partial.write_text(data.csv, encoding="utf-8")
    with whole_file(figure, RunError) as partial:
        partial.write_text(f"{XML}\n{_svg(data)}", encoding="utf-8")
    return table, figure


def _data(points: Sequence[CoursePoint]) -> Data:
    """x is the number of the names if it grows from one to the next, else the order."""
    steps = [point.step for point in points if point.step is not None]
    grow = len(steps) == len(points) and steps == sorted(set(steps))
    lines = [
        (
            *(point.checkpoint, point.step, point.step if grow else place),
            *(row.benchmark, row.metric, row.value, row.ci_low, row.ci_high, row.n, run),
            point.parts.get(row.benchmark),
        )
        for place, point in enumerate(points, 1)
        for row, run in point.rows
        if main_rows([row], groups=False)
    ]
    return Data(_COLUMNS, lines)


def _svg(data: Data) -> str:
    rows = data.named()
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    counted = any(row["x"] != row["step"] for row in rows)
    with canvas(2.6 * len(benchmarks) + 0.6, _TITLE) as figure:
        grid = figure.subplots(len(benchmarks), 1, squeeze=False)[:, 0]
        drawn: dict[str, Any] = {}
        metrics = list(dict.fromkeys(row["metric"] for row in rows))
        for axes, benchmark in zip(grid, benchmarks, strict=True):
            for number, metric in enumerate(metrics):
                mine = [r for r in rows if (r["benchmark"], r["metric"]) == (benchmark, metric)]
                if mine:
                    name = _label(metric)
                    drawn[name] = _curve(axes, mine, look(number, name))
            parts = {r["part"] for r in rows if r["benchmark"] == benchmark and r["part"]}
            part = f" ({', '.join(sorted(parts))}){PART_MARK}" if parts else ""
            axes.set_title(f"{shortened(benchmark, 60)}{part}", fontsize=9)
            axes.set_ylabel("per cent")
        grid[-1].set_xlabel("checkpoint, in order" if counted else "step or epoch in the name")
        legend_below(figure, list(drawn.values()), list(drawn))
        said = [
            f"{r['checkpoint']} on {r['benchmark']}: {_label(r['metric'])} {100 * r['value']:.1f}"
            for r in rows
        ]
        return svg_of(figure, alternative(_TITLE, said))


def _label(metric: str) -> str:
    return AXIS_LABELS.get(metric, metric.replace("_", " "))


def _curve(axes: Any, rows: list[dict[str, Any]], mine: Any) -> Any:
    values = [
        {"value": 100 * r["value"], "low": 100 * r["ci_low"], "high": 100 * r["ci_high"]}
        for r in rows
    ]
    return axes.errorbar(
        [r["x"] for r in rows],
        [one["value"] for one in values],
        yerr=reach(values),
        color=mine.colour,
        marker=mine.marker,
        markersize=4.5,
        linewidth=1.4,
        elinewidth=0.5,
    )
