"""One axis per benchmark, one outline per model."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

from counterpoint.metrics import ALL, heading, headline
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
    svg_of,
)
from counterpoint.reports.figures.shuffles import is_shuffled
from counterpoint.reports.gathering import ReportData
from counterpoint.reports.numbers import RankedRow, shortened

TITLE: Final = "Over all benchmarks"
_COLUMNS: Final = ("benchmark", "metric", "model", "value", "low", "high", "chance")
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
        return [Omitted(TITLE, why)]
    known: dict[str, dict[str, RankedRow]] = {}
    for n in whole:
        if axes.get(n.benchmark) == n.metric:
            known.setdefault(n.model, {})[n.benchmark] = n
    models = [label for label in material.labels if len(known.get(label, {})) == len(axes)]
    if not models:
        return [Omitted(TITLE, "no run has all of the benchmarks.")]
    lines = [
        (
            benchmark,
            metric,
            model,
            100 * (n := known[model][benchmark]).value,
            100 * n.ci_low,
            100 * n.ci_high,
            None if n.chance is None else 100 * n.chance,
        )
        for model in models
        for benchmark, metric in axes.items()
    ]
    drawn = [known[model][benchmark] for model in models for benchmark in axes]
    data = Data(_COLUMNS, lines)
    lacking = [label for label in material.labels if label not in models]
    rest = f" Not drawn, because they lack a benchmark: {', '.join(lacking)}." if lacking else ""
    return [
        Drawn(
            "radar",
            TITLE,
            "The main metric of each benchmark in per cent, from 0 in the middle to 100; dotted "
            f"is chance.{rest}{marks_caption(material, drawn)}",
            _svg(looks(material, drawn), data, axes),
            data,
        )
    ]


def _svg(look: dict[str, Look], data: Data, axes: dict[str, str]) -> str:
    rows = data.named()
    models = list(dict.fromkeys(row["model"] for row in rows))
    angles = [2 * math.pi * place / len(axes) for place in range(len(axes))]
    with canvas(4.0 + 0.2 * (len(models) / 3 + 1), TITLE) as figure:
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
        names = [f"{shortened(name, NAME)}\n{heading(metric)}" for name, metric in axes.items()]
        round_axes.set_xticks(angles, names)
        for angle, label in zip(angles, round_axes.get_xticklabels(), strict=True):
            side = math.sin(angle)
            label.set_horizontalalignment(
                "center" if abs(side) < 0.1 else "left" if side > 0 else "right"
            )
        round_axes.set_ylim(0, 100)
        round_axes.set_yticks([25, 50, 75, 100], ["25", "50", "75", "100"], fontsize=7)
        round_axes.spines["polar"].set_color(GRID)
        legend_below(figure, list(drawn.values()), [look[model].name for model in models])
        said = [f"{r['benchmark']}, {r['model']} {r['value']:.1f}" for r in rows]
        return svg_of(figure, alternative(TITLE, said))
