"""Tables of users: CSV, TSV, JSON Lines or Parquet, by the ending of the file name."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, Self

import polars as pl

from counterpoint._util.errors import CounterpointError, DataError
from counterpoint._util.untrusted import shortened, shown

_POLARS: Final = (pl.exceptions.PolarsError, pl.exceptions.PanicException)  # at damaged files
_MARK: Final = b"\xef\xbb\xbf"  # the byte order mark that Windows writes


def parquet_columns(path: Path, error: type[CounterpointError] = DataError) -> list[str]:
    """The names of the columns of a Parquet file; no row is read."""
    return list(parquet_schema(path, error).names)


def parquet_schema(path: Path, error: type[CounterpointError] = DataError) -> Any:
    """The columns of a Parquet file with their Arrow types; no row is read."""
    import pyarrow.parquet as pq  # slow to import

    with _reading(path, error):
        return pq.read_schema(path)


def parquet_frames(
    path: Path,
    error: type[CounterpointError] = DataError,
    *,
    rows: int = 1 << 20,
    columns: Sequence[str] | None = None,
) -> Iterator[pl.DataFrame]:
    """A Parquet file in pieces of `rows` rows, at least one piece. Raises `error`.

    It is read with pyarrow, since polars panics on some damaged files.
    """
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    with _reading(path, error), pq.ParquetFile(path) as file:
        empty = True
        for batch in file.iter_batches(rows, columns=columns):
            batch.validate(full=True)  # polars assumes that texts are UTF-8
            yield _frame(pa.Table.from_batches([batch]))
            empty = False
        if empty:
            nothing = file.schema_arrow.empty_table()
            yield _frame(nothing if columns is None else nothing.select(columns))


class ParquetGroups:
    """Writes a Parquet file frame by frame, in groups of `rows` rows.

    The groups, and so the bytes of the file, do not depend on how many rows come at a time.
    `options` are those of pyarrow's ParquetWriter.
    """

    def __init__(
        self, path: Path, schema: Mapping[str, pl.DataType], rows: int, **options: Any
    ) -> None:
        import pyarrow.parquet as pq  # slow to import

        self._nothing = pl.DataFrame(schema=dict(schema)).to_arrow()
        self._writer = pq.ParquetWriter(path, self._nothing.schema, compression="zstd", **options)
        self._rows, self._written = rows, False
        self._held: list[pl.DataFrame] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.end_group()
            if not self._written:
                self._writer.write_table(self._nothing)
        self._writer.close()

    def add(self, frame: pl.DataFrame) -> None:
        while frame.height:
            room = self._rows - sum(map(len, self._held))
            self._held.append(frame[:room])
            if frame.height >= room:
                self.end_group()
            frame = frame[room:]

    def end_group(self) -> None:
        """What follows begins a new group."""
        if self._held:
            self._writer.write_table(pl.concat(self._held, rechunk=True).to_arrow())
            self._held, self._written = [], True


def _frame(table: Any) -> pl.DataFrame:
    """The table without its metadata, which polars assumes to be UTF-8 as well."""
    return pl.DataFrame(table.replace_schema_metadata(None))


@contextmanager
def _reading(path: Path, error: type[CounterpointError]) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, *_POLARS, ValueError, OSError) as problem:
        why = shortened(problem).rstrip(". ") or type(problem).__name__
        raise error("E-FILE-MALFORMED", f"{path}: not a readable Parquet file: {why}.") from None


def read_table(path: Path, columns: Mapping[str, pl.DataType]) -> pl.DataFrame:
    """A table with at least these columns in these types; other columns stay as they are."""
    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    try:
        table = _scan(path)
        missing = [name for name in columns if name not in table.columns]
        if missing:
            raise DataError(
                "E-COLUMN-MISSING",
                f"{path}: the column {missing[0]!r} is missing; "
                f"it should have {', '.join(columns)}.",
            )
        return table.with_columns(_cast(table[name], kind, path) for name, kind in columns.items())
    except (*_POLARS, UnicodeDecodeError, OSError) as error:
        why = shortened(error).rstrip(". ") or type(error).__name__
        raise DataError("E-FILE-MALFORMED", f"{path}: not a readable table: {why}.") from None


def _cast(values: pl.Series, kind: pl.DataType, path: Path) -> pl.Series:
    cast = values.cast(kind, strict=False)
    bad = cast.is_null() & values.is_not_null()
    if kind.is_integer() and values.dtype.is_float():
        bad |= (values % 1 != 0).fill_null(False)  # a cast would cut 0.5 to 0
    if bad.any():
        row = int(bad.arg_true()[0])
        wanted = "whole numbers" if kind.is_integer() else "numbers" if kind.is_float() else "texts"
        raise DataError(
            "E-VALUE-INVALID",
            f"{path}: {values.name!r} should hold {wanted}, in row {row + 1} it is "
            f"{shown(values[row])}.",
        )
    return cast


def _scan(path: Path) -> pl.DataFrame:
    if path.suffix == ".parquet":
        return pl.concat(parquet_frames(path))
    if path.suffix in (".jsonl", ".ndjson"):
        return pl.read_ndjson(_without_mark(path), infer_schema_length=None)
    if path.suffix in (".csv", ".tsv"):
        # Texts stay texts ("007" is an id); numbers are cast by the caller's types.
        return pl.read_csv(
            path,
            separator="\t" if path.suffix == ".tsv" else ",",
            infer_schema=False,
            glob=False,
        )
    raise DataError("E-FILE-FORMAT", f"{path}: a table ends in .csv, .tsv, .jsonl or .parquet.")


def _without_mark(path: Path) -> Path | io.BytesIO:
    """The file without its byte order mark, which polars skips in CSV files only."""
    with path.open("rb") as file:
        return io.BytesIO(file.read()) if file.read(len(_MARK)) == _MARK else path
