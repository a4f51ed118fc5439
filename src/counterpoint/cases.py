"""The case table: k images x m captions x truth, a row per case, columnar.

| column   | type                              | meaning |
|----------|-----------------------------------|---------|
| id       | str                               | unique within the benchmark |
| images   | list of {path, box}               | where each image is; box = x, y, width, height or null |
| captions | list of str                       | the first true caption of an image is its original |
| truth    | list of int, ascending            | the true cells of the k x m block, as `image * m + caption` |
| groups   | list of str                       | labels like `replace/obj`; the first is the one averages use |
| cluster  | str                               | the source image: cases of one cluster are not independent |

Truth is stored sparsely so that retrieval (thousands x thousands) is a case like any other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint.errors import CaseError

SCHEMA: Final = pl.Schema(
    {
        "id": pl.String(),
        "images": pl.List(pl.Struct({"path": pl.String(), "box": pl.Array(pl.Int32(), 4)})),
        "captions": pl.List(pl.String()),
        "truth": pl.List(pl.Int32()),
        "groups": pl.List(pl.String()),
        "cluster": pl.String(),
    }
)
_CHUNK: Final = 50_000  # rows read, checked and dropped at a time


class ImageRef(NamedTuple):
    """Where an image is: a path under the data root (or `world:CODE`), and a crop box if any."""

    path: str
    box: tuple[int, int, int, int] | None = None


@dataclass(frozen=True, slots=True)
class Case:
    """One row of the table, for benchmarks that build cases one by one.

    `truth` has a row per image and a column per caption.
    """

    id: str
    images: tuple[ImageRef, ...]
    captions: tuple[str, ...]
    truth: tuple[tuple[bool, ...], ...]
    groups: tuple[str, ...] = ()
    cluster: str = ""

    def row(self) -> dict[str, Any]:
        k, m = len(self.images), len(self.captions)
        if len(self.truth) != k or any(len(cells) != m for cells in self.truth):
            shape = " + ".join(str(len(cells)) for cells in self.truth)
            raise CaseError(f"case {self.id!r}: truth has {shape} cells, expected {k} rows of {m}.")
        cells = [i for i, cell in enumerate(c for line in self.truth for c in line) if cell]
        return {
            "id": self.id,
            "images": [{"path": image.path, "box": image.box} for image in self.images],
            "captions": list(self.captions),
            "truth": cells,
            "groups": list(self.groups),
            "cluster": self.cluster or self.images[0].path,
        }


class Block(NamedTuple):
    """All cases of one shape: their rows in the table, and their truth as (n, k, m) booleans."""

    rows: np.ndarray
    truth: np.ndarray


class Cases:
    """A validated case table. `root` is the folder that relative image paths start from."""

    def __init__(self, frame: pl.DataFrame, root: Path | None = None) -> None:
        self.frame = frame
        self.root = root

    @classmethod
    def build(cls, cases: Iterable[Case], *, root: Path | None = None, source: str) -> Cases:
        """Validate and tabulate cases; `source` names them in error messages."""
        stream = iter(cases)
        frames = []
        while rows := [case.row() for case in islice(stream, _CHUNK)]:
            frames.append(pl.DataFrame(rows, schema=SCHEMA))
        return cls._checked(iter(frames), root, source)

    @classmethod
    def _checked(cls, frames: Iterator[pl.DataFrame], root: Path | None, source: str) -> Cases:
        checked, start = [], 0
        for frame in frames:
            _refuse_malformed(frame, start, source)
            checked.append(frame)
            start += frame.height
        if not checked:
            raise CaseError(f"{source}: no cases.")
        table = pl.concat(checked)
        _refuse_duplicates(table["id"], source)
        return cls(table, root)

    def __len__(self) -> int:
        return self.frame.height

    @property
    def ids(self) -> pl.Series:
        return self.frame["id"]

    @property
    def image_counts(self) -> np.ndarray:
        return self.frame["images"].list.len().to_numpy().astype(np.int64)

    @property
    def caption_counts(self) -> np.ndarray:
        return self.frame["captions"].list.len().to_numpy().astype(np.int64)

    @property
    def pair_offsets(self) -> np.ndarray:
        """Where each case's scores start in the flat array of all pairs, with the total last."""
        return offsets(self.image_counts * self.caption_counts)

    def pair_captions(self) -> np.ndarray:
        """The number of each pair's caption among all captions, counted case by case."""
        starts = [offsets(counts) for counts in (self.image_counts, self.caption_counts)]
        return pair_numbers(*starts, np.arange(len(self))).captions

    def truth_flat(self) -> np.ndarray:
        """The truth of every pair, case by case, row by row."""
        starts = self.pair_offsets
        truth = np.zeros(starts[-1], dtype=bool)
        cells = self.frame["truth"]
        truth[np.repeat(starts[:-1], cells.list.len().to_numpy()) + cells.explode().to_numpy()] = (
            True
        )
        return truth

    def blocks(self) -> Iterator[Block]:
        """The cases grouped by shape, so that metrics work on dense arrays."""
        images, captions = self.image_counts, self.caption_counts
        starts, truth = self.pair_offsets, self.truth_flat()
        shapes, codes = np.unique(np.stack([images, captions]), axis=1, return_inverse=True)
        for code, (k, m) in enumerate(shapes.T):
            rows = np.flatnonzero(codes.reshape(-1) == code)
            cells = starts[rows, None] + np.arange(k * m)
            yield Block(rows, truth[cells].reshape(len(rows), k, m))

    def case(self, row: int) -> Case:
        """One row as a `Case`, to show it."""
        values = self.frame.row(row, named=True)
        images = tuple(
            ImageRef(i["path"], None if i["box"] is None else tuple(i["box"]))
            for i in values["images"]
        )
        k, m, true = len(images), len(values["captions"]), set(values["truth"])
        return Case(
            values["id"],
            images,
            tuple(values["captions"]),
            tuple(tuple(i * m + j in true for j in range(m)) for i in range(k)),
            tuple(values["groups"]),
            values["cluster"],
        )

    def limit(self, count: int) -> Cases:
        """`count` cases spread evenly over the table, so that every group keeps its share."""
        if count >= len(self):
            return self
        rows = np.linspace(0, len(self) - 1, count).round().astype(np.int64)
        return Cases(self.frame[rows], self.root)

    def keep(self, mask: np.ndarray) -> Cases:
        return Cases(self.frame.filter(pl.Series(mask)), self.root)

    def content_hash(self) -> str:
        """A digest of ids, image references, captions and truth: the same table, the same hash."""
        digest = hashlib.sha256()
        for part in self.frame.iter_slices(_CHUNK):
            digest.update(part.select(SCHEMA.names()).write_ndjson().encode())
        return digest.hexdigest()


def offsets(counts: np.ndarray) -> np.ndarray:
    """Cumulative sums from 0: where each of consecutive runs of `counts` starts, and the end."""
    return np.concatenate([[0], np.cumsum(counts)])


class PairNumbers(NamedTuple):
    """For each pair: its image and caption, numbered case by case, and its place in its case."""

    cases: np.ndarray
    cells: np.ndarray
    images: np.ndarray
    captions: np.ndarray


def pair_numbers(
    image_offsets: np.ndarray, caption_offsets: np.ndarray, rows: np.ndarray
) -> PairNumbers:
    """All pairs of the cases in `rows`, case by case, image by image."""
    k, m = (np.diff(starts)[rows] for starts in (image_offsets, caption_offsets))
    case = np.repeat(np.arange(len(rows)), k * m)
    cell = np.arange(len(case)) - np.repeat(offsets(k * m)[:-1], k * m)
    image = image_offsets[rows][case] + cell // m[case]
    caption = caption_offsets[rows][case] + cell % m[case]
    return PairNumbers(rows[case], cell, image, caption)


def caption_case(
    id: str,
    image: ImageRef,
    positives: Iterable[str],
    negatives: Iterable[str],
    groups: tuple[str, ...] = (),
    cluster: str = "",
) -> Case:
    """A case of one image: the original first, then other positives, then negatives."""
    true, false = tuple(positives), tuple(negatives)
    truth = (True,) * len(true) + (False,) * len(false)
    return Case(id, (image,), true + false, (truth,), groups, cluster)


def _refuse_malformed(frame: pl.DataFrame, start: int, source: str) -> None:
    """Raise a CaseError that names the first bad row and what is wrong with it."""
    cells = pl.col("images").list.len() * pl.col("captions").list.len()
    true = pl.col("truth").list.len()
    captions = pl.col("captions").list
    paths = pl.col("images").list.eval(pl.element().struct.field("path"))
    box = pl.element().struct.field("box").arr
    empty = (box.get(2) < 1) | (box.get(3) < 1)
    checks = {
        "it has no id": pl.col("id").is_null() | (pl.col("id") == ""),
        "it has no image": pl.col("images").is_null() | (pl.col("images").list.len() == 0),
        "it has no captions": pl.col("captions").is_null() | (captions.len() == 0),
        "an image has no path": paths.list.eval(
            pl.element().is_null() | (pl.element() == "")
        ).list.any(),
        "a crop box is empty": pl.col("images").list.eval(empty.fill_null(False)).list.any(),
        "a caption is empty": captions.eval(
            pl.element().is_null() | (pl.element().str.strip_chars() == "")
        ).list.any(),
        "truth points outside its images x captions": (pl.col("truth").list.max() >= cells)
        | (pl.col("truth").list.min() < 0),
        "truth is not in ascending order": pl.col("truth").list.diff().list.min() <= 0,
        "it has no positive: no caption is true of any image": pl.col("truth").is_null()
        | (true == 0),
        "it has no negative: every caption is true of every image": true == cells,
        "a group label is empty": pl.col("groups")
        .list.eval(pl.element().is_null() | (pl.element() == ""))
        .list.any(),
    }
    found = frame.select(
        pl.lit(None).alias("none"),
        *(
            condition.fill_null(False).arg_true().first().alias(what)
            for what, condition in checks.items()
        ),
    ).row(0, named=True)
    bad = {what: row for what, row in found.items() if row is not None}
    if bad:
        what, row = min(bad.items(), key=lambda item: item[1])
        raise CaseError(f"{source}: row {start + row} (id {frame['id'][row]!r}): {what}.")


def _refuse_duplicates(ids: pl.Series, source: str) -> None:
    repeated = ids.is_duplicated()
    if repeated.any():
        rows = repeated.arg_true()
        first = ids[int(rows[0])]
        where = (ids == first).arg_true().to_list()
        raise CaseError(
            f"{source}: rows {where[0]} and {where[1]} have the same id {first!r} "
            f"({len(rows)} rows share an id); ids must be unique."
        )


def read_cases(path: Path) -> Cases:
    """Read a case table from Parquet, or from JSON Lines with truth as nested lists.

    Images are found relative to the file's folder.
    """
    if not path.is_file():
        raise CaseError(f"{path}: no such file.")
    if path.suffix == ".parquet":
        frames = _parquet_frames(path)
    elif path.suffix == ".jsonl":
        frames = _json_frames(path)
    else:
        raise CaseError(f"{path}: a case file ends in .parquet or .jsonl.")
    return Cases._checked(frames, path.parent, str(path))


def write_cases(cases: Cases, path: Path) -> None:
    cases.frame.write_parquet(path)


def _parquet_frames(path: Path) -> Iterator[pl.DataFrame]:
    try:
        scan = pl.scan_parquet(path)
        missing = [name for name in SCHEMA.names() if name not in scan.collect_schema()]
        if missing:
            raise CaseError(f"{path}: the column {missing[0]!r} is missing.")
        table = scan.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())
        yield from table.collect_batches(chunk_size=_CHUNK, maintain_order=True)
    except pl.exceptions.PolarsError as error:
        raise CaseError(f"{path}: not a readable case table: {_first_line(error)}") from None


def _json_frames(path: Path) -> Iterator[pl.DataFrame]:
    with path.open(encoding="utf-8") as lines:
        numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        while rows := [
            _json_row(line, f"{path}: line {n}") for n, line in islice(numbered, _CHUNK)
        ]:
            yield pl.DataFrame(rows, schema=SCHEMA)


def _json_row(line: str, where: str) -> dict[str, Any]:
    try:
        values = json.loads(line)
    except ValueError as error:
        raise CaseError(f"{where} is not valid JSON: {error}.") from None
    try:
        images = tuple(
            ImageRef(image) if isinstance(image, str) else ImageRef(image["path"], image.get("box"))
            for image in values["images"]
        )
        return Case(
            str(values["id"]),
            images,
            tuple(values["captions"]),
            tuple(tuple(bool(cell) for cell in cells) for cells in values["truth"]),
            tuple(values.get("groups", ())),
            str(values.get("cluster", "")),
        ).row()
    except (KeyError, TypeError, AttributeError) as error:
        raise CaseError(
            f"{where} is not a case: {type(error).__name__} {error}; it needs id, images, captions "
            "and truth (a list of lists)."
        ) from None
    except CaseError as error:
        raise CaseError(f"{where}: {error}") from None


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
