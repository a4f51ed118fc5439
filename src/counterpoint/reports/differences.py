"""Two runs side by side: every paired difference, and a figure of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from counterpoint.metrics import (
    ALL,
    METRIC_HEADINGS,
    METRICS,
    TIES_MARK,
    heading,
    headline,
    p_value,
    ties_matter,
)
from counterpoint.reports.figures.drawing import (
    COLOURS,
    GREY,
    INK,
    NAME,
    Data,
    Drawn,
    canvas,
    dots,
    name_rows,
    svg_of,
)
from counterpoint.reports.ranking import short_name, written
from counterpoint.runs import Difference

_GROUPS: Final = 40
_COLUMNS: Final = (
    *("benchmark", "group", "metric", "a", "b", "value", "low", "high", "p", "p_holm"),
    *("p_mcnemar", "n", "verdict", "ties_a", "ties_b"),
)


@dataclass(frozen=True, slots=True)
class Side:
    """The differences of one benchmark: the whole first, then its groups."""

    benchmark: str
    pairs: list[dict[str, str]]
    left_out: int


def as_data(found: Sequence[Difference]) -> Data:
    """All differences, in points and per cent where they are shares."""
    lines: list[tuple[Any, ...]] = []
    for d in found:
        scale = 100 if METRICS[d.metric].unit == "share" else 1
        values = [scale * v for v in (d.a, d.b, d.difference, d.ci_low, d.ci_high)]
        tested = (d.p, d.p_holm, d.p_mcnemar, d.n, d.verdict)
        lines.append((d.benchmark, d.group, d.metric, *values, *tested, d.ties_a, d.ties_b))
    return Data(_COLUMNS, lines)


def sides(found: Sequence[Difference], *, every: bool = False) -> list[Side]:
    """The tables; `every` metric, or the main ones."""
    shown = [d for d in found if every or METRICS[d.metric].main]
    order = {name: place for place, name in enumerate(METRIC_HEADINGS)}
    made = []
    for benchmark in dict.fromkeys(d.benchmark for d in shown):
        mine = [d for d in shown if d.benchmark == benchmark]
        sizes = {d.group: d.n for d in mine if d.group != ALL}
        large = sorted(sizes, key=lambda group: -sizes[group])[:_GROUPS]
        groups = [ALL, *sorted(large)]
        kept = [d for d in mine if d.group in groups]
        kept.sort(key=lambda d: (groups.index(d.group), order.get(d.metric, len(order))))
        made.append(Side(benchmark, [_pair(d) for d in kept], len(sizes) - len(large)))
    return made


def _pair(d: Difference) -> dict[str, str]:
    """One difference as it is written."""
    scale, digits = (100, 1) if METRICS[d.metric].unit == "share" else (1, 4)
    low, gap, high = (f"{scale * v:+.{digits}f}" for v in (d.ci_low, d.difference, d.ci_high))
    a, b = (
        written(d.metric, value) + (TIES_MARK if ties_matter(ties, d.n, d.reach) else "")
        for value, ties in ((d.a, d.ties_a), (d.b, d.ties_b))
    )
    return {
        "group": d.group,
        "metric": heading(d.metric),
        "a": a,
        "b": b,
        "gap": gap,
        "interval": f"[{low}, {high}]",
        "p": p_value(d.p_holm),
        "mcnemar": "" if d.p_mcnemar is None else p_value(d.p_mcnemar),
        "n": f"{d.n:,}",
        "verdict": d.verdict,
    }


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
        data = as_data(chosen)
        title = f"Difference in {heading(metric)}, {benchmark}"
        made.append(
            Drawn(
                f"difference-{benchmark}",
                title,
                f"A = {names[0]}, B = {names[1]}. Whiskers are 95% intervals, each for itself; "
                "a point is filled where p, Holm-corrected over the groups, shows a difference.",
                _svg(data, title),
                data,
            )
        )
    return made


def _svg(data: Data, title: str) -> str:
    rows = data.named()[:_GROUPS]
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
