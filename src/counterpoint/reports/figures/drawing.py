"""What all figures share: colours for colour-blind readers, and SVG that suits any page.

The page's style sheet defines `currentColor`, `--grid` and `--c0` to `--c6`, so that one SVG serves
a light page, a dark page and paper.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from counterpoint._util.processes import without_warnings
from counterpoint.metrics import PART_MARK, PART_NOTE, TIES_MARK, depends_on_ties, is_baseline
from counterpoint.reports.data import ReportData, parts_of
from counterpoint.reports.formats import csv_text
from counterpoint.reports.ranking import RankedRow, short_name
from counterpoint.runs import Row

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas


# Okabe and Ito's, without the yellow that a white page swallows; markers tell them apart in print.
# The last, a grey, is that of baselines.
COLOURS: Final = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#7f7f7f")
GREY: Final = COLOURS[-1]
MARKERS: Final = "osD^vPX*<>hd"
INK: Final = "#010203"  # becomes the page's text colour
GRID: Final = "#020304"
WIDTH: Final = 5.0  # inches of every figure: two stand side by side, one fills a phone
XML: Final = '<?xml version="1.0" encoding="utf-8"?>'  # of a figure in a file of its own
NAME: Final = 24  # characters of a name beside an axis
_READ: Final = 12  # numbers of a figure that are read out
_MAPPED: Final = {
    INK: "currentColor",
    GRID: "var(--grid, #cccccc)",
    **{colour: f"var(--c{number}, {colour})" for number, colour in enumerate(COLOURS)},
}
_SETTINGS: Final[Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, and escaped by matplotlib
    "text.parse_math": False,  # a "$" in a name is a "$"
    "text.color": INK,
    "axes.edgecolor": GRID,
    "axes.labelcolor": INK,
    "axes.titlecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": GRID,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "legend.labelcolor": INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "savefig.facecolor": "none",
}


Rows = list[dict[str, Any]]  # the numbers of a figure


@dataclass(frozen=True, slots=True)
class Drawn:
    """What is drawn is taken from `rows`, and the page gives them as CSV."""

    name: str  # of its CSV file
    title: str
    caption: str
    svg: str
    rows: Rows

    @property
    def csv(self) -> str:
        return csv_text(list(self.rows[0]), self.rows)


@dataclass(frozen=True, slots=True)
class Omitted:
    """A figure that these runs cannot make."""

    title: str
    why: str


Made = Drawn | Omitted


@contextmanager
def canvas(height: float, name: str) -> Iterator[Canvas]:
    """A figure to draw on, without any display; `name` keeps its ids apart from other figures'."""
    import matplotlib
    from matplotlib.figure import Figure

    with matplotlib.rc_context({**_SETTINGS, "svg.hashsalt": name}):
        yield Figure(figsize=(WIDTH, height), layout="constrained")


def svg_of(
    figure: Canvas, title: str, numbers: Sequence[str], titles: Mapping[str, str] | None = None
) -> str:
    """The figure as an element of a page, with what is read out to those who do not see it: its
    title and its numbers, as many as can be listened to.

    `titles` are shown where the pointer is: by the gid of what they are of.
    """
    more = len(numbers) - _READ
    rest = [f"and {more:,} more in its CSV"] if more > 0 else []
    says = f"{title}. {'; '.join([*numbers[:_READ], *rest])}."
    text = io.StringIO()
    # The browser has fonts for what matplotlib's own lacks; a row of labels may be tight.
    with without_warnings():
        figure.savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    body = text.getvalue()
    body = body[body.index("<svg") :]
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    for gid, title in (titles or {}).items():
        body = body.replace(f'<g id="{gid}">', f"<g><title>{escape(title)}</title>", 1)
    body = re.sub(r"<[^<>]*>", _of_the_page, body)  # tags only: in texts "<" is escaped
    return body.replace("<svg", f'<svg role="img" aria-label="{escape(says)}"', 1)


def with_pictures(svg: str, figure: Canvas, placed: Sequence[tuple[Axes, str, bool]]) -> str:
    """The figure with pictures (axes, data address, whether its pixels stay sharp) in its axes."""
    width, height = (72 * inches for inches in figure.get_size_inches())
    drawn = ""
    for axes, uri, sharp in placed:
        box = axes.get_position()
        x, y = width * box.x0, height * (1 - box.y1)
        size = f'width="{width * box.width:.1f}" height="{height * box.height:.1f}"'
        how = "pixelated" if sharp else "auto"
        style = f'style="image-rendering: {how}"'
        drawn += f'<image x="{x:.1f}" y="{y:.1f}" {size} {style} href="{uri}"/>'
    before, _, after = svg.rpartition("</svg>")
    return f"{before}{drawn}</svg>{after}"


def _of_the_page(match: re.Match[str]) -> str:
    tag = match.group()
    for colour, instead in _MAPPED.items():
        tag = tag.replace(colour, instead)
    tag = re.sub(r"(\d\.\d\d)\d+", r"\1", tag)  # a hundredth of a point is enough
    # Groups are called axes_1 and the like in every figure, and nothing refers to them.
    return re.sub(r'^<g id="[^"]*"', "<g", tag)


class Look(NamedTuple):
    """How a model is drawn, and what the legend calls it."""

    colour: str
    marker: str
    name: str


def look(number: int, name: str) -> Look:
    """Markers have another cycle than colours: their pairs repeat late."""
    return Look(COLOURS[number % (len(COLOURS) - 1)], MARKERS[number % len(MARKERS)], name)


def looks(material: ReportData, drawn: Sequence[RankedRow]) -> dict[str, Look]:
    """The same model looks the same in every figure; baselines are grey, ties and parts marked."""
    tied = {number.model for number in drawn if depends_on_ties(number)}
    apart = {number.model for number in _apart(material, drawn)}
    found = {}
    for number, (label, run) in enumerate(material.runs.items()):
        mine = look(number, named(label, label in tied, label in apart))
        found[label] = mine._replace(colour=GREY) if is_baseline(run.model) else mine
    return found


def named(label: str, tied: bool, apart: bool, length: int = 34) -> str:
    marks = (TIES_MARK if tied else "") + (PART_MARK if apart else "")
    return short_name(label, length) + (f" {marks}" if marks else "")


def _apart(material: ReportData, drawn: Sequence[RankedRow]) -> list[RankedRow]:
    """The numbers that are not over the whole benchmark, or over other cases than the rest."""
    parts = parts_of(material)
    return [number for number in drawn if (number.model, number.benchmark) in parts]


def marks_caption(material: ReportData, drawn: Sequence[RankedRow]) -> str:
    """The end of a caption: what the marks of the figure mean, if it has any."""
    ties = f" {TIES_MARK} has values that depend on how ties are counted."
    part = f" {PART_MARK} {PART_NOTE}" if _apart(material, drawn) else ""
    return (ties if any(map(depends_on_ties, drawn)) else "") + part


def grid_of(panels: int) -> tuple[int, int]:
    """Rows and columns for some panels."""
    columns = min(panels, 2)
    return -(-panels // columns), columns


def panels(figure: Canvas, count: int) -> list[Axes]:
    """The places of a grid; what is left of it stays empty."""
    grid = figure.subplots(*grid_of(count), squeeze=False).reshape(-1)
    for axes in grid[count:]:
        axes.set_axis_off()
    return list(grid[:count])


def percents(number: Row, prefix: str = "") -> dict[str, float]:
    """A share and the ends of its interval, in per cent."""
    ends = {"value": number.value, "low": number.ci_low, "high": number.ci_high}
    return {f"{prefix}{name}": 100 * value for name, value in ends.items()}


def chance_of(number: Row) -> float | None:
    return None if number.chance is None else 100 * number.chance


def reach(rows: Rows, prefix: str = "") -> list[list[float]]:
    """How far intervals go, down and up, from rows with value, low and high."""
    ends = [[row[f"{prefix}{name}"] for name in ("low", "value", "high")] for row in rows]
    return [[max(0.0, v - low) for low, v, _ in ends], [max(0.0, high - v) for _, v, high in ends]]


def dots(
    axes: Axes,
    rows: Rows,
    heights: Sequence[float],
    marker: str,
    colour: str,
    *,
    prefix: str = "",
    size: float = 4,
    line: float = 1,
    **more: Any,
) -> Any:
    """Values with their intervals from left to right, each at a height."""
    values = [row[f"{prefix}value"] for row in rows]
    how = {"fmt": marker, "color": colour, "markersize": size, "elinewidth": line, **more}
    return axes.errorbar(values, heights, xerr=reach(rows, prefix), **how)


def model_dots(
    axes: Axes, rows: Rows, places: Sequence[int], looks: Mapping[str, Look]
) -> dict[str, Any]:
    """The values of each model at their places from top to bottom, models beside each other."""
    drawn = {}
    step = min(0.8 / max(1, len(looks)), 0.2)
    for number, (model, mine) in enumerate(looks.items()):
        shift = (number - (len(looks) - 1) / 2) * step
        own = [n for n, row in enumerate(rows) if row["model"] == model]
        heights = [places[n] + shift for n in own]
        drawn[model] = dots(axes, [rows[n] for n in own], heights, mine.marker, mine.colour)
    return drawn


def name_rows(axes: Axes, names: Sequence[str], *, lines: bool = False) -> None:
    """A name for each row from top to bottom, with thin lines between rows of several models."""
    edge = 0.45 if lines else 0.4
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - edge, edge - 1)
    axes.grid(axis="y", visible=False)
    for place in range(1, len(names)) if lines else ():
        axes.axhline(place - 0.5, color=GRID, linewidth=0.4)


def legend_below(
    figure: Canvas, drawn: Mapping[str, Any], looks: Mapping[str, Look] | None = None
) -> None:
    """What was drawn, by its name, or by a model that has one among the `looks`."""
    names = [looks[name].name if looks else name for name in drawn]
    widest = max((len(name) for name in names), default=1)
    columns = max(1, min(4, len(names), 74 // (widest + 6)))
    figure.legend(list(drawn.values()), names, loc="outside lower center", ncols=columns)
