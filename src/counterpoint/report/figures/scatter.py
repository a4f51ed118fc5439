"""Points with intervals in both directions, one panel per question: two figures are made so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from counterpoint.report.figures.drawing import (
    Data,
    Look,
    alternative,
    bare,
    canvas,
    grid_of,
    legend_below,
    reach,
    svg_of,
)
from counterpoint.report.wording import shortened

COLUMNS: Final = (
    "panel",
    "model",
    "x",
    "x_value",
    "x_low",
    "x_high",
    "y",
    "y_value",
    "y_low",
    "y_high",
)


def scatter(
    data: Data,
    title: str,
    models: Mapping[str, Look],
    decorate: Callable[[Any, str], None] | None = None,
) -> str:
    """A panel for each `panel` of the data, a colour and a marker for each model."""
    rows = data.named()
    panels = list(dict.fromkeys(row["panel"] for row in rows))
    down, across = grid_of(len(panels))
    height = (2.3 if across == 2 else 3.2) * down + 0.22 * (len(models) / 3 + 1)
    with canvas(height, title) as figure:
        grid = figure.subplots(down, across, squeeze=False).reshape(-1)
        drawn: dict[str, Any] = {}
        for axes, panel in zip(grid, panels, strict=False):
            mine = [row for row in rows if row["panel"] == panel]
            for row in mine:
                drawn[row["model"]] = _point(axes, row, models[row["model"]])
            axes.set_title(shortened(panel, 60 // across), loc="left")
            axes.set_xlabel(shortened(mine[0]["x"], 56 // across))
            axes.set_ylabel(mine[0]["y"])
            axes.margins(0.12)
            if decorate is not None:
                decorate(axes, panel)
        for axes in grid[len(panels) :]:
            bare(axes)
        named = [model for model in models if model in drawn]
        legend_below(figure, [drawn[m] for m in named], [models[m].name for m in named])
        said = [
            f"{row['panel']}, {row['model']}: {row['x']} {row['x_value']:.1f}, {row['y']} "
            f"{row['y_value']:.1f}"
            for row in rows
        ]
        return svg_of(figure, alternative(title, said))


def _point(axes: Any, row: dict[str, Any], look: Look) -> Any:
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
