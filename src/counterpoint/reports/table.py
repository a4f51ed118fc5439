"""The tables: models by benchmarks by metrics, cut into sheets that fit a page; and two runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
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
from counterpoint.reports.ranking import (
    Papers,
    RankedRow,
    Standing,
    counts_text,
    is_human,
    theirs,
    written,
)
from counterpoint.runs import Difference

_WIDTH: Final = 7  # columns of numbers of a sheet; a benchmark with more has a sheet of its own
_GROUPS: Final = 40  # shown in the page; the CSV has them all
_STANDINGS: Final[Mapping[str, str]] = {
    "best": "best",
    "not separated": "the test cannot tell it from the best",
    "untested": "not tested",
}

Kind = Literal["model", "baseline", "human", "chance", "published human", "published"]
Place = tuple[str, str]  # a benchmark and a group
Column = tuple[str, str, str]  # a benchmark, a group and a metric
Link = Callable[[str, str], str]  # to a model's page, or to its run of a benchmark


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

    @property
    def empty(self) -> bool:
        return all(cell.empty for cell in self.cells)


@dataclass(frozen=True, slots=True)
class ColumnHead:
    """A benchmark (or a group of one) over its metrics."""

    benchmark: str
    group: str
    metrics: list[str]
    footnote: str = ""
    cases: str = ""
    family: str = ""  # of benchmarks, for a table that shows some of them
    link: str = ""
    part: bool = False  # whether a number is not over the whole, or over other cases

    @property
    def title(self) -> str:
        if self.group == WITHOUT_POSITIVES:
            return f"{self.benchmark}, {WITHOUT_POSITIVES}"
        return self.benchmark if self.group == ALL else self.group


def columns_of(heads: Iterable[ColumnHead]) -> list[Column]:
    return [(head.benchmark, head.group, metric) for head in heads for metric in head.metrics]


@dataclass(frozen=True, slots=True)
class ModelTable:
    heads: list[ColumnHead]
    lines: list[TableLine]
    ties: dict[str, str] = field(default_factory=dict)  # how many there are, by model
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
    link: Link = lambda label, benchmark: "",
) -> Tables:
    """`parts` says by label and benchmark what was counted, where the runs do not say it."""
    parts = parts_of(material) if parts is None else parts
    marks, footnotes = _footnotes(material)
    by_place: dict[Place, list[RankedRow]] = {}
    for number in numbers:
        by_place.setdefault((number.benchmark, number.group), []).append(number)
    heads = {place: _head(place, mine, marks, parts) for place, mine in by_place.items()}
    sheet = partial(_sheet, by_place, material, papers, parts, link)
    whole = [sheet(some) for some in _packed(h for p, h in heads.items() if p[1] in WHOLE)]
    groups: dict[str, list[ModelTable]] = {}
    left_out = {}
    for benchmark in material.benchmarks:
        places = [p for p in by_place if p[0] == benchmark and p[1] not in WHOLE]
        large = sorted(places, key=lambda p: -max(n.n for n in by_place[p]))[:_GROUPS]
        if large:
            groups[benchmark] = [sheet([heads[p]]) for p in places if p in large]
            left_out[benchmark] = len(places) - len(large)
    return Tables(whole, groups, left_out, footnotes, list(numbers), papers)


def _footnotes(material: ReportData) -> tuple[dict[str, str], dict[str, str]]:
    """By benchmark the marks of the protocols in use; by mark its protocol."""
    known: dict[str, str] = {}
    marks: dict[str, str] = {}
    for benchmark, several in material.benchmarks.items():
        protocols = dict.fromkeys(scored.protocol.describe() for scored in several)
        marks[benchmark] = ", ".join(known.setdefault(p, _letters(len(known))) for p in protocols)
    return marks, {mark: protocol for protocol, mark in known.items()}


def _letters(number: int) -> str:
    """a, b, ..., z, aa, ab, ..."""
    rest, last = divmod(number, 26)
    return ("" if rest == 0 else _letters(rest - 1)) + chr(ord("a") + last)


def _head(place: Place, mine: list[RankedRow], marks: dict[str, str], parts: Parts) -> ColumnHead:
    metrics = in_order(number.metric for number in mine)
    cases = counts_text(number.n for number in mine if number.metric == metrics[0])
    sizes = {parts.get((number.model, place[0]), "") for number in mine}
    if place[1] == ALL and len(sizes) == 1:
        cases = max(sizes) or cases  # all of them are the same part
    return ColumnHead(*place, metrics, marks[place[0]], cases, part=sizes != {""})


def _packed(heads: Iterable[ColumnHead]) -> list[list[ColumnHead]]:
    """Benchmarks side by side, as many as fit."""
    packs: list[list[ColumnHead]] = []
    for head in heads:
        if packs and len(columns_of([*packs[-1], head])) <= _WIDTH:
            packs[-1].append(head)
        else:
            packs.append([head])
    return packs


def _sheet(
    by_place: dict[Place, list[RankedRow]],
    material: ReportData,
    papers: Papers,
    parts: Parts,
    link: Link,
    heads: list[ColumnHead],
) -> ModelTable:
    numbers = [n for head in heads for n in by_place[head.benchmark, head.group]]
    known = {(n.model, n.benchmark, n.group, n.metric): n for n in numbers}
    columns = columns_of(heads)
    lines = []
    for label, run in material.runs.items():
        cells = [
            cell_of(
                known.get((label, *column)),
                papers,
                parts.get((label, column[0]), ""),
                link(label, column[0]),
            )
            for column in columns
        ]
        lines.append(TableLine(label, kind_of(run.model), cells, link(label, "")))
    human = [_human(papers, column) for column in columns]
    lines.append(TableLine("human (published)", "published human", human))
    lines.append(chance_line(numbers, columns))
    here = {place: size for place, size in parts.items() if any(k[:2] == place for k in known)}
    shown = [line for line in lines if not line.empty]
    return ModelTable(heads, shown, ties_by_model(known.values()), here)


def kind_of(model: str) -> Kind:
    if is_human(model):
        return "human"
    return "baseline" if is_baseline(model) else "model"


def cell_of(number: RankedRow | None, papers: Papers, part: str = "", link: str = "") -> TableCell:
    """`part` says what was counted, if that is not the whole."""
    if number is None:
        return TableCell()
    write = partial(written, number.metric)
    spread = "" if number.sd is None else f" sd {write(number.sd)}"  # over seeds
    beside = papers.main(number)
    says = [
        f"95% interval {write(number.ci_low)} to {write(number.ci_high)}",
        f"{number.n:,} values",
        f"{number.ties:,} depend on a tie",
    ]
    says += [f"not over the whole: {part}"] if part else []
    says += [_STANDINGS[number.standing]] if number.standing else []
    says += [] if beside is None else [f"published: {theirs(beside)}, {beside.source}"]
    return TableCell(
        write(number.value),
        interval_text(number.value, number.ci_low, number.ci_high, write) + spread,
        number.standing,
        depends_on_ties(number),
        theirs(beside),
        beside is not None and beside.verdict == "differs",
        "; ".join(says),
        link,
        bool(part),
    )


def _human(papers: Papers, column: Column) -> TableCell:
    beside = papers.human.get(column)
    note = "" if beside is None else f"{beside.source}. {beside.note}".strip()
    return TableCell(theirs(beside), says=note)


def chance_line(numbers: Iterable[RankedRow], columns: Sequence[Column]) -> TableLine:
    """Chance levels, both ends where runs lack different cases, so that their chance differs."""
    levels: dict[Column, set[float]] = {column: set() for column in columns}
    for n in numbers:
        if n.chance is not None and (n.benchmark, n.group, n.metric) in levels:
            levels[n.benchmark, n.group, n.metric].add(n.chance)
    cells = []
    for column in columns:
        found = sorted(levels[column])
        apart = any(high - low > 5e-4 for low, high in pairwise(found))
        ends = [written(column[2], value) for value in (found if apart else found[:1])]
        cells.append(TableCell(" to ".join(dict.fromkeys((*ends[:1], *ends[-1:])))))
    return TableLine("chance", "chance", cells)


# --- two runs side by side ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Side:
    """The differences of one benchmark: the whole first, then its groups."""

    benchmark: str
    pairs: list[dict[str, str]]
    left_out: int


def sides(differences: Sequence[Difference], *, every: bool = False) -> list[Side]:
    """The tables; `every` metric, or the main ones."""
    shown = [d for d in differences if every or METRICS[d.metric].main]
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


def besides(papers: Papers, label: str | None = None) -> list[dict[str, str]]:
    """The published values as they are written: of all models, or of one."""
    return [
        {
            "model": key[0],
            "benchmark": check.benchmark,
            "group": check.group,
            "metric": heading(check.metric),
            "average": check.average,
            "ours": written(check.metric, check.ours),
            "published": theirs(check),
            "verdict": check.verdict,
            "source": f"{check.model}: {check.source}",
            "note": check.note,
        }
        for key, checks in papers.values.items()
        if label in (None, key[0])
        for check in checks
    ]
