"""Retrieval with shuffled captions or shuffled images: how much of it needs any order.

Figure 2 of ARO (Yuksekgonul et al. 2023), from parts as `retrieval/coco:captions=all`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Any, Final, NamedTuple

from counterpoint.benchmarks import SHUFFLES
from counterpoint.images import PIECES
from counterpoint.metrics import ALL, SEED, heading
from counterpoint.reports.data import ReportData
from counterpoint.reports.figures.drawing import (
    Data,
    Drawn,
    Look,
    Made,
    Omitted,
    canvas,
    legend_below,
    looks,
    marks_caption,
    model_dots,
    name_rows,
    svg_of,
)
from counterpoint.reports.ranking import RankedRow

TITLE: Final = "Shuffled retrieval"
_PLAIN: Final = "plain"
_KINDS: Final = {"captions": tuple(SHUFFLES), "images": tuple(PIECES)}
_DRAWN: Final = ("image_to_text_recall@1", "text_to_image_recall@1")
_METRICS: Final = (*_DRAWN, "image_to_text_recall@5", "text_to_image_recall@5")
_COLUMNS: Final = (
    *("shuffled", "how", "metric", "model", "value", "low", "high", "lost"),
    *("seeds", "sd_over_seeds"),
)


class Shuffle(NamedTuple):
    """What is shuffled ("captions", "images", or nothing) and how."""

    shuffled: str
    how: str


_Found = dict[tuple[Shuffle, str, str], list[RankedRow]]  # then by metric and model


def shuffles(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each retrieval benchmark that some model was evaluated on in both forms."""
    by_name: dict[str, _Found] = defaultdict(lambda: defaultdict(list))
    for number in numbers:
        name, shuffle = shuffle_of(number.benchmark)
        mine = number.group == ALL or number.group.startswith(SEED)
        if shuffle is not None and mine and number.metric in _METRICS:
            by_name[name][shuffle, number.metric, number.model].append(number)
    shuffled = {name: f for name, f in by_name.items() if any(s.how != _PLAIN for s, _, _ in f)}
    if not shuffled:
        example = "retrieval/coco:captions=all"
        return [Omitted(TITLE, f"these runs have no shuffled retrieval, such as {example}.")]
    return [_made(material, name, found) for name, found in shuffled.items()]


def shuffle_of(benchmark: str) -> tuple[str, Shuffle | None]:
    """The name of a benchmark, and its shuffle: None if captions and images are both shuffled."""
    name, _, options = benchmark.partition(":")
    chosen = dict(option.partition("=")[::2] for option in options.split(","))
    kinds = [Shuffle(k, how) for k in _KINDS if (how := chosen.get(k, _PLAIN)) != _PLAIN]
    if len(kinds) > 1:
        return name, None
    return name, kinds[0] if kinds else Shuffle("", _PLAIN)


def is_shuffled(benchmark: str) -> bool:
    """Figures of all benchmarks leave these out: they are the same gallery eight times more."""
    return shuffle_of(benchmark)[1] != Shuffle("", _PLAIN)


def _made(material: ReportData, name: str, found: _Found) -> Made:
    plain = {model for shuffle, _, model in found if shuffle.how == _PLAIN}
    both = {model for shuffle, _, model in found if shuffle.how != _PLAIN} & plain
    title = f"{TITLE}, {name}"
    if not both:
        return Omitted(title, f"no run has {name} both shuffled and as it is.")
    models = [label for label in material.labels if label in both]
    drawn = [n for (_, _, model), rows in found.items() if model in both for n in rows]
    data = Data(_COLUMNS, _lines(found, models))
    here = {(row["shuffled"], row["how"]) for row in data.named()}
    missing = [f"{k}={how}" for k, hows in _KINDS.items() for how in hows if (k, how) not in here]
    rest = f" Not evaluated: {', '.join(missing)}." if missing else ""
    return Drawn(
        f"shuffled-{name}",
        title,
        "Recall@1 when the words of every caption are shuffled, or the pieces of every image (4 "
        "rows, 4 columns, 3 x 3 patches). What is left of the plain value needs no order. Whiskers "
        f"are 95% intervals; of several seeds, the mean is drawn.{rest}"
        f"{marks_caption(material, drawn)}",
        _svg(looks(material, drawn), data, models, title),
        data,
    )


def _lines(found: _Found, models: Sequence[str]) -> list[tuple[Any, ...]]:
    """Plain retrieval stands in both halves of the figure, first."""
    lines = []
    for shuffled, hows in _KINDS.items():
        if not any(shuffle.shuffled == shuffled for shuffle, _, _ in found):
            continue
        for shuffle in (Shuffle("", _PLAIN), *(Shuffle(shuffled, how) for how in hows)):
            for metric in _METRICS:
                for model in models:
                    rows = found.get((shuffle, metric, model))
                    plain = found.get((Shuffle("", _PLAIN), metric, model))
                    if not rows or not plain:
                        continue
                    value, low, high, *seeds = _over_seeds(rows)
                    ends = (value, low, high, _over_seeds(plain)[0] - value)
                    lines.append((shuffled, shuffle.how, metric, model, *ends, *seeds))
    return lines


def _over_seeds(rows: Sequence[RankedRow]) -> tuple[float, float, float, int, float | None]:
    """Mean and ends in per cent, the number of seeds, and the standard deviation over them.

    Seeds are parts of their own (`seed=2`), or groups of one part (`seeds=3`).
    """
    whole = [n for n in rows if n.group == ALL]
    single = [n for n in rows if n.group != ALL] or whole
    value, low, high = (
        100 * fmean(getattr(n, name) for n in whole) for name in ("value", "ci_low", "ci_high")
    )
    spread = 100 * stdev(n.value for n in single) if len(single) > 1 else None
    return value, low, high, len(single), spread


def _svg(look: dict[str, Look], data: Data, models: list[str], title: str) -> str:
    rows = [row for row in data.named() if row["metric"] in _DRAWN]
    kinds = list(dict.fromkeys(row["shuffled"] for row in rows))
    hows = {k: list(dict.fromkeys(r["how"] for r in rows if r["shuffled"] == k)) for k in kinds}
    sizes = [len(hows[kind]) for kind in kinds]
    height = sum(sizes) * max(0.26, 0.08 * len(models) + 0.1) + 0.5 * len(kinds) + 0.8
    with canvas(height, title) as figure:
        grid = figure.subplots(
            len(kinds),
            len(_DRAWN),
            squeeze=False,
            sharex="col",
            sharey="row",
            gridspec_kw={"height_ratios": sizes},
        )
        drawn: dict[str, Any] = {}
        for (i, kind), (j, metric) in ((a, b) for a in enumerate(kinds) for b in enumerate(_DRAWN)):
            axes, names = grid[i, j], hows[kind]
            mine = [r for r in rows if (r["shuffled"], r["metric"]) == (kind, metric)]
            places = [names.index(row["how"]) for row in mine]
            drawn = model_dots(axes, mine, places, {model: look[model] for model in models})
            name_rows(axes, names, lines=True)
            if j == 0:
                axes.set_title(f"{kind} shuffled", loc="left")
            if i == len(kinds) - 1:
                axes.set_xlabel(f"{heading(metric)} (%)")
        for axes in grid[-1]:
            axes.set_xlim(left=0)
        legend_below(figure, drawn, look)
        said = [
            f"{r['model']}, {r['shuffled']} {r['how']}: {heading(r['metric'])} {r['value']:.1f}"
            for r in rows
        ]
        return svg_of(figure, title, said)
