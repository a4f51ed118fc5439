"""Hard negative images that are real: for every image, the most similar others of the data set.

NegCLIP trains with K = 3 of them. Images with the same content count as one, so that a copy is
never the neighbour of its original. The search is exact, in blocks, without the n x n matrix.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError
from counterpoint._util.writing import whole_file
from counterpoint.cases import ImageRef
from counterpoint.generation.inputs.captions import Captions
from counterpoint.generation.pairs import require_parquet
from counterpoint.images import Picture
from counterpoint.models import LoadOptions, load_model
from counterpoint.scoring import DualEncoder, Work, encode_images, stored

K: Final = 3
SCHEMA: Final = pl.Schema(
    {
        "image": pl.String(),
        "neighbours": pl.List(pl.String()),
        "similarities": pl.List(pl.Float32()),
    }
)
BLOCK: Final = 256  # vectors that are compared with all others at a time
_PIECE: Final = 8192  # pairs of vectors compared at a time


def neighbours(vectors: np.ndarray, k: int, block: int = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """For each of n unit vectors (n, d) the indices and similarities of its k nearest others.

    Both are (n, min(k, n - 1)), the nearest first; of a tie, the lower index first. A product in
    float32 finds the candidates. They are compared by similarities that are summed in float64 and
    rounded, so that the result depends neither on the block nor on the order of summation.
    """
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    count = len(vectors)
    k = min(k, max(count - 1, 0))
    indices = np.empty((count, k), dtype=np.int64)
    similarities = np.empty((count, k), dtype=np.float32)
    if k == 0:
        return indices, similarities
    # No order of summing d products of unit vectors in float32 is further off than half of this.
    slack = np.float32(2 * (vectors.shape[1] + 1) * np.finfo(np.float32).eps)
    for start in range(0, count, block):
        product = vectors[start : start + block] @ vectors.T
        rows = np.arange(len(product))
        product[rows, start + rows] = -np.inf
        least = np.partition(product, count - k, axis=1)[:, count - k] - slack
        row, column = np.nonzero(product >= least[:, None])
        exact = _exact(vectors, start + row, column)
        order = np.lexsort((column, -exact, row))
        first = np.searchsorted(row, rows)
        taken = order[first[:, None] + np.arange(k)]
        indices[start + rows], similarities[start + rows] = column[taken], exact[taken]
    return indices, similarities


def _exact(vectors: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    exact = np.empty(len(row), dtype=np.float32)
    for start in range(0, len(row), _PIECE):
        piece = slice(start, start + _PIECE)
        left, right = (vectors[i[piece]].astype(np.float64) for i in (row, column))
        exact[piece] = np.einsum("nd,nd->n", left, right)
    return exact


@dataclass(frozen=True, slots=True)
class NearestImages:
    """One row per image that could be read, and the images left out with their reasons."""

    table: pl.DataFrame
    images: int
    copies: int  # images with the same content as another
    left_out: dict[str, str]


def nearest_images(
    model: DualEncoder,
    paths: Iterable[str],
    root: Path | None,
    work: Work,
    *,
    k: int = K,
) -> NearestImages:
    """The `k` nearest of all `paths` to each of them, by the cosine of the model's vectors.

    Vectors are stored. An image that cannot be read is left out as image and as neighbour. Of
    several images with the same content, only the first can be a neighbour.
    """
    unique = list(dict.fromkeys(paths))
    pictures = [Picture(ImageRef(path), root) for path in unique]
    encoded = encode_images(model, pictures, work)
    left_out = {unique[number]: why for number, why in encoded.failures.items()}
    first: dict[bytes, str] = {}  # the same content has the same key
    for path, key in zip(unique, encoded.keys, strict=True):
        if key:
            first.setdefault(key, path)
    kept = [(path, key) for path, key in zip(unique, encoded.keys, strict=True) if key]
    rows: dict[str, Any] = {"image": [path for path, _ in kept]}
    if first:
        names = list(first.values())
        indices, similarities = neighbours(stored(list(first), work.store), k)
        place = {key: number for number, key in enumerate(first)}
        order = [place[key] for _, key in kept]
        rows["neighbours"] = [[names[i] for i in indices[n].tolist()] for n in order]
        rows["similarities"] = similarities[order].tolist()
    else:
        rows |= {"neighbours": [], "similarities": []}
    return NearestImages(
        pl.DataFrame(rows, schema=SCHEMA), len(unique), len(kept) - len(first), left_out
    )


def write_neighbours(
    model: str, captions: Captions, out: Path, work: Work, options: LoadOptions, *, k: int = K
) -> tuple[NearestImages, dict[str, Any]]:
    """Write the neighbours of the captions' images; also returns what the file's metadata says.

    Whole images: two crops of one image are not hard negatives of each other.
    """
    import pyarrow.parquet as pq  # slow to import

    require_parquet(out, "neighbours")
    encoder = load_model(model, options)
    if not isinstance(encoder, DualEncoder):
        raise ModelError(
            "E-MODEL-UNSUITABLE", f"{model} has no image encoder; neighbours need image vectors."
        )
    paths = (source.image.path for source in captions if source.image)
    nearest = nearest_images(encoder, paths, captions.root, work, k=k)
    about = {
        "model": model,
        "fingerprint": encoder.fingerprint,
        "k": k,
        "input": captions.name,
        "images": nearest.images,
        "copies": nearest.copies,
        "left_out": len(nearest.left_out),
    }
    metadata = {b"counterpoint": json.dumps(about, sort_keys=True)}
    with whole_file(out) as draft:
        table = nearest.table.to_arrow().replace_schema_metadata(metadata)
        pq.write_table(table, draft, compression="zstd")
    return nearest, about
