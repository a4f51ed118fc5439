"""Original against augmented accuracy: what is lost when a true caption is reworded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from counterpoint.metrics import ALL, depends_on_ties, is_baseline
from counterpoint.reports.figures.drawing import (
    COLOURS,
    GREY,
    INK,
    NAME,
    Data,
    Drawn,
    Made,
    Omitted,
    alternative,
    canvas,
    marks_caption,
    named,
    reach,
    svg_of,
)
from counterpoint.reports.gathering import ReportData
from counterpoint.reports.numbers import RankedRow, shortened
from counterpoint.reports.parts import parts_of

TITLE: Final = "Original and augmented accuracy"
_COLUMNS: Final = (
    "benchmark",
    "model",
    "original_value",
    "original_low",
    "original_high",
    "augmented_value",
    "augmented_low",
    "augmented_high",
    "drop",
    "chance_augmented",
    "hangs_on_ties",
    "part",
)


def drop(material: ReportData, numbers: Sequence[RankedRow]) -> list[Made]:
    whole = [n for n in numbers if n.group == ALL and n.metric in _PAIR]
    data = _data(material, whole)
    if not data.lines:
        why = "no benchmark of these runs has positives beside its originals."
        return [Omitted(TITLE, why)]
    return [
        Drawn(
            "original-and-augmented",
            TITLE,
            "The bar is the drop: cases in which the original is above every negative and some "
            "other true caption is not. Whiskers are 95% intervals, the dotted line is the chance "
            f"level of augmented accuracy.{marks_caption(material, whole)}",
            _svg(data, {label for label, run in material.runs.items() if is_baseline(run.model)}),
            data,
        )
    ]


_PAIR: Final = ("original_accuracy", "augmented_accuracy")


def _data(material: ReportData, numbers: Sequence[RankedRow]) -> Data:
    known = {(n.benchmark, n.model, n.metric): n for n in numbers}
    parts, lines = parts_of(material), []
    for benchmark in material.benchmarks:
        for model in material.labels:
            one, two = (known.get((benchmark, model, metric)) for metric in _PAIR)
            if one is None or two is None:
                continue
            values = [100 * v for n in (one, two) for v in (n.value, n.ci_low, n.ci_high)]
            chance = None if two.chance is None else 100 * two.chance
            tied = "yes" if depends_on_ties(one) or depends_on_ties(two) else "no"
            part = "yes" if (model, benchmark) in parts else "no"
            drop = 100 * (one.value - two.value)
            lines.append((benchmark, model, *values, drop, chance, tied, part))
    return Data(_COLUMNS, lines)


def _svg(data: Data, baselines: set[str]) -> str:
    rows = data.named()
    names = list(dict.fromkeys(row["benchmark"] for row in rows))
    counts = [sum(row["benchmark"] == name for row in rows) for name in names]
    height = sum(counts) * 0.27 + len(names) * 0.55 + 0.75
    with canvas(height, TITLE) as figure:
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
        return svg_of(figure, alternative(TITLE, said))


def _panel(axes: Any, name: str, rows: list[dict[str, Any]], baselines: set[str]) -> None:
    places = list(range(len(rows)))
    left = [min(row["original_value"], row["augmented_value"]) for row in rows]
    width = [abs(row["drop"]) for row in rows]
    axes.barh(places, width, left=left, height=0.5, color=GREY, alpha=0.35, label="drop")
    for kind, colour, marker in (("augmented", COLOURS[1], "s"), ("original", COLOURS[0], "o")):
        for place, row in enumerate(rows):
            axes.errorbar(
                [row[f"{kind}_value"]],
                [place],
                xerr=reach([row], f"{kind}_"),
                fmt=marker,
                color=GREY if row["model"] in baselines else colour,
                markersize=5,
                elinewidth=1,
                label=kind,
            )
    chance = next((row["chance_augmented"] for row in rows if row["chance_augmented"]), None)
    if chance is not None:
        axes.axvline(chance, color=INK, linewidth=0.8, linestyle=":")
    labels = [
        named(row["model"], row["hangs_on_ties"] == "yes", row["part"] == "yes", NAME)
        for row in rows
    ]
    axes.set_yticks(places, labels)
    for tick, row in zip(axes.get_yticklabels(), rows, strict=True):
        tick.set_color(GREY if row["model"] in baselines else INK)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, 100)
    axes.grid(axis="y", visible=False)
    axes.set_title(shortened(name, 60), loc="left")
