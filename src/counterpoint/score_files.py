"""Score tables on disk: a row for every pair, written and read in pieces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint.cases import Cases
from counterpoint.errors import RunError

_PAIRS: Final = 4_000_000  # rows of the table that are made at a time
_SCORE: Final = "score"
_SCHEMA: Final = pl.Schema(
    {
        "benchmark": pl.String(),
        "case_id": pl.String(),
        "image": pl.Int32(),
        "caption": pl.Int32(),
        _SCORE: pl.Float32(),
    }
)


def write_scores(path: Path, parts: Iterable[tuple[str, Cases, np.ndarray]]) -> None:
    """Columns benchmark, case_id, image, caption, score. A part is a benchmark's name, its cases
    and their scores, flat as `Cases.pair_offsets`.
    """
    import pyarrow.parquet as pq  # slow to import

    pieces = (
        pairs.with_columns(pl.Series(_SCORE, scores[start : start + len(pairs)], pl.Float32()))
        for name, cases, scores in parts
        for start, pairs in _pairs(name, cases)
    )
    first = next(pieces, pl.DataFrame(schema=_SCHEMA)).to_arrow()
    # Scores of one kind share their high bytes, and indices count up: written so, a table of many
    # millions of pairs is smaller than its scores alone.
    with pq.ParquetWriter(
        path,
        first.schema,
        compression="zstd",
        use_dictionary=["benchmark", "case_id"],
        column_encoding={
            "image": "DELTA_BINARY_PACKED",
            "caption": "DELTA_BINARY_PACKED",
            _SCORE: "BYTE_STREAM_SPLIT",
        },
    ) as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece.to_arrow())


def read_scores(path: Path, parts: Iterable[tuple[str, Cases]]) -> dict[str, np.ndarray]:
    """The scores of each part, if the table has the parts' pairs, all of them, in their order."""
    table = pl.scan_parquet(path, glob=False)  # brackets in a name are no pattern
    if table.collect_schema() != _SCHEMA:
        raise RunError(f"{path}: should have the columns {', '.join(_SCHEMA)} of their types.")
    rows, found = 0, {}
    for name, cases in parts:
        scores = np.empty(cases.pair_offsets[-1], dtype=np.float32)
        for start, pairs in _pairs(name, cases):
            piece = table.slice(rows, len(pairs)).collect()
            if not piece.drop(_SCORE).equals(pairs):
                raise RunError(f"{path}: its rows are not the pairs of the cases of {name}.")
            scores[start : start + len(pairs)] = piece[_SCORE].to_numpy()  # a null is not finite
            rows += len(pairs)
        if not np.isfinite(scores).all():
            raise RunError(f"{path}: {name} has a score that is missing or not finite.")
        found[name] = scores
    if table.select(pl.len()).collect().item() != rows:
        raise RunError(f"{path}: has more rows than its cases have pairs.")
    return found


def _pairs(name: str, cases: Cases) -> Iterator[tuple[int, pl.DataFrame]]:
    """The table without its scores, in pieces, each with the place of its first pair."""
    layout, ids = cases.layout(), cases.ids
    for lines in layout.pieces(np.arange(layout.images[-1]), _PAIRS, _PAIRS):
        pairs = layout.pairs(lines)
        columns = {
            "benchmark": pl.repeat(name, len(pairs.cases), dtype=pl.String(), eager=True),
            "case_id": ids.gather(pairs.cases),
            "image": pl.Series(pairs.images - layout.images[pairs.cases], dtype=pl.Int32()),
            "caption": pl.Series(pairs.captions - layout.captions[pairs.cases], dtype=pl.Int32()),
        }
        yield int(pairs.places[0]) if len(lines) else 0, pl.DataFrame(columns)
