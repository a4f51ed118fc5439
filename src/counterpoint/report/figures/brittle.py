"""Brittleness against augmented accuracy: two models may be as right, and not as steady."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from counterpoint.report.figures.drawing import INK, Data, Drawn, Made, Omitted, looks, ties_caption
from counterpoint.report.figures.scatter import COLUMNS, scatter
from counterpoint.report.gathering import Material
from counterpoint.report.numbers import Number
from counterpoint.statistics import ALL

TITLE: Final = "Brittleness and augmented accuracy"


def brittle(material: Material, numbers: Sequence[Number]) -> list[Made]:
    known = {(n.benchmark, n.model, n.metric): n for n in numbers if n.group == ALL}
    lines: list[tuple[Any, ...]] = []
    drawn: list[Number] = []
    chances: dict[str, tuple[float, float]] = {}
    for benchmark in material.benchmarks:
        for model in material.labels:
            x = known.get((benchmark, model, "augmented_accuracy"))
            y = known.get((benchmark, model, "brittleness"))
            if x is None or y is None:
                continue
            ends = [[100 * v for v in (n.value, n.ci_low, n.ci_high)] for n in (x, y)]
            said = ("augmented accuracy (%)", "brittleness (%)")
            lines.append((benchmark, model, said[0], *ends[0], said[1], *ends[1]))
            drawn += [x, y]
            if x.chance is not None and y.chance is not None:
                chances.setdefault(benchmark, (100 * x.chance, 100 * y.chance))
    if not lines:
        return [Omitted(TITLE, "no benchmark of these runs has positives beside its originals.")]
    data = Data(COLUMNS, lines)

    def mark_chance(axes: Any, benchmark: str) -> None:
        if benchmark in chances:
            axes.plot(*chances[benchmark], "+", color=INK, markersize=9, zorder=0)

    return [
        Drawn(
            "brittleness-and-augmented",
            TITLE,
            "Down and to the right is better: right more often, and seldom only for one wording. "
            f"Whiskers are 95% intervals, the cross is chance.{ties_caption(drawn)}",
            scatter(data, TITLE, looks(material, drawn), mark_chance),
            data,
        )
    ]
