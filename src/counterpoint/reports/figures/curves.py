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
from counterpoint.reports.figures import drawing as draw
from counterpoint.reports.figures.drawing import XML, Drawn, Look, Made, Omitted, Rows
from counterpoint.reports.formats import csv_text
from counterpoint.reports.ranking import RankedRow, one_line, short_name
from counterpoint.runs import Row, Run, main_rows

LINE_TITLE: Final = "WiSE-FT line"
Along = Mapping[float, Sequence[Row]]  # the rows of each alpha's run


class Ends(NamedTuple):
    base: str
    tuned: str


def line(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each pair of models that some runs stand between."""
    lines: dict[Ends, dict[float, list[RankedRow]]] = {}
    for label, run in material.runs.items():
        found = place_of(run)
        if found is not None:
            mine = [n for n in numbers if n.model == label]
            lines.setdefault(found[0], {})[found[1]] = mine
    made = [_line_of(ends, along) for ends, along in lines.items() if len(along) > 1]
    why = "it takes runs of `counterpoint wise` with two or more alphas."
    return made or [Omitted(LINE_TITLE, why)]


def place_of(run: Run) -> tuple[Ends, float] | None:
    """Between which models a run stands and where, if `wise` made it."""
    info = run.manifest.get("model_info")
    wise: Any = info.get("wise") if isinstance(info, dict) else None
    try:
        return Ends(str(wise["base"]), str(wise["tuned"])), float(wise["alpha"])
    except (KeyError, TypeError, ValueError):
        return None


def _line_of(ends: Ends, along: Along) -> Made:
    rows = _line_rows(along)
    if not rows:
        return Omitted(LINE_TITLE, "the runs of its alphas have no benchmark in common.")
    return Drawn(
        "wise-ft",
        LINE_TITLE,
        f"Weights mixed from {one_line(ends.base)} (alpha 0) to {one_line(ends.tuned)} (alpha 1); "
        "the numbers at points are alphas. Choose alpha on other cases than those you report.",
        _line_svg(rows),
        rows,
    )


def draw_line(along: Along, path: Path, title: str) -> None:
    """Write the figure as an SVG file; no display is needed."""
    rows = _line_rows(along)
    if not rows:
        raise RunError("E-RUN-EMPTY", f"{path}: nothing to draw, because no case was scored.")
    with whole_file(path) as partial:
        partial.write_text(f"{XML}\n{_line_svg(rows, title)}", encoding="utf-8")


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
    known = dict.fromkeys((row.benchmark, row.metric) for rows in along.values() for row in rows)
    names = dict.fromkeys(benchmark for benchmark, _ in known)
    kept = [CurveKey(name, m) for name in names for m in GALLERY_METRICS if (name, m) in known]
    firsts = {n: next((m for m in COMPOSITION_METRICS if (n, m) in known), "") for n in names}
    gained = [CurveKey(name, metric) for name, metric in firsts.items() if metric]
    if gained and kept:
        return [Panel(key, gained) for key in kept]
    if gained and all(key.metric == "augmented_accuracy" for key in gained):
        return [Panel("original_accuracy", gained)]
    return [Panel(None, gained or kept)]


def _line_rows(along: Along) -> Rows:
    rows: Rows = []
    for panel in line_panels(along):
        for key in panel.ys:
            x = CurveKey(key.benchmark, panel.x) if isinstance(panel.x, str) else panel.x
            label = "alpha" if x is None else f"{_label(x.metric)} (%)"
            if isinstance(panel.x, CurveKey):
                label = f"{panel.x.benchmark}: {label}"
            for alpha, several in sorted(along.items()):
                known = {(r.benchmark, r.metric): r for r in several if r.group == ALL}
                if key not in known or (x is not None and x not in known):
                    continue
                xs = dict.fromkeys(("x_value", "x_low", "x_high"), alpha)
                if x is not None:
                    xs = draw.percents(known[x], "x_")
                about = {"x": label, **key._asdict(), "alpha": alpha}
                rows.append({**about, **xs, **draw.percents(known[key], "y_")})
    return rows


# --- the picture --------------------------------------------------------------------------------


def _label(metric: str) -> str:
    return AXIS_LABELS.get(metric, metric)


def _line_svg(rows: Rows, title: str = "") -> str:
    sides = list(dict.fromkeys(row["x"] for row in rows))
    with draw.canvas(3.2 * len(sides), LINE_TITLE) as figure:
        if title:
            figure.suptitle(title, fontsize=9)
        grid = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
        drawn: dict[str, Any] = {}
        for axes, side in zip(grid, sides, strict=True):
            keys = dict.fromkeys((r["benchmark"], r["metric"]) for r in rows if r["x"] == side)
            for number, key in enumerate(keys):
                mine = [r for r in rows if r["x"] == side and (r["benchmark"], r["metric"]) == key]
                name = f"{short_name(key[0], 30)}: {_label(key[1])}"
                drawn[name] = _line_curve(axes, mine, draw.look(number, name))
            axes.set_xlabel(short_name(side, 64))
            axes.set_ylabel("per cent")
            axes.margins(0.1)
        draw.legend_below(figure, drawn)
        told = [
            f"{r['benchmark']} at alpha {r['alpha']:g}: {_label(r['metric'])} {r['y_value']:.1f}"
            for r in rows
        ]
        return draw.svg_of(figure, LINE_TITLE, told)


def _curve(axes: Any, rows: Rows, prefixes: tuple[str, str], look: Look, xerr: Any = None) -> Any:
    xs, ys = ([row[f"{prefix}value"] for row in rows] for prefix in prefixes)
    style = {"color": look.colour, "marker": look.marker, "markersize": 4.5, "linewidth": 1.4}
    yerr = draw.reach(rows, prefixes[1])
    return axes.errorbar(xs, ys, xerr=xerr, yerr=yerr, elinewidth=0.5, **style)


def _line_curve(axes: Any, rows: Rows, look: Look) -> Any:
    if rows[0]["x"] == "alpha":  # points need not say theirs
        return _curve(axes, rows, ("x_", "y_"), look)
    drawn = _curve(axes, rows, ("x_", "y_"), look, draw.reach(rows, "x_"))
    style = {"textcoords": "offset points", "fontsize": 8, "color": look.colour}
    for place in sorted({0, len(rows) // 2, len(rows) - 1}):
        row = rows[place]
        axes.annotate(f"{row['alpha']:g}", (row["x_value"], row["y_value"]), (4, 5), **style)
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
    rows = _course_rows(points)
    table, figure = folder / "course.csv", folder / "course.svg"
    with whole_file(table, RunError) as partial:
        partial.write_text(csv_text(_COURSE_COLUMNS, rows), encoding="utf-8")
    with whole_file(figure, RunError) as partial:
        partial.write_text(f"{XML}\n{_course_svg(rows)}", encoding="utf-8")
    return table, figure


def _course_rows(points: Sequence[CoursePoint]) -> Rows:
    """x is the number of the names if it grows from one to the next, else the order."""
    steps = [point.step for point in points if point.step is not None]
    grow = len(steps) == len(points) and steps == sorted(set(steps))
    return [
        {
            "checkpoint": point.checkpoint,
            "step": point.step,
            "x": point.step if grow else place,
            **{name: getattr(row, name) for name in _COURSE_COLUMNS[3:9]},
            "run": run,
            "part": point.parts.get(row.benchmark),
        }
        for place, point in enumerate(points, 1)
        for row, run in point.rows
        if main_rows([row], groups=False)
    ]


def _course_svg(rows: Rows) -> str:
    benchmarks = list(dict.fromkeys(row["benchmark"] for row in rows))
    metrics = list(dict.fromkeys(row["metric"] for row in rows))
    labels = {m: AXIS_LABELS.get(m, m.replace("_", " ")) for m in metrics}
    counted = any(row["x"] != row["step"] for row in rows)
    with draw.canvas(2.6 * len(benchmarks) + 0.6, _COURSE_TITLE) as figure:
        grid = figure.subplots(len(benchmarks), 1, squeeze=False)[:, 0]
        drawn: dict[str, Any] = {}
        for axes, benchmark in zip(grid, benchmarks, strict=True):
            for number, (metric, name) in enumerate(labels.items()):
                mine = [r for r in rows if (r["benchmark"], r["metric"]) == (benchmark, metric)]
                if mine:
                    ends = {"value": "value", "low": "ci_low", "high": "ci_high"}
                    shares = [{k: 100 * r[name] for k, name in ends.items()} for r in mine]
                    points = [
                        {"x_value": r["x"], **share} for r, share in zip(mine, shares, strict=True)
                    ]
                    drawn[name] = _curve(axes, points, ("x_", ""), draw.look(number, name))
            parts = {r["part"] for r in rows if r["benchmark"] == benchmark and r["part"]}
            part = f" ({', '.join(sorted(parts))}){PART_MARK}" if parts else ""
            axes.set_title(f"{short_name(benchmark, 60)}{part}", fontsize=9)
            axes.set_ylabel("per cent")
        grid[-1].set_xlabel("checkpoint, in order" if counted else "step or epoch in the name")
        draw.legend_below(figure, drawn)
        told = [
            f"{r['checkpoint']} on {r['benchmark']}: {labels[r['metric']]} {100 * r['value']:.1f}"
            for r in rows
        ]
        return draw.svg_of(figure, _COURSE_TITLE, told)
