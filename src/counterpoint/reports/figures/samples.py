"""Sample predictions: one image, its three captions, and how three models rank them.

Figures 1 and 3 of the hard positives paper (Kamath et al. 2024): tuning on hard negatives may put
the original above the negative and leave the positive below it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint.metrics import is_baseline
from counterpoint.reports.choosing import (
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
from counterpoint.reports.figures.drawing import (
    COLOURS,
    Data,
    Drawn,
    Made,
    Omitted,
    alternative,
    bare,
    canvas,
    legend_below,
    svg_of,
    with_pictures,
)
from counterpoint.reports.gathering import ReportData, ScoredPart, without_folders
from counterpoint.reports.numbers import is_human, one_line, score, shortened
from counterpoint.reports.showing import Album, Thumbnail, caption_text

TITLE: Final = "Sample predictions"
_EACH: Final = 2  # cases of a kind
_WRAPPED: Final = 70  # characters of a line
_STYLES: Final = (("o", COLOURS[0], "-"), ("s", COLOURS[1], "-."), ("D", COLOURS[2], "--"))
_COLUMNS: Final = ("first_model", "case", "model", "role", "caption", "score", "rank")


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
            made.append(_drawn(benchmark, found, kept, trio, album))
        else:
            why = f"on {benchmark} no case is brittle for a model and right for one given after it."
    return made or [Omitted(TITLE, why)]


# --- the figure ---------------------------------------------------------------------------------


def _drawn(benchmark: str, found: Outcomes, kept: Threes, trio: Trio, album: Album) -> Drawn:
    runs = [found.runs[number] for number in trio.runs]
    first, second, third = (one_line(run.label) for run in runs)
    chance = np.random.default_rng(0).permutation(len(kept.cases))
    chosen = [
        Sample(kind, int(kept.cases[i]), kept.places[i].tolist())
        for kind, cases in trio.cases.items()
        for i in cases[np.argsort(chance[cases])][:_EACH]
    ]
    rows = [found.rows[:, number] for number in trio.runs]
    data = Data(_COLUMNS, [line for one in chosen for line in _lines(found, one, runs, rows)])
    counts = [f"{len(cases):,}" for cases in trio.cases.values()]
    title = f"{TITLE}, {benchmark}"
    return Drawn(
        f"samples-{benchmark}",
        title,
        "Three captions of an image with their scores, the highest on top: the negative should be "
        f"last. {second} puts it between original and positive, {third} puts it last. Of "
        f"{len(kept.cases):,} cases, this holds for {counts[0]} in which {first} puts it above the "
        f"original, and for {counts[1]} in which {first} puts it last. The cases are drawn by "
        "chance; the models are in the order of the runs.",
        _svg(data, title, [album.picture(*_image(found, one.case)) for one in chosen]),
        data,
    )


def _image(found: Outcomes, number: int) -> tuple[Any, Any]:
    return found.cases.case(number).images[0], found.cases.root


def _lines(
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


def _svg(data: Data, title: str, pictures: Sequence[Thumbnail]) -> str:
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
        legend_below(figure, drawn, ROLES)
        told = [
            f"{panel[0]['caption']}: {r['model']} gives the {r['role']} {score(r['score'])}"
            for panel in panels
            for r in panel
        ]
        svg = svg_of(figure, alternative(title, told))
        return with_pictures(svg, figure, placed)


def _text(panel: Sequence[dict[str, Any]]) -> str:
    lines = []
    for row in panel[: len(ROLES)]:
        lines += textwrap.wrap(f"{row['role']}: {row['caption']}", _WRAPPED, max_lines=2)
    return "\n".join(lines)


def _ranks(axes: Any, panel: Sequence[dict[str, Any]]) -> list[Any]:
    """A line for each caption from model to model, its scores beside its points."""
    models = list(dict.fromkeys(row["model"] for row in panel))
    drawn = []
    for role, (marker, colour, style) in zip(ROLES, _STYLES, strict=True):
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
    names = [f"{shortened(m, 16)}\n{kind}" for m, kind in zip(models, kinds, strict=True)]
    axes.set_xticks(range(len(models)), names, fontsize=8)
    axes.set_xlim(-0.4, len(models) - 0.6)
    axes.set_yticks([])
    axes.set_ylim(len(ROLES) + 0.4, 0.3)
    axes.grid(visible=False)
    axes.spines[["left", "bottom"]].set_visible(False)
    axes.tick_params(length=0)
    return drawn
