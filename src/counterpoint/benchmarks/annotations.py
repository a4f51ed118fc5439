"""Reading the annotation files of benchmarks: JSON, JSON lines, CSV, Parquet.

A file that is missing or malformed is an error that names the file, and the row and the field if it
can. Of an image column in a Parquet file of the hub, a struct `{bytes, path}`, only `path` is read:
the file keeps the two apart, and the bytes of a few thousand images are half a gigabyte.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final, NamedTuple

from counterpoint._util.errors import DataError, reason
from counterpoint._util.untrusted import open_regular, parse_json, shortened, shown
from counterpoint.benchmarks.benchmark import Options
from counterpoint.cases import ImageRef
from counterpoint.images import cell_reference

GENOME_FOLDERS: Final = ("VG_100K", "VG_100K_2")  # the two archives of Visual Genome, unpacked
KARPATHY_FILES: Final = {"coco": "coco_karpathy_test.json", "flickr30k": "flickr30k_test.json"}


def require(path: Path, benchmark: str) -> Path:
    """The path, if it is there; else an error that says how to get it."""
    if not path.exists():
        raise DataError(
            "E-FILE-MISSING",
            f"{benchmark} needs {path}, which is not there; "
            f"see `counterpoint data get {benchmark}`, or name another folder with --data.",
        )
    return path


def opened(path: Path, benchmark: str) -> BinaryIO:
    """The file, open to be read."""
    try:
        return open_regular(require(path, benchmark))
    except OSError as error:
        raise DataError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None


def read_json(path: Path, benchmark: str) -> Any:
    with opened(path, benchmark) as file:
        try:
            return parse_json(file.read(), path)
        except DataError as error:
            raise DataError(error.code, f"{str(error).rstrip('.')}; get the file again.") from None


def json_rows(path: Path, benchmark: str) -> list[dict[str, Any]]:
    """A JSON list of objects."""
    rows = read_json(path, benchmark)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError("E-FILE-MALFORMED", f"{path}: should hold a list of objects.")
    return rows


def table_rows(path: Path, benchmark: str, separator: str = ",") -> Iterator[dict[str, str]]:
    """The rows of a CSV or TSV file with a header; quotes are honoured as Python's csv does."""
    csv.field_size_limit(1 << 24)  # CREPE's lists of negatives are long
    with io.TextIOWrapper(opened(path, benchmark), encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.DictReader(file, delimiter=separator)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                "E-FILE-MALFORMED", f"{path}: not a readable table: {shortened(error)}."
            ) from None


def text(row: dict[str, Any], key: str, where: str) -> str:
    """A field that must be a text; `where` names the file and row."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "missing" if key not in row else shown(value)
        raise DataError("E-ROW-MALFORMED", f"{where}: {key!r} should hold a text, it is {found}.")
    return value


def number(row: dict[str, Any], key: str, where: str) -> int:
    """A field that must be a whole number, or a text that says one."""
    value = row.get(key)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        return round(float(value))
    except (TypeError, ValueError, OverflowError):  # the last of an infinite one
        raise DataError(
            "E-ROW-MALFORMED", f"{where}: {key!r} should hold a number, it is {shown(value)}."
        ) from None


def label(text: str) -> str:
    """A text as one level of a group label, in which `/` separates levels."""
    return text.strip().replace("/", "|") or "none"


def first_there(*paths: Path) -> Path:
    """The first path that exists, else the first: an error then names where it was expected."""
    return next((path for path in paths if path.exists()), paths[0])


def files_below(folder: Path, pattern: str, benchmark: str = "") -> list[Path]:
    """The files below a folder whose names match, sorted; none is an error if `benchmark` is given.

    Hidden files are left out: archives packed on a Mac hold a `._NAME` beside every NAME.
    """
    files = sorted(
        path for path in folder.rglob(pattern) if path.is_file() and not path.name.startswith(".")
    )
    if benchmark and not files:
        require(folder / "**" / pattern, benchmark)
    return files


def named_rows(path: Path, benchmark: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """JSON objects with their ids: of an object, the keys; of a list, `id` or else the position."""
    found = read_json(path, benchmark)
    if not isinstance(found, dict | list):
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: should hold objects, in a list or by their ids."
        )
    for key, row in found.items() if isinstance(found, dict) else enumerate(found):
        if not isinstance(row, dict):
            where = f"{path}: row {key + 1 if isinstance(key, int) else shortened(key)}"
            raise DataError("E-ROW-MALFORMED", f"{where} should be an object, it is {shown(row)}.")
        own = None if isinstance(found, dict) else row.get("id")
        yield str(key if own is None else own), row


def jsonl_rows(path: Path, benchmark: str) -> Iterator[dict[str, Any]]:
    """The objects of a file that holds one per line."""
    with opened(path, benchmark) as file:
        for place, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row = parse_json(line, f"{path}: line {place}")
            if not isinstance(row, dict):
                raise DataError(
                    "E-ROW-MALFORMED", f"{path}: line {place}: not an object but {shown(row)}."
                )
            yield row


def whole(row: dict[Any, Any], where: str) -> dict[str, str]:
    """A row of a table, if it has as many fields as the header."""
    if None in row or None in row.values():  # how csv marks fields too many and too few
        raise DataError("E-ROW-MALFORMED", f"{where}: has more or fewer fields than the header.")
    return row


# --- Parquet files of the hub -------------------------------------------------------------------


def parquet_image(file: str, column: str, row: int) -> ImageRef:
    """An image inside a Parquet file, which is named by its path under the data root."""
    return ImageRef(cell_reference(file, column, row))


def parquet_rows(
    path: Path, texts: Sequence[str], images: Sequence[str], optional: Sequence[str] = ()
) -> Iterator[dict[str, Any]]:
    """The rows of a file, once all columns are known to be there; of an image, its name or None."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    try:
        open_regular(path).close()
        schema = pq.read_schema(path)
        _check(path, schema, texts, images)
        named = [name for name in images if _has_field(schema.field(name).type, "path")]
        wanted = [*texts, *(name for name in optional if name in schema.names)]
        table = pq.ParquetFile(path).read([*wanted, *(f"{name}.path" for name in named)])
        rows = table.to_pylist()
    except (pa.ArrowException, ValueError, OSError) as error:  # ValueError: a text is not UTF-8
        why = shortened(error).rstrip(". ")
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: not a readable Parquet file: {why}."
        ) from None
    for row in rows:
        names = {name: (row.get(name) or {}).get("path") for name in named}
        yield {**row, **dict.fromkeys(images), **names}


def _check(path: Path, schema: Any, texts: Sequence[str], images: Sequence[str]) -> None:
    import pyarrow as pa

    missing = [name for name in (*texts, *images) if name not in schema.names]
    if missing:
        raise DataError(
            "E-COLUMN-MISSING",
            f"{path}: has no column {missing[0]!r}, only {shortened(', '.join(schema.names))}.",
        )
    for name in images:
        kind = schema.field(name).type
        binary = pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
        if not binary and not _has_field(kind, "bytes"):
            raise DataError(
                "E-COLUMN-INVALID",
                f"{path}: column {name!r} should hold images, it is {shortened(kind)}.",
            )


def _has_field(kind: Any, name: str) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_struct(kind)) and kind.get_field_index(name) >= 0


# --- images ------------------------------------------------------------------------------------


class ImageFolders:
    """Which images are there; every folder that is asked for is listed once."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._files: dict[str, frozenset[str]] = {}

    def __contains__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if folder not in self._files:
            self._files[folder] = _listing(self._root / folder)
        return name in self._files[folder]


class VisualGenome:
    """Where an image of Visual Genome is: in one of two folders, and its id does not say which.

    Both folders are listed once: asking the disk for each of a million rows takes minutes.
    """

    def __init__(self, root: Path) -> None:
        self._files = {name: _listing(root / "visual_genome" / name) for name in GENOME_FOLDERS}

    def find(self, image_id: int | str) -> str | None:
        """The path of an image that is there; None if it is in neither folder."""
        file = _file_name(image_id)
        folder = next((name for name in GENOME_FOLDERS if file in self._files[name]), None)
        return f"visual_genome/{folder}/{file}" if folder else None

    def path(self, image_id: int | str) -> str:
        """The path of an image; that of the first folder if it is in neither."""
        return self.find(image_id) or f"visual_genome/{GENOME_FOLDERS[0]}/{_file_name(image_id)}"


def _listing(folder: Path) -> frozenset[str]:
    if not folder.is_dir():
        return frozenset()
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries)


def _file_name(image_id: int | str) -> str:
    """`2.jpg` from 2, "2", "2.0" (a column that was once floats), "2.jpg" or "VG_100K/2.jpg"."""
    name = PurePosixPath(str(image_id).strip()).name.removesuffix(".jpg").removesuffix(".0")
    return f"{name}.jpg"


# --- COCO and Flickr30k -------------------------------------------------------------------------


class Annotated(NamedTuple):
    """An image, as a path under the data root, and its captions."""

    image: str
    captions: list[str]


def annotated_images(options: Options, name: str, benchmark: str) -> list[Annotated]:
    """The test split by Karpathy of `coco` or `flickr30k`: images with five captions each."""
    path = options.data / name / KARPATHY_FILES[name]
    found = []
    for number, row in enumerate(json_rows(path, benchmark)):
        where = f"{path}: row {number + 1}"
        captions = row.get("caption")
        if not isinstance(captions, list) or not captions:
            raise DataError("E-ROW-MALFORMED", f"{where}: 'caption' should hold a list of texts.")
        texts = [text({"caption": caption}, "caption", where) for caption in captions]
        found.append(Annotated(f"{name}/{text(row, 'image', where)}", texts))
    return found
