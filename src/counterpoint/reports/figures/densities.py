"""Distributions of the scores of originals, positives and negatives: finetuning may lower all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np

from counterpoint.cases import is_gallery
from counterpoint.metrics import is_baseline
from counterpoint.reports.figures.drawing import (
    COLOURS,
    Data,
    Drawn,
    Made,
    Omitted,
    alternative,
    bare,
    canvas,
    grid_of,
    legend_below,
    svg_of,
)
from counterpoint.reports.gathering import ReportData, ScoredPart
from counterpoint.reports.numbers import RankedRow, is_human, shortened
from counterpoint.runs import Part

TITLE: Final = "Scores"
_POINTS: Final = 96
_MODELS: Final = 12  # drawn of one benchmark; the CSV has them all
_LIKE: Final = 4.0  # scores whose spreads differ by more are not on one axis
_KINDS: Final = ("original", "positive", "negative")
_STYLES: Final = ((COLOURS[0], "-"), (COLOURS[2], "--"), (COLOURS[1], "-."))
_COLUMNS: Final = ("model", "kind", "score", "density", "mean", "pairs")


def densities(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each benchmark whose cases choose between captions."""
    del numbers
    made: list[Made] = []
    for benchmark, several in material.benchmarks.items():
        found = {s.label: by_kind(s.part) for s in several if not is_human(s.run.model)}
        found = {label: kinds for label, kinds in found.items() if kinds}
        if found:
            made.append(_drawn(benchmark, several, found))
    why = "these runs hold no cases that choose between captions of few images."
    return made or [Omitted(TITLE, why)]


def by_kind(part: Part) -> dict[str, np.ndarray]:
    """The scores of originals, positives and negatives; galleries, texts and answers have none."""
    found: dict[str, list[np.ndarray]] = {}
    for block in part.cases.blocks():
        if block.texts or block.questions or is_gallery(*block.truth.shape[1:]):
            continue
        scores = part.cases.scores_of(block, part.scores)
        first = block.truth & (block.truth.cumsum(axis=2) == 1)
        masks = (first, block.truth & ~first, ~block.truth)
        for kind, mask in zip(_KINDS, masks, strict=True):
            if mask.any():
                found.setdefault(kind, []).append(scores[mask])
    joined = {kind: np.concatenate(found[kind]) for kind in _KINDS if kind in found}
    finite = {kind: values[np.isfinite(values)] for kind, values in joined.items()}
    return {kind: values for kind, values in finite.items() if len(values)}


def _drawn(
    benchmark: str, several: list[ScoredPart], found: dict[str, dict[str, np.ndarray]]
) -> Drawn:
    limits = _limits(found, {s.label: s.run.model for s in several})
    lines = [line for label, kinds in found.items() for line in _lines(label, kinds, limits[label])]
    data = Data(_COLUMNS, lines)
    everyone = [s.label for s in several if s.label in found]
    models = [s.label for s in several if s.label in found and not is_baseline(s.run.model)]
    models = (models or everyone)[:_MODELS]
    hidden = len(everyone) - len(models)
    rest = f" Baselines and further models ({hidden}) are in the CSV." if hidden else ""
    title = f"Scores, {benchmark}"
    return Drawn(
        f"scores-{benchmark}",
        title,
        "Density of the scores of originals, other positives and negatives; the ticks below are "
        f"their means. Models whose scores lie in one range share the axis.{rest}",
        _svg(data, models, title),
        data,
    )


def _limits(
    found: dict[str, dict[str, np.ndarray]], models: dict[str, str]
) -> dict[str, tuple[float, float]]:
    """The range to draw of each model, the same for models whose scores are alike.

    Baselines have ranges of their own: theirs are no similarities.
    """
    shared: list[list[float]] = []
    mine: dict[str, list[float]] = {}
    for label, kinds in found.items():
        values = np.concatenate(list(kinds.values()))
        low, high = (float(v) for v in np.quantile(values, [0.002, 0.998]))
        pad = 0.06 * (high - low) or 0.5
        low, high = low - pad, high + pad
        for limits in [] if is_baseline(models[label]) else shared:
            width = limits[1] - limits[0]
            gap = max(low - limits[1], limits[0] - high)
            if gap < max(width, high - low) and 1 / _LIKE < (high - low) / width < _LIKE:
                limits[:] = [min(low, limits[0]), max(high, limits[1])]
                mine[label] = limits
                break
        else:
            mine[label] = [low, high]
            if not is_baseline(models[label]):
                shared.append(mine[label])
    return {label: (limits[0], limits[1]) for label, limits in mine.items()}


def _lines(
    label: str, kinds: dict[str, np.ndarray], limits: tuple[float, float]
) -> Iterator[tuple[Any, ...]]:
    for kind, values in kinds.items():
        mean, count = _rounded(values.mean(dtype=float)), len(values)
        for place, density in zip(*density_of(values, limits), strict=True):
            yield label, kind, _rounded(place), _rounded(density), mean, count


def _rounded(value: float) -> float:
    """Six digits: a curve needs no more, and it has hundreds of points."""
    return float(f"{value:.6g}")


def density_of(values: np.ndarray, limits: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """A histogram smoothed by a normal kernel of Silverman's width."""
    fine = 8 * _POINTS
    counts, edges = np.histogram(values, bins=fine, range=limits)
    step = edges[1] - edges[0]
    low, high = np.quantile(values, [0.25, 0.75])
    spread = min(float(values.std(dtype=float)), (high - low) / 1.34) or float(values.std())
    width = max(0.9 * spread * len(values) ** -0.2, 2 * step)  # one score for all: a narrow peak
    middles = (edges[:-1] + edges[1:]) / 2
    places = np.linspace(*limits, _POINTS)
    kernel = np.exp(-0.5 * ((places[:, None] - middles) / width) ** 2) / (
        width * np.sqrt(2 * np.pi)
    )
    return places, kernel @ (counts / len(values))


def _svg(data: Data, models: list[str], title: str) -> str:
    rows = data.named()
    down, across = grid_of(len(models))
    with canvas(1.75 * down + 0.5, title) as figure:
        grid = figure.subplots(down, across, squeeze=False).reshape(-1)
        drawn: dict[str, Any] = {}
        for axes, model in zip(grid, models, strict=False):
            mine = [row for row in rows if row["model"] == model]
            for kind, (colour, style) in zip(_KINDS, _STYLES, strict=True):
                curve = [row for row in mine if row["kind"] == kind]
                if not curve:
                    continue
                xs, ys = [r["score"] for r in curve], [r["density"] for r in curve]
                (drawn[kind],) = axes.plot(xs, ys, color=colour, linestyle=style, linewidth=1.5)
                axes.fill_between(xs, ys, color=colour, alpha=0.1, linewidth=0)
                axes.plot(curve[0]["mean"], 0, "|", color=colour, markersize=12, clip_on=False)
            axes.set_title(shortened(model, 60 // across), loc="left")
            axes.set_yticks([])
            axes.set_ylim(bottom=0)
            axes.spines["left"].set_visible(False)
            axes.locator_params(axis="x", nbins=5)
        for axes in grid[len(models) :]:
            bare(axes)
        kinds = [kind for kind in _KINDS if kind in drawn]
        legend_below(figure, [drawn[kind] for kind in kinds], kinds)
        means = {(r["model"], r["kind"]): r["mean"] for r in rows if r["model"] in models}
        said = [f"{model}: mean of {kind}s {mean:.3g}" for (model, kind), mean in means.items()]
        return svg_of(figure, alternative(title, said))
