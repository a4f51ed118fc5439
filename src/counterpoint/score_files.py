"""Score tables on disk: a row for every pair, written in pieces, however many there are."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint.cases import Cases

_PAIRS: Final = 4_000_000  # rows of the table that are made at a time


def write_scores(path: Path, parts: Iterable[tuple[str, Cases, np.ndarray]]) -> None:
    """Columns benchmark, case_id, image, caption, score. A part is a benchmark's name, its cases
    and their scores, flat as `Cases.pair_offsets`.
    """
    import pyarrow.parquet as pq  # slow to import

    pieces = (
        piece.to_arrow()
        for name, cases, scores in parts
        for piece in _score_tables(name, cases, scores)
    )
    first = next(pieces, _table("", pl.Series([], dtype=pl.String()), [], [], []).to_arrow())
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
            "score": "BYTE_STREAM_SPLIT",
        },
    ) as writer:
        writer.write_table(first)
        for piece in pieces:
            writer.write_table(piece)


def _score_tables(name: str, cases: Cases, scores: np.ndarray) -> Iterator[pl.DataFrame]:
    layout, ids = cases.layout(), cases.ids
    for lines in layout.pieces(np.arange(layout.images[-1]), _PAIRS, _PAIRS):
        pairs = layout.pairs(lines)
        yield _table(
            name,
            ids.gather(pairs.cases),
            pairs.images - layout.images[pairs.cases],
            pairs.captions - layout.captions[pairs.cases],
            scores[pairs.places],
        )


def _table(
    name: str,
    ids: pl.Series,
    images: np.ndarray | list[int],
    captions: np.ndarray | list[int],
    scores: np.ndarray | list[float],
) -> pl.DataFrame:
    columns = {
        "benchmark": pl.repeat(name, len(ids), eager=True),
        "case_id": ids,
        "image": pl.Series(images, dtype=pl.Int32),
        "caption": pl.Series(captions, dtype=pl.Int32),
        "score": pl.Series(scores, dtype=pl.Float32),
    }
    return pl.DataFrame(columns)
