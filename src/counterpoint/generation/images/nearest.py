"""Hard negative images that are real: for every image, the most similar others of the data set.

NegCLIP trains with K = 3 of them. Images with the same content count as one, so that a copy is
never the neighbour of its original. The search is exact, in tiles, without the n x n matrix.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError
from counterpoint._util.writing import whole_file
from counterpoint.cases import ImageRef
from counterpoint.generation.pairs import require_parquet
from counterpoint.images import Picture
from counterpoint.scoring import DualEncoder, Work, encode_images, stored

K: Final = 3
SCHEMA: Final = pl.Schema(
    {
        "image": pl.String(),
        "neighbours": pl.List(pl.String()),
        "similarities": pl.List(pl.Float32()),
    }
)
BLOCK: Final = 2048  # vectors per side of a tile: 16 MiB of similarities
_PIECE: Final = 8192  # pairs of vectors compared at a time
_CROWD: Final = 4  # times k: with more candidates, the k-th best is found first


def neighbours(vectors: np.ndarray, k: int, block: int = BLOCK) -> tuple[np.ndarray, np.ndarray]:
    """For each of n unit vectors (n, d) the indices and similarities of its k nearest others.

    Both are (n, min(k, n - 1)), the nearest first; of a tie, the lower index first. A product in
    float32 finds the candidates. They are compared by similarities that are summed in float64 and
    rounded, so that the result depends neither on the block nor on the order of summation.
    """
    if vectors.ndim != 2 or k < 1 or block < 1:
        raise ValueError("neighbours takes vectors (n, d), and k and block of at least 1.")
    vectors = np.ascontiguousarray(vectors, dtype=np.float32)
    count = len(vectors)
    k = min(k, max(count - 1, 0))
    indices = np.full((count, k), count, dtype=np.int64)
    similarities = np.full((count, k), -np.inf, dtype=np.float32)
    if k == 0:
        return indices, similarities
    best = _Best(vectors, indices, similarities)
    tiles = [slice(start, min(start + block, count)) for start in range(0, count, block)]
    for number, rows in enumerate(tiles):
        for columns in tiles[number:]:
            product = vectors[rows] @ vectors[columns].T
            if rows == columns:
                np.fill_diagonal(product, -np.inf)
            else:
                best.merge(columns, rows, product.T)  # one product serves both sides
            best.merge(rows, columns, product)
    return indices, similarities


class _Best(NamedTuple):
    """The best so far: k others for every vector, or the sentinels n and -inf."""

    vectors: np.ndarray
    indices: np.ndarray
    similarities: np.ndarray

    def merge(self, rows: slice, columns: slice, product: np.ndarray) -> None:
        """Add the columns of a tile to the candidates of its rows."""
        row, column = self._able(rows, product)
        if not len(row):
            return
        row, column = row + rows.start, column + columns.start
        found = _exact(self.vectors, row, column)
        touched, k = np.unique(row), self.indices.shape[1]
        # The new candidates, and the best so far of the rows that have new ones.
        row = np.concatenate([row, np.repeat(touched, k)])
        column = np.concatenate([column, self.indices[touched].reshape(-1)])
        found = np.concatenate([found, self.similarities[touched].reshape(-1)])
        order = np.lexsort((column, -found, row))
        starts = np.searchsorted(row[order], touched)
        taken = order[starts[:, None] + np.arange(k)]  # every row has at least k
        self.indices[touched], self.similarities[touched] = column[taken], found[taken]

    def _able(self, rows: slice, product: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of a tile, by row and column, that may be among the best of their rows."""
        # No order of summing d products of unit vectors in float32 is further off than this.
        slack = np.float32(2 * self.vectors.shape[1] * np.finfo(np.float32).eps)
        k, width = self.indices.shape[1], product.shape[1]
        least = self.similarities[rows, -1] - slack
        able = product >= least[:, None]
        crowded = np.flatnonzero(able.sum(axis=1) > _CROWD * k)
        if len(crowded) and width > k:  # as in the first tile, where every pair is a candidate
            some = product[crowded]
            better = np.partition(some, width - k, axis=1)[:, width - k] - slack
            able[crowded] = some >= np.maximum(better, least[crowded])[:, None]
        able &= product > -np.inf
        row, column = np.nonzero(able)
        return row, column


def _exact(vectors: np.ndarray, row: np.ndarray, column: np.ndarray) -> np.ndarray:
    found = np.empty(len(row), dtype=np.float32)
    for start in range(0, len(row), _PIECE):
        piece = slice(start, start + _PIECE)
        left, right = (vectors[i[piece]].astype(np.float64) for i in (row, column))
        found[piece] = np.einsum("nd,nd->n", left, right)
    return found


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
    block: int = BLOCK,
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
        indices, similarities = neighbours(stored(list(first), work.store), k, block)
        place = {key: number for number, key in enumerate(first)}
        order = [place[key] for _, key in kept]
        rows["neighbours"] = [[names[i] for i in indices[n].tolist()] for n in order]
        rows["similarities"] = similarities[order].tolist()
    else:
        rows |= {"neighbours": [], "similarities": []}
    return NearestImages(
        pl.DataFrame(rows, schema=SCHEMA), len(unique), len(kept) - len(first), left_out
    )


def images_of(
    name: str, data: Path | None, images: Path | None = None
) -> tuple[Iterator[str], Path | None]:
    """The images of a pairs file or of any input of `generate`, and the folder they start from.

    Whole images: two crops of one image are not hard negatives of each other.
    """
    from counterpoint.generation.inputs.captions import open_captions

    captions = open_captions(name, data, images=images)
    return (source.image.path for source in captions if source.image), captions.root


def write_neighbours(path: Path, table: pl.DataFrame, about: dict[str, Any]) -> None:
    """Write the table; `about` goes into its metadata."""
    import pyarrow.parquet as pq  # slow to import

    require_parquet(path, "neighbours")
    arrow = table.to_arrow()
    arrow = arrow.replace_schema_metadata({b"counterpoint": json.dumps(about, sort_keys=True)})
    with whole_file(path) as draft:
        pq.write_table(arrow, draft, compression="zstd")


def need_vectors(id: str, model: object) -> DualEncoder:
    if not isinstance(model, DualEncoder):
        raise ModelError(
            "E-MODEL-UNSUITABLE", f"{id} has no image encoder; neighbours need image vectors."
        )
    return model
