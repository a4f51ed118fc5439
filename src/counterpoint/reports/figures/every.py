"""All figures that the runs allow, and the reasons why the others are missing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from counterpoint._util.progress import Progress, Quiet
from counterpoint.reports.figures.densities import densities
from counterpoint.reports.figures.drawing import Drawn, Made, Omitted
from counterpoint.reports.figures.drop import drop
from counterpoint.reports.figures.forest import forest
from counterpoint.reports.figures.line import line
from counterpoint.reports.figures.radar import radar
from counterpoint.reports.figures.scatter import brittle, tradeoff
from counterpoint.reports.gathering import ReportData
from counterpoint.reports.numbers import RankedRow

_MAKERS: Final[tuple[Callable[[ReportData, Sequence[RankedRow]], list[Made]], ...]] = (
    drop,
    brittle,
    forest,
    radar,
    densities,
    line,
    tradeoff,
)


def figures(
    material: ReportData, numbers: Sequence[RankedRow], progress: Progress | None = None
) -> tuple[list[Drawn], list[Omitted]]:
    advance = (progress or Quiet()).start("drawing figures", len(_MAKERS))
    made: list[Made] = []
    for maker in _MAKERS:
        made += maker(material, numbers)
        advance(1)
    drawn = [figure for figure in made if isinstance(figure, Drawn)]
    return drawn, [figure for figure in made if isinstance(figure, Omitted)]
