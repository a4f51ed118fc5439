"""The WiSE-FT line: models between a start and its finetuned form, if the runs are of one line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from counterpoint.metrics import ALL, AXIS_LABELS
from counterpoint.reports.figures.drawing import (
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
    from counterpoint.evaluation import CurveKey, line_panels

    along = {
        alpha: [_row(n) for n in numbers if n.model == label and n.group == ALL]
        for alpha, label in sorted(alphas.items())
    }
    lines = []
    for panel in line_panels(along):
        for key in panel.ys:
            x = CurveKey(key.benchmark, panel.x) if isinstance(panel.x, str) else panel.x
            said = "alpha" if x is None else _said(x, panel.x)
            lines += [(said, *key, *values) for values in _points(along, x, key)]
    if not lines:
        return Omitted(TITLE, "the runs of its alphas have no benchmark in common.")
    data = Data(_COLUMNS, lines)
    return Drawn(
        "wise-ft",
        TITLE,
        f"Weights mixed from {one_line(ends.base)} (alpha 0) to {one_line(ends.tuned)} (alpha 1); "
        "the numbers at points are alphas. Choose alpha on other cases than those you report.",
        _svg(data),
        data,
    )


def _said(key: Any, asked: Any) -> str:
    said = f"{AXIS_LABELS.get(key.metric, key.metric)} (%)"
    return said if isinstance(asked, str) else f"{key.benchmark}: {said}"


def _row(n: RankedRow) -> Row:
    ends = (n.value, n.ci_low, n.ci_high)
    return Row(n.model, n.benchmark, n.group, n.metric, *ends, n.n, n.ties, n.chance)


def _points(along: dict[float, list[Row]], x: Any, y: Any) -> list[tuple[float, ...]]:
    found = []
    for alpha, rows in along.items():
        known = {(r.benchmark, r.metric): (r.value, r.ci_low, r.ci_high) for r in rows}
        if tuple(y) in known and (x is None or tuple(x) in known):
            ys = [100 * v for v in known[tuple(y)]]
            xs = [alpha] * 3 if x is None else [100 * v for v in known[tuple(x)]]
            found.append((alpha, *xs, *ys))
    return found


def _svg(data: Data) -> str:
    rows = data.named()
    sides = list(dict.fromkeys(row["x"] for row in rows))
    with canvas(3.2 * len(sides), TITLE) as figure:
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
