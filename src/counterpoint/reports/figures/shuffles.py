"""Retrieval with shuffled captions or shuffled images: how much of it needs any order.

Figure 2 of ARO (Yuksekgonul et al. 2023), from parts as `retrieval/coco:captions=all`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any, Final, NamedTuple

from counterpoint.benchmarks import SHUFFLES
from counterpoint.images import PIECES
from counterpoint.metrics import ALL, SEED, heading
from counterpoint.reports.data import ReportData
from counterpoint.reports.figures import drawing as draw
from counterpoint.reports.figures.drawing import Drawn, Look, Made, Omitted, Rows
from counterpoint.reports.ranking import RankedRow

TITLE: Final = "Shuffled retrieval"
_KINDS: Final = {"captions": tuple(SHUFFLES), "images": tuple(PIECES)}
_DRAWN: Final = ("image_to_text_recall@1", "text_to_image_recall@1")
_METRICS: Final = (*_DRAWN, "image_to_text_recall@5", "text_to_image_recall@5")


class Shuffle(NamedTuple):
    """What is shuffled ("captions", "images", or nothing) and how."""

    shuffled: str
    how: str


PLAIN: Final = Shuffle("", "plain")
_Found = dict[tuple[Shuffle, str, str], list[RankedRow]]  # then by metric and model


def shuffles(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each retrieval benchmark that some model was evaluated on in both forms."""
    by_name: dict[str, _Found] = defaultdict(lambda: defaultdict(list))
    for number in numbers:
        name, shuffle = shuffle_of(number.benchmark)
        mine = number.group == ALL or number.group.startswith(SEED)
        if shuffle is not None and mine and number.metric in _METRICS:
            by_name[name][shuffle, number.metric, number.model].append(number)
    shuffled = {name: f for name, f in by_name.items() if any(key[0] != PLAIN for key in f)}
    if not shuffled:
        example = "retrieval/coco:captions=all"
        return [Omitted(TITLE, f"these runs have no shuffled retrieval, such as {example}.")]
    return [_figure(material, name, found) for name, found in shuffled.items()]


def shuffle_of(benchmark: str) -> tuple[str, Shuffle | None]:
    """The name of a benchmark, and its shuffle: None if captions and images are both shuffled."""
    name, _, options = benchmark.partition(":")
    chosen = dict(option.partition("=")[::2] for option in options.split(","))
    kinds = [Shuffle(k, how) for k in _KINDS if (how := chosen.get(k, PLAIN.how)) != PLAIN.how]
    return name, None if len(kinds) > 1 else kinds[0] if kinds else PLAIN


def is_shuffled(benchmark: str) -> bool:
    """Figures of all benchmarks leave these out: they are the same gallery eight times more."""
    return shuffle_of(benchmark)[1] != PLAIN


def _figure(material: ReportData, name: str, found: _Found) -> Made:
    plain = {model for shuffle, _, model in found if shuffle == PLAIN}
    both = {model for shuffle, _, model in found if shuffle != PLAIN} & plain
    title = f"{TITLE}, {name}"
    if not both:
        return Omitted(title, f"no run has {name} both shuffled and as it is.")
    models = [label for label in material.labels if label in both]
    drawn = [n for (_, _, model), mine in found.items() if model in both for n in mine]
    rows = _rows(found, models)
    here = {(row["shuffled"], row["how"]) for row in rows}
    missing = [f"{k}={how}" for k, hows in _KINDS.items() for how in hows if (k, how) not in here]
    rest = f" Not evaluated: {', '.join(missing)}." if missing else ""
    looks = draw.looks(material, drawn)
    return Drawn(
        f"shuffled-{name}",
        title,
        "Recall@1 when the words of every caption are shuffled, or the pieces of every image (4 "
        "rows, 4 columns, 3 x 3 patches). What is left of the plain value needs no order. Whiskers "
        f"are 95% intervals; of several seeds, the mean is drawn.{rest}"
        f"{draw.marks_caption(material, drawn)}",
        _svg({model: looks[model] for model in models}, looks, rows, title),
        rows,
    )


def _rows(found: _Found, models: Sequence[str]) -> Rows:
    """Plain retrieval stands in both halves of the figure, first."""
    rows: Rows = []
    present = {shuffle.shuffled for shuffle, _, _ in found}
    for shuffled in filter(present.__contains__, _KINDS):
        shuffles = (PLAIN, *(Shuffle(shuffled, how) for how in _KINDS[shuffled]))
        for shuffle, metric, model in product(shuffles, _METRICS, models):
            mine, plain = found.get((shuffle, metric, model)), found.get((PLAIN, metric, model))
            if mine and plain:
                about = {"shuffled": shuffled, "how": shuffle.how, "metric": metric, "model": model}
                values = _over_seeds(mine)
                lost = _over_seeds(plain)["value"] - values["value"]
                seeds = {name: values.pop(name) for name in ("seeds", "sd_over_seeds")}
                rows.append({**about, **values, "lost": lost, **seeds})
    return rows


def _over_seeds(rows: Sequence[RankedRow]) -> dict[str, Any]:
    """Mean and ends in per cent, the number of seeds, and the standard deviation over them.

    Seeds are parts of their own (`seed=2`), or groups of one part (`seeds=3`).
    """
    whole = [n for n in rows if n.group == ALL]
    single = [n for n in rows if n.group != ALL] or whole
    names = {"value": "value", "low": "ci_low", "high": "ci_high"}
    means = {name: 100 * fmean(getattr(n, field) for n in whole) for name, field in names.items()}
    spread = 100 * stdev(n.value for n in single) if len(single) > 1 else None
    return {**means, "seeds": len(single), "sd_over_seeds": spread}


def _svg(shown: dict[str, Look], looks: dict[str, Look], rows: Rows, title: str) -> str:
    rows = [row for row in rows if row["metric"] in _DRAWN]
    hows: dict[str, list[str]] = {}
    for kind, how in dict.fromkeys((row["shuffled"], row["how"]) for row in rows):
        hows.setdefault(kind, []).append(how)
    sizes = [len(several) for several in hows.values()]
    height = sum(sizes) * max(0.26, 0.08 * len(shown) + 0.1) + 0.5 * len(hows) + 0.8
    with draw.canvas(height, title) as figure:
        share: Any = {"sharex": "col", "sharey": "row", "gridspec_kw": {"height_ratios": sizes}}
        grid = figure.subplots(len(hows), len(_DRAWN), squeeze=False, **share)
        drawn: dict[str, Any] = {}
        for (i, (kind, names)), (j, metric) in product(enumerate(hows.items()), enumerate(_DRAWN)):
            axes = grid[i, j]
            mine = [r for r in rows if (r["shuffled"], r["metric"]) == (kind, metric)]
            drawn = draw.model_dots(axes, mine, [names.index(r["how"]) for r in mine], shown)
            draw.name_rows(axes, names, lines=True)
            if j == 0:
                axes.set_title(f"{kind} shuffled", loc="left")
            if i == len(hows) - 1:
                axes.set_xlabel(f"{heading(metric)} (%)")
        for axes in grid[-1]:
            axes.set_xlim(left=0)
        draw.legend_below(figure, drawn, looks)
        told = [
            f"{r['model']}, {r['shuffled']} {r['how']}: {heading(r['metric'])} {r['value']:.1f}"
            for r in rows
        ]
        return draw.svg_of(figure, title, told)
