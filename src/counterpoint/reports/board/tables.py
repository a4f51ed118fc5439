"""The tables of a board's pages, with links to models, benchmarks and runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from counterpoint.metrics import ALL, METRICS, WHOLE, in_order
from counterpoint.reports.board.data import BoardData, PaperValue, SameCases
from counterpoint.reports.data import ReportData
from counterpoint.reports.figures.drawing import Drawn
from counterpoint.reports.figures.scatter import PUBLISHED, PaperPoint, brittle
from counterpoint.reports.figures.shuffles import is_shuffled
from counterpoint.reports.formats import csv_text
from counterpoint.reports.ranking import RankedRow, counts_text
from counterpoint.reports.table import (
    ColumnHead,
    ModelTable,
    TableCell,
    TableLine,
    Tables,
    cell_of,
    chance_cell,
    kind_of,
    tables,
)

_MANY: Final = 8  # columns of published groups beside the total


@dataclass(frozen=True, slots=True)
class Links:
    """Where pages are, seen from the top of the site; `up` leads there from the page."""

    models: Mapping[str, str]
    papers: Mapping[str, str]  # pages of published models
    benchmarks: Mapping[str, str]
    up: str = ""

    def model(self, label: str) -> str:
        return f"{self.up}models/{self.models[label]}.html" if label in self.models else ""

    def paper(self, name: str) -> str:
        return f"{self.up}models/{self.papers[name]}.html"

    def benchmark(self, name: str) -> str:
        return f"{self.up}benchmarks/{self.benchmarks[name]}.html"

    def run(self, data: BoardData, label: str, benchmark: str) -> str:
        return f"{self.model(label)}#run-{data.run_of(label, benchmark).name}"


# --- the first page ------------------------------------------------------------------------------


def index_sheet(data: BoardData, links: Links) -> ModelTable:
    """Every model on every benchmark: its main metric, and brittleness."""
    shown = [b for b in data.benchmarks if b in data.same_cases or not is_shuffled(b)]
    heads = [
        ColumnHead(
            *(b, ALL, columns, "", _count(data, b), data.kind(b), links.benchmark(b)),
            part=any(
                same.lacks or number for number, same in enumerate(data.same_cases.get(b, ()))
            ),
        )
        for b in shown
        if (columns := data.columns(b))
    ]
    places = [(head, metric) for head in heads for metric in head.metrics]
    ours = {
        (n.model, n.benchmark, n.metric): (n, number > 0, _part(same))
        for several in data.same_cases.values()
        for number, same in enumerate(several)
        for n in same.numbers
        if n.group == ALL
    }
    lines = [
        TableLine(
            label,
            kind_of(run.model),
            [_ours(data, ours, label, head.benchmark, m, links) for head, m in places],
            links.model(label),
        )
        for label, run in data.material.runs.items()
    ]
    chances = [chance_cell(data.main_numbers, head, metric) for head, metric in places]
    if any(not cell.empty for cell in chances):
        lines.append(TableLine("chance", "chance", chances))
    theirs = {head.benchmark: _by_model(data.paper_values(head.benchmark)) for head in heads}
    for name in data.published_models:
        cells = [
            _paper(theirs[h.benchmark].get((name, m), []), links.benchmark(h.benchmark))
            for h, m in places
        ]
        if any(not cell.empty for cell in cells):
            lines.append(TableLine(name, "published", cells, links.paper(name), PUBLISHED))
    return ModelTable(heads, lines, {})


def _count(data: BoardData, benchmark: str) -> str:
    several = data.same_cases.get(benchmark, [])
    return counts_text(max(n.n for n in same.numbers) for same in several) if several else ""


def _part(same: SameCases) -> str:
    """What was counted, if that is not the whole benchmark."""
    return same.size if same.lacks else ""


def _ours(
    data: BoardData,
    ours: Mapping[tuple[str, str, str], tuple[RankedRow, bool, str]],
    label: str,
    benchmark: str,
    metric: str,
    links: Links,
) -> TableCell:
    if (label, benchmark, metric) not in ours:
        return TableCell()
    number, apart, part = ours[label, benchmark, metric]
    if apart:  # what it is compared with stands on the page of the benchmark
        number = replace(number, standing="")
    cell = cell_of(number, data.papers, part)
    says = f"{cell.says}; over other cases: not compared" if apart else cell.says
    return replace(
        cell, link=links.run(data, label, benchmark), apart=apart or cell.apart, says=says
    )


def _by_model(values: Sequence[PaperValue]) -> dict[tuple[str, str], list[PaperValue]]:
    found: dict[tuple[str, str], list[PaperValue]] = {}
    for value in values:
        found.setdefault((value.model, value.metric), []).append(value)
    return found


def _paper(values: Sequence[PaperValue], page: str = "") -> TableCell:
    """The first of the papers' values; the others are in its words."""
    if not values:
        return TableCell()
    said = "; ".join(dict.fromkeys(f"{v.value}, {v.source}" for v in values))
    link = f"{page}#published" if page else ""
    return TableCell(values[0].value, says=f"published: {said}", link=link)


# --- the page of a benchmark ---------------------------------------------------------------------


def benchmark_tables(data: BoardData, same: SameCases, links: Links) -> Tables:
    """The report's tables of the runs that are compared, with links."""
    benchmark = same.scored[0].part.benchmark
    runs = {label: run for label, run in data.material.runs.items() if label in same.labels}
    parts = {(label, benchmark): same.size for label in same.labels if same.lacks}
    made = tables(ReportData(runs, {benchmark: same.scored}), same.numbers, data.papers, parts)

    def linked(sheet: ModelTable) -> ModelTable:
        lines = [
            replace(
                line,
                link=links.model(line.name),
                cells=[
                    replace(c, link="" if c.empty else links.run(data, line.name, benchmark))
                    for c in line.cells
                ],
            )
            if line.name in same.labels
            else line
            for line in sheet.lines
        ]
        return replace(sheet, lines=lines)

    return replace(
        made,
        whole=[linked(sheet) for sheet in made.whole],
        groups={name: [linked(s) for s in sheets] for name, sheets in made.groups.items()},
    )


def paper_sheets(data: BoardData, benchmark: str, links: Links) -> dict[str, ModelTable]:
    """Published values by protocol and average: models by groups and metrics."""
    found = {}
    mine = [v for v in data.values.get(benchmark, []) if METRICS[v.metric].main]
    for protocol, average in dict.fromkeys((v.protocol, v.average) for v in mine):
        values = [v for v in mine if (v.protocol, v.average) == (protocol, average)]
        metrics = {g: in_order(v.metric for v in values if v.group == g) for g in _groups(values)}
        heads = [ColumnHead(benchmark, group, names, "", "") for group, names in metrics.items()]
        places = [(head, metric) for head in heads for metric in head.metrics]
        known: dict[tuple[str, str, str], list[PaperValue]] = {}
        for v in values:
            known.setdefault((v.model, v.group, v.metric), []).append(v)
        lines = [
            TableLine(
                name,
                "published",
                [_paper(known.get((name, h.group, m), [])) for h, m in places],
                links.paper(name),
            )
            for name in dict.fromkeys(v.model for v in values)
        ]
        kept = [line for line in lines if any(not cell.empty for cell in line.cells)]
        found[f"protocol {protocol}, {average} average"] = ModelTable(heads, kept, {})
    return found


def _groups(values: Sequence[PaperValue]) -> list[str]:
    """The total, and the groups that the most models have."""
    models: dict[str, set[str]] = {}
    for value in values:
        models.setdefault(value.group, set()).add(value.model)
    groups = sorted((g for g in models if g != ALL), key=lambda g: -len(models[g]))[:_MANY]
    return [group for group in models if group == ALL or group in groups]


# --- the page of a model -------------------------------------------------------------------------


def model_sheets(data: BoardData, label: str, links: Links) -> dict[str, ModelTable]:
    """By benchmark: the groups of a model by metrics."""
    found = {}
    for benchmark, several in data.same_cases.items():
        numbers = [n for same in several for n in same.numbers if n.model == label]
        if not numbers:
            continue
        part = next(
            (said for same in several if label in same.labels and (said := _part(same))), ""
        )
        known = {(n.group, n.metric): n for n in numbers}
        metrics = in_order(n.metric for n in numbers)
        link = links.run(data, label, benchmark)
        groups = dict.fromkeys(n.group for n in numbers)
        lines = [
            TableLine(
                "all cases" if group == ALL else group,
                "model",
                [
                    replace(cell, link="" if cell.empty else link)
                    for m in metrics
                    for cell in [cell_of(known.get((group, m)), data.papers, part)]
                ],
            )
            for group in groups
        ]
        count = f"{max(n.n for n in numbers if n.group in WHOLE):,}"
        place = links.benchmark(benchmark)
        head = ColumnHead(benchmark, ALL, metrics, "", count, "", place, part=bool(part))
        found[benchmark] = ModelTable([head], lines, {})
    return found


# --- all numbers as data ---------------------------------------------------------------------


_COLUMNS: Final = (
    *("kind", "model", "benchmark", "group", "metric", "protocol", "average"),
    *("value", "ci_low", "ci_high", "n", "ties", "standing", "cases", "run", "source"),
)


def all_numbers(data: BoardData) -> str:
    """Ours and the papers', as fractions. Only numbers of the same `cases` are compared."""
    lines: list[tuple[Any, ...]] = []
    for benchmark, several in data.same_cases.items():
        for number, same in enumerate(several, start=1):
            used = same.scored[0].protocol
            for n in same.numbers:
                place = (n.model, benchmark, n.group, n.metric, used.name, used.average)
                found = (n.value, n.ci_low, n.ci_high, n.n, n.ties, n.standing)
                run = data.run_of(n.model, benchmark).name
                lines.append(("measured", *place, *found, f"{benchmark} {number}", run, ""))
    for v in data.every_value:
        value = float(v.value) / (100 if METRICS[v.metric].unit == "share" else 1)
        place = (v.model, v.benchmark, v.group, v.metric, v.protocol, v.average)
        source = f"{v.source} ({v.note})" if v.note else v.source
        lines.append((PUBLISHED, *place, round(value, 12), *[None] * 7, source))
    return csv_text(_COLUMNS, lines)


# --- figures -------------------------------------------------------------------------------------


def brittle_figure(data: BoardData, benchmark: str | None = None) -> Drawn | None:
    """Augmented accuracy against brittleness: ours, and the papers' as crosses."""
    names = [benchmark] if benchmark else data.benchmarks
    points = []
    for name in names:
        values = {key: found[0] for key, found in _by_model(data.paper_values(name)).items()}
        for (model, metric), x in values.items():
            y = values.get((model, "brittleness"))
            if metric == "augmented_accuracy" and y is not None:
                points.append(PaperPoint(name, model, float(x.value), float(y.value)))
    mine = {b: several for b, several in data.material.benchmarks.items() if b in names}
    numbers = [n for n in data.main_numbers if n.benchmark in names]
    found = brittle(ReportData(data.material.runs, mine), numbers, points)[0]
    return found if isinstance(found, Drawn) else None
