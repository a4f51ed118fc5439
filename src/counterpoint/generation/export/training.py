"""Pairs as a training set: one row per caption, with all its texts.

| column          | type                    | meaning |
|-----------------|-------------------------|---------|
| source          | str                     | the caption's id |
| image           | str or null             | its path |
| box             | list of int or null     | x, y, width, height |
| caption         | str                     | |
| positives       | list of str             | |
| positive_types  | list of str             | replace, swap, ..., of each |
| negatives       | list of str             | |
| negative_types  | list of str             | of each |
| negative_images | list of (str or null)   | of each negative, an image that it is true of |
| neighbours      | list of str             | the nearest other images, if a file of them is given |

Parquet and JSON Lines hold all of it. CSV and TSV are NegCLIP's: `title`, `filepath`, `neg_caption`
(a Python list) and, with neighbours, `neg_image` (a list of row numbers of this file). Captions
without a negative and captions of a crop have no row there: the format cannot hold them.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Progress
from counterpoint._util.tables import read_table
from counterpoint._util.writing import whole_file
from counterpoint.generation.export.groups import QUIET, Group, ImagePaths, LeftOut, read_groups

Record = dict[str, Any]
Neighbours = dict[str, list[str]]
Rows = Callable[[LeftOut], Iterator[Record]]
_CHUNK: Final = 20_000


def export_training(
    pairs: Sequence[Path],
    out: Path,
    left_out: LeftOut,
    *,
    images: Path | None = None,
    root: Path | None = None,
    neighbours: Path | None = None,
    progress: Progress = QUIET,
) -> int:
    """Write a training set in the format of the file name; returns the number of rows."""
    if out.suffix not in _WRITERS:
        raise DataError(
            "E-FILE-FORMAT",
            f"{out}: the name of a training set ends in {', '.join(_WRITERS)}.",
            path=out,
        )
    near = {} if neighbours is None else _read_neighbours(neighbours)
    moves = [ImagePaths.of(file, out.parent, images=images, root=root) for file in pairs]

    def rows(counts: LeftOut) -> Iterator[Record]:
        return _rows(read_groups(pairs, counts, moves, progress), counts, moves[0], near)

    with whole_file(out) as draft:
        written = _WRITERS[out.suffix](draft, rows, left_out, bool(near))
        if not written:
            raise DataError(
                "E-PAIRS-EMPTY", f"{pairs[0]}: has no pairs to train on.", path=pairs[0]
            )
    return written


def _read_neighbours(path: Path) -> Neighbours:
    """The nearest images of each image: the columns `image` and `neighbours`."""
    table = read_table(path, {"image": pl.String(), "neighbours": pl.List(pl.String())})
    return dict(zip(table["image"].to_list(), table["neighbours"].to_list(), strict=True))


def _rows(
    groups: Iterator[Group], left_out: LeftOut, paths: ImagePaths, near: Neighbours
) -> Iterator[Record]:
    for group in groups:
        image, found = group.image, near.get(group.path or "", [])
        if near and not found:
            left_out["neighbours: captions of an image that has none"] += 1
        yield {
            "source": group.source,
            "image": None if image is None else image.path,
            "box": None if image is None or image.box is None else list(image.box),
            "caption": group.caption,
            "positives": [text.text for text in group.positives],
            "positive_types": [text.type for text in group.positives],
            "negatives": [text.text for text in group.negatives],
            "negative_types": [text.type for text in group.negatives],
            "negative_images": [text.image for text in group.negatives],
            "neighbours": [paths.image(path) for path in found],
        }


def _parquet(path: Path, rows: Rows, left_out: LeftOut, near: bool) -> int:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    del near  # without neighbours, the lists are empty
    texts = pa.list_(pa.string())
    schema = pa.schema(
        [
            *((name, pa.string()) for name in ("source", "image")),
            ("box", pa.list_(pa.int32(), 4)),
            ("caption", pa.string()),
            *((name, texts) for name in ("positives", "positive_types")),
            *((name, texts) for name in ("negatives", "negative_types", "negative_images")),
            ("neighbours", texts),
        ]
    )
    written, stream = 0, rows(left_out)
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while chunk := list(islice(stream, _CHUNK)):
            writer.write_table(pa.Table.from_pylist(chunk, schema=schema))
            written += len(chunk)
    return written


def _jsonl(path: Path, rows: Rows, left_out: LeftOut, near: bool) -> int:
    del near
    written = 0
    with path.open("w", encoding="utf-8", newline="\n") as file:
        for row in rows(left_out):
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
            written += 1
    return written


def _negclip(separator: str, path: Path, rows: Rows, left_out: LeftOut, near: bool) -> int:
    """In two passes, because `neg_image` refers to rows of the file itself."""
    numbers: dict[str, int] = {}
    if near:
        for number, row in enumerate(_fit(rows(LeftOut()), LeftOut())):
            numbers.setdefault(row["image"], number)
    written = 0
    with path.open("w", encoding="utf-8", newline="") as file:
        table = csv.writer(file, delimiter=separator, lineterminator="\n")
        table.writerow(["", "title", "filepath", "neg_caption", *(["neg_image"] if near else [])])
        for row in _fit(rows(left_out), left_out):
            others = [numbers[image] for image in row["neighbours"] if image in numbers]
            cells = [written, row["caption"], row["image"], row["negatives"]]
            table.writerow([*cells, others] if near else cells)
            written += 1
    return written


def _fit(rows: Iterator[Record], left_out: LeftOut) -> Iterator[Record]:
    """The rows that NegCLIP's format can hold."""
    for row in rows:
        if row["image"] is None:
            left_out["captions without an image"] += 1
        elif row["box"] is not None:
            left_out["captions of a crop"] += 1
        elif not row["negatives"]:
            left_out["captions with positives only"] += 1
        else:
            yield row


_WRITERS: Final[dict[str, Callable[[Path, Rows, LeftOut, bool], int]]] = {
    ".parquet": _parquet,
    ".jsonl": _jsonl,
    ".csv": partial(_negclip, ","),
    ".tsv": partial(_negclip, "\t"),
}
