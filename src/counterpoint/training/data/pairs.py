"""A training file or pairs files with a folder of images.

`counterpoint export PAIRS --as training` writes a training file (Parquet or JSON Lines). It may
have more columns: `dense` and `dense_negatives` (lists of texts, the second one with nulls), and
`positive_types` and `negative_types` (one type per text), which `only` needs. Pairs files are read
as that export reads them, and have types.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, Final

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc

from counterpoint._util.errors import DataError
from counterpoint._util.tables import parquet_columns, parquet_frames
from counterpoint.generation import phrases_of
from counterpoint.generation.export import read_groups
from counterpoint.training.data.loading import Setting
from counterpoint.training.data.table import (
    SCHEMA,
    TEXTS,
    SampleTable,
    refuse_empty,
    refuse_uneven,
)
from counterpoint.training.leaks import refuse_leaks

_CHUNK: Final = 20_000


def read_pairs(setting: Setting, problems: Counter[str]) -> SampleTable:
    """The file's table (images stay where they are); what cannot be used is counted."""
    config = setting.config
    paths, root = config.paths, config.images
    if _is_pairs(paths[0]):
        table = _from_pairs(paths, root, problems, setting)
        root = None  # paths are already what they are from the file's folder
    elif len(paths) > 1:
        raise DataError(
            "E-FILES-MIXED", f"{paths[1]}: several files can only be given if all are pairs files."
        )
    else:
        table = _read_training(paths[0])
    table = _usable(table, paths[0], problems)
    if config.phrases:
        table = _with_phrases(table)
    refuse_uneven(table, config, paths[0])
    refuse_empty(table, config, paths[0])
    folder = root or paths[0].parent
    if config.keep_out:
        frame = pl.from_arrow(table)
        assert isinstance(frame, pl.DataFrame)
        refuse_leaks(frame, config.keep_out, folder, paths[0], setting.progress)
    return SampleTable(table, folder, str(paths[0]), config)


def _is_pairs(path: Path) -> bool:
    if not path.is_file():
        raise DataError("E-FILE-MISSING", f"{path}: no such file.")
    return path.suffix == ".parquet" and {"text", "kind"} <= set(parquet_columns(path))


def _from_pairs(
    paths: list[Path], images: Path | None, problems: Counter[str], setting: Setting
) -> pa.Table:
    folder, progress = paths[0].parent, setting.progress
    groups = read_groups(paths, folder, problems, images=images, progress=progress)
    rows = (
        {
            "image": None if group.image is None else group.image.path,
            "box": None if group.image is None else group.image.box,
            "caption": group.caption,
            "positives": [text.text for text in group.positives],
            "negatives": [text.text for text in group.negatives],
            "negative_images": [text.image for text in group.negatives],
            "positive_types": [text.type for text in group.positives],
            "negative_types": [text.type for text in group.negatives],
        }
        for group in groups
    )
    return pa.concat_tables([SCHEMA.empty_table(), *_chunks(rows)])


def _chunks(rows: Iterable[dict[str, Any]]) -> Iterator[pa.Table]:
    stream = iter(rows)
    while chunk := list(islice(stream, _CHUNK)):
        yield pa.Table.from_pylist(chunk, schema=SCHEMA)


def _read_training(path: Path) -> pa.Table:
    """The columns of a training file; those that it has not are null."""
    try:
        if path.suffix == ".parquet":
            used = [name for name in parquet_columns(path) if name in SCHEMA.names]
            found = pl.concat(parquet_frames(path, columns=used)).to_arrow()
        elif path.suffix in (".jsonl", ".ndjson"):
            found = pl.read_ndjson(path, infer_schema_length=None).to_arrow()
        else:
            raise DataError("E-FILE-ENDING", f"{path}: a training file ends in .parquet or .jsonl.")
        missing = [name for name in ("image", "caption") if name not in found.column_names]
        if missing:
            raise DataError(
                "E-COLUMN-MISSING",
                f"{path}: the column {missing[0]!r} is missing; "
                "write a training file with `counterpoint export PAIRS --as training`.",
            )
        columns = [
            found[field.name].cast(field.type)
            if field.name in found.column_names
            else pa.nulls(len(found), field.type)
            for field in SCHEMA
        ]
        return pa.table(columns, schema=SCHEMA)
    except (pa.ArrowException, pl.exceptions.PolarsError, OSError, UnicodeDecodeError) as error:
        why = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: not a readable training file: {why}."
        ) from None


def _usable(table: pa.Table, path: Path, problems: Counter[str]) -> pa.Table:
    """The rows with an image and a caption."""
    keep = pc.and_(pc.is_valid(table["image"]), pc.is_valid(table["caption"]))
    left_out = len(table) - (pc.sum(keep).as_py() or 0)
    if left_out:
        problems["captions without an image: left out"] += left_out
    if left_out == len(table):
        raise DataError("E-DATA-EMPTY", f"{path}: no caption has an image.")
    return table.filter(keep).combine_chunks()


def _with_phrases(table: pa.Table) -> pa.Table:
    """With the noun phrases of each caption as its dense captions; each caption is tagged once."""
    captions = table["caption"].to_pylist()
    once = list(dict.fromkeys(captions))
    phrases = dict(zip(once, phrases_of(once), strict=True))
    for name, column in (
        ("dense", pa.array([phrases[caption] for caption in captions], TEXTS)),
        ("dense_negatives", pa.nulls(len(table), TEXTS)),
    ):
        table = table.set_column(table.column_names.index(name), name, column)
    return table.combine_chunks()
