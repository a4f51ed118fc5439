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

import hashlib
import json
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
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
)

IMAGES: Final = "images"
CAPTIONS: Final = "captions"
VECTOR_FORMATS: Final = ("parquet", "npy")
_NAMES: Final = {IMAGES: "name", CAPTIONS: "caption"}  # the columns of names
_VECTOR: Final = "vector"
_UNEVEN: Final = "not all vectors have the same number of numbers"
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
        scored = {
            name: Scored(np.full(cases.pair_offsets[-1], np.nan, dtype=np.float32))
            for name, cases in benchmarks.items()
        }
        texts = self._captions.find(plan.texts)
        as_text = [picture.ref.text for picture in plan.pictures]
        images, self._notes = self._images.find_images(plan.pictures)
        captions = self._captions.find([text or "" for text in as_text])
        is_text = np.array([text is not None for text in as_text])

        lost = {
            int(i): self._captions.lacks(as_text[i] or "")
            if is_text[i]
            else self._images.lacks(image_name(plan.pictures[i].ref))
            for i in np.flatnonzero(np.where(is_text, captions, images) < 0)
        }
        leave_out_images(plan, lost, scored)
        pictured = plan.pictured_texts()
        shown = np.full(len(texts), -1)
        shown[list(pictured)] = images[list(pictured.values())]
        there = np.maximum(texts, shown)
        gone = np.flatnonzero(np.logical_or.reduceat(there[plan.prompts] < 0, plan.starts[:-1]))
        prompts = {int(i): plan.prompts[plan.starts[i] : plan.starts[i + 1]] for i in gone}
        reasons = {
            i: self._captions.lacks(plan.texts[next(n for n in numbers if there[n] < 0)])
            for i, numbers in prompts.items()
        }
        leave_out_captions(plan, reasons, scored)

        def image_vectors(numbers: np.ndarray) -> np.ndarray:
            found = np.empty((len(numbers), self._images.vectors.shape[1]), dtype=np.float32)
            marks = is_text[numbers]
            found[~marks] = self._images.rows(images[numbers[~marks]])
            found[marks] = self._captions.rows(captions[numbers[marks]])
            return found

        def caption_vectors(numbers: np.ndarray) -> np.ndarray:
            """Those of images, where an image stands in a caption's place."""
            found = np.empty((len(numbers), self._captions.vectors.shape[1]), dtype=np.float32)
            marks = np.isin(numbers, list(pictured))
            found[~marks] = self._captions.rows(texts[numbers[~marks]])
            found[marks] = self._images.rows(shown[numbers[marks]])
            return found

        compare_vectors(plan, scored, image_vectors, caption_vectors)
        return scored

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
        self.vectors = _parquet(path) if path.suffix == ".parquet" else _npy(path)
        _refuse_others(path, self.vectors)
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
            bad = np.flatnonzero(~np.isfinite(lengths) | (lengths == 0))
            if len(bad):
                row = start + int(bad[0])
                what = "is zero" if lengths[bad[0]] == 0 else "has NaN or infinity"
                raise _invalid(self.path, f"the vector of {shown(self.names[row])} {what}")
        again = _numbered(self.names).filter(pl.col("name").is_duplicated())
        first = again.select(pl.col("row").min().over("name")).to_series().to_numpy()
        rows = again["row"].to_numpy()
        for start in range(0, len(rows), _ROWS):
            some = slice(start, start + _ROWS)
            differ = (self.vectors[rows[some]] != self.vectors[first[some]]).any(axis=1)
            if differ.any():
                name = again["name"][start + int(differ.argmax())]
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
        by_file = int((rows[absent] >= 0).sum())
        shared = len(names) - len({*names})
        said = {
            f"{by_file:,} of {len(names):,} images were found by their file name alone": by_file,
            f"{shared:,} images have the name, and the vector, of one in another folder": shared,
        }
        return rows, [note for note, count in said.items() if count]

    def by_file_name(self) -> dict[str, int]:
        """The rows of the file names that only one name has."""
        files = [_file_name(name) for name in self._firsts["name"]]
        count = Counter(files)
        rows = self._firsts["row"].to_list()
        return {file: row for file, row in zip(files, rows, strict=True) if count[file] == 1}

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
        _require_columns(path, column, _VECTOR)
        names = pl.concat(parquet_frames(path, ModelError, columns=[column]))[column]
        if names.dtype != pl.String:
            raise _invalid(path, f"the column {column!r} should hold texts, it is {names.dtype}")
    else:
        names = read_table(path, {column: pl.String()})[column]
    if names.null_count():
        row = int(names.is_null().arg_true()[0])
        raise _invalid(path, f"row {row + 1:,} has no {column}")
    return names


def _require_columns(path: Path, *wanted: str) -> None:
    columns = parquet_columns(path, ModelError)
    for name in wanted:
        if name not in columns:
            raise ModelError(
                "E-COLUMN-MISSING",
                f"{path}: the column {name!r} is missing; it should have {' and '.join(wanted)}.",
            )


def _npy(path: Path) -> np.ndarray:
    try:
        return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))
    except Exception as error:  # of a damaged file NumPy raises anything
        what = f"{path}: vectors cannot be read: {described(error)}."
        raise ModelError("E-FILE-MALFORMED", what) from None


def _parquet(path: Path) -> np.ndarray:
    """Copied to a temporary file, which can be mapped: memory holds a piece."""
    shape = (0, 0)
    with tempfile.TemporaryFile() as copy:
        for piece in _parquet_pieces(path):
            if shape[0] and shape[1] != piece.shape[1]:
                raise _invalid(path, _UNEVEN)
            shape = shape[0] + piece.shape[0], piece.shape[1]
            copy.write(np.ascontiguousarray(piece).data)
        copy.flush()
        return (
            np.memmap(copy, np.float32, "r", 0, shape) if shape[0] else np.empty(shape, np.float32)
        )


def _parquet_pieces(path: Path) -> Iterator[np.ndarray]:
    for frame in parquet_frames(path, ModelError, rows=_ROWS, columns=[_VECTOR]):
        values = frame[_VECTOR]
        kind = values.dtype
        inner = kind.inner if isinstance(kind, pl.List | pl.Array) else pl.String()
        if not inner.is_numeric():
            raise _invalid(path, f"the column {_VECTOR!r} should hold lists of numbers")
        lists = values.cast(pl.List(pl.Float32()))
        sizes = lists.list.len().fill_null(0).unique().to_list()
        if frame.height and (len(sizes) > 1 or 0 in sizes):
            raise _invalid(path, _UNEVEN)
        if frame.height:  # a null becomes NaN, which is refused
            yield lists.explode().to_numpy().reshape(frame.height, -1)


def _refuse_others(path: Path, vectors: np.ndarray) -> None:
    if vectors.ndim != 2 or vectors.dtype.kind != "f" or 0 in vectors.shape:
        said = " x ".join(map(str, vectors.shape)) or "none"
        what = f"should hold rows of floating-point numbers, not {vectors.dtype} of {said}"
        raise _invalid(path, what)


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
    path, column = folder / f"{side}.{form}", _NAMES[side]
    if form == "parquet":
        _write_parquet(path, column, names, pieces)
        return
    with (folder / f"{side}.jsonl").open("w", encoding="utf-8") as lines:
        lines.writelines(f"{json.dumps({column: name}, ensure_ascii=False)}\n" for name in names)
    with path.open("wb") as file:
        for start, piece in _with_starts(pieces):
            if start == 0:
                shape = (len(names), piece.shape[1])
                about = {"descr": "<f4", "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, about)
            file.write(np.ascontiguousarray(piece, dtype="<f4").data)


def _with_starts(pieces: Iterable[np.ndarray]) -> Iterator[tuple[int, np.ndarray]]:
    start = 0
    for piece in pieces:
        yield start, piece
        start += len(piece)


def _write_parquet(
    path: Path, column: str, names: Sequence[str], pieces: Iterable[np.ndarray]
) -> None:
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    writer = None
    for start, piece in _with_starts(pieces):
        kind = pa.list_(pa.float32(), piece.shape[1])
        flat = pa.array(np.ascontiguousarray(piece, dtype=np.float32).reshape(-1))
        rows = pa.table(
            {
                column: pa.array(names[start : start + len(piece)], pa.string()),
                _VECTOR: pa.FixedSizeListArray.from_arrays(flat, type=kind),
            }
        )
        writer = writer or pq.ParquetWriter(path, rows.schema, use_dictionary=False)
        writer.write_table(rows)
    if writer is not None:
        writer.close()
