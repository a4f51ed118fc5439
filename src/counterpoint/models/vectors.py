"""`vectors:FOLDER`: vectors that were computed elsewhere. Neither a model nor an image is needed.

    images.parquet        columns `name` and `vector` (a list of numbers)
    captions.parquet      columns `caption` and `vector`

Each of the two may also be an array of shape (rows, dimensions), `images.npy`, with the names of
its rows in `images.jsonl`, `{"name": "a.jpg"}` a line (`captions.jsonl`: `{"caption": "a dog"}`).
The score of a pair is the cosine of its vectors.

An image is called what the benchmark calls it: its path below the data root or another reference,
with `#x,y,width,height` behind it if it is a crop. Folders may be left out where file names are
unique. A caption of several prompts needs a vector for each of them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError
from counterpoint._util.store import digest
from counterpoint._util.tables import parquet_columns, parquet_frames, read_table
from counterpoint._util.untrusted import described, shortened, shown
from counterpoint.cases import Cases, ImageRef
from counterpoint.images import Picture, scheme_of
from counterpoint.metrics import Overlong
from counterpoint.models.registry import LoadOptions
from counterpoint.scoring import (
    Scored,
    Work,
    compare_vectors,
    leave_out_captions,
    leave_out_images,
    make_plan,
    unscored,
)

IMAGES: Final = "images"
CAPTIONS: Final = "captions"
VECTOR_FORMATS: Final = ("parquet", "npy")
_NAMES: Final = {IMAGES: "name", CAPTIONS: "caption"}  # the columns of names
_VECTOR: Final = "vector"
_ROWS: Final = 32_768  # vectors in memory at a time
_UNIT: Final = 1e-5  # by how much the length of a unit vector in float32 may differ from 1


def image_name(ref: ImageRef) -> str:
    """What an image is called: its reference, and its crop."""
    return ref.path if ref.box is None else f"{ref.path}#{','.join(map(str, ref.box))}"


class VectorFolder:
    """Looks scores up in vectors by name. A BenchmarkScorer: nothing is stored again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._images, self._captions = (_in_folder(folder, side) for side in _NAMES)
        sizes = [table.vectors.shape[1] for table in (self._images, self._captions)]
        if sizes[0] != sizes[1]:
            raise ModelError(
                "E-VECTORS-INVALID",
                f"{folder}: image vectors have {sizes[0]:,} numbers and caption vectors "
                f"{sizes[1]:,}; they cannot be compared.",
            )
        self.fingerprint = digest("vectors 1", self._images.digest, self._captions.digest).hex()
        self._notes: list[str] = []

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        """Cosines; cases of images and captions without a vector are left out."""
        del overlong, work
        plan = make_plan(benchmarks)
        scored = unscored(benchmarks)
        # Rows of images, and behind them those of captions; -1 where there is none.
        pictures, self._notes = self._images.find_images(plan.pictures)
        shown = [picture.ref.text for picture in plan.pictures]
        is_text = np.array([text is not None for text in shown])
        pictures[is_text] = self._caption_rows([text for text in shown if text is not None])
        lost = {
            i: self._images.lacks(image_name(plan.pictures[i].ref))
            if (text := shown[i]) is None
            else self._captions.lacks(text)
            for i in np.flatnonzero(pictures < 0).tolist()
        }
        leave_out_images(plan, lost, scored)
        texts, pictured = self._caption_rows(plan.texts), plan.pictured_texts()
        texts[list(pictured)] = pictures[list(pictured.values())]
        lacking = {
            i: self._captions.lacks(plan.texts[next(n for n in prompts if texts[n] < 0)])
            for i, prompts in enumerate(np.split(plan.prompts, plan.starts[1:-1]))
            if (texts[prompts] < 0).any()
        }
        leave_out_captions(plan, lacking, scored)
        compare_vectors(
            plan,
            scored,
            lambda numbers: self._vectors(pictures[numbers]),
            lambda numbers: self._vectors(texts[numbers]),
        )
        return scored

    def _caption_rows(self, texts: Sequence[str]) -> np.ndarray:
        rows = self._captions.find(texts)
        return np.where(rows < 0, -1, rows + len(self._images.names))

    def _vectors(self, rows: np.ndarray) -> np.ndarray:
        first = len(self._images.names)
        found = np.empty((len(rows), self._images.vectors.shape[1]), dtype=np.float32)
        captions = rows >= first
        found[~captions] = self._images.rows(rows[~captions])
        found[captions] = self._captions.rows(rows[captions] - first)
        return found

    def describe(self) -> dict[str, Any]:
        return {
            "folder": str(self.folder),
            "dimensions": self._images.vectors.shape[1],
            "vectors": {IMAGES: len(self._images.names), CAPTIONS: len(self._captions.names)},
            "notes": self._notes,
        }


def _file_name(name: str) -> str:
    return scheme_of(name).with_path(name, lambda path: PurePosixPath(path).name)


def open_image_vectors(path: Path) -> NamedVectors:
    """Vectors of images: a folder as above, or one of its two files under any name."""
    if path.is_dir():
        return _in_folder(path, IMAGES)
    if path.suffix.removeprefix(".") not in VECTOR_FORMATS or not path.is_file():
        raise ModelError(
            "E-FILE-MISSING",
            f"{path}: no such folder, and no such file that ends in "
            f"{', '.join(VECTOR_FORMATS)} (docs/models.md).",
        )
    return NamedVectors(path, IMAGES)


def _in_folder(folder: Path, side: str) -> NamedVectors:
    found = [folder / f"{side}.{kind}" for kind in VECTOR_FORMATS]
    there = [path for path in found if path.is_file()]
    if len(there) != 1:
        what = " and ".join(path.name for path in there) or f"no vectors of {side}"
        raise ModelError(
            "E-VECTORS-INVALID" if there else "E-FILE-MISSING",
            f"{folder}: has {what}; it should have one of "
            f"{', '.join(path.name for path in found)} (docs/models.md).",
        )
    return NamedVectors(there[0], side)


class NamedVectors:
    """Vectors by name, of images or of captions; they stay on disk."""

    def __init__(self, path: Path, side: str) -> None:
        self.path = path
        names = path if path.suffix == ".parquet" else path.with_suffix(".jsonl")
        self.names = _read_names(names, _NAMES[side])
        self.vectors = _read_vectors(path)
        if len(self.names) != len(self.vectors):
            raise _invalid(
                self.path, f"has {len(self.vectors):,} vectors, and {len(self.names):,} names"
            )
        self._check()
        self.digest = digest(*(_file_digest(path) for path in sorted({self.path, names})))
        self._firsts = _numbered(self.names).unique("name", keep="first")

    def _check(self) -> None:
        for start in range(0, len(self.vectors), _ROWS):
            piece = np.asarray(self.vectors[start : start + _ROWS], dtype=np.float32)
            with np.errstate(over="ignore", invalid="ignore"):
                lengths = _lengths(piece)
            if len(bad := np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))):
                what = "is zero" if lengths[bad[0]] == 0 else "has NaN or infinity"
                name = shown(self.names[start + int(bad[0])])
                raise _invalid(self.path, f"the vector of {name} {what}")
        again = _numbered(self.names).filter(pl.col("name").is_duplicated())
        first = pl.col("row").min().over("name").alias("first")
        for name, row, other in again.select("name", "row", first).iter_rows():
            if (self.vectors[row] != self.vectors[other]).any():
                raise _invalid(self.path, f"{shown(name)} has two different vectors")

    def find(self, names: Sequence[str]) -> np.ndarray:
        """The rows of names, -1 where there is none."""
        asked = pl.DataFrame({"name": names}, schema={"name": pl.String()})
        found = asked.join(self._firsts, on="name", how="left", maintain_order="left")
        return found["row"].cast(pl.Int64).fill_null(-1).to_numpy().copy()

    def find_images(self, pictures: Sequence[Picture]) -> tuple[np.ndarray, list[str]]:
        """The rows of images by name, else by file name if that is clear on both sides; else -1.

        Also what is to be said about that.
        """
        names = [image_name(picture.ref) for picture in pictures]
        rows = self.find(names)
        absent = np.flatnonzero(rows < 0).tolist()
        if absent:
            files = [_file_name(name) for name in names]
            known = self.by_file_name()
            owners = Counter(file for file, _ in {*zip(files, names, strict=True)})
            for i in absent:
                rows[i] = known.get(files[i], -1) if owners[files[i]] == 1 else -1
        by_file, notes = int((rows[absent] >= 0).sum()), []
        if by_file:
            notes.append(
                f"{by_file:,} of {len(names):,} images were found by their file name alone"
            )
        if shared := len(names) - len({*names}):
            notes.append(
                f"{shared:,} images have the name, and the vector, of one in another folder"
            )
        return rows, notes

    def by_file_name(self) -> dict[str, int]:
        """The rows of the file names that only one name has."""
        files = [_file_name(name) for name in self._firsts["name"]]
        count = Counter(files)
        rows = zip(files, self._firsts["row"].to_list(), strict=True)
        return {file: row for file, row in rows if count[file] == 1}

    def lacks(self, name: str) -> str:
        return f"{self.path} has no vector of {shown(name)}."

    def raw(self, places: np.ndarray) -> np.ndarray:
        """Vectors in float32, of whatever length they are."""
        return np.array(self.vectors[places], dtype=np.float32)

    def rows(self, places: np.ndarray) -> np.ndarray:
        """Unit vectors in float32; those that have length one are not touched."""
        found = self.raw(places)
        other = ~are_units(found)
        found[other] /= _lengths(found[other])[:, None]
        return found


def are_units(vectors: np.ndarray) -> np.ndarray:
    """Which vectors have length one, as exactly as float32 can say it."""
    return np.abs(_lengths(vectors) - 1) <= _UNIT


def _lengths(vectors: np.ndarray) -> np.ndarray:
    return np.sqrt(np.einsum("nd,nd->n", vectors, vectors, dtype=np.float64))


def _numbered(names: pl.Series) -> pl.DataFrame:
    return names.to_frame("name").with_row_index("row")


# --- reading -------------------------------------------------------------------------------------


def _read_names(path: Path, column: str) -> pl.Series:
    if path.suffix == ".parquet":
        columns = parquet_columns(path, ModelError)
        for name in (column, _VECTOR):
            if name not in columns:
                raise ModelError(
                    "E-COLUMN-MISSING",
                    f"{path}: the column {name!r} is missing; it should have {column} and "
                    f"{_VECTOR}.",
                )
        names = pl.concat(parquet_frames(path, ModelError, columns=[column]))[column]
        if names.dtype != pl.String:
            raise _invalid(path, f"the column {column!r} should hold texts, it is {names.dtype}")
    else:
        names = read_table(path, {column: pl.String()})[column]
    if names.null_count():
        row = int(names.is_null().arg_true()[0])
        raise _invalid(path, f"row {row + 1:,} has no {column}")
    return names


def _read_vectors(path: Path) -> np.ndarray:
    """Mapped, not read: memory holds a piece."""
    if path.suffix == ".parquet":
        vectors = _mapped_copy(path)
    else:
        try:
            vectors = np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
        except Exception as error:  # of a damaged file NumPy raises anything
            what = f"{path}: vectors cannot be read: {described(error)}."
            raise ModelError("E-FILE-MALFORMED", what) from None
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or 0 in vectors.shape:
        shape = " x ".join(map(str, vectors.shape)) or "none"
        what = f"should hold rows of floating-point numbers, not {vectors.dtype} of {shape}"
        raise _invalid(path, what)
    return vectors


def _mapped_copy(path: Path) -> np.ndarray:
    """The vectors of a Parquet file, in a temporary file."""
    rows, width = 0, 0
    with tempfile.TemporaryFile() as copy:
        for frame in parquet_frames(path, ModelError, rows=_ROWS, columns=[_VECTOR]):
            column = frame[_VECTOR]
            inner = getattr(column.dtype, "inner", None)
            if inner is None or not inner.is_numeric():
                raise _invalid(path, f"the column {_VECTOR!r} should hold lists of numbers")
            lists = column.cast(pl.List(pl.Float32()))
            widths = {width or None, *lists.list.len().fill_null(0)} - {None}
            if len(widths) > 1 or 0 in widths:
                raise _invalid(path, "not all vectors have the same number of numbers")
            rows, width = rows + frame.height, next(iter(widths), width)
            copy.write(lists.explode().to_numpy().data)  # a null becomes NaN, which is refused
        copy.flush()
        if not rows:
            return np.empty((0, 0), np.float32)
        return np.memmap(copy, np.float32, "r", 0, (rows, width))


def _file_digest(path: Path) -> bytes:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).digest()


def _invalid(path: Path, what: str) -> ModelError:
    return ModelError("E-VECTORS-INVALID", f"{path}: {what}.")


def load(rest: str, options: LoadOptions) -> VectorFolder:
    del options  # nothing is computed
    return VectorFolder(check(rest))


def check(rest: str) -> Path:
    """The folder, or a refusal."""
    folder = Path(rest)
    if not rest or not folder.is_dir():
        raise ModelError(
            "E-MODEL-MISSING",
            f"vectors:{shortened(rest)}: no such folder; `counterpoint vectors export` makes one.",
        )
    return folder


# --- writing -------------------------------------------------------------------------------------


def write_vectors(
    folder: Path, side: str, form: str, names: Sequence[str], pieces: Iterable[np.ndarray]
) -> None:
    """Vectors of images or of captions in this layout; `pieces` are their rows in order."""
    column = _NAMES[side]
    if form == "parquet":
        _write_parquet(folder / f"{side}.parquet", column, names, pieces)
        return
    with (folder / f"{side}.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps({column: name}, ensure_ascii=False)}\n" for name in names)
    rows, start = None, 0
    for piece in pieces:
        if rows is None:
            shape = (len(names), piece.shape[1])
            rows = np.lib.format.open_memmap(folder / f"{side}.npy", "w+", np.float32, shape)
        rows[start : start + len(piece)] = piece
        start += len(piece)


def _write_parquet(
    path: Path, column: str, names: Sequence[str], pieces: Iterable[np.ndarray]
) -> None:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    with contextlib.ExitStack() as stack:
        writer, start = None, 0
        for piece in pieces:
            flat = pa.array(np.ascontiguousarray(piece, dtype=np.float32).reshape(-1))
            vectors = pa.FixedSizeListArray.from_arrays(flat, piece.shape[1])
            chosen = pa.array(names[start : start + len(piece)], pa.string())
            rows = pa.table({column: chosen, _VECTOR: vectors})
            if writer is None:
                writer = pq.ParquetWriter(path, rows.schema, use_dictionary=False)
                stack.enter_context(writer)
            writer.write_table(rows)
            start += len(piece)
