"""Every figure that runs can make, and for the others why they cannot."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from counterpoint.progress import Progress, Quiet
from counterpoint.report.figures.brittle import brittle
from counterpoint.report.figures.densities import densities
from counterpoint.report.figures.drawing import Drawn, Made, Omitted
from counterpoint.report.figures.drop import drop
from counterpoint.report.figures.forest import forest
from counterpoint.report.figures.line import line
from counterpoint.report.figures.radar import radar
from counterpoint.report.figures.tradeoff import tradeoff
from counterpoint.report.gathering import Material
from counterpoint.report.numbers import Number

_MAKERS: Final[tuple[Callable[[Material, Sequence[Number]], list[Made]], ...]] = (
    drop,
    brittle,
    forest,
    radar,
    densities,
    line,
    tradeoff,
)


def figures(
    material: Material, numbers: Sequence[Number], progress: Progress | None = None
) -> tuple[list[Drawn], list[Omitted]]:
    advance = (progress or Quiet()).start("drawing figures", len(_MAKERS))
    made: list[Made] = []
    for maker in _MAKERS:
        made += maker(material, numbers)
        advance(1)
    drawn = [figure for figure in made if isinstance(figure, Drawn)]
    return drawn, [figure for figure in made if isinstance(figure, Omitted)]
