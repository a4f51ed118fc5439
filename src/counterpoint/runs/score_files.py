"""Score files: one row per pair, written and read in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import RunError
from counterpoint._util.tables import ParquetGroups
from counterpoint._util.untrusted import shortened
from counterpoint.cases import Cases, Layout, offsets

_GROUP: Final = 1 << 20  # rows of a group: so many are made at a time
_READ: Final = 1 << 20  # rows that are read at a time
_TEXTS: Final = ("benchmark", "case_id")
_SCHEMA: Final = pl.Schema(
    {
        **dict.fromkeys(_TEXTS, pl.String()),
        **dict.fromkeys(("image", "caption"), pl.Int32()),
        "score": pl.Float32(),
    }
)
_COLUMNS: Final = tuple(_SCHEMA)


class _PairRows(NamedTuple):
    """Pairs of images and captions, each counted within its case.

    Lines of pairs, or parts of lines: the case of each, and how many pairs of it these are.
    """

    images: np.ndarray
    captions: np.ndarray
    cases: np.ndarray
    sizes: np.ndarray


class ScoreWriter(ParquetGroups):
    """Writes the columns benchmark, case_id, image, caption, score, some cases at a time."""

    def __init__(self, path: Path) -> None:
        # Similar scores share their high bytes, and indices count up: with these encodings a table
        # of many millions of pairs is smaller than its scores alone.
        encodings = {
            "image": "DELTA_BINARY_PACKED",
            "caption": "DELTA_BINARY_PACKED",
            "score": "BYTE_STREAM_SPLIT",
        }
        super().__init__(
            path, _SCHEMA, _GROUP, use_dictionary=list(_TEXTS), column_encoding=encodings
        )
        self._benchmark = ""

    def add_scores(self, name: str, cases: Cases, scores: np.ndarray) -> None:
        """Cases of a benchmark, and their scores, flat as `Cases.pair_offsets`."""
        if name != self._benchmark:
            self.end_group()
            self._benchmark = name
        ids, layout = cases.ids, cases.layout()
        for start in range(0, len(scores), _GROUP):
            stop = min(start + _GROUP, len(scores))
            self.add(_table(name, ids, _pairs(layout, start, stop), scores[start:stop]))


def _table(name: str, ids: pl.Series, pairs: _PairRows, scores: np.ndarray) -> pl.DataFrame:
    columns = (
        pl.repeat(name, len(scores), dtype=pl.String(), eager=True),
        ids.gather(np.repeat(pairs.cases, pairs.sizes)),
        pairs.images,
        pairs.captions,
        scores,
    )
    return pl.DataFrame(dict(zip(_COLUMNS, columns, strict=True)), schema_overrides=_SCHEMA)


def _pairs(layout: Layout, start: int, stop: int) -> _PairRows:
    """The pairs from `start` to `stop`."""
    first = int(np.searchsorted(layout.line_pairs, start, side="right")) - 1
    last = int(np.searchsorted(layout.line_pairs, stop, side="left"))
    begins = layout.line_pairs[first : last + 1]
    cases, sizes = layout.line_cases[first:last], np.diff(begins.clip(start, stop))
    images = (np.arange(first, last) - layout.images[cases]).astype(np.int32)
    captions = np.arange(start, stop) - np.repeat(begins[:-1], sizes)
    return _PairRows(np.repeat(images, sizes), captions, cases, sizes)


def read_scores(path: Path, parts: Iterable[tuple[str, Cases]]) -> dict[str, np.ndarray]:
    """The scores of each part. The table must have exactly the pairs of the parts, in order."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    try:
        _refuse_columns(pq.read_schema(path), path)
        with pq.ParquetFile(path, read_dictionary=list(_TEXTS)) as file:
            rows = _Rows(file.iter_batches(_READ, columns=list(_COLUMNS)))
            found = {name: _read_part(name, cases, rows, path) for name, cases in parts}
            if rows.take(1) is not None:
                raise RunError("E-RUN-DAMAGED", f"{path}: has more rows than its cases have pairs.")
    except (pa.ArrowException, ValueError, OSError) as error:  # ValueError: texts not in UTF-8
        raise RunError(
            "E-RUN-DAMAGED", f"{path}: cannot be read: {shortened(error).rstrip('. ')}."
        ) from None
    return found


def _refuse_columns(schema: Any, path: Path) -> None:
    import pyarrow as pa

    def is_text(kind: Any) -> bool:
        return bool(pa.types.is_large_string(kind) or pa.types.is_string(kind))

    kinds = (is_text,) * 2 + (pa.types.is_int32,) * 2 + (pa.types.is_float32,)
    if not all(
        schema.names.count(name) == 1 and fits(schema.field(name).type)
        for name, fits in zip(_COLUMNS, kinds, strict=True)
    ):
        raise RunError(
            "E-RUN-DAMAGED",
            f"{path}: should have the columns {', '.join(_COLUMNS)} of their types.",
        )


class _Rows:
    """Rows from batches of any size."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches, self._rest = batches, None

    def take(self, most: int) -> Any:
        """The next rows, `most` or fewer; None if there are none."""
        while self._rest is None or not self._rest.num_rows:
            self._rest = next(self._batches, None)
            if self._rest is None:
                return None
        taken, self._rest = self._rest.slice(0, most), self._rest.slice(most)
        return taken


def _read_part(name: str, cases: Cases, rows: _Rows, path: Path) -> np.ndarray:
    layout, ids = cases.layout(), cases.ids
    total = int(layout.line_pairs[-1])
    scores, start = np.empty(total, dtype=np.float32), 0
    while start < total:
        batch = rows.take(total - start)
        stop = start + (batch.num_rows if batch is not None else 0)
        if batch is None or not _is_of(batch, name, ids, _pairs(layout, start, stop)):
            raise RunError(
                "E-RUN-DAMAGED",
                f"{path}: its rows are not the pairs of the cases of {shortened(name)}.",
            )
        scores[start:stop] = batch["score"].to_numpy()
        start = stop
    if not np.isfinite(scores).all():
        raise RunError(
            "E-RUN-DAMAGED", f"{path}: {shortened(name)} has a score that is not finite."
        )
    return scores


def _is_of(batch: Any, name: str, ids: pl.Series, pairs: _PairRows) -> bool:
    """Whether rows are those of these pairs."""
    if any(column.null_count for column in batch.columns):
        return False
    images, captions = batch["image"].to_numpy(), batch["caption"].to_numpy()
    first = np.flatnonzero(np.diff(pairs.cases, prepend=-1))  # lines with which a case begins
    begins = offsets(pairs.sizes)[first]
    return (
        np.array_equal(images, pairs.images)
        and np.array_equal(captions, pairs.captions)
        and _repeats(batch["benchmark"], np.zeros(1, dtype=np.int64), [name])
        and _repeats(batch["case_id"], begins, ids.gather(pairs.cases[first]).to_list())
    )


def _repeats(column: Any, begins: np.ndarray, texts: list[str]) -> bool:
    """Whether a column repeats each text from its place in `begins` up to the next."""
    codes = column.indices.to_numpy()
    sizes = np.diff(np.append(begins, len(codes)))
    return (
        np.array_equal(codes, np.repeat(codes[begins], sizes))
        and column.dictionary.take(column.indices.take(begins)).to_pylist() == texts
    )
