"""Benchmarks against each other: points with intervals in both directions, and a radar.

Brittleness against augmented accuracy, retrieval or zero-shot classification against
compositionality, and all benchmarks at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from typing import Any, Final, NamedTuple

from counterpoint.metrics import (
    ALL,
    AXIS_LABELS,
    COMPOSITION_METRICS,
    GALLERY_METRICS,
    heading,
    headline,
)
from counterpoint.reports.data import ReportData
from counterpoint.reports.figures import drawing as draw
from counterpoint.reports.figures.drawing import Drawn, Look, Made, Omitted, Rows
from counterpoint.reports.figures.intervals import is_shuffled
from counterpoint.reports.ranking import RankedRow, short_name

_NAMED: Final = 20  # models in a legend
PUBLISHED: Final = "published"


def scatter(
    rows: Rows,
    title: str,
    models: Mapping[str, Look],
    decorate: Callable[[Any, str], None] | None = None,
) -> str:
    """A panel for each `panel` of the rows, a colour and a marker for each model.

    More models than a legend can name share a look: the title of a point says whose it is.
    """
    if len({*models.values()}) > _NAMED:
        models = {name: _unnamed(look) for name, look in models.items()}
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    down, across = draw.grid_of(len(panels))
    height = (2.3 if across == 2 else 3.2) * down + 0.22 * (len({*models.values()}) / 3 + 1)
    with draw.canvas(height, title) as figure:
        drawn: dict[str, Any] = {}
        told: list[str] = []
        for axes, panel in zip(draw.panels(figure, len(panels)), panels, strict=True):
            mine = [row for row in rows if row["panel"] == panel]
            for row in mine:
                point = _point(axes, row, models[row["model"]])
                point[0].set_gid(f"point-{len(told)}")
                drawn[row["model"]] = point if len(point) > 1 else point[0]
                told.append(
                    f"{panel}, {row['model']}: {row['x']} {row['x_value']:.1f}, {row['y']} "
                    f"{row['y_value']:.1f}"
                )
            axes.set_title(short_name(panel, 60 // across), loc="left")
            axes.set_xlabel(short_name(mine[0]["x"], 56 // across))
            axes.set_ylabel(mine[0]["y"])
            axes.margins(0.12)
            if decorate is not None:
                decorate(axes, panel)
        named = {look: model for model, look in models.items() if model in drawn}
        draw.legend_below(figure, {model: drawn[model] for model in named.values()}, models)
        titles = {f"point-{number}": text for number, text in enumerate(told)}
        return draw.svg_of(figure, title, told, titles)


def _unnamed(look: Look) -> Look:
    if look.name == PUBLISHED:
        return look
    baseline = look.colour == draw.GREY
    return Look(draw.GREY, "s", "baselines") if baseline else Look(draw.COLOURS[0], "o", "models")


def _point(axes: Any, row: dict[str, Any], look: Look) -> Any:
    """What was drawn, the marker first; a value without an interval is a marker alone."""
    place = [row["x_value"]], [row["y_value"]]
    if row["x_low"] == row["x_high"] and row["y_low"] == row["y_high"]:
        return axes.plot(*place, look.marker, color=look.colour, markersize=6)
    reach = {"xerr": draw.reach([row], "x_"), "yerr": draw.reach([row], "y_")}
    style = {"fmt": look.marker, "color": look.colour, "markersize": 6, "elinewidth": 0.8}
    return axes.errorbar(*place, **reach, **style)


def _row(panel: str, model: str, x: str, xs: dict[str, float], y: str, ys: dict[str, float]) -> Any:
    return {"panel": panel, "model": model, "x": x, **xs, "y": y, **ys}


# --- brittleness against augmented accuracy -----------------------------------------------------


BRITTLE_TITLE: Final = "Brittleness and augmented accuracy"
_BRITTLE_AXES: Final = ("augmented accuracy (%)", "brittleness (%)")


class PaperPoint(NamedTuple):
    """Two published values of a model, in per cent; papers give no intervals."""

    benchmark: str
    model: str
    augmented: float
    brittleness: float


def brittle(
    material: ReportData, numbers: Sequence[RankedRow], papers: Sequence[PaperPoint] = ()
) -> list[Made]:
    known = {(n.benchmark, n.model, n.metric): n for n in numbers if n.group == ALL}
    x_label, y_label = _BRITTLE_AXES
    rows: Rows = []
    drawn: list[RankedRow] = []
    chances: dict[str, tuple[float, float]] = {}
    for benchmark, model in product(material.benchmarks, material.labels):
        x, y = (known.get((benchmark, model, m)) for m in ("augmented_accuracy", "brittleness"))
        if x is None or y is None:
            continue
        xs, ys = draw.percents(x, "x_"), draw.percents(y, "y_")
        rows.append(_row(benchmark, model, x_label, xs, y_label, ys))
        drawn += [x, y]
        if x.chance is not None and y.chance is not None:
            chances.setdefault(benchmark, (100 * x.chance, 100 * y.chance))
    models = draw.looks(material, drawn)
    for point in papers:
        model = f"{point.model} (published)"
        xs, ys = (
            dict.fromkeys((f"{axis}_value", f"{axis}_low", f"{axis}_high"), value)
            for axis, value in (("x", point.augmented), ("y", point.brittleness))
        )
        rows.append(_row(point.benchmark, model, x_label, xs, y_label, ys))
        models[model] = Look(draw.GREY, "x", PUBLISHED)
    if not rows:
        why = "no benchmark of these runs has positives beside its originals."
        return [Omitted(BRITTLE_TITLE, why)]

    def mark_chance(axes: Any, benchmark: str) -> None:
        if benchmark in chances:
            axes.plot(*chances[benchmark], "+", color=draw.INK, markersize=9, zorder=0)

    return [
        Drawn(
            "brittleness-and-augmented",
            BRITTLE_TITLE,
            "Down and to the right is better: right more often, and seldom only for one wording. "
            f"Whiskers are 95% intervals, the cross is chance.{draw.marks_caption(material, drawn)}"
            + (" × is a value of a paper, without an interval." if papers else ""),
            scatter(rows, BRITTLE_TITLE, models, mark_chance),
            rows,
        )
    ]


# --- retrieval and classification against compositionality --------------------------------------


TRADEOFF_TITLE: Final = "Retrieval and zero-shot against compositionality"


def tradeoff(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    whole = {(n.benchmark, n.metric, n.model): n for n in numbers if n.group == ALL}
    kept = [one for one in _first(material, whole, GALLERY_METRICS) if not is_shuffled(one[0])]
    gained = _first(material, whole, COMPOSITION_METRICS)
    rows: Rows = []
    drawn: list[RankedRow] = []
    for (x_name, x_metric), (y_name, y_metric) in product(kept, gained):
        for model in material.labels:
            x, y = whole.get((x_name, x_metric, model)), whole.get((y_name, y_metric, model))
            if x is not None and y is not None:
                x_label = f"{x_name}: {AXIS_LABELS[x_metric]} (%)"
                xs, ys = draw.percents(x, "x_"), draw.percents(y, "y_")
                rows.append(_row(y_name, model, x_label, xs, f"{AXIS_LABELS[y_metric]} (%)", ys))
                drawn += [x, y]
    if not rows:
        why = "no run has both a retrieval (or classification) and a compositional benchmark."
        if not kept or not gained:
            lack = "a benchmark of compositionality" if kept else "a retrieval or a classification"
            why = f"none of these runs has {lack}."
        return [Omitted(TRADEOFF_TITLE, why)]
    made: list[Made] = []
    for label in dict.fromkeys(row["x"] for row in rows):
        mine = [row for row in rows if row["x"] == label]
        made.append(
            Drawn(
                f"against-{label.partition(':')[0]}",
                TRADEOFF_TITLE,
                "Up and to the right is better: finetuning that teaches one thing may cost the "
                f"other. Whiskers are 95% intervals.{draw.marks_caption(material, drawn)}",
                scatter(mine, f"{TRADEOFF_TITLE}: {label}", draw.looks(material, drawn)),
                mine,
            )
        )
    return made


def _first(
    material: ReportData, whole: Mapping[tuple[str, str, str], RankedRow], metrics: Sequence[str]
) -> list[tuple[str, str]]:
    """The benchmarks that have one of the metrics, with the first that they have."""
    known = {(benchmark, metric) for benchmark, metric, _ in whole}
    found = {b: next((m for m in metrics if (b, m) in known), "") for b in material.benchmarks}
    return [(benchmark, metric) for benchmark, metric in found.items() if metric]


# --- one axis per benchmark, one outline per model --------------------------------------------


RADAR_TITLE: Final = "Over all benchmarks"
_LEAST: Final = 3  # axes


def radar(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    whole = [n for n in numbers if n.group == ALL]
    axes: dict[str, str] = {}
    for benchmark in filter(lambda name: not is_shuffled(name), material.benchmarks):
        metric = headline(n.metric for n in whole if n.benchmark == benchmark)
        if metric is not None:
            axes[benchmark] = metric
    if len(axes) < _LEAST:
        beside = " besides shuffled retrieval" if any(map(is_shuffled, material.benchmarks)) else ""
        why = f"it takes {_LEAST} benchmarks, and these runs have {len(axes)}{beside}."
        return [Omitted(RADAR_TITLE, why)]
    known: dict[str, dict[str, RankedRow]] = {}
    for n in whole:
        if axes.get(n.benchmark) == n.metric:
            known.setdefault(n.model, {})[n.benchmark] = n
    models = [label for label in material.labels if len(known.get(label, {})) == len(axes)]
    if not models:
        return [Omitted(RADAR_TITLE, "no run has all of the benchmarks.")]
    drawn = [known[model][benchmark] for model in models for benchmark in axes]
    rows = [
        {
            "benchmark": n.benchmark,
            "metric": n.metric,
            "model": n.model,
            **draw.percents(n),
            "chance": draw.chance_of(n),
        }
        for n in drawn
    ]
    lacking = [label for label in material.labels if label not in models]
    rest = f" Not drawn, because they lack a benchmark: {', '.join(lacking)}." if lacking else ""
    return [
        Drawn(
            "radar",
            RADAR_TITLE,
            "The main metric of each benchmark in per cent, from 0 in the middle to 100; dotted "
            f"is chance.{rest}{draw.marks_caption(material, drawn)}",
            _radar_svg(draw.looks(material, drawn), rows, axes, models),
            rows,
        )
    ]


def _radar_svg(looks: dict[str, Look], rows: Rows, axes: dict[str, str], models: list[str]) -> str:
    angles = [2 * math.pi * place / len(axes) for place in range(len(axes))]
    closed = [*angles, angles[0]]
    with draw.canvas(4.0 + 0.2 * (len(models) / 3 + 1), RADAR_TITLE) as figure:
        polar: Any = figure.subplots(subplot_kw={"projection": "polar"})
        polar.set_theta_offset(math.pi / 2)
        polar.set_theta_direction(-1)
        drawn = {}
        for model in models:
            values = [row["value"] for row in rows if row["model"] == model]
            colour, marker, _ = looks[model]
            style = {"color": colour, "marker": marker, "markersize": 4.5, "linewidth": 1.5}
            (drawn[model],) = polar.plot(closed, [*values, values[0]], **style)
        chance = [row["chance"] for row in rows[: len(axes)]]
        if all(value is not None for value in chance):
            polar.plot(closed, [*chance, chance[0]], ":", color=draw.INK, linewidth=1)
        names = [f"{short_name(n, draw.NAME)}\n{heading(metric)}" for n, metric in axes.items()]
        polar.set_xticks(angles, names)
        for angle, label in zip(angles, polar.get_xticklabels(), strict=True):
            side = math.sin(angle)
            label.set_horizontalalignment(
                "center" if abs(side) < 0.1 else "left" if side > 0 else "right"
            )
        polar.set_ylim(0, 100)
        polar.set_yticks([25, 50, 75, 100], ["25", "50", "75", "100"], fontsize=7)
        polar.spines["polar"].set_color(draw.GRID)
        draw.legend_below(figure, drawn, looks)
        told = [f"{r['benchmark']}, {r['model']} {r['value']:.1f}" for r in rows]
        return draw.svg_of(figure, RADAR_TITLE, told)
