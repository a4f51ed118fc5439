"""The tables: models by benchmarks by metrics, cut into sheets that fit a page; and two runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, Literal

from counterpoint.metrics import (
    ALL,
    METRIC_HEADINGS,
    METRICS,
    TIES_MARK,
    WHOLE,
    WITHOUT_POSITIVES,
    depends_on_ties,
    heading,
    in_order,
    interval_text,
    is_baseline,
    p_value,
    ties_by_model,
    ties_matter,
)
from counterpoint.reports.data import Parts, ReportData, parts_of
from counterpoint.reports.papers import Papers, theirs
from counterpoint.reports.ranking import RankedRow, Standing, counts_text, is_human, written
from counterpoint.runs import Difference

_WIDTH: Final = 7  # columns of numbers of a sheet; a benchmark with more has a sheet of its own
_GROUPS: Final = 40  # shown in the page; the CSV has them all

Kind = Literal["model", "baseline", "human", "chance", "published human", "published"]


@dataclass(frozen=True, slots=True)
class TableCell:
    """One number as it is written. `published` is what a paper says of the same."""

    value: str = ""
    reach: str = ""  # half of the interval's width, or both ends
    standing: Standing = ""
    ties: bool = False  # the number depends on them
    published: str = ""
    differs: bool = False
    says: str = ""  # all of it in words
    link: str = ""  # to what it can be computed from
    apart: bool = False  # of a part of the cases, or of others than the rest of its column

    @property
    def empty(self) -> bool:
        return not self.value


@dataclass(frozen=True, slots=True)
class TableLine:
    name: str
    kind: Kind
    cells: list[TableCell]
    link: str = ""
    tag: str = ""  # beside the name


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """A benchmark (or a group of one) over its metrics."""

    benchmark: str
    group: str
    metrics: list[str]
    footnote: str
    cases: str
    family: str = ""  # of benchmarks, for a table that shows some of them
    link: str = ""
    part: bool = False  # whether a number is not over the whole, or over other cases

    @property
    def title(self) -> str:
        if self.group == WITHOUT_POSITIVES:
            return f"{self.benchmark}, {WITHOUT_POSITIVES}"
        return self.benchmark if self.group == ALL else self.group


@dataclass(frozen=True, slots=True)
class ModelTable:
    heads: list[ColumnHead]
    lines: list[TableLine]
    ties: dict[str, str]  # how many there are, by model
    parts: Parts = field(default_factory=dict)  # what was counted where that is not the whole

    @property
    def marked(self) -> bool:
        """Whether one of its numbers depends on ties."""
        return any(cell.ties for line in self.lines for cell in line.cells)

    @property
    def metrics(self) -> list[str]:
        """Of each column."""
        return [metric for head in self.heads for metric in head.metrics]

    @property
    def columns(self) -> list[str]:
        return [heading(metric) for metric in self.metrics]

    @property
    def lower(self) -> list[bool]:
        """Of each column, whether less is better."""
        return [METRICS[metric].better == "lower" for metric in self.metrics]


@dataclass(frozen=True, slots=True)
class Tables:
    """`groups` has, by benchmark, a sheet for each group that is shown, and how many are not."""

    whole: list[ModelTable]
    groups: dict[str, list[ModelTable]]
    left_out: dict[str, int]
    footnotes: dict[str, str]
    numbers: list[RankedRow]
    papers: Papers = field(repr=False)

    @property
    def metrics(self) -> list[str]:
        """Those of its columns, each once."""
        return list(dict.fromkeys(metric for sheet in self.whole for metric in sheet.metrics))


def tables(
    material: ReportData,
    numbers: Sequence[RankedRow],
    papers: Papers,
    parts: Parts | None = None,
) -> Tables:
    """`parts` says by label and benchmark what was counted, where the runs do not say it."""
    marks = _footnotes(material)
    parts = parts_of(material) if parts is None else parts
    by_place: dict[tuple[str, str], list[RankedRow]] = {}
    for number in numbers:
        by_place.setdefault((number.benchmark, number.group), []).append(number)
    heads = {place: _head(place, mine, marks, parts) for place, mine in by_place.items()}
    whole = [head for (_, group), head in heads.items() if group in WHOLE]
    sheets = [_sheet(some, by_place, material, papers, parts) for some in _packed(whole)]
    groups: dict[str, list[ModelTable]] = {}
    left_out = {}
    for benchmark in material.benchmarks:
        places = [p for p in by_place if p[0] == benchmark and p[1] not in WHOLE]
        large = sorted(places, key=lambda p: -max(n.n for n in by_place[p]))[:_GROUPS]
        shown = [p for p in places if p in large]
        if shown:
            groups[benchmark] = [
                _sheet([heads[p]], by_place, material, papers, parts) for p in shown
            ]
            left_out[benchmark] = len(places) - len(shown)
    notes = {mark: text for marks_ in marks.values() for mark, text in marks_}
    return Tables(sheets, groups, left_out, notes, list(numbers), papers)


def _footnotes(material: ReportData) -> dict[str, list[tuple[str, str]]]:
    """By benchmark the protocols in use, each with its mark; one mark for one protocol."""
    known: dict[str, str] = {}
    found: dict[str, list[tuple[str, str]]] = {}
    for benchmark, several in material.benchmarks.items():
        for text in dict.fromkeys(scored.protocol.describe() for scored in several):
            mark = known.setdefault(text, _letters(len(known)))
            found.setdefault(benchmark, []).append((mark, text))
    return found


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    rest, last = divmod(number, 26)
    return ("" if rest == 0 else _letters(rest - 1)) + chr(ord("a") + last)


def _head(
    place: tuple[str, str],
    mine: list[RankedRow],
    marks: dict[str, list[tuple[str, str]]],
    parts: Parts,
) -> ColumnHead:
    metrics = in_order(number.metric for number in mine)
    cases = counts_text(number.n for number in mine if number.metric == metrics[0])
    sizes = {parts.get((number.model, place[0]), "") for number in mine}
    if place[1] == ALL and len(sizes) == 1:
        cases = max(sizes) or cases  # all of them are the same part
    footnote = ", ".join(mark for mark, _ in marks[place[0]])
    return ColumnHead(*place, metrics, footnote, cases, part=sizes != {""})


def _packed(heads: list[ColumnHead]) -> list[list[ColumnHead]]:
    """Benchmarks side by side, as many as fit."""
    packs: list[list[ColumnHead]] = []
    for head in heads:
        width = sum(len(other.metrics) for other in packs[-1]) if packs else _WIDTH
        if packs and width + len(head.metrics) <= _WIDTH:
            packs[-1].append(head)
        else:
            packs.append([head])
    return packs


def _sheet(
    heads: list[ColumnHead],
    by_place: dict[tuple[str, str], list[RankedRow]],
    material: ReportData,
    papers: Papers,
    parts: Parts,
) -> ModelTable:
    known = {
        (n.model, n.benchmark, n.group, n.metric): n
        for head in heads
        for n in by_place[head.benchmark, head.group]
    }
    places = [(head, metric) for head in heads for metric in head.metrics]
    lines = []
    for label, run in material.runs.items():
        cells = [
            cell_of(
                known.get((label, head.benchmark, head.group, metric)),
                papers,
                parts.get((label, head.benchmark), ""),
            )
            for head, metric in places
        ]
        if not all(cell.empty for cell in cells):
            lines.append(TableLine(label, kind_of(run.model), cells))
    human = [_human(papers, head, metric) for head, metric in places]
    if not all(cell.empty for cell in human):
        lines.append(TableLine("human (published)", "published human", human))
    chances = [chance_cell(list(known.values()), head, metric) for head, metric in places]
    if not all(cell.empty for cell in chances):
        lines.append(TableLine("chance", "chance", chances))
    shown = {(label, benchmark) for label, benchmark, *_ in known}
    here = {place: said for place, said in parts.items() if place in shown}
    return ModelTable(heads, lines, ties_by_model(known.values()), here)


def kind_of(model: str) -> Kind:
    if is_human(model):
        return "human"
    return "baseline" if is_baseline(model) else "model"


def cell_of(number: RankedRow | None, papers: Papers, part: str = "") -> TableCell:
    """`part` says what was counted, if that is not the whole."""
    if number is None:
        return TableCell()
    name = number.metric
    low, high = written(name, number.ci_low), written(name, number.ci_high)
    spread = "" if number.sd is None else f" sd {written(name, number.sd)}"  # over seeds
    beside = papers.main(number)
    said = {
        "best": "best",
        "not separated": "the test cannot tell it from the best",
        "untested": "not tested",
    }
    says = [
        f"95% interval {low} to {high}",
        f"{number.n:,} values",
        f"{number.ties:,} depend on a tie",
    ]
    says += [f"not over the whole: {part}"] if part else []
    says += [said[number.standing]] if number.standing else []
    if beside is not None:
        says.append(f"published: {theirs(beside)}, {beside.source}")
    return TableCell(
        written(name, number.value),
        interval_text(number.value, number.ci_low, number.ci_high, partial(written, name)) + spread,
        number.standing,
        depends_on_ties(number),
        theirs(beside),
        beside is not None and beside.verdict == "differs",
        "; ".join(says),
        apart=bool(part),
    )


def _human(papers: Papers, head: ColumnHead, metric: str) -> TableCell:
    beside = papers.human.get((head.benchmark, head.group, metric))
    if beside is None:
        return TableCell()
    note = f"{beside.source}. {beside.note}".strip()
    return TableCell(theirs(beside), says=note)


def chance_cell(numbers: list[RankedRow], head: ColumnHead, metric: str) -> TableCell:
    place = (head.benchmark, head.group, metric)
    mine = [n.chance for n in numbers if (n.benchmark, n.group, n.metric) == place]
    found = sorted({chance for chance in mine if chance is not None})
    if not found:
        return TableCell()
    apart = any(high - low > 5e-4 for low, high in pairwise(found))
    if apart:  # runs lack different cases, so that their chance differs
        return TableCell(f"{written(metric, found[0])} to {written(metric, found[-1])}")
    return TableCell(written(metric, found[0]))


# --- two runs side by side ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """The differences of one benchmark: the whole first, then its groups."""

    benchmark: str
    pairs: list[dict[str, str]]
    left_out: int


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
