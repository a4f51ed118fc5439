"""Values with their intervals: original against augmented accuracy, groups, and differences."""

from __future__ import annotations

from collections.abc import Sequence
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
from counterpoint.runs import Difference

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


# --- two runs ------------------------------------------------------------------------------------


_GAPS: Final = 40  # drawn
_GAP_COLUMNS: Final = (
    *("benchmark", "group", "metric", "a", "b", "value", "low", "high", "p", "p_holm"),
    *("p_mcnemar", "n", "verdict", "ties_a", "ties_b"),
)


def difference_data(found: Sequence[Difference]) -> Data:
    """All differences, in points and per cent where they are shares."""
    lines: list[tuple[Any, ...]] = []
    for d in found:
        scale = 100 if METRICS[d.metric].unit == "share" else 1
        values = [scale * v for v in (d.a, d.b, d.difference, d.ci_low, d.ci_high)]
        tested = (d.p, d.p_holm, d.p_mcnemar, d.n, d.verdict)
        lines.append((d.benchmark, d.group, d.metric, *values, *tested, d.ties_a, d.ties_b))
    return Data(_GAP_COLUMNS, lines)


def gaps(found: Sequence[Difference], names: tuple[str, str]) -> list[Drawn]:
    """A forest of differences for each benchmark: A minus B in the main metric, by group."""
    made = []
    for benchmark in dict.fromkeys(d.benchmark for d in found):
        mine = [d for d in found if d.benchmark == benchmark]
        metric = headline(d.metric for d in mine)
        chosen = sorted(
            (d for d in mine if d.metric == metric), key=lambda d: (d.group != ALL, d.group)
        )
        if metric is None:
            continue
        data = difference_data(chosen)
        title = f"Difference in {heading(metric)}, {benchmark}"
        made.append(
            Drawn(
                f"difference-{benchmark}",
                title,
                f"A = {names[0]}, B = {names[1]}. Whiskers are 95% intervals, each for itself; "
                "a point is filled where p, Holm-corrected over the groups, shows a difference.",
                _gaps_svg(data, title),
                data,
            )
        )
    return made


def _gaps_svg(data: Data, title: str) -> str:
    rows = data.named()[:_GAPS]
    with canvas(0.27 * len(rows) + 0.8, title) as figure:
        axes = figure.subplots()
        for place, row in enumerate(rows):
            colour = {"A is better": COLOURS[0], "B is better": COLOURS[1]}.get(
                row["verdict"], GREY
            )
            marker = {"A is better": "o", "B is better": "s"}.get(row["verdict"], "D")
            inside = "none" if colour == GREY else colour
            dots(axes, [row], [place], marker, colour, size=5, line=1.2, markerfacecolor=inside)
        axes.axvline(0, color=INK, linewidth=0.9)
        names = [f"{short_name(row['group'], NAME)} ({row['n']:,})" for row in rows]
        name_rows(axes, names)
        widest = max(abs(row[end]) for row in rows for end in ("low", "high")) * 1.1 or 1
        axes.set_xlim(-widest, widest)
        axes.set_xlabel("← B is higher  ·  A - B in points  ·  A is higher →")
        said = [f"{row['group']} {row['value']:+.1f}, {row['verdict']}" for row in rows]
        return svg_of(figure, title, said)
