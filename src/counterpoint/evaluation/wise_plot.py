"""A figure of the line between two models: what is gained against what is kept, per alpha."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from counterpoint._util.errors import RunError
from counterpoint._util.writing import whole_file
from counterpoint.metrics import ALL, AXIS_LABELS, COMPOSITION_METRICS, GALLERY_METRICS, LEVEL
from counterpoint.runs import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes


# The colours of Okabe and Ito, which colour-blind readers can tell apart; markers help in print.
_COLOURS: Final = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
_MARKERS: Final = "osD^vPX"
_SETTINGS: Final[Any] = {
    "svg.hashsalt": "counterpoint",  # the same numbers, the same file
    "svg.fonttype": "none",
    "text.parse_math": False,  # a "$" in a name is a "$"
}

Along = Mapping[float, Sequence[Row]]  # the rows of each alpha's run


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


def draw_line(along: Along, path: Path, title: str) -> None:
    """Write the picture as SVG; no display is needed."""
    import matplotlib
    from matplotlib.figure import Figure

    found = line_panels(along)
    if not any(panel.ys for panel in found):
        raise RunError(
            "E-RUN-EMPTY", f"{path}: nothing to draw, because no case was scored.", path=path
        )
    with matplotlib.rc_context(_SETTINGS):
        figure = Figure(figsize=(5.2 * len(found) + 1, 4.6), layout="constrained")
        figure.suptitle(f"{title}\n{_LEGEND}", fontsize=9)
        for axes, panel in zip(
            figure.subplots(1, len(found), squeeze=False)[0], found, strict=True
        ):
            _draw_panel(axes, panel, along)
        with whole_file(path) as partial:
            figure.savefig(partial, format="svg", metadata={"Date": None})


def _draw_panel(axes: Axes, panel: Panel, along: Along) -> None:
    drawn = []
    for number, key in enumerate(panel.ys):
        x = CurveKey(key.benchmark, panel.x) if isinstance(panel.x, str) else panel.x
        drawn.append(_draw_line(axes, _points(along, x, key), number))
    metrics = dict.fromkeys(AXIS_LABELS[key.metric] for key in panel.ys)
    axes.set_ylabel(f"{', '.join(metrics)} (%)")
    axes.set_xlabel(_x_label(panel.x))
    axes.grid(color="#dddddd", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.spines[["top", "right"]].set_visible(False)
    names = [
        key.benchmark if len(metrics) == 1 else f"{key.benchmark}: {AXIS_LABELS[key.metric]}"
        for key in panel.ys
    ]
    axes.legend(drawn, names, fontsize=8, frameon=False)


def _x_label(x: CurveKey | str | None) -> str:
    if x is None:
        return "alpha"
    return (
        f"{AXIS_LABELS[x]} (%)"
        if isinstance(x, str)
        else f"{x.benchmark}: {AXIS_LABELS[x.metric]} (%)"
    )


class _Points(NamedTuple):
    """Alphas, and value, low and high end of the interval for each of them, in per cent."""

    alphas: list[float]
    x: list[tuple[float, float, float]]
    y: list[tuple[float, float, float]]


def _points(along: Along, x: CurveKey | None, y: CurveKey) -> _Points:
    found = _Points([], [], [])
    for alpha in sorted(along):
        rows = {
            CurveKey(row.benchmark, row.metric): (
                100 * row.value,
                100 * row.ci_low,
                100 * row.ci_high,
            )
            for row in along[alpha]
            if row.group == ALL
        }
        if y in rows and (x is None or x in rows):
            found.alphas.append(alpha)
            found.x.append((alpha, alpha, alpha) if x is None else rows[x])
            found.y.append(rows[y])
    return found


def _draw_line(axes: Axes, points: _Points, number: int) -> Any:
    """The line with its intervals; its ends and its middle say their alpha."""
    colour = _COLOURS[number % len(_COLOURS)]
    xs, ys = ([value for value, _, _ in side] for side in (points.x, points.y))
    drawn = axes.errorbar(
        xs,
        ys,
        xerr=_reach(points.x),
        yerr=_reach(points.y),
        color=colour,
        marker=_MARKERS[number % len(_MARKERS)],
        markersize=4.5,
        linewidth=1.4,
        elinewidth=0.5,
    )
    for place in sorted({0, len(xs) // 2, len(xs) - 1}) if xs else ():
        axes.annotate(
            f"{points.alphas[place]:g}",
            (xs[place], ys[place]),
            (4, 5),
            textcoords="offset points",
            fontsize=8,
            color=colour,
        )
    return drawn


def _reach(side: Sequence[tuple[float, float, float]]) -> list[list[float]]:
    """How far the intervals go, down and up."""
    return [[max(0.0, v - low) for v, low, _ in side], [max(0.0, high - v) for v, _, high in side]]


_LEGEND: Final = f"numbers at points: alpha (0 base, 1 tuned); bars: {LEVEL:.0%} intervals"
