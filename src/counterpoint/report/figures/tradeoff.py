"""Retrieval and zero-shot classification against compositionality: what was gained, and kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from counterpoint.report.figures.drawing import Data, Drawn, Made, Omitted, looks, ties_caption
from counterpoint.report.figures.scatter import COLUMNS, scatter
from counterpoint.report.gathering import Material
from counterpoint.report.numbers import Number
from counterpoint.statistics import ALL
from counterpoint.wording import COMPOSITION, GALLERY, SAID

TITLE: Final = "Retrieval and zero-shot against compositionality"


def tradeoff(material: Material, numbers: Sequence[Number]) -> list[Made]:
    whole = {(n.benchmark, n.metric, n.model): n for n in numbers if n.group == ALL}
    kept = _first(material, whole, GALLERY)
    gained = _first(material, whole, COMPOSITION)
    lines: list[tuple[Any, ...]] = []
    drawn: list[Number] = []
    for x_name, x_metric in kept:
        for y_name, y_metric in gained:
            for model in material.labels:
                x, y = whole.get((x_name, x_metric, model)), whole.get((y_name, y_metric, model))
                if x is None or y is None:
                    continue
                ends = [[100 * v for v in (n.value, n.ci_low, n.ci_high)] for n in (x, y)]
                x_said, y_said = f"{x_name}: {SAID[x_metric]} (%)", f"{SAID[y_metric]} (%)"
                lines.append((y_name, model, x_said, *ends[0], y_said, *ends[1]))
                drawn += [x, y]
    if not lines:
        lack = "a retrieval or a classification" if not kept else "a benchmark of compositionality"
        why = f"none of these runs has {lack}." if not kept or not gained else _NEVER_BOTH
        return [Omitted(TITLE, why)]
    made: list[Made] = []
    for x in dict.fromkeys(line[2] for line in lines):
        data = Data(COLUMNS, [line for line in lines if line[2] == x])
        made.append(
            Drawn(
                f"against-{x.partition(':')[0]}",
                TITLE,
                "Up and to the right is better: finetuning that teaches one thing may cost the "
                f"other. Whiskers are 95% intervals.{ties_caption(drawn)}",
                scatter(data, f"{TITLE}: {x}", looks(material, drawn)),
                data,
            )
        )
    return made


_NEVER_BOTH: Final = (
    "no run has both a retrieval (or classification) and a compositional benchmark."
)


def _first(
    material: Material, whole: dict[tuple[str, str, str], Number], metrics: Sequence[str]
) -> list[tuple[str, str]]:
    """The benchmarks that have one of the metrics, with the first that they have."""
    known = {(benchmark, metric) for benchmark, metric, _ in whole}
    found = []
    for benchmark in material.benchmarks:
        metric = next((m for m in metrics if (benchmark, m) in known), None)
        if metric is not None:
            found.append((benchmark, metric))
    return found
