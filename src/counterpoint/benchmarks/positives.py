"""`+hp`: any benchmark with hard positives added, so that rewording is measured on it too.

The positives are in a file keyed by case id: the one named by the option `positives`, or
`positives/NAME.jsonl` (or .csv, .parquet) under the data root, `/` in a name written as `-`, or the
one that is shipped (`shipped/`, made by rules and checked, for benchmarks whose licence allows it).
Columns: case_id, text, and, where a case has several true captions, caption: the number of the one
that is reworded (0 if left out). A case may have several positives, or none.

A pairs file of `counterpoint generate positives NAME` will do as well: of every caption's positives
one is taken, so that all cases have one shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint.benchmarks import WITH_POSITIVES, Benchmark, Options
from counterpoint.cases import Case, Cases
from counterpoint.errors import DataError
from counterpoint.tables import read_table

_COLUMNS: Final = {"case_id": pl.String(), "text": pl.String()}
_PAIRS: Final = ("source", "caption", "text", "kind", "refused")  # of a pairs file
_SUFFIXES: Final = (".jsonl", ".parquet", ".csv")
_SHIPPED: Final = Path(__file__).with_name("shipped")

# By case id: a true caption, or its number, and its rewording.
_Added = dict[str, list[tuple[int | str, str]]]


def with_positives(benchmark: Benchmark) -> Benchmark:
    """The benchmark whose cases have the positives of a file."""

    def cases(options: Options) -> Cases:
        path = _file(benchmark.id, options)
        plain = benchmark.cases(options)
        extended = add_positives(plain, path)
        return Cases(extended.frame, extended.root, plain.absent)

    return replace(
        benchmark,
        id=benchmark.id + WITH_POSITIVES,
        summary=f"{benchmark.summary}; with your positives",
        shape=f"{benchmark.shape} + positives",
        cases=cases,
        defaults={**benchmark.defaults, "positives": ""},
    )


def _file(benchmark: str, options: Options) -> Path:
    if given := options.text("positives"):
        return Path(given)
    name = benchmark.replace("/", "-")
    stem = options.data / "positives" / name
    files = [stem.with_name(stem.name + ending) for ending in _SUFFIXES]
    found = [path for path in (*files, _SHIPPED / f"{name}.parquet") if path.is_file()]
    if not found:
        raise DataError(
            f"{benchmark}{WITH_POSITIVES} needs a file of positives, {stem}.jsonl or "
            f"{benchmark}{WITH_POSITIVES}:positives=FILE, with columns case_id and text; "
            f"`counterpoint generate positives {benchmark} -o {stem}.parquet` makes one."
        )
    return found[0]


def add_positives(cases: Cases, path: Path) -> Cases:
    """The cases with the positives of a file, each behind the true captions of its case."""
    ids = set(cases.ids.to_list())
    added = _read(path, ids)
    unknown = sorted(set(added) - ids)
    if unknown and path.parent != _SHIPPED:  # which is of the whole benchmark: you may have a part
        raise DataError(
            f"{path}: {len(unknown):,} of {len(added):,} case ids are not in the benchmark, "
            f"the first is {unknown[0]!r}."
        )
    rows = (_extended(cases.case(row), added, path) for row in range(len(cases)))
    return Cases.build(rows, root=cases.root, source=str(path))


def _read(path: Path, ids: set[str]) -> _Added:
    if path.suffix == ".parquet" and set(_PAIRS) <= set(_names(path)):
        return _read_pairs(path, ids)
    table = read_table(path, _COLUMNS)
    if "caption" in table.columns:
        table = read_table(path, {**_COLUMNS, "caption": pl.Int64()})
    else:
        table = table.with_columns(caption=pl.lit(0))
    found: _Added = {}
    for row, (case_id, text, caption) in enumerate(
        table.select("case_id", "text", "caption").iter_rows()
    ):
        if case_id is None or not (text or "").strip():
            raise DataError(f"{path}: row {row} lacks a case_id or a text.")
        found.setdefault(case_id, []).append((int(caption or 0), text))
    return found


def _names(path: Path) -> list[str]:
    try:
        return list(pl.read_parquet_schema(path))
    except (pl.exceptions.PolarsError, OSError):
        return []  # whoever reads it says what is wrong


def chosen_positives(path: Path) -> Iterator[tuple[str, str, str]]:
    """Of a pairs file: for each source its caption, and one of its positives.

    It is the one with the least digest: taken by chance, and always the same.
    """
    table = read_table(path, {name: pl.String() for name in _PAIRS})
    kept = table.filter(kind="positive", refused="").select("source", "caption", "text")
    best: dict[str, tuple[bytes, str, str]] = {}
    for source, caption, text in kept.iter_rows():
        key = blake2b(f"{source}\0{text}".encode(), digest_size=8).digest()
        best[source] = min(best.get(source, (key, caption, text)), (key, caption, text))
    for source, (_, caption, text) in best.items():
        yield source, caption, text


def _read_pairs(path: Path, ids: set[str]) -> _Added:
    """A source is a case, or `CASE#0`, `CASE#1` for the images of one that has several."""
    found: _Added = {}
    for source, caption, text in chosen_positives(path):
        case = source if source in ids else source.rpartition("#")[0] or source
        found.setdefault(case, []).append((caption, text))
    return found


def _extended(case: Case, added: _Added, path: Path) -> Case:
    columns = [tuple(line[number] for line in case.truth) for number in range(len(case.captions))]
    new = [
        (_number(case, columns, caption, path), text) for caption, text in added.get(case.id, [])
    ]
    if not new:
        return case
    pairs = list(_merged(case.captions, columns, new))
    truth = tuple(zip(*(column for _, column in pairs), strict=True))
    captions = tuple(text for text, _ in pairs)
    return replace(case, captions=captions, truth=truth)


def _number(case: Case, columns: list[tuple[bool, ...]], caption: int | str, path: Path) -> int:
    """Which of a case's captions is meant: by its number, or as it is written."""
    true = [number for number, column in enumerate(columns) if any(column)]
    if isinstance(caption, int):
        found = [caption] if caption in true else []
    else:
        found = [number for number in true if case.captions[number] == caption]
    if not found:
        what = f"number {caption}" if isinstance(caption, int) else repr(caption)
        raise DataError(f"{path}: case {case.id!r} has no true caption {what}.")
    return found[0]


def _merged(captions: Any, columns: Any, new: list[tuple[int, str]]) -> Iterator[tuple[str, Any]]:
    """True captions, then positives, then the others: a line's original stays its first."""
    old = list(zip(captions, columns, strict=True))
    last = max(number for number, column in enumerate(columns) if any(column))
    yield from old[: last + 1]
    yield from ((text, columns[caption]) for caption, text in new)
    yield from old[last + 1 :]
