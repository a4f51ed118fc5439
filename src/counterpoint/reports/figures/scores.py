"""Scores: their distributions for originals, positives and negatives, and sample predictions.

Samples are Figures 1 and 3 of the hard positives paper (Kamath et al. 2024): tuning on hard
negatives may put the original above the negative and leave the positive below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint.cases import is_gallery
from counterpoint.metrics import is_baseline
from counterpoint.reports.case_outcomes import (
    ROLES,
    TRIO,
    Outcomes,
    Threes,
    Trio,
    best_trio,
    outcomes,
    ranked_scores,
    threes_of,
)
from counterpoint.reports.data import ReportData, ScoredPart, without_folders
from counterpoint.reports.examples import Album, Thumbnail, caption_text
from counterpoint.reports.figures.drawing import (
    COLOURS,
    Data,
    Drawn,
    Made,
    Omitted,
    bare,
    canvas,
    grid_of,
    legend_below,
    svg_of,
    with_pictures,
)
from counterpoint.reports.ranking import RankedRow, is_human, one_line, score, short_name
from counterpoint.runs import Part

DENSITIES_TITLE: Final = "Scores"
_POINTS: Final = 96
_MODELS: Final = 12  # drawn of one benchmark; the CSV has them all
_LIKE: Final = 4.0  # scores whose spreads differ by more are not on one axis
_KINDS: Final = ("original", "positive", "negative")
_DENSITY_STYLES: Final = ((COLOURS[0], "-"), (COLOURS[2], "--"), (COLOURS[1], "-."))
_DENSITY_COLUMNS: Final = ("model", "kind", "score", "density", "mean", "pairs")


def densities(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each benchmark whose cases choose between captions."""
    del numbers
    made: list[Made] = []
    for benchmark, several in material.benchmarks.items():
        found = {s.label: by_kind(s.part) for s in several if not is_human(s.run.model)}
        found = {label: kinds for label, kinds in found.items() if kinds}
        if found:
            made.append(_densities_of(benchmark, several, found))
    why = "these runs hold no cases that choose between captions of few images."
    return made or [Omitted(DENSITIES_TITLE, why)]


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


def _densities_of(
    benchmark: str, several: list[ScoredPart], found: dict[str, dict[str, np.ndarray]]
) -> Drawn:
    limits = _limits(found, {s.label: s.run.model for s in several})
    lines = [
        line
        for label, kinds in found.items()
        for line in _density_lines(label, kinds, limits[label])
    ]
    data = Data(_DENSITY_COLUMNS, lines)
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
        _density_svg(data, models, title),
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


def _density_lines(
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


def _density_svg(data: Data, models: list[str], title: str) -> str:
    rows = data.named()
    down, across = grid_of(len(models))
    with canvas(1.75 * down + 0.5, title) as figure:
        grid = figure.subplots(down, across, squeeze=False).reshape(-1)
        drawn: dict[str, Any] = {}
        for axes, model in zip(grid, models, strict=False):
            mine = [row for row in rows if row["model"] == model]
            for kind, (colour, style) in zip(_KINDS, _DENSITY_STYLES, strict=True):
                curve = [row for row in mine if row["kind"] == kind]
                if not curve:
                    continue
                xs, ys = [r["score"] for r in curve], [r["density"] for r in curve]
                (drawn[kind],) = axes.plot(xs, ys, color=colour, linestyle=style, linewidth=1.5)
                axes.fill_between(xs, ys, color=colour, alpha=0.1, linewidth=0)
                axes.plot(curve[0]["mean"], 0, "|", color=colour, markersize=12, clip_on=False)
            axes.set_title(short_name(model, 60 // across), loc="left")
            axes.set_yticks([])
            axes.set_ylim(bottom=0)
            axes.spines["left"].set_visible(False)
            axes.locator_params(axis="x", nbins=5)
        for axes in grid[len(models) :]:
            bare(axes)
        legend_below(figure, {kind: drawn[kind] for kind in _KINDS if kind in drawn})
        means = {(r["model"], r["kind"]): r["mean"] for r in rows if r["model"] in models}
        said = [f"{model}: mean of {kind}s {mean:.3g}" for (model, kind), mean in means.items()]
        return svg_of(figure, title, said)


# --- sample predictions: one image, its three captions, and how three models rank them --------


SAMPLES_TITLE: Final = "Sample predictions"
_EACH: Final = 2  # cases of a kind
_WRAPPED: Final = 70  # characters of a line
_SAMPLE_STYLES: Final = (("o", COLOURS[0], "-"), ("s", COLOURS[1], "-."), ("D", COLOURS[2], "--"))
_SAMPLE_COLUMNS: Final = ("first_model", "case", "model", "role", "caption", "score", "rank")


class Sample(NamedTuple):
    """A kind of case, its number in the table, and where its captions are, by role."""

    kind: str
    case: int
    places: list[int]


def samples(material: ReportData, album: Album) -> list[Made]:
    """A figure for each benchmark with an original, a positive and a negative per image."""
    made: list[Made] = []
    why = "no benchmark of these runs has one image, its original, one positive and one negative."
    for benchmark, several in material.benchmarks.items():
        models = [s for s in several if not is_baseline(s.run.model) and not is_human(s.run.model)]
        found = outcomes(models) if models else None
        kept = None if found is None else threes_of(found)
        if found is None or kept is None:
            continue
        if len(models) < TRIO:
            why = f"it takes {TRIO} models that scored {benchmark}."
            continue
        trio = best_trio(ranked_scores(found, kept))
        if trio.total:
            made.append(_samples_of(benchmark, found, kept, trio, album))
        else:
            why = f"on {benchmark} no case is brittle for a model and right for one given after it."
    return made or [Omitted(SAMPLES_TITLE, why)]


# --- the figure ---------------------------------------------------------------------------------


def _samples_of(benchmark: str, found: Outcomes, kept: Threes, trio: Trio, album: Album) -> Drawn:
    runs = [found.runs[number] for number in trio.runs]
    first, second, third = (one_line(run.label) for run in runs)
    chance = np.random.default_rng(0).permutation(len(kept.cases))
    chosen = [
        Sample(kind, int(kept.cases[i]), kept.places[i].tolist())
        for kind, cases in trio.cases.items()
        for i in cases[np.argsort(chance[cases])][:_EACH]
    ]
    rows = [found.rows[:, number] for number in trio.runs]
    data = Data(
        _SAMPLE_COLUMNS, [line for one in chosen for line in _sample_lines(found, one, runs, rows)]
    )
    counts = [f"{len(cases):,}" for cases in trio.cases.values()]
    title = f"{SAMPLES_TITLE}, {benchmark}"
    return Drawn(
        f"samples-{benchmark}",
        title,
        "Three captions of an image with their scores, the highest on top: the negative should be "
        f"last. {second} puts it between original and positive, {third} puts it last. Of "
        f"{len(kept.cases):,} cases, this holds for {counts[0]} in which {first} puts it above the "
        f"original, and for {counts[1]} in which {first} puts it last. The cases are drawn by "
        "chance; the models are in the order of the runs.",
        _sample_svg(data, title, [album.picture(*_image(found, one.case)) for one in chosen]),
        data,
    )


def _image(found: Outcomes, number: int) -> tuple[Any, Any]:
    return found.cases.case(number).images[0], found.cases.root


def _sample_lines(
    found: Outcomes, sample: Sample, runs: Sequence[ScoredPart], rows: Sequence[np.ndarray]
) -> list[tuple[Any, ...]]:
    case = found.cases.case(sample.case)
    lines = []
    for run, mine in zip(runs, rows, strict=True):
        start = int(run.part.cases.pair_offsets[mine[sample.case]])
        values = [float(run.part.scores[start + place]) for place in sample.places]
        order = sorted(range(len(values)), key=lambda number: -values[number])
        for number, (role, place) in enumerate(zip(ROLES, sample.places, strict=True)):
            text = one_line(caption_text(case.captions[place]))
            told = (role, text, values[number], order.index(number) + 1)
            lines.append((sample.kind, without_folders(case.id), run.label, *told))
    return lines


def _sample_svg(data: Data, title: str, pictures: Sequence[Thumbnail]) -> str:
    rows = data.named()
    size = TRIO * len(ROLES)
    panels = [rows[start : start + size] for start in range(0, len(rows), size)]
    texts = [_text(panel) for panel in panels]
    heights = [height for text in texts for height in (0.17 * len(text.splitlines()), 1.3)]
    with canvas(sum(heights) + 0.16 * len(heights) + 0.4, title) as figure:
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights, width_ratios=(1, 2.3))
        drawn: list[Any] = []
        placed = []
        for number, (panel, picture) in enumerate(zip(panels, pictures, strict=True)):
            words = figure.add_subplot(grid[2 * number, :])
            bare(words)
            words.text(0, 0.5, texts[number], va="center", fontsize=8.5, transform=words.transAxes)
            left = figure.add_subplot(grid[2 * number + 1, 0])
            bare(left)
            if picture.uri:
                placed.append((left, picture.uri, picture.small))
            else:
                said = textwrap.fill(picture.text or picture.why, 22, max_lines=6)
                left.text(0, 0.5, said, va="center", fontsize=8, transform=left.transAxes)
            drawn = _ranks(figure.add_subplot(grid[2 * number + 1, 1]), panel)
        legend_below(figure, dict(zip(ROLES, drawn, strict=True)))
        told = [
            f"{panel[0]['caption']}: {r['model']} gives the {r['role']} {score(r['score'])}"
            for panel in panels
            for r in panel
        ]
        return with_pictures(svg_of(figure, title, told), figure, placed)


def _text(panel: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in panel[: len(ROLES)]:
        lines += textwrap.wrap(f"{row['role']}: {row['caption']}", _WRAPPED, max_lines=2)
    return "\n".join(lines)


def _ranks(axes: Any, panel: Sequence[dict[str, Any]]) -> list[Any]:
    """A line for each caption from model to model, its scores beside its points."""
    models = list(dict.fromkeys(row["model"] for row in panel))
    drawn = []
    for role, (marker, colour, style) in zip(ROLES, _SAMPLE_STYLES, strict=True):
        mine = [row for row in panel if row["role"] == role]
        ranks = [row["rank"] for row in mine]
        places = range(len(models))
        drawn += axes.plot(
            places, ranks, marker=marker, color=colour, linestyle=style, linewidth=1.4
        )
        for place, row in zip(places, mine, strict=True):
            axes.annotate(
                f"{row['score']:#.4g}",
                (place, row["rank"]),
                (0, 6),
                textcoords="offset points",
                ha="center",
                fontsize=8,
            )
    kinds = (panel[0]["first_model"], "brittle", "right")
    names = [f"{short_name(m, 16)}\n{kind}" for m, kind in zip(models, kinds, strict=True)]
    axes.set_xticks(range(len(models)), names, fontsize=8)
    axes.set_xlim(-0.4, len(models) - 0.6)
    axes.set_yticks([])
    axes.set_ylim(len(ROLES) + 0.4, 0.3)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    return drawn
