"""Numbers along a line: WiSE-FT from a start to its finetuned form, and the course of a training.

The line is drawn for the report, if its runs are of one, and for `counterpoint wise --plot`; the
course, a table and a figure, is written by `counterpoint watch`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import RunError
from counterpoint._util.writing import whole_file
from counterpoint.metrics import ALL, AXIS_LABELS, COMPOSITION_METRICS, GALLERY_METRICS, PART_MARK
from counterpoint.reports.data import ReportData
from counterpoint.reports.figures.drawing import (
    XML,
    Data,
    Drawn,
    Look,
    Made,
    Omitted,
    canvas,
    legend_below,
    look,
    percents,
    reach,
    svg_of,
)
from counterpoint.reports.ranking import RankedRow, one_line, short_name
from counterpoint.runs import Row, Run, main_rows

LINE_TITLE: Final = "WiSE-FT line"
_LINE_COLUMNS: Final = (
    *("x", "benchmark", "metric", "alpha", "x_value", "x_low", "x_high", "y_value"),
    *("y_low", "y_high"),
)

Along = Mapping[float, Sequence[Row]]  # the rows of each alpha's run


class Ends(NamedTuple):
    base: str
    tuned: str


def line(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each pair of models that some runs stand between."""
    lines: dict[Ends, dict[float, str]] = {}
    for label, run in material.runs.items():
        found = place_of(run)
        if found is not None:
            lines.setdefault(found[0], {})[found[1]] = label
    made = [_drawn(ends, alphas, numbers) for ends, alphas in lines.items() if len(alphas) > 1]
    why = "it takes runs of `counterpoint wise` with two or more alphas."
    return made or [Omitted(LINE_TITLE, why)]


def place_of(run: Run) -> tuple[Ends, float] | None:
    """Between which models a run stands and where, if `wise` made it."""
    info = run.manifest.get("model_info")
    wise = info.get("wise") if isinstance(info, dict) else None
    if not isinstance(wise, dict):
        return None
    try:
        return Ends(str(wise["base"]), str(wise["tuned"])), float(wise["alpha"])
    except (KeyError, TypeError, ValueError):
        return None


def _drawn(ends: Ends, alphas: dict[float, str], numbers: Sequence[RankedRow]) -> Made:
    data = _line_data(
        {alpha: [n for n in numbers if n.model == label] for alpha, label in alphas.items()}
    )
    if not data.lines:
        return Omitted(LINE_TITLE, "the runs of its alphas have no benchmark in common.")
    return Drawn(
        "wise-ft",
        LINE_TITLE,
        f"Weights mixed from {one_line(ends.base)} (alpha 0) to {one_line(ends.tuned)} (alpha 1); "
        "the numbers at points are alphas. Choose alpha on other cases than those you report.",
        _line_svg(data),
        data,
    )


def draw_line(along: Along, path: Path, title: str) -> None:
    """Write the figure as an SVG file; no display is needed."""
    data = _line_data(along)
    if not data.lines:
        raise RunError("E-RUN-EMPTY", f"{path}: nothing to draw, because no case was scored.")
    with whole_file(path) as partial:
        partial.write_text(f"{XML}\n{_line_svg(data, title)}", encoding="utf-8")


# --- what is drawn against what -----------------------------------------------------------------


class CurveKey(NamedTuple):
    benchmark: str
    metric: str


class Panel(NamedTuple):
    """A line for each of `ys`; `x` is None for alpha, or a metric of the line's own benchmark."""

    x: CurveKey | str | None
    ys: list[CurveKey]


def line_panels(along: Along) -> list[Panel]:
    """What to draw against what.

    A panel for each benchmark of retrieval or classification, which finetuning may forget, against
    the main metric of all others; without them original accuracy against augmented accuracy, where
    all benchmarks have both, else everything against alpha.
    """
    known = {(row.benchmark, row.metric) for rows in along.values() for row in rows}
    names = dict.fromkeys(row.benchmark for rows in along.values() for row in rows)
    kept = [
        CurveKey(name, metric)
        for name in names
        for metric in GALLERY_METRICS
        if (name, metric) in known
    ]
    gained = [
        CurveKey(name, next(metric for metric in COMPOSITION_METRICS if (name, metric) in known))
        for name in names
        if any((name, metric) in known for metric in COMPOSITION_METRICS)
    ]
    if gained and kept:
        return [Panel(key, gained) for key in kept]
    if gained and all(key.metric == "augmented_accuracy" for key in gained):
        return [Panel("original_accuracy", gained)]
    return [Panel(None, gained or kept)]


def _line_data(along: Along) -> Data:
    lines = []
    for panel in line_panels(along):
        for key in panel.ys:
            x = CurveKey(key.benchmark, panel.x) if isinstance(panel.x, str) else panel.x
            label = "alpha" if x is None else _x_label(x, panel.x)
            lines += [(label, *key, *values) for values in _points(along, x, key)]
    return Data(_LINE_COLUMNS, lines)


def _x_label(key: CurveKey, asked: CurveKey | str | None) -> str:
    label = f"{AXIS_LABELS.get(key.metric, key.metric)} (%)"
    return label if isinstance(asked, str) else f"{key.benchmark}: {label}"


def _points(along: Along, x: CurveKey | None, y: CurveKey) -> list[tuple[float, ...]]:
    found = []
    for alpha, rows in sorted(along.items()):
        known = {(r.benchmark, r.metric): percents(r) for r in rows if r.group == ALL}
        if y in known and (x is None or x in known):
            found.append((alpha, *([alpha] * 3 if x is None else known[x]), *known[y]))
    return found


# --- the picture --------------------------------------------------------------------------------


def _line_svg(data: Data, title: str = "") -> str:
    rows = data.named()
    sides = list(dict.fromkeys(row["x"] for row in rows))
    with canvas(3.2 * len(sides), LINE_TITLE) as figure:
        if title:
            figure.suptitle(title, fontsize=9)
        grid = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
        drawn: dict[str, Any] = {}
        for axes, side in zip(grid, sides, strict=True):
            keys = dict.fromkeys((r["benchmark"], r["metric"]) for r in rows if r["x"] == side)
            for number, key in enumerate(keys):
                mine = [r for r in rows if r["x"] == side and (r["benchmark"], r["metric"]) == key]
                name = f"{short_name(key[0], 30)}: {AXIS_LABELS.get(key[1], key[1])}"
                drawn[name] = _line_curve(axes, mine, look(number, name))
            axes.set_xlabel(short_name(side, 64))
            axes.set_ylabel("per cent")
            axes.margins(0.1)
        legend_below(figure, drawn)
        said = [
            f"{r['benchmark']} at alpha {r['alpha']:g}: "
            f"{AXIS_LABELS.get(r['metric'], r['metric'])} {r['y_value']:.1f}"
            for r in rows
        ]
        return svg_of(figure, LINE_TITLE, said)


def _curve(axes: Any, xs: list[Any], ys: list[float], mine: Look, yerr: Any, xerr: Any) -> Any:
    how = {"color": mine.colour, "marker": mine.marker, "markersize": 4.5, "linewidth": 1.4}
    return axes.errorbar(xs, ys, xerr=xerr, yerr=yerr, elinewidth=0.5, **how)


def _line_curve(axes: Any, rows: list[dict[str, Any]], mine: Look) -> Any:
    xs, ys = [r["x_value"] for r in rows], [r["y_value"] for r in rows]
    across = None if rows[0]["x"] == "alpha" else reach(rows, "x_")
    drawn = _curve(axes, xs, ys, mine, reach(rows, "y_"), across)
    # Where the axis is alpha, points need not say theirs.
    places = {0, len(xs) // 2, len(xs) - 1} if rows[0]["x"] != "alpha" else set()
    for place in sorted(places):
        axes.annotate(
            f"{rows[place]['alpha']:g}",
            (xs[place], ys[place]),
            (4, 5),
            textcoords="offset points",
            fontsize=8,
            color=mine.colour,
        )
    return drawn


# --- the course of a training -----------------------------------------------------------------


_COURSE_TITLE: Final = "Course of a training"
_COURSE_COLUMNS: Final = (
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
    data = _course_data(points)
    table, figure = folder / "course.csv", folder / "course.svg"
    with whole_file(table, RunError) as partial:
        partial.write_text(data.csv, encoding="utf-8")
    with whole_file(figure, RunError) as partial:
        partial.write_text(f"{XML}\n{_course_svg(data)}", encoding="utf-8")
    return table, figure


def _course_data(points: Sequence[CoursePoint]) -> Data:
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
    return Data(_COURSE_COLUMNS, lines)


def _course_svg(data: Data) -> str:
    rows = data.named()
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    counted = any(row["x"] != row["step"] for row in rows)
    with canvas(2.6 * len(benchmarks) + 0.6, _COURSE_TITLE) as figure:
        grid = figure.subplots(len(benchmarks), 1, squeeze=False)[:, 0]
        drawn: dict[str, Any] = {}
        metrics = list(dict.fromkeys(row["metric"] for row in rows))
        for axes, benchmark in zip(grid, benchmarks, strict=True):
            for number, metric in enumerate(metrics):
                mine = [r for r in rows if (r["benchmark"], r["metric"]) == (benchmark, metric)]
                if mine:
                    name = _label(metric)
                    drawn[name] = _course_curve(axes, mine, look(number, name))
            parts = {r["part"] for r in rows if r["benchmark"] == benchmark and r["part"]}
            part = f" ({', '.join(sorted(parts))}){PART_MARK}" if parts else ""
            axes.set_title(f"{short_name(benchmark, 60)}{part}", fontsize=9)
            axes.set_ylabel("per cent")
        grid[-1].set_xlabel("checkpoint, in order" if counted else "step or epoch in the name")
        legend_below(figure, drawn)
        said = [
            f"{r['checkpoint']} on {r['benchmark']}: {_label(r['metric'])} {100 * r['value']:.1f}"
            for r in rows
        ]
        return svg_of(figure, _COURSE_TITLE, said)


def _label(metric: str) -> str:
    return AXIS_LABELS.get(metric, metric.replace("_", " "))


def _course_curve(axes: Any, rows: list[dict[str, Any]], mine: Look) -> Any:
    values = [
        {"value": 100 * r["value"], "low": 100 * r["ci_low"], "high": 100 * r["ci_high"]}
        for r in rows
    ]
    ys = [one["value"] for one in values]
    return _curve(axes, [r["x"] for r in rows], ys, mine, reach(values), None)
