"""The WiSE-FT line between a start and its finetuned form: what is gained against what is kept.

Drawn for the report, if its runs are of one line, and for `counterpoint wise --plot`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import RunError
from counterpoint._util.writing import whole_file
from counterpoint.metrics import ALL, AXIS_LABELS, COMPOSITION_METRICS, GALLERY_METRICS
from counterpoint.reports.figures.drawing import (
    XML,
    Data,
    Drawn,
    Look,
    Made,
    Omitted,
    alternative,
    canvas,
    legend_below,
    look,
    reach,
    svg_of,
)
from counterpoint.reports.gathering import ReportData
from counterpoint.reports.numbers import RankedRow, one_line, shortened
from counterpoint.runs import Row, Run

TITLE: Final = "WiSE-FT line"
_COLUMNS: Final = (
    "x",
    "benchmark",
    "metric",
    "alpha",
    "x_value",
    "x_low",
    "x_high",
    "y_value",
    "y_low",
    "y_high",
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
    return made or [Omitted(TITLE, why)]


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
    data = _data(
        {alpha: [_row(n) for n in numbers if n.model == label] for alpha, label in alphas.items()}
    )
    if not data.lines:
        return Omitted(TITLE, "the runs of its alphas have no benchmark in common.")
    return Drawn(
        "wise-ft",
        TITLE,
        f"Weights mixed from {one_line(ends.base)} (alpha 0) to {one_line(ends.tuned)} (alpha 1); "
        "the numbers at points are alphas. Choose alpha on other cases than those you report.",
        _svg(data),
        data,
    )


def _row(n: RankedRow) -> Row:
    ends = (n.value, n.ci_low, n.ci_high)
    return Row(n.model, n.benchmark, n.group, n.metric, *ends, n.n, n.ties, n.chance)


def draw_line(along: Along, path: Path, title: str) -> None:
    """Write the figure as an SVG file; no display is needed."""
    data = _data(along)
    if not data.lines:
        raise RunError("E-RUN-EMPTY", f"{path}: nothing to draw, because no case was scored.")
    with whole_file(path) as partial:
        partial.write_text(f"{XML}\n{_svg(data, title)}", encoding="utf-8")


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


def _data(along: Along) -> Data:
    lines = []
    for panel in line_panels(along):
        for key in panel.ys:
            x = CurveKey(key.benchmark, panel.x) if isinstance(panel.x, str) else panel.x
            label = "alpha" if x is None else _x_label(x, panel.x)
            lines += [(label, *key, *values) for values in _points(along, x, key)]
    return Data(_COLUMNS, lines)


def _x_label(key: CurveKey, asked: CurveKey | str | None) -> str:
    label = f"{AXIS_LABELS.get(key.metric, key.metric)} (%)"
    return label if isinstance(asked, str) else f"{key.benchmark}: {label}"


def _points(along: Along, x: CurveKey | None, y: CurveKey) -> list[tuple[float, ...]]:
    found = []
    for alpha, rows in sorted(along.items()):
        known = {
            (r.benchmark, r.metric): [100 * v for v in (r.value, r.ci_low, r.ci_high)]
            for r in rows
            if r.group == ALL
        }
        if y in known and (x is None or x in known):
            found.append((alpha, *([alpha] * 3 if x is None else known[x]), *known[y]))
    return found


# --- the picture --------------------------------------------------------------------------------


def _svg(data: Data, title: str = "") -> str:
    rows = data.named()
    sides = list(dict.fromkeys(row["x"] for row in rows))
    with canvas(3.2 * len(sides), TITLE) as figure:
        if title:
            figure.suptitle(title, fontsize=9)
        grid = figure.subplots(len(sides), 1, squeeze=False)[:, 0]
        drawn: dict[str, Any] = {}
        for axes, side in zip(grid, sides, strict=True):
            keys = dict.fromkeys((r["benchmark"], r["metric"]) for r in rows if r["x"] == side)
            for number, key in enumerate(keys):
                mine = [r for r in rows if r["x"] == side and (r["benchmark"], r["metric"]) == key]
                name = f"{shortened(key[0], 30)}: {AXIS_LABELS.get(key[1], key[1])}"
                drawn[name] = _curve(axes, mine, look(number, name))
            axes.set_xlabel(shortened(side, 64))
            axes.set_ylabel("per cent")
            axes.margins(0.1)
        legend_below(figure, list(drawn.values()), list(drawn))
        said = [
            f"{r['benchmark']} at alpha {r['alpha']:g}: "
            f"{AXIS_LABELS.get(r['metric'], r['metric'])} {r['y_value']:.1f}"
            for r in rows
        ]
        return svg_of(figure, alternative(TITLE, said))


def _curve(axes: Any, rows: list[dict[str, Any]], mine: Look) -> Any:
    xs, ys = [r["x_value"] for r in rows], [r["y_value"] for r in rows]
    drawn = axes.errorbar(
        xs,
        ys,
        xerr=None if rows[0]["x"] == "alpha" else reach(rows, "x_"),
        yerr=reach(rows, "y_"),
        color=mine.colour,
        marker=mine.marker,
        markersize=4.5,
        linewidth=1.4,
        elinewidth=0.5,
    )
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
