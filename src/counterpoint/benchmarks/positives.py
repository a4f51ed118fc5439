"""`+hp`: any benchmark with hard positives added, so that rewording is measured on it too.

The positives are in a file keyed by case id: `positives/NAME.jsonl` (or .csv, .parquet) under the
data root, `/` in a name written as `-`, or the file named by the option `positives`. Columns:
case_id, text, and, where a case has several true captions, caption: the number of the one that is
reworded (0 if left out). A case may have several positives, or none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint.benchmarks import WITH_POSITIVES, Benchmark, Options
from counterpoint.cases import Case, Cases
from counterpoint.errors import DataError
from counterpoint.tables import read_table

_COLUMNS: Final = {"case_id": pl.String(), "text": pl.String()}
_SUFFIXES: Final = (".jsonl", ".parquet", ".csv")


def with_positives(benchmark: Benchmark) -> Benchmark:
    """The benchmark whose cases have the positives of a file."""

    def cases(options: Options) -> Cases:
        path = _file(benchmark.id, options)
        return add_positives(benchmark.cases(options), path)

    return replace(
        benchmark,
        id=benchmark.id + WITH_POSITIVES,
        summary=f"{benchmark.summary}; with your positives",
        shape=f"{benchmark.shape} + positives",
        cases=cases,
        count=None,
        defaults={**benchmark.defaults, "positives": ""},
    )


def _file(benchmark: str, options: Options) -> Path:
    if given := options.text("positives"):
        return Path(given)
    stem = options.data / "positives" / benchmark.replace("/", "-")
    files = [stem.with_name(stem.name + ending) for ending in _SUFFIXES]
    found = [path for path in files if path.is_file()]
    if not found:
        raise DataError(
            f"{benchmark}{WITH_POSITIVES} needs a file of positives, {stem}.jsonl or "
            f"{benchmark}{WITH_POSITIVES}:positives=FILE, with columns case_id and text."
        )
    return found[0]


def add_positives(cases: Cases, path: Path) -> Cases:
    """The cases with the positives of a file, each behind the true captions of its case."""
    added = _read(path)
    unknown = sorted(set(added) - set(cases.ids.to_list()))
    if unknown:
        raise DataError(
            f"{path}: {len(unknown):,} of {len(added):,} case ids are not in the benchmark, "
            f"the first is {unknown[0]!r}."
        )
    rows = (_extended(cases.case(row), added, path) for row in range(len(cases)))
    return Cases.build(rows, root=cases.root, source=str(path))


def _read(path: Path) -> dict[str, list[tuple[int, str]]]:
    """By case id: the number of a true caption and its rewording."""
    table = read_table(path, _COLUMNS)
    if "caption" in table.columns:
        table = read_table(path, {**_COLUMNS, "caption": pl.Int64()})
    else:
        table = table.with_columns(caption=pl.lit(0))
    found: dict[str, list[tuple[int, str]]] = {}
    for row, (case_id, text, caption) in enumerate(
        table.select("case_id", "text", "caption").iter_rows()
    ):
        if case_id is None or not (text or "").strip():
            raise DataError(f"{path}: row {row} lacks a case_id or a text.")
        found.setdefault(case_id, []).append((int(caption or 0), text))
    return found


def _extended(case: Case, added: dict[str, list[tuple[int, str]]], path: Path) -> Case:
    new = added.get(case.id, [])
    if not new:
        return case
    columns = [tuple(line[number] for line in case.truth) for number in range(len(case.captions))]
    for caption, _ in new:
        if not 0 <= caption < len(columns) or not any(columns[caption]):
            raise DataError(f"{path}: case {case.id!r} has no true caption number {caption}.")
    pairs = list(_merged(case.captions, columns, new))
    truth = tuple(zip(*(column for _, column in pairs), strict=True))
    captions = tuple(text for text, _ in pairs)
    return replace(case, captions=captions, truth=truth)


def _merged(captions: Any, columns: Any, new: list[tuple[int, str]]) -> Iterator[tuple[str, Any]]:
    """True captions, then positives, then the others: a line's original stays its first."""
    old = list(zip(captions, columns, strict=True))
    last = max(number for number, column in enumerate(columns) if any(column))
    yield from old[: last + 1]
    yield from ((text, columns[caption]) for caption, text in new)
    yield from old[last + 1 :]
