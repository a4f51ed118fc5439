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
    threes_of,
)
from counterpoint.reports.data import ReportData, ScoredPart, without_folders
from counterpoint.reports.examples import Album, Thumbnail, caption_text
from counterpoint.reports.figures import drawing as draw
from counterpoint.reports.figures.drawing import COLOURS, Drawn, Made, Omitted, Rows
from counterpoint.reports.ranking import RankedRow, is_human, one_line, score, short_name
from counterpoint.runs import Part

DENSITIES_TITLE: Final = "Scores"
_POINTS: Final = 96
_MODELS: Final = 12  # drawn of one benchmark; the CSV has them all
_LIKE: Final = 4.0  # scores whose spreads differ by more are not on one axis
_STYLES: Final = {  # by kind of caption: marker, colour, line
    "original": ("o", COLOURS[0], "-"),
    "positive": ("D", COLOURS[2], "--"),
    "negative": ("s", COLOURS[1], "-."),
}
Scores = dict[str, dict[str, np.ndarray]]  # by model and kind of caption


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
    found: dict[str, list[np.ndarray]] = {kind: [] for kind in _STYLES}
    for block in part.cases.blocks():
        if block.texts or block.questions or is_gallery(*block.truth.shape[1:]):
            continue
        scores = part.cases.scores_of(block, part.scores)
        first = block.truth & (block.truth.cumsum(axis=2) == 1)
        masks = (first, block.truth & ~first, ~block.truth)
        for kind, mask in zip(_STYLES, masks, strict=True):
            found[kind].append(scores[mask])
    joined = {kind: np.concatenate(several) for kind, several in found.items() if several}
    finite = {kind: values[np.isfinite(values)] for kind, values in joined.items()}
    return {kind: values for kind, values in finite.items() if len(values)}


def _densities_of(benchmark: str, several: list[ScoredPart], scores: Scores) -> Drawn:
    baselines = {s.label for s in several if is_baseline(s.run.model)}
    limits = _limits(scores, baselines)
    rows = [row for label in scores for row in _density_rows(label, scores[label], limits[label])]
    models = [label for label in scores if label not in baselines] or list(scores)
    hidden = len(scores) - len(models[:_MODELS])
    rest = f" Baselines and further models ({hidden}) are in the CSV." if hidden else ""
    title = f"Scores, {benchmark}"
    return Drawn(
        f"scores-{benchmark}",
        title,
        "Density of the scores of originals, other positives and negatives; the ticks below are "
        f"their means. Models whose scores lie in one range share the axis.{rest}",
        _density_svg(rows, models[:_MODELS], title),
        rows,
    )


def _limits(scores: Scores, baselines: set[str]) -> dict[str, list[float]]:
    """The range to draw of each model, the same for models whose scores are alike.

    Baselines have ranges of their own: theirs are no similarities.
    """
    shared: list[list[float]] = []
    mine: dict[str, list[float]] = {}
    for label, kinds in scores.items():
        values = np.concatenate(list(kinds.values()))
        low, high = (float(v) for v in np.quantile(values, [0.002, 0.998]))
        pad = 0.06 * (high - low) or 0.5
        low, high = low - pad, high + pad
        for limits in [] if label in baselines else shared:
            width = limits[1] - limits[0]
            gap = max(low - limits[1], limits[0] - high)
            if gap < max(width, high - low) and 1 / _LIKE < (high - low) / width < _LIKE:
                limits[:] = [min(low, limits[0]), max(high, limits[1])]
                mine[label] = limits
                break
        else:
            mine[label] = [low, high]
            if label not in baselines:
                shared.append(mine[label])
    return mine


def _density_rows(
    label: str, kinds: dict[str, np.ndarray], limits: Sequence[float]
) -> Iterator[dict[str, Any]]:
    for kind, values in kinds.items():
        mean, pairs = _rounded(values.mean(dtype=float)), len(values)
        about = {"model": label, "kind": kind}
        for place, density in zip(*density_of(values, (limits[0], limits[1])), strict=True):
            point = {"score": _rounded(place), "density": _rounded(density)}
            yield {**about, **point, "mean": mean, "pairs": pairs}


def _rounded(value: float) -> float:
    """Six digits: a curve needs no more, and it has hundreds of points."""
    return float(f"{value:.6g}")


def density_of(values: np.ndarray, limits: tuple[float, float]) -> tuple[np.ndarray, np.ndarray]:
    """A histogram smoothed by a normal kernel of Silverman's width."""
    counts, edges = np.histogram(values, bins=8 * _POINTS, range=limits)
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


def _density_svg(rows: Rows, models: list[str], title: str) -> str:
    down, across = draw.grid_of(len(models))
    with draw.canvas(1.75 * down + 0.5, title) as figure:
        drawn: dict[str, Any] = {}
        for axes, model in zip(draw.panels(figure, len(models)), models, strict=True):
            for kind, (_, colour, style) in _STYLES.items():
                curve = [row for row in rows if (row["model"], row["kind"]) == (model, kind)]
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
        draw.legend_below(figure, {kind: drawn[kind] for kind in _STYLES if kind in drawn})
        means = {(r["model"], r["kind"]): r["mean"] for r in rows if r["model"] in models}
        told = [f"{model}: mean of {kind}s {mean:.3g}" for (model, kind), mean in means.items()]
        return draw.svg_of(figure, title, told)


# --- sample predictions: one image, its three captions, and how three models rank them --------


SAMPLES_TITLE: Final = "Sample predictions"
_EACH: Final = 2  # cases of a kind
_WRAPPED: Final = 70  # characters of a line


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
        trio = best_trio(found, kept)
        if trio.total:
            made.append(_samples_of(benchmark, found, kept, trio, album))
        else:
            why = f"on {benchmark} no case is brittle for a model and right for one given after it."
    return made or [Omitted(SAMPLES_TITLE, why)]


def _samples_of(benchmark: str, found: Outcomes, kept: Threes, trio: Trio, album: Album) -> Drawn:
    first, second, third = (one_line(found.runs[number].label) for number in trio.runs)
    chance = np.random.default_rng(0).permutation(len(kept.cases))
    chosen = [
        Sample(kind, int(kept.cases[i]), kept.places[i].tolist())
        for kind, cases in trio.cases.items()
        for i in cases[np.argsort(chance[cases])][:_EACH]
    ]
    rows = [row for sample in chosen for row in _sample_rows(found, sample, trio)]
    images = [found.cases.case(sample.case).images[0] for sample in chosen]
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
        _sample_svg(rows, title, [album.picture(image, found.cases.root) for image in images]),
        rows,
    )


def _sample_rows(found: Outcomes, sample: Sample, trio: Trio) -> Iterator[dict[str, Any]]:
    case = found.cases.case(sample.case)
    for number in trio.runs:
        run = found.runs[number]
        start = int(run.part.cases.pair_offsets[found.rows[sample.case, number]])
        values = [float(run.part.scores[start + place]) for place in sample.places]
        order = sorted(range(len(values)), key=lambda role: -values[role])
        for place, role in enumerate(ROLES):
            yield {
                "first_model": sample.kind,
                "case": without_folders(case.id),
                "model": run.label,
                "role": role,
                "caption": one_line(caption_text(case.captions[sample.places[place]])),
                "score": values[place],
                "rank": order.index(place) + 1,
            }


def _sample_svg(rows: Rows, title: str, pictures: Sequence[Thumbnail]) -> str:
    size = TRIO * len(ROLES)
    panels = [rows[start : start + size] for start in range(0, len(rows), size)]
    texts = ["\n".join(_wrapped(panel)) for panel in panels]
    heights = [height for text in texts for height in (0.17 * len(text.splitlines()), 1.3)]
    with draw.canvas(sum(heights) + 0.16 * len(heights) + 0.4, title) as figure:
        grid = figure.add_gridspec(len(heights), 2, height_ratios=heights, width_ratios=(1, 2.3))
        drawn: list[Any] = []
        placed = []
        for number, (panel, picture) in enumerate(zip(panels, pictures, strict=True)):
            words = figure.add_subplot(grid[2 * number, :])
            left = figure.add_subplot(grid[2 * number + 1, 0])
            _write(words, texts[number], 8.5)
            if picture.uri:
                left.set_axis_off()
                placed.append((left, picture.uri, picture.small))
            else:
                _write(left, textwrap.fill(picture.text or picture.why, 22, max_lines=6), 8)
            drawn = _ranks(figure.add_subplot(grid[2 * number + 1, 1]), panel)
        draw.legend_below(figure, dict(zip(ROLES, drawn, strict=True)))
        told = [
            f"{panel[0]['caption']}: {r['model']} gives the {r['role']} {score(r['score'])}"
            for panel in panels
            for r in panel
        ]
        return draw.with_pictures(draw.svg_of(figure, title, told), figure, placed)


def _wrapped(panel: Rows) -> Iterator[str]:
    """The captions, each in at most two lines."""
    for row in panel[: len(ROLES)]:
        yield from textwrap.wrap(f"{row['role']}: {row['caption']}", _WRAPPED, max_lines=2)


def _write(axes: Any, text: str, size: float) -> None:
    """A text where there is no diagram."""
    axes.set_axis_off()
    axes.text(0, 0.5, text, va="center", fontsize=size, transform=axes.transAxes)


def _ranks(axes: Any, panel: Rows) -> list[Any]:
    """A line for each caption from model to model, its scores beside its points."""
    models = list(dict.fromkeys(row["model"] for row in panel))
    drawn = []
    for role in ROLES:
        mine = [row for row in panel if row["role"] == role]
        marker, colour, style = _STYLES[role]
        lines = {"marker": marker, "color": colour, "linestyle": style, "linewidth": 1.4}
        drawn += axes.plot(range(len(models)), [row["rank"] for row in mine], **lines)
        above = {"textcoords": "offset points", "ha": "center", "fontsize": 8}
        for place, row in enumerate(mine):
            axes.annotate(f"{row['score']:#.4g}", (place, row["rank"]), (0, 6), **above)
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
