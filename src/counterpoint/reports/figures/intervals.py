"""Models with their intervals: original against augmented accuracy, and one row per group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from counterpoint.metrics import ALL, PART_MARK, depends_on_ties, heading, headline, is_baseline
from counterpoint.reports.data import ReportData, parts_of
from counterpoint.reports.figures.drawing import (
    COLOURS,
    GREY,
    INK,
    NAME,
    Data,
    Drawn,
    Look,
    Made,
    Omitted,
    canvas,
    dots,
    legend_below,
    looks,
    marks_caption,
    model_dots,
    name_rows,
    named,
    percents,
    svg_of,
)
from counterpoint.reports.ranking import RankedRow, counts_text, short_name

DROP_TITLE: Final = "Original and augmented accuracy"
_DROP_COLUMNS: Final = (
    *("benchmark", "model", "original_value", "original_low", "original_high"),
    *("augmented_value", "augmented_low", "augmented_high", "drop", "chance_augmented"),
    *("hangs_on_ties", "part"),
)


def drop(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    whole = [n for n in numbers if n.group == ALL and n.metric in _PAIR]
    data = _drop_data(material, whole)
    if not data.lines:
        why = "no benchmark of these runs has positives beside its originals."
        return [Omitted(DROP_TITLE, why)]
    return [
        Drawn(
            "original-and-augmented",
            DROP_TITLE,
            "The bar is the drop: cases in which the original is above every negative and some "
            "other true caption is not. Whiskers are 95% intervals, the dotted line is the chance "
            f"level of augmented accuracy.{marks_caption(material, whole)}",
            _drop_svg(
                data, {label for label, run in material.runs.items() if is_baseline(run.model)}
            ),
            data,
        )
    ]


_PAIR: Final = ("original_accuracy", "augmented_accuracy")


def _drop_data(material: ReportData, numbers: Sequence[RankedRow]) -> Data:
    known = {(n.benchmark, n.model, n.metric): n for n in numbers}
    parts, lines = parts_of(material), []
    for benchmark in material.benchmarks:
        for model in material.labels:
            one, two = (known.get((benchmark, model, metric)) for metric in _PAIR)
            if one is None or two is None:
                continue
            values = [*percents(one), *percents(two)]
            chance = None if two.chance is None else 100 * two.chance
            tied = "yes" if depends_on_ties(one) or depends_on_ties(two) else "no"
            part = "yes" if (model, benchmark) in parts else "no"
            drop = 100 * (one.value - two.value)
            lines.append((benchmark, model, *values, drop, chance, tied, part))
    return Data(_DROP_COLUMNS, lines)


def _drop_svg(data: Data, baselines: set[str]) -> str:
    rows = data.named()
    names = list(dict.fromkeys(row["benchmark"] for row in rows))
    counts = [sum(row["benchmark"] == name for row in rows) for name in names]
    height = sum(counts) * 0.27 + len(names) * 0.55 + 0.75
    with canvas(height, DROP_TITLE) as figure:
        ratios = [count + 0.6 for count in counts]
        grid = figure.subplots(
            len(names), 1, squeeze=False, sharex=True, gridspec_kw={"height_ratios": ratios}
        )
        for axes, name in zip(grid[:, 0], names, strict=True):
            _panel(axes, name, [row for row in rows if row["benchmark"] == name], baselines)
        grid[-1, 0].set_xlabel("per cent of cases")
        handles, labels = grid[0, 0].get_legend_handles_labels()
        kinds = dict(zip(labels[::-1], handles[::-1], strict=True))  # the first: not a baseline's
        figure.legend(kinds.values(), kinds.keys(), loc="outside upper center", ncols=3)
        said = [
            f"{row['benchmark']}, {row['model']}: original {row['original_value']:.1f}, augmented "
            f"{row['augmented_value']:.1f}"
            for row in rows
        ]
        return svg_of(figure, DROP_TITLE, said)


def _panel(axes: Any, name: str, rows: list[dict[str, Any]], baselines: set[str]) -> None:
    places = list(range(len(rows)))
    left = [min(row["original_value"], row["augmented_value"]) for row in rows]
    width = [abs(row["drop"]) for row in rows]
    axes.barh(places, width, left=left, height=0.5, color=GREY, alpha=0.35, label="drop")
    for kind, colour, marker in (("augmented", COLOURS[1], "s"), ("original", COLOURS[0], "o")):
        for place, row in enumerate(rows):
            mine = GREY if row["model"] in baselines else colour
            dots(axes, [row], [place], marker, mine, prefix=f"{kind}_", size=5, label=kind)
    chance = next((row["chance_augmented"] for row in rows if row["chance_augmented"]), None)
    if chance is not None:
        axes.axvline(chance, color=INK, linewidth=0.8, linestyle=":")
    labels = [
        named(row["model"], row["hangs_on_ties"] == "yes", row["part"] == "yes", NAME)
        for row in rows
    ]
    name_rows(axes, labels)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(GREY if row["model"] in baselines else INK)
    axes.set_xlim(0, 100)
    axes.set_title(short_name(name, 60), loc="left")


# --- by group ---------------------------------------------------------------------------------


FOREST_TITLE: Final = "By group"
_GROUPS: Final = 20  # drawn; the CSV has them all
_FOREST_COLUMNS: Final = ("group", "model", "value", "low", "high", "n", "chance")


def forest(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    """A figure for each benchmark that has groups."""
    made: list[Made] = []
    for benchmark in material.benchmarks:
        mine = [n for n in numbers if n.benchmark == benchmark]
        metric = headline(n.metric for n in mine)
        chosen = [n for n in mine if n.metric == metric]
        if metric is None or all(n.group == ALL for n in chosen):
            continue
        made.append(_forest_of(material, benchmark, metric, chosen))
    return made or [Omitted(FOREST_TITLE, "the cases of these runs have no groups.")]


def _forest_of(material: ReportData, benchmark: str, metric: str, chosen: list[RankedRow]) -> Drawn:
    lines = [_forest_line(number) for number in chosen]
    data = Data(_FOREST_COLUMNS, lines)
    counts: dict[str, list[int]] = {}
    for number in chosen:
        counts.setdefault(number.group, []).append(number.n)
    sizes = {group: max(several) for group, several in counts.items()}
    part = PART_MARK if any(place[1] == benchmark for place in parts_of(material)) else ""
    cases = {group: f"{counts_text(several)}{part}" for group, several in counts.items()}
    largest = sorted((g for g in sizes if g != ALL), key=lambda g: -sizes[g])[:_GROUPS]
    shown = [ALL, *sorted(largest)]
    hidden = len(sizes) - len(shown)
    rest = f" The {hidden:,} smaller groups are in the CSV." if hidden > 0 else ""
    title = f"By group: {heading(metric)}, {benchmark}"
    return Drawn(
        f"by-group-{benchmark}",
        title,
        "Whiskers are 95% intervals (bootstrap over source images), the short dotted line is "
        f"chance. The number of cases stands behind each group.{rest}"
        f"{marks_caption(material, chosen)}",
        _forest_svg(looks(material, chosen), data, shown, cases, title, heading(metric)),
        data,
    )


def _forest_line(number: RankedRow) -> tuple[Any, ...]:
    chance = None if number.chance is None else 100 * number.chance
    return (number.group, number.model, *percents(number), number.n, chance)


def _forest_svg(
    look: dict[str, Look],
    data: Data,
    shown: list[str],
    cases: dict[str, str],
    title: str,
    said: str,
) -> str:
    rows = data.named()
    present = {row["model"] for row in rows}
    models = [label for label in look if label in present]
    height = len(shown) * max(0.28, 0.09 * len(models) + 0.1) + 0.2 * (len(models) / 3) + 0.8
    with canvas(height, title) as figure:
        axes = figure.subplots()
        mine = [row for row in rows if row["group"] in shown]
        places = [shown.index(row["group"]) for row in mine]
        drawn = model_dots(axes, mine, places, {model: look[model] for model in models})
        for place, group in enumerate(shown):
            chances = [r["chance"] for r in rows if r["group"] == group and r["chance"] is not None]
            if chances:
                axes.vlines(
                    chances[0], place - 0.45, place + 0.45, color=INK, linewidth=1, linestyle=":"
                )
        names = [f"{short_name(group, NAME)} ({cases[group]})" for group in shown]
        name_rows(axes, names, lines=True)
        axes.set_xlabel(f"{said} (%)")
        legend_below(figure, drawn, look)
        whole = [f"{r['model']} {r['value']:.1f}" for r in rows if r["group"] == ALL]
        return svg_of(figure, title, whole)
