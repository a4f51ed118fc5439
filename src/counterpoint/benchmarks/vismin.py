"""VisMin (Awal et al. 2024): two images that differ in one thing, and their captions.

The thing is an object, an attribute, a count or a place. In about half of the rows of the hub's
table the first caption belongs to the second image: the authors' `sim_solution.csv` says which.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks.annotations import files_below, label
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import (
    PairColumns,
    object_rows,
    pair_cases,
    published_file,
    unexpected,
)
from counterpoint.cases import Case, Cases

_COLUMNS: Final = PairColumns(("image_0", "image_1"), ("text_0", "text_1"), "id")
_SOLUTION: Final = "sim_solution.csv"
# What a right model's scores are: of the first image (I0), which of the captions (T) is above.
_IN_ORDER: Final = {
    "T0_I0 > T1_I0 & T1_I1 > T0_I1": True,
    "T1_I0 > T0_I0 & T0_I1 > T1_I1": False,
}


def _cases(options: Options) -> Cases:
    folder = options.data / "vismin"
    solution = published_file(folder, [_SOLUTION], "vismin")
    tables = files_below(folder, "*.parquet")
    if not tables:
        raise unexpected(folder, "the tables of mair-lab/vismin-bench, *.parquet", folder)
    return Cases.build(_rows(tables, solution, options), root=options.data, source=str(folder))


def _rows(tables: list[Path], solution: Path, options: Options) -> Iterator[Case]:
    order = [_in_order(row, solution, place) for place, row in enumerate(_solutions(solution))]
    cases = list(
        pair_cases(
            tables,
            _COLUMNS,
            options,
            "vismin",
            image=lambda _, name: name,
            groups=_groups,
            more=("category",),
        )
    )
    if len(cases) != len(order):
        raise unexpected(solution, f"{len(cases):,} rows, as in the tables", len(order))
    for case, kept in zip(cases, order, strict=True):
        named = replace(case, id="/".join((*case.groups, case.id)))  # ids begin anew in a category
        yield named if kept else replace(named, captions=case.captions[::-1])


def _solutions(path: Path) -> Iterator[dict[str, Any]]:
    return object_rows(path, ("Text", "category"), "vismin")


def _in_order(row: dict[str, Any], path: Path, place: int) -> bool:
    if row["Text"] not in _IN_ORDER:
        raise unexpected(f"{path}: row {place + 1}", " or ".join(_IN_ORDER), row["Text"])
    return _IN_ORDER[row["Text"]]


def _groups(row: dict[str, Any]) -> Iterator[str]:
    if isinstance(row.get("category"), str):
        yield label(row["category"])


VISMIN: Final = Benchmark(
    "vismin",
    "two images that differ in an object, an attribute, a count or a place, and their captions",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Awal et al. 2024, VisMin, arXiv 2407.16772",
    licence="CC BY 4.0",
    images="in the Parquet files (generated, and COCO)",
    count=2_084,
    ids="category/the source's own id",
    untried=True,
)
