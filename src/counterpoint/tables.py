"""Tables that users bring: CSV, TSV, JSON Lines or Parquet, by their ending."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import polars as pl

from counterpoint.errors import DataError


def read_table(path: Path, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """A table with at least these columns, as these types; others are kept as they are."""
    if not path.is_file():
        raise DataError(f"{path}: no such file.")
    try:
        table = _scan(path)
        missing = [name for name in columns if name not in table.columns]
        if missing:
            raise DataError(
                f"{path}: the column {missing[0]!r} is missing; "
                f"it should have {', '.join(columns)}."
            )
        _refuse_fractions(table, columns, path)
        return table.with_columns(pl.col(name).cast(kind) for name, kind in columns.items())
    except (pl.exceptions.PolarsError, UnicodeDecodeError, OSError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{path}: not a readable table: {why}.") from None


def _refuse_fractions(table: pl.DataFrame, columns: Mapping[str, pl.DataType], path: Path) -> None:
    """A cast would cut 0.5 to 0."""
    for name, kind in columns.items():
        if kind.is_integer() and table.schema[name].is_float():
            broken = table[name].drop_nulls().filter(table[name].drop_nulls() % 1 != 0)
            if len(broken):
                raise DataError(f"{path}: {name!r} should hold whole numbers, not {broken[0]}.")


def _scan(path: Path) -> pl.DataFrame:
    if path.suffix == ".parquet":
        return pl.read_parquet(path, glob=False)  # brackets in a name are no pattern
    if path.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(path, infer_schema_length=None)
    if path.suffix in (".csv", ".tsv"):
        # Texts stay texts ("007" is an id); numbers are cast by the caller's types.
        return pl.read_csv(
            path,
            separator="\t" if path.suffix == ".tsv" else ",",
            infer_schema=False,
            glob=False,
        )
    raise DataError(f"{path}: a table ends in .csv, .tsv, .jsonl or .parquet.")
