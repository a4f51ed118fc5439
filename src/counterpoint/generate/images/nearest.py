"""Hard negative images that are real: for every image, the most similar others of the data set.

NegCLIP trains with K = 3 of them. Images with the same content are one image here, so that a copy
is never the neighbour of its original.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint.cases import ImageRef
from counterpoint.errors import ModelError
from counterpoint.generate.images.neighbours import BLOCK, neighbours
from counterpoint.generate.outputs import refuse_ending
from counterpoint.scoring.encode import encode_images
from counterpoint.scoring.engine import stored
from counterpoint.scoring.kinds import DualEncoder
from counterpoint.scoring.pictures import Picture
from counterpoint.scoring.work import Work
from counterpoint.writing import whole_file

K: Final = 3
SCHEMA: Final = pl.Schema(
    {
        "image": pl.String(),
        "neighbours": pl.List(pl.String()),
        "similarities": pl.List(pl.Float32()),
    }
)


@dataclass(frozen=True, slots=True)
class Found:
    """A row for every image that could be read, and what was left out, with the reasons."""

    table: pl.DataFrame
    images: int
    copies: int  # images with the content of another
    left_out: dict[str, str]


def nearest_images(
    model: DualEncoder,
    paths: Iterable[str],
    root: Path | None,
    work: Work,
    *,
    k: int = K,
    block: int = BLOCK,
) -> Found:
    """The `k` nearest of all `paths` to each of them, by the cosine of the model's vectors.

    Vectors are kept in the store. An image that cannot be read is left out on both sides. Of
    several images with the same content, the first is the one that others have as a neighbour.
    """
    unique = list(dict.fromkeys(paths))
    pictures = [Picture(ImageRef(path), root) for path in unique]
    encoded = encode_images(model, pictures, work.store, work.batch, work.progress)
    left_out = {unique[number]: why for number, why in encoded.failures.items()}
    first: dict[bytes, str] = {}  # the same content has the same key
    for path, key in zip(unique, encoded.keys, strict=True):
        if key:
            first.setdefault(key, path)
    kept = [(path, key) for path, key in zip(unique, encoded.keys, strict=True) if key]
    rows: dict[str, Any] = {"image": [path for path, _ in kept]}
    if first:
        names = list(first.values())
        indices, similarities = neighbours(stored(list(first), work.store), k, block)
        place = {key: number for number, key in enumerate(first)}
        order = [place[key] for _, key in kept]
        rows["neighbours"] = [[names[i] for i in indices[n].tolist()] for n in order]
        rows["similarities"] = similarities[order].tolist()
    else:
        rows |= {"neighbours": [], "similarities": []}
    return Found(pl.DataFrame(rows, schema=SCHEMA), len(unique), len(kept) - len(first), left_out)


def images_of(name: str, data: Path | None) -> tuple[Iterator[str], Path | None]:
    """The images of a pairs file or of any input of `generate`, and the folder they start from.

    Whole images: two crops of one are no hard negatives of each other.
    """
    from counterpoint.generate.captions import open_captions

    captions = open_captions(name, data)
    return (source.image.path for source in captions if source.image), captions.root


def write_neighbours(path: Path, table: pl.DataFrame, about: dict[str, Any]) -> None:
    """Write the table, whole or not at all; `about` goes into its metadata."""
    import pyarrow.parquet as pq  # slow to import

    refuse_ending(path, "neighbours")
    arrow = table.to_arrow()
    arrow = arrow.replace_schema_metadata({b"counterpoint": json.dumps(about, sort_keys=True)})
    with whole_file(path) as draft:
        pq.write_table(arrow, draft, compression="zstd")


def need_vectors(id: str, model: object) -> DualEncoder:
    if not isinstance(model, DualEncoder):
        raise ModelError(f"{id} has no image tower of its own; neighbours need vectors of images.")
    return model
