"""Values with their intervals: original against augmented accuracy, groups, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from typing import Any, Final

from counterpoint.metrics import (
    ALL,
    METRICS,
    PART_MARK,
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
