"""Pairs as a data set folder for the Hugging Face hub.

    FOLDER/
      README.md                            the card: what it is, how it was made, its limitations
      croissant.json                       the same for programs (Croissant 1.0)
      data/test-00000-of-00001.parquet     the pairs, one row each, in shards

The columns are those of the pairs file, without those for work in progress. Without embedding,
images are paths as in the pairs file; with it, `{bytes, path}` of the whole image, beside its box.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, ImageError, reason
from counterpoint._util.progress import Advance, Progress
from counterpoint._util.untrusted import shown
from counterpoint._util.writing import whole_folder
from counterpoint.cases import ImageRef
from counterpoint.generation.export.card import (
    COLUMNS,
    IMAGES,
    INTEGERS,
    LISTS,
    Facts,
    card,
    croissant,
)
from counterpoint.generation.export.groups import QUIET, ImagePaths, LeftOut
from counterpoint.generation.pairs import SCHEMA, count_pairs, read_about, read_pairs

SHARD: Final = 200_000_000  # bytes, about
_SPLIT: Final = "test"
_ROWS: Final = 256  # rows with images in memory at a time: one row group
_PLAIN_ROWS: Final = 50_000


def export_hub(
    pairs: Sequence[Path],
    out: Path,
    left_out: LeftOut,
    *,
    name: str = "",
    licence: str = "",
    images: Path | None = None,
    embed: bool = False,
    shard: int = SHARD,
    progress: Progress = QUIET,
) -> int:
    """Write a new folder; returns the number of rows."""
    if out.exists():
        raise DataError("E-OUTPUT-EXISTS", f"{out} exists; name a new folder.")
    facts = Facts(name or out.name, licence, embed, left_out=left_out)
    facts.made = [read_about(file) for file in pairs]
    with whole_folder(out) as draft:
        (draft / "data").mkdir()
        frames = _frames(
            pairs, facts, images, progress.start("pairs", sum(map(count_pairs, pairs)))
        )
        facts.files = _write_shards(frames, draft / "data", facts, shard)
        if not facts.rows:
            raise DataError("E-PAIRS-EMPTY", f"{pairs[0]}: no pair passed the checks.")
        (draft / "croissant.json").write_text(croissant(facts), encoding="utf-8")
        (draft / "README.md").write_text(card(facts), encoding="utf-8")
    return facts.rows


def _frames(
    pairs: Sequence[Path], facts: Facts, images: Path | None, advance: Advance
) -> Iterator[list[Any]]:
    """The rows to write, in pieces; they are counted in `facts`."""
    seen = [np.zeros(0, np.uint64)]
    for file in pairs:
        paths = ImagePaths.of(file, file.parent, images=images)
        counted = "counts" in read_about(file)  # then `generate` has counted the rejected rows
        for frame in read_pairs(file, rejected=True):
            why = pl.col("refused")
            if not counted:
                refused = frame.filter(why != "")["refused"].str.split(":").list.first()
                facts.refused.update(refused.to_list())
            kept = frame.filter(why == "").select(COLUMNS)
            seen.append(kept.select(pl.struct("source", "caption").hash()).to_series().to_numpy())
            for part in kept.iter_slices(_ROWS if facts.embedded else _PLAIN_ROWS):
                rows = part.to_dicts()
                if facts.embedded:
                    rows = list(_embedded(rows, paths, facts.left_out))
                for row in rows:
                    _count(row, facts)
                yield rows
                advance(len(part))
    facts.captions = len(np.unique(np.concatenate(seen)))


def _count(row: dict[str, Any], facts: Facts) -> None:
    facts.rows += 1
    facts.counts[row["kind"], row["type"], row["subtype"]] += 1
    facts.methods[row["method"], row["version"]] += 1
    facts.checks.update(row["checks"] or [])


def _embedded(
    rows: list[dict[str, Any]], paths: ImagePaths, left_out: LeftOut
) -> Iterator[dict[str, Any]]:
    """Rows with their images; rows whose image cannot be read are left out."""
    known: dict[tuple[str, str], Any] = {}
    for row in rows:
        try:
            for column, root in zip(IMAGES, (paths.images, paths.text_images), strict=True):
                path = row[column]
                if path is not None and (column, path) not in known:
                    data, name = image_bytes(path, Path(root))
                    known[column, path] = {"bytes": data, "path": name}
                row[column] = None if path is None else known[column, path]
        except ImageError:
            left_out["pairs whose image is missing or broken"] += 1
        else:
            yield row


def image_bytes(path: str, root: Path) -> tuple[bytes, str]:
    """The bytes of an image's file, or a PNG if it has no file of its own; and a name for it.

    The image is opened, so that a broken one raises ImageError here, not when the data set is used.
    """
    from counterpoint.images import PLAIN, Picture

    picture = Picture(ImageRef(path), root)
    image = picture.open()
    if picture.scheme is PLAIN:
        file = picture.path()
        try:
            return file.read_bytes(), file.name
        except OSError as error:
            raise ImageError(
                "E-IMAGE-UNREADABLE", f"image {shown(str(file))}: cannot be read: {reason(error)}."
            ) from None
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue(), "image.png"


def _write_shards(
    frames: Iterator[list[Any]], folder: Path, facts: Facts, limit: int
) -> list[Path]:
    """Files of about `limit` bytes each; their names contain the number of files."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    schema = _schema(facts.embedded)
    written: list[Path] = []
    # Many rows have the same image: with a large dictionary it is stored once per row group.
    form = {"compression": "zstd", "dictionary_pagesize_limit": limit}
    for first in frames:
        written.append(folder / f"{len(written)}.parquet")
        with pq.ParquetWriter(written[-1], schema, **form) as writer:
            for rows in chain([first], frames):
                writer.write_table(pa.Table.from_pylist(rows, schema=schema))
                if written[-1].stat().st_size >= limit:
                    break
    total = len(written)
    return [
        file.rename(folder / f"{_SPLIT}-{number:05}-of-{total:05}.parquet")
        for number, file in enumerate(written)
    ]


def _schema(embedded: bool) -> Any:
    """The types of the columns; the metadata tells `datasets` which of them are images."""
    import pyarrow as pa

    schema = pl.DataFrame(schema={name: SCHEMA[name] for name in COLUMNS}).to_arrow().schema
    if not embedded:
        return schema
    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    fields = [pa.field(f.name, image) if f.name in IMAGES else f for f in schema]
    note = {"info": {"features": hub_features(embedded)}}
    return pa.schema(fields).with_metadata({"huggingface": json.dumps(note)})


def hub_features(embedded: bool) -> dict[str, Any]:
    """The columns in the form of the `datasets` library."""
    found: dict[str, Any] = {}
    for name in COLUMNS:
        value: dict[str, Any] = {"dtype": INTEGERS.get(name, "string"), "_type": "Value"}
        if embedded and name in IMAGES:
            value = {"_type": "Image"}
        if name in LISTS:
            value = {"feature": value, "_type": "Sequence"}
        found[name] = value
    return found
