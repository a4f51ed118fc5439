"""The tables of a board's pages, with links to models, benchmarks and runs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

from counterpoint.metrics import ALL, METRICS, WHOLE, in_order
from counterpoint.reports.board.data import BoardData, PaperValue, SameCases
from counterpoint.reports.data import ReportData
from counterpoint.reports.figures.drawing import Drawn
from counterpoint.reports.figures.intervals import is_shuffled
from counterpoint.reports.figures.scatter import PUBLISHED, PaperPoint, brittle
from counterpoint.reports.formats import csv_text
from counterpoint.reports.ranking import counts_text
from counterpoint.reports.table import (
    ColumnHead,
    ModelTable,
    TableCell,
    TableLine,
    Tables,
    cell_of,
    chance_line,
    columns_of,
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

    def ours(self, data: BoardData, label: str, benchmark: str) -> str:
        """To the page of a model, or to its run of a benchmark."""
        run = f"#run-{data.run_of(label, benchmark).name}" if benchmark else ""
        return f"{self.model(label)}{run}"


# --- the first page ------------------------------------------------------------------------------


def index_sheet(data: BoardData, links: Links) -> ModelTable:
    """Every model on every benchmark: its main metric, and brittleness."""
    heads = []
    for b in data.benchmarks:
        several, metrics = data.same_cases.get(b, []), data.columns(b)
        if metrics and (several or not is_shuffled(b)):
            counts = [max(n.n for n in same.numbers) for same in several]
            count = counts_text(counts) if several else ""
            part = len(several) > 1 or any(same.lacks for same in several)
            about = (count, data.kind(b), links.benchmark(b), part)
            heads.append(ColumnHead(b, ALL, metrics, "", *about))
    columns = columns_of(heads)
    ours = _our_cells(data, links)
    lines = [
        TableLine(
            label,
            kind_of(run.model),
            [ours.get((label, *column), TableCell()) for column in columns],
            links.model(label),
        )
        for label, run in data.material.runs.items()
    ]
    theirs = _by_column(v for h in heads for v in data.paper_values(h.benchmark))
    beside = [chance_line(data.main_numbers, columns)]
    for name in data.published_models:
        cells = [_paper(theirs.get((name, *c), []), links.benchmark(c[0])) for c in columns]
        beside.append(TableLine(name, "published", cells, links.paper(name), PUBLISHED))
    return ModelTable(heads, [*lines, *(line for line in beside if not line.empty)])


def _our_cells(data: BoardData, links: Links) -> dict[tuple[str, ...], TableCell]:
    """By label and column. What is compared with others stands on the page of the benchmark."""
    cells: dict[tuple[str, ...], TableCell] = {}
    for benchmark, several in data.same_cases.items():
        for number, same in enumerate(several):
            for n in (n for n in same.numbers if n.group == ALL):
                link = links.ours(data, n.model, benchmark)
                shown = replace(n, standing="") if number else n
                cell = cell_of(shown, data.papers, same.part, link)
                if number:
                    says = f"{cell.says}; over other cases: not compared"
                    cell = replace(cell, apart=True, says=says)
                cells[n.model, benchmark, ALL, n.metric] = cell
    return cells


def _by_column(values: Iterable[PaperValue]) -> dict[tuple[str, ...], list[PaperValue]]:
    """By model and column."""
    found: dict[tuple[str, ...], list[PaperValue]] = {}
    for v in values:
        found.setdefault((v.model, v.benchmark, v.group, v.metric), []).append(v)
    return found


def _paper(values: Sequence[PaperValue], page: str = "") -> TableCell:
    """The first of the papers' values; the others are in its words."""
    if not values:
        return TableCell()
    sources = "; ".join(dict.fromkeys(f"{v.value}, {v.source}" for v in values))
    link = f"{page}#published" if page else ""
    return TableCell(values[0].value, says=f"published: {sources}", link=link)


# --- the page of a benchmark ---------------------------------------------------------------------


def benchmark_tables(data: BoardData, same: SameCases, links: Links) -> Tables:
    """The report's tables of the runs that are compared, with links."""
    benchmark = same.scored[0].part.benchmark
    runs = {label: run for label, run in data.material.runs.items() if label in same.labels}
    parts = {(label, benchmark): same.size for label in same.labels if same.lacks}
    material = ReportData(runs, {benchmark: same.scored})
    return tables(material, same.numbers, data.papers, parts, partial(links.ours, data))


def paper_sheets(data: BoardData, benchmark: str, links: Links) -> dict[str, ModelTable]:
    """Published values by protocol and average: models by groups and metrics."""
    sheets = {}
    mine = [v for v in data.values.get(benchmark, []) if METRICS[v.metric].main]
    for protocol, average in dict.fromkeys((v.protocol, v.average) for v in mine):
        values = [v for v in mine if (v.protocol, v.average) == (protocol, average)]
        heads = [
            ColumnHead(benchmark, group, in_order(v.metric for v in values if v.group == group))
            for group in _groups(values)
        ]
        known, columns = _by_column(values), columns_of(heads)
        lines = [
            TableLine(
                name,
                "published",
                [_paper(known.get((name, *column), [])) for column in columns],
                links.paper(name),
            )
            for name in dict.fromkeys(v.model for v in values)
        ]
        kept = [line for line in lines if not line.empty]
        sheets[f"protocol {protocol}, {average} average"] = ModelTable(heads, kept)
    return sheets


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
    sheets = {}
    for benchmark, several in data.same_cases.items():
        numbers = [n for same in several for n in same.numbers if n.model == label]
        if not numbers:
            continue
        part = next((same.part for same in several if label in same.labels and same.part), "")
        known = {(n.group, n.metric): n for n in numbers}
        metrics = in_order(n.metric for n in numbers)
        link = links.ours(data, label, benchmark)
        lines = [
            TableLine(
                "all cases" if group == ALL else group,
                "model",
                [cell_of(known.get((group, m)), data.papers, part, link) for m in metrics],
            )
            for group in dict.fromkeys(n.group for n in numbers)
        ]
        count = f"{max(n.n for n in numbers if n.group in WHOLE):,}"
        about = ("", count, "", links.benchmark(benchmark), bool(part))
        sheets[benchmark] = ModelTable([ColumnHead(benchmark, ALL, metrics, *about)], lines)
    return sheets


# --- all numbers as data ---------------------------------------------------------------------


_COLUMNS: Final = (
    *("kind", "model", "benchmark", "group", "metric", "protocol", "average"),
    *("value", "ci_low", "ci_high", "n", "ties", "standing", "cases", "run", "source"),
)


def all_numbers(data: BoardData) -> str:
    """Ours and the papers', as fractions. Only numbers of the same `cases` are compared."""
    rows: list[dict[str, Any]] = []
    for benchmark, several in data.same_cases.items():
        for number, same in enumerate(several, start=1):
            used = same.scored[0].protocol
            rows += [
                {
                    **asdict(n),
                    "kind": "measured",
                    "protocol": used.name,
                    "average": used.average,
                    "cases": f"{benchmark} {number}",
                    "run": data.run_of(n.model, benchmark).name,
                }
                for n in same.numbers
            ]
    for v in data.every_value:
        value = float(v.value) / (100 if METRICS[v.metric].unit == "share" else 1)
        about = {"kind": PUBLISHED, "value": round(value, 12), "source": v.cited}
        rows.append({**v._asdict(), **about})
    return csv_text(_COLUMNS, rows)


# --- figures -------------------------------------------------------------------------------------


def brittle_figure(data: BoardData, benchmark: str | None = None) -> Drawn | None:
    """Augmented accuracy against brittleness: ours, and the papers' as crosses."""
    names = [benchmark] if benchmark else data.benchmarks
    points = []
    for name in names:
        values = _by_column(data.paper_values(name))
        for (model, *place, metric), [x, *_] in values.items():
            y = values.get((model, *place, "brittleness"))
            if metric == "augmented_accuracy" and y is not None:
                points.append(PaperPoint(name, model, float(x.value), float(y[0].value)))
    mine = {b: several for b, several in data.material.benchmarks.items() if b in names}
    numbers = [n for n in data.main_numbers if n.benchmark in names]
    figure = brittle(ReportData(data.material.runs, mine), numbers, points)[0]
    return figure if isinstance(figure, Drawn) else None
