"""Benchmarks against each other: points with intervals in both directions, and a radar.

Brittleness against augmented accuracy, retrieval or zero-shot classification against
compositionality, and all benchmarks at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
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
from counterpoint.reports.figures.drawing import (
    COLOURS,
    GREY,
    GRID,
    INK,
    NAME,
    Data,
    Drawn,
    Look,
    Made,
    Omitted,
    bare,
    canvas,
    grid_of,
    legend_below,
    looks,
    marks_caption,
    percents,
    reach,
    svg_of,
)
from counterpoint.reports.figures.shuffles import is_shuffled
from counterpoint.reports.ranking import RankedRow, short_name

_NAMED: Final = 20  # models in a legend
PUBLISHED: Final = "published"
COLUMNS: Final = (
    *("panel", "model", "x", "x_value", "x_low", "x_high", "y", "y_value", "y_low", "y_high"),
)


def scatter(
    data: Data,
    title: str,
    models: Mapping[str, Look],
    decorate: Callable[[Any, str], None] | None = None,
) -> str:
    """A panel for each `panel` of the data, a colour and a marker for each model.

    More models than a legend can name share a look: the title of a point says whose it is.
    """
    rows = data.named()
    if len({*models.values()}) > _NAMED:
        models = {name: _unnamed(look) for name, look in models.items()}
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    down, across = grid_of(len(panels))
    height = (2.3 if across == 2 else 3.2) * down + 0.22 * (len({*models.values()}) / 3 + 1)
    with canvas(height, title) as figure:
        grid = figure.subplots(down, across, squeeze=False).reshape(-1)
        drawn: dict[str, Any] = {}
        said: list[str] = []
        for axes, panel in zip(grid, panels, strict=False):
            mine = [row for row in rows if row["panel"] == panel]
            for row in mine:
                point = _point(axes, row, models[row["model"]])
                point[0].set_gid(f"point-{len(said)}")
                drawn[row["model"]] = point if len(point) > 1 else point[0]
                said.append(
                    f"{panel}, {row['model']}: {row['x']} {row['x_value']:.1f}, {row['y']} "
                    f"{row['y_value']:.1f}"
                )
            axes.set_title(short_name(panel, 60 // across), loc="left")
            axes.set_xlabel(short_name(mine[0]["x"], 56 // across))
            axes.set_ylabel(mine[0]["y"])
            axes.margins(0.12)
            if decorate is not None:
                decorate(axes, panel)
        for axes in grid[len(panels) :]:
            bare(axes)
        named = {look: model for model, look in models.items() if model in drawn}
        legend_below(figure, {model: drawn[model] for model in named.values()}, models)
        titles = {f"point-{number}": text for number, text in enumerate(said)}
        return svg_of(figure, title, said, titles)


def _unnamed(look: Look) -> Look:
    if look.name == PUBLISHED:
        return look
    return Look(GREY, "s", "baselines") if look.colour == GREY else Look(COLOURS[0], "o", "models")


def _point(axes: Any, row: dict[str, Any], look: Look) -> Any:
    """What was drawn, the marker first; a value without an interval is a marker alone."""
    if row["x_low"] == row["x_high"] and row["y_low"] == row["y_high"]:
        place = [row["x_value"]], [row["y_value"]]
        return axes.plot(*place, look.marker, color=look.colour, markersize=6)
    return axes.errorbar(
        [row["x_value"]],
        [row["y_value"]],
        xerr=reach([row], "x_"),
        yerr=reach([row], "y_"),
        fmt=look.marker,
        color=look.colour,
        markersize=6,
        elinewidth=0.8,
    )


# --- brittleness against augmented accuracy -----------------------------------------------------


BRITTLE_TITLE: Final = "Brittleness and augmented accuracy"


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
    lines: list[tuple[Any, ...]] = []
    drawn: list[RankedRow] = []
    chances: dict[str, tuple[float, float]] = {}
    said = ("augmented accuracy (%)", "brittleness (%)")
    for benchmark in material.benchmarks:
        for model in material.labels:
            x = known.get((benchmark, model, "augmented_accuracy"))
            y = known.get((benchmark, model, "brittleness"))
            if x is None or y is None:
                continue
            lines.append((benchmark, model, said[0], *percents(x), said[1], *percents(y)))
            drawn += [x, y]
            if x.chance is not None and y.chance is not None:
                chances.setdefault(benchmark, (100 * x.chance, 100 * y.chance))
    models = looks(material, drawn)
    for point in papers:
        model = f"{point.model} (published)"
        ends = [[point.augmented] * 3, [point.brittleness] * 3]
        lines.append((point.benchmark, model, said[0], *ends[0], said[1], *ends[1]))
        models[model] = Look(GREY, "x", PUBLISHED)
    if not lines:
        return [
            Omitted(BRITTLE_TITLE, "no benchmark of these runs has positives beside its originals.")
        ]
    data = Data(COLUMNS, lines)

    def mark_chance(axes: Any, benchmark: str) -> None:
        if benchmark in chances:
            axes.plot(*chances[benchmark], "+", color=INK, markersize=9, zorder=0)

    return [
        Drawn(
            "brittleness-and-augmented",
            BRITTLE_TITLE,
            "Down and to the right is better: right more often, and seldom only for one wording. "
            f"Whiskers are 95% intervals, the cross is chance.{marks_caption(material, drawn)}"
            + (" × is a value of a paper, without an interval." if papers else ""),
            scatter(data, BRITTLE_TITLE, models, mark_chance),
            data,
        )
    ]


# --- retrieval and classification against compositionality --------------------------------------


TRADEOFF_TITLE: Final = "Retrieval and zero-shot against compositionality"


def tradeoff(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    whole = {(n.benchmark, n.metric, n.model): n for n in numbers if n.group == ALL}
    kept = [one for one in _first(material, whole, GALLERY_METRICS) if not is_shuffled(one[0])]
    gained = _first(material, whole, COMPOSITION_METRICS)
    lines: list[tuple[Any, ...]] = []
    drawn: list[RankedRow] = []
    for x_name, x_metric in kept:
        for y_name, y_metric in gained:
            for model in material.labels:
                x, y = whole.get((x_name, x_metric, model)), whole.get((y_name, y_metric, model))
                if x is None or y is None:
                    continue
                x_said = f"{x_name}: {AXIS_LABELS[x_metric]} (%)"
                y_said = f"{AXIS_LABELS[y_metric]} (%)"
                lines.append((y_name, model, x_said, *percents(x), y_said, *percents(y)))
                drawn += [x, y]
    if not lines:
        lack = "a retrieval or a classification" if not kept else "a benchmark of compositionality"
        why = f"none of these runs has {lack}." if not kept or not gained else _NEVER_BOTH
        return [Omitted(TRADEOFF_TITLE, why)]
    made: list[Made] = []
    for x in dict.fromkeys(line[2] for line in lines):
        data = Data(COLUMNS, [line for line in lines if line[2] == x])
        made.append(
            Drawn(
                f"against-{x.partition(':')[0]}",
                TRADEOFF_TITLE,
                "Up and to the right is better: finetuning that teaches one thing may cost the "
                f"other. Whiskers are 95% intervals.{marks_caption(material, drawn)}",
                scatter(data, f"{TRADEOFF_TITLE}: {x}", looks(material, drawn)),
                data,
            )
        )
    return made


_NEVER_BOTH: Final = (
    "no run has both a retrieval (or classification) and a compositional benchmark."
)


def _first(
    material: ReportData, whole: dict[tuple[str, str, str], RankedRow], metrics: Sequence[str]
) -> list[tuple[str, str]]:
    """The benchmarks that have one of the metrics, with the first that they have."""
    known = {(benchmark, metric) for benchmark, metric, _ in whole}
    found = []
    for benchmark in material.benchmarks:
        metric = next((m for m in metrics if (benchmark, m) in known), None)
        if metric is not None:
            found.append((benchmark, metric))
    return found


# --- one axis per benchmark, one outline per model --------------------------------------------


RADAR_TITLE: Final = "Over all benchmarks"
_RADAR_COLUMNS: Final = ("benchmark", "metric", "model", "value", "low", "high", "chance")
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
    lines = [
        (
            benchmark,
            metric,
            model,
            *percents(n := known[model][benchmark]),
            None if n.chance is None else 100 * n.chance,
        )
        for model in models
        for benchmark, metric in axes.items()
    ]
    drawn = [known[model][benchmark] for model in models for benchmark in axes]
    data = Data(_RADAR_COLUMNS, lines)
    lacking = [label for label in material.labels if label not in models]
    rest = f" Not drawn, because they lack a benchmark: {', '.join(lacking)}." if lacking else ""
    return [
        Drawn(
            "radar",
            RADAR_TITLE,
            "The main metric of each benchmark in per cent, from 0 in the middle to 100; dotted "
            f"is chance.{rest}{marks_caption(material, drawn)}",
            _radar_svg(looks(material, drawn), data, axes),
            data,
        )
    ]


def _radar_svg(look: dict[str, Look], data: Data, axes: dict[str, str]) -> str:
    rows = data.named()
    models = list(dict.fromkeys(row["model"] for row in rows))
    angles = [2 * math.pi * place / len(axes) for place in range(len(axes))]
    with canvas(4.0 + 0.2 * (len(models) / 3 + 1), RADAR_TITLE) as figure:
        round_axes: Any = figure.subplots(subplot_kw={"projection": "polar"})
        round_axes.set_theta_offset(math.pi / 2)
        round_axes.set_theta_direction(-1)
        drawn = {}
        for model in models:
            values = [row["value"] for row in rows if row["model"] == model]
            (drawn[model],) = round_axes.plot(
                [*angles, angles[0]],
                [*values, values[0]],
                color=look[model].colour,
                marker=look[model].marker,
                markersize=4.5,
                linewidth=1.5,
            )
        chance = [row["chance"] for row in rows if row["model"] == models[0]]
        if all(value is not None for value in chance):
            round_axes.plot([*angles, angles[0]], [*chance, chance[0]], ":", color=INK, linewidth=1)
        names = [f"{short_name(name, NAME)}\n{heading(metric)}" for name, metric in axes.items()]
        round_axes.set_xticks(angles, names)
        for angle, label in zip(angles, round_axes.get_xticklabels(), strict=True):
            side = math.sin(angle)
            label.set_horizontalalignment(
                "center" if abs(side) < 0.1 else "left" if side > 0 else "right"
            )
        round_axes.set_ylim(0, 100)
        round_axes.set_yticks([25, 50, 75, 100], ["25", "50", "75", "100"], fontsize=7)
        round_axes.spines["polar"].set_color(GRID)
        legend_below(figure, drawn, look)
        said = [f"{r['benchmark']}, {r['model']} {r['value']:.1f}" for r in rows]
        return svg_of(figure, RADAR_TITLE, said)
