"""Values with their intervals: accuracies, groups, shuffled retrieval, and differences."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import product
from statistics import fmean, stdev
from typing import Any, Final, NamedTuple

from counterpoint.benchmarks import SHUFFLES
from counterpoint.images import PIECES
from counterpoint.metrics import (
    ALL,
    METRICS,
    PART_MARK,
    SEED,
    depends_on_ties,
    heading,
    headline,
    is_baseline,
)
from counterpoint.reports.data import ReportData, parts_of
from counterpoint.reports.figures import drawing as draw
from counterpoint.reports.figures.drawing import Drawn, Look, Made, Omitted, Rows
from counterpoint.reports.ranking import RankedRow, counts_text, short_name
from counterpoint.runs import Difference

DROP_TITLE: Final = "Original and augmented accuracy"
_PAIR: Final = ("original_accuracy", "augmented_accuracy")


def drop(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    whole = {(n.benchmark, n.model, n.metric): n for n in numbers if n.group == ALL}
    whole = {key: n for key, n in whole.items() if n.metric in _PAIR}
    parts = parts_of(material)
    rows: Rows = []
    for benchmark, model in product(material.benchmarks, material.labels):
        one, two = (whole.get((benchmark, model, metric)) for metric in _PAIR)
        if one is None or two is None:
            continue
        tied = depends_on_ties(one) or depends_on_ties(two)
        rows.append(
            {
                "benchmark": benchmark,
                "model": model,
                **draw.percents(one, "original_"),
                **draw.percents(two, "augmented_"),
                "drop": 100 * (one.value - two.value),
                "chance_augmented": draw.chance_of(two),
                "hangs_on_ties": "yes" if tied else "no",
                "part": "yes" if (model, benchmark) in parts else "no",
            }
        )
    if not rows:
        why = "no benchmark of these runs has positives beside its originals."
        return [Omitted(DROP_TITLE, why)]
    baselines = {label for label, run in material.runs.items() if is_baseline(run.model)}
    return [
        Drawn(
            "original-and-augmented",
            DROP_TITLE,
            "The bar is the drop: cases in which the original is above every negative and some "
            "other true caption is not. Whiskers are 95% intervals, the dotted line is the chance "
            f"level of augmented accuracy.{draw.marks_caption(material, [*whole.values()])}",
            _drop_svg(rows, baselines),
            rows,
        )
    ]


def _drop_svg(rows: Rows, baselines: set[str]) -> str:
    panels: dict[str, Rows] = {}
    for row in rows:
        panels.setdefault(row["benchmark"], []).append(row)
    ratios = [len(mine) + 0.6 for mine in panels.values()]
    with draw.canvas(len(rows) * 0.27 + len(panels) * 0.55 + 0.75, DROP_TITLE) as figure:
        grid = figure.subplots(
            len(panels), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": ratios}
        )
        for axes, (name, mine) in zip(grid[:, 0], panels.items(), strict=True):
            _drop_panel(axes, mine, baselines)
            axes.set_title(short_name(name, 60), loc="left")
        grid[-1, 0].set_xlabel("per cent of cases")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        kinds = dict(zip(labels[::-1], handles[::-1], strict=True))  # the first: not a baseline's
        figure.legend(kinds.values(), kinds.keys(), loc="outside upper center", ncols=3)
        told = [
            f"{row['benchmark']}, {row['model']}: original {row['original_value']:.1f}, augmented "
            f"{row['augmented_value']:.1f}"
            for row in rows
        ]
        return draw.svg_of(figure, DROP_TITLE, told)


def _drop_panel(axes: Any, rows: Rows, baselines: set[str]) -> None:
    left = [min(row["original_value"], row["augmented_value"]) for row in rows]
    width = [abs(row["drop"]) for row in rows]
    bar = {"height": 0.5, "color": draw.GREY, "alpha": 0.35, "label": "drop"}
    axes.barh(list(range(len(rows))), width, left=left, **bar)
    kinds = (("augmented", draw.COLOURS[1], "s"), ("original", draw.COLOURS[0], "o"))
    for (kind, colour, marker), (place, row) in product(kinds, enumerate(rows)):
        mine = draw.GREY if row["model"] in baselines else colour
        draw.dots(axes, [row], [place], marker, mine, prefix=f"{kind}_", size=5, label=kind)
    chance = next((row["chance_augmented"] for row in rows if row["chance_augmented"]), None)
    if chance is not None:
        axes.axvline(chance, color=draw.INK, linewidth=0.8, linestyle=":")
    marks = [(row["model"], row["hangs_on_ties"] == "yes", row["part"] == "yes") for row in rows]
    draw.name_rows(axes, [draw.named(*one, draw.NAME) for one in marks])
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(draw.GREY if row["model"] in baselines else draw.INK)
    axes.set_xlim(0, 100)


# --- by group ---------------------------------------------------------------------------------


FOREST_TITLE: Final = "By group"
_GROUPS: Final = 20  # drawn; the CSV has them all


def forest(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each benchmark that has groups."""
    made: list[Made] = []
    for benchmark in material.benchmarks:
        mine = [n for n in numbers if n.benchmark == benchmark]
        metric = headline(n.metric for n in mine)
        chosen = [n for n in mine if n.metric == metric]
        if metric is not None and any(n.group != ALL for n in chosen):
            made.append(_forest_of(material, benchmark, metric, chosen))
    return made or [Omitted(FOREST_TITLE, "the cases of these runs have no groups.")]


def _forest_of(material: ReportData, benchmark: str, metric: str, chosen: list[RankedRow]) -> Drawn:
    rows = [
        {
            "group": number.group,
            "model": number.model,
            **draw.percents(number),
            "n": number.n,
            "chance": draw.chance_of(number),
        }
        for number in chosen
    ]
    counts: dict[str, list[int]] = {}
    for number in chosen:
        counts.setdefault(number.group, []).append(number.n)
    largest = sorted((g for g in counts if g != ALL), key=lambda g: -max(counts[g]))[:_GROUPS]
    shown = [ALL, *sorted(largest)]
    part = PART_MARK if any(place[1] == benchmark for place in parts_of(material)) else ""
    names = {g: f"{short_name(g, draw.NAME)} ({counts_text(counts[g])}{part})" for g in shown}
    hidden = len(counts) - len(shown)
    rest = f" The {hidden:,} smaller groups are in the CSV." if hidden > 0 else ""
    title = f"By group: {heading(metric)}, {benchmark}"
    return Drawn(
        f"by-group-{benchmark}",
        title,
        "Whiskers are 95% intervals (bootstrap over source images), the short dotted line is "
        f"chance. The number of cases stands behind each group.{rest}"
        f"{draw.marks_caption(material, chosen)}",
        _forest_svg(draw.looks(material, chosen), rows, names, title, metric),
        rows,
    )


def _forest_svg(
    looks: dict[str, Look], rows: Rows, groups: dict[str, str], title: str, metric: str
) -> str:
    """`groups` have the name of each that is drawn, from top to bottom."""
    present = {row["model"] for row in rows}
    models = {label: look for label, look in looks.items() if label in present}
    shown = list(groups)
    height = len(shown) * max(0.28, 0.09 * len(models) + 0.1) + 0.2 * (len(models) / 3) + 0.8
    with draw.canvas(height, title) as figure:
        axes = figure.subplots()
        mine = [row for row in rows if row["group"] in groups]
        places = [shown.index(row["group"]) for row in mine]
        drawn = draw.model_dots(axes, mine, places, models)
        for place, group in enumerate(shown):
            chances = [r["chance"] for r in rows if r["group"] == group and r["chance"] is not None]
            if chances:
                ends = (place - 0.45, place + 0.45)
                axes.vlines(chances[0], *ends, color=draw.INK, linewidth=1, linestyle=":")
        draw.name_rows(axes, list(groups.values()), lines=True)
        axes.set_xlabel(f"{heading(metric)} (%)")
        draw.legend_below(figure, drawn, looks)
        told = [f"{r['model']} {r['value']:.1f}" for r in rows if r["group"] == ALL]
        return draw.svg_of(figure, title, told)


# --- retrieval with shuffled captions or images: how much of it needs any order ---------------
#
# Figure 2 of ARO (Yuksekgonul et al. 2023), from parts as `retrieval/coco:captions=all`.


SHUFFLED_TITLE: Final = "Shuffled retrieval"
_SHUFFLES: Final = {"captions": tuple(SHUFFLES), "images": tuple(PIECES)}
_RECALLS: Final = ("image_to_text_recall@1", "text_to_image_recall@1")
_SHUFFLED_METRICS: Final = (*_RECALLS, "image_to_text_recall@5", "text_to_image_recall@5")


class Shuffle(NamedTuple):
    """What is shuffled ("captions", "images", or nothing) and how."""

    shuffled: str
    how: str


PLAIN: Final = Shuffle("", "plain")
_ByShuffle = dict[tuple[Shuffle, str, str], list[RankedRow]]  # then by metric and model


def shuffles(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each retrieval benchmark that some model was evaluated on in both forms."""
    by_name: dict[str, _ByShuffle] = defaultdict(lambda: defaultdict(list))
    for number in numbers:
        name, shuffle = shuffle_of(number.benchmark)
        mine = number.group == ALL or number.group.startswith(SEED)
        if shuffle is not None and mine and number.metric in _SHUFFLED_METRICS:
            by_name[name][shuffle, number.metric, number.model].append(number)
    shuffled = {name: f for name, f in by_name.items() if any(key[0] != PLAIN for key in f)}
    if not shuffled:
        example = "retrieval/coco:captions=all"
        return [
            Omitted(SHUFFLED_TITLE, f"these runs have no shuffled retrieval, such as {example}.")
        ]
    return [_shuffled_of(material, name, found) for name, found in shuffled.items()]


def shuffle_of(benchmark: str) -> tuple[str, Shuffle | None]:
    """The name of a benchmark, and its shuffle: None if captions and images are both shuffled."""
    name, _, options = benchmark.partition(":")
    chosen = dict(option.partition("=")[::2] for option in options.split(","))
    kinds = [Shuffle(k, how) for k in _SHUFFLES if (how := chosen.get(k, PLAIN.how)) != PLAIN.how]
    return name, None if len(kinds) > 1 else kinds[0] if kinds else PLAIN


def is_shuffled(benchmark: str) -> bool:
    """Figures of all benchmarks leave these out: they are the same gallery eight times more."""
    return shuffle_of(benchmark)[1] != PLAIN


def _shuffled_of(material: ReportData, name: str, found: _ByShuffle) -> Made:
    plain = {model for shuffle, _, model in found if shuffle == PLAIN}
    both = {model for shuffle, _, model in found if shuffle != PLAIN} & plain
    title = f"{SHUFFLED_TITLE}, {name}"
    if not both:
        return Omitted(title, f"no run has {name} both shuffled and as it is.")
    models = [label for label in material.labels if label in both]
    drawn = [n for (_, _, model), mine in found.items() if model in both for n in mine]
    rows = _shuffled_rows(found, models)
    here = {(row["shuffled"], row["how"]) for row in rows}
    missing = [
        f"{k}={how}" for k, hows in _SHUFFLES.items() for how in hows if (k, how) not in here
    ]
    rest = f" Not evaluated: {', '.join(missing)}." if missing else ""
    looks = draw.looks(material, drawn)
    return Drawn(
        f"shuffled-{name}",
        title,
        "Recall@1 when the words of every caption are shuffled, or the pieces of every image (4 "
        "rows, 4 columns, 3 x 3 patches). What is left of the plain value needs no order. Whiskers "
        f"are 95% intervals; of several seeds, the mean is drawn.{rest}"
        f"{draw.marks_caption(material, drawn)}",
        _shuffled_svg({model: looks[model] for model in models}, looks, rows, title),
        rows,
    )


def _shuffled_rows(found: _ByShuffle, models: Sequence[str]) -> Rows:
    """Plain retrieval stands in both halves of the figure, first."""
    rows: Rows = []
    present = {shuffle.shuffled for shuffle, _, _ in found}
    for shuffled in filter(present.__contains__, _SHUFFLES):
        shuffles = (PLAIN, *(Shuffle(shuffled, how) for how in _SHUFFLES[shuffled]))
        for shuffle, metric, model in product(shuffles, _SHUFFLED_METRICS, models):
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


def _shuffled_svg(shown: dict[str, Look], looks: dict[str, Look], rows: Rows, title: str) -> str:
    rows = [row for row in rows if row["metric"] in _RECALLS]
    hows: dict[str, list[str]] = {}
    for kind, how in dict.fromkeys((row["shuffled"], row["how"]) for row in rows):
        hows.setdefault(kind, []).append(how)
    sizes = [len(several) for several in hows.values()]
    height = sum(sizes) * max(0.26, 0.08 * len(shown) + 0.1) + 0.5 * len(hows) + 0.8
    with draw.canvas(height, title) as figure:
        share: Any = {"sharex": "col", "sharey": "row", "gridspec_kw": {"height_ratios": sizes}}
        grid = figure.subplots(len(hows), len(_RECALLS), squeeze=False, **share)
        drawn: dict[str, Any] = {}
        for (i, (kind, names)), (j, metric) in product(
            enumerate(hows.items()), enumerate(_RECALLS)
        ):
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


# --- two runs ------------------------------------------------------------------------------------


_GAPS: Final = 40  # drawn
_VERDICTS: Final = {"A is better": (draw.COLOURS[0], "o"), "B is better": (draw.COLOURS[1], "s")}


def difference_rows(differences: Sequence[Difference]) -> Rows:
    """All differences, in points and per cent where they are shares."""
    rows: Rows = []
    for d in differences:
        scale = 100 if METRICS[d.metric].unit == "share" else 1
        values = {"a": d.a, "b": d.b, "value": d.difference, "low": d.ci_low, "high": d.ci_high}
        tested = ("p", "p_holm", "p_mcnemar", "n", "verdict", "ties_a", "ties_b")
        rows.append(
            {name: getattr(d, name) for name in ("benchmark", "group", "metric")}
            | {name: scale * value for name, value in values.items()}
            | {name: getattr(d, name) for name in tested}
        )
    return rows


def gaps(differences: Sequence[Difference], names: tuple[str, str]) -> list[Drawn]:
    """A forest of differences for each benchmark: A minus B in the main metric, by group."""
    made = []
    for benchmark in dict.fromkeys(d.benchmark for d in differences):
        mine = [d for d in differences if d.benchmark == benchmark]
        metric = headline(d.metric for d in mine)
        if metric is None:
            continue
        chosen = [d for d in mine if d.metric == metric]
        rows = difference_rows(sorted(chosen, key=lambda d: (d.group != ALL, d.group)))
        title = f"Difference in {heading(metric)}, {benchmark}"
        made.append(
            Drawn(
                f"difference-{benchmark}",
                title,
                f"A = {names[0]}, B = {names[1]}. Whiskers are 95% intervals, each for itself; "
                "a point is filled where p, Holm-corrected over the groups, shows a difference.",
                _gaps_svg(rows[:_GAPS], title),
                rows,
            )
        )
    return made


def _gaps_svg(rows: Rows, title: str) -> str:
    with draw.canvas(0.27 * len(rows) + 0.8, title) as figure:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            colour, marker = _VERDICTS.get(row["verdict"], (draw.GREY, "D"))
            inside = "none" if colour == draw.GREY else colour
            style: Any = {"size": 5, "line": 1.2, "markerfacecolor": inside}
            draw.dots(axes, [row], [place], marker, colour, **style)
        axes.axvline(0, color=draw.INK, linewidth=0.9)
        names = [f"{short_name(row['group'], draw.NAME)} ({row['n']:,})" for row in rows]
        draw.name_rows(axes, names)
        widest = max(abs(row[end]) for row in rows for end in ("low", "high")) * 1.1 or 1
        axes.set_xlim(-widest, widest)
        axes.set_xlabel("← B is higher  ·  A - B in points  ·  A is higher →")
        told = [f"{row['group']} {row['value']:+.1f}, {row['verdict']}" for row in rows]
        return draw.svg_of(figure, title, told)
