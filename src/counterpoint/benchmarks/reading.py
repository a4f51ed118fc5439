"""Reading the files of benchmarks: JSON, JSON lines, CSV, Parquet, and images by their names.

A file that is missing or malformed is an error that names the file, and the row and the field if it
can. A file or folder of another form than the published one is an error that says what was expected
and what was found: some readers were written without the files in hand, so that message matters.

Of an image column in a Parquet file of the hub, a struct `{bytes, path}`, only `path` is read: the
file keeps the two apart, and the bytes of a few thousand images are half a gigabyte.
"""

from __future__ import annotations

import ast
import csv
import io
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Final

from counterpoint._util.errors import DataError, NotFoundError, reason
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import open_regular, parse_json, shortened, shown
from counterpoint.benchmarks.benchmark import Options
from counterpoint.cases import ImageRef
from counterpoint.images import cell_reference

GENOME: Final = ("visual_genome/VG_100K", "visual_genome/VG_100K_2")  # the two archives, unpacked
_NAMES: Final = 8  # of a folder or a row, in a message


def unexpected(path: Path | str, expected: str, found: Any) -> DataError:
    """The error for another layout than the published one."""
    return DataError(
        "E-LAYOUT-UNEXPECTED",
        f"{path}: expected {expected}, found {described(found)}; get the published files again, or "
        "tell us if the authors changed them.",
    )


def described(value: Any) -> str:
    """The form of a value in a few words: what keys, how many, what is in a folder."""
    if isinstance(value, Path):
        names = sorted(one.name for one in value.iterdir()) if value.is_dir() else []
        return f"{_listed(names)} in {value}" if names else f"nothing in {value}"
    if isinstance(value, dict):
        return f"an object with {_listed(list(map(str, value)))}" if value else "an empty object"
    if isinstance(value, list):
        inner = f" of {described(value[0])}" if value and isinstance(value[0], dict | list) else ""
        return f"a list of length {len(value)}{inner and ', the first ' + inner[4:]}"
    return shown(value)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMES:,} more" if len(names) > _NAMES else ""
    return shortened(", ".join(names[:_NAMES])) + more


def malformed(where: str, what: str) -> DataError:
    """The error for a row that is not as it should be."""
    return DataError("E-ROW-MALFORMED", f"{where}: {what}.")


def chosen_option(options: Options, name: str, known: Iterable[str], kind: str = "") -> str:
    """The value of an option that has to be one of a few words."""
    value = options.text(name)
    if value not in (names := list(known)):
        raise NotFoundError("E-OPTION-INVALID", did_you_mean(kind or name, value, names))
    return value


# --- files ---------------------------------------------------------------------------------------


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


def matching_files(folder: Path, patterns: Sequence[str], benchmark: str) -> list[Path]:
    """The files in a folder, at any depth, that match the first pattern which any match."""
    for pattern in patterns:
        if found := files_below(folder, pattern):
            return found
    if not folder.is_dir() or all(path.name.startswith(".") for path in folder.iterdir()):
        names = [pattern for pattern in patterns if "*" not in Path(pattern).name]
        require(folder / (names or patterns)[0], benchmark)  # says how to get it
    raise unexpected(folder, f"a file {' or '.join(patterns)}", folder)


def published_file(folder: Path, name: str, benchmark: str) -> Path:
    """The file of this name in a folder, at any depth."""
    return matching_files(folder, [name], benchmark)[0]


# --- rows ----------------------------------------------------------------------------------------


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


def jsonl_rows(path: Path, benchmark: str) -> Iterator[dict[str, Any]]:
    """The objects of a file that holds one per line."""
    with opened(path, benchmark) as file:
        for place, line in enumerate(file, start=1):
            if not line.strip():
                continue
            row = parse_json(line, f"{path}: line {place}")
            if not isinstance(row, dict):
                raise malformed(f"{path}: line {place}", f"not an object but {shown(row)}")
            yield row


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


def table_rows(
    path: Path, benchmark: str, separator: str = ","
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a CSV or TSV file with a header, and where they are.

    Quotes are honoured as Python's csv does.
    """
    csv.field_size_limit(1 << 24)  # CREPE's lists of negatives are long
    with io.TextIOWrapper(opened(path, benchmark), encoding="utf-8-sig", newline="") as file:
        try:
            for number, row in enumerate(csv.DictReader(file, delimiter=separator), start=1):
                where = f"{path}: row {number}"
                if None in row or None in row.values():  # csv's marks of fields too many or few
                    raise malformed(where, "has more or fewer fields than the header")
                yield where, row
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(
                "E-FILE-MALFORMED", f"{path}: not a readable table: {shortened(error)}."
            ) from None


def object_rows(
    path: Path, fields: Sequence[str], benchmark: str
) -> Iterator[tuple[str, dict[str, Any]]]:
    """The rows of a JSON list, of JSON lines or of a CSV table, each with all the fields, and where
    they are.
    """
    form = f"rows with {', '.join(fields)}"
    rows: Iterable[Any]
    if path.suffix == ".csv":
        rows = (row for _, row in table_rows(path, benchmark))
    elif path.suffix == ".jsonl":
        rows = jsonl_rows(path, benchmark)
    else:
        rows = read_json(path, benchmark)
        if not isinstance(rows, list):
            raise unexpected(path, f"a list of {form}", rows)
    for number, row in enumerate(rows, start=1):
        where = f"{path}: row {number}"
        if not isinstance(row, dict) or any(field not in row for field in fields):
            raise unexpected(where, form, row)
        yield where, row


# --- fields --------------------------------------------------------------------------------------


def text(row: dict[str, Any], key: str, where: str) -> str:
    """A field that must be a text; `where` names the file and row."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "missing" if key not in row else shown(value)
        raise malformed(where, f"{key!r} should hold a text, it is {found}")
    return value


def number(row: dict[str, Any], key: str, where: str) -> int:
    """A field that must be a whole number, or a text that says one."""
    value = row.get(key)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        return round(float(value))
    except (TypeError, ValueError, OverflowError):  # the last of an infinite one
        what = f"{key!r} should hold a number, it is {shown(value)}"
        raise malformed(where, what) from None


def box(row: dict[str, Any], keys: Sequence[str], where: str) -> tuple[int, int, int, int]:
    """A region, by its left, top, width and height."""
    left, top, width, height = (number(row, key, where) for key in keys)
    return left, top, width, height


def written_list(value: str) -> list[str] | None:
    """A list of texts as Python writes it; None if it is something else."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return None
    if not isinstance(found, list | tuple) or not all(isinstance(one, str) for one in found):
        return None
    return list(found)


def label(text: str) -> str:
    """A text as one level of a group label, in which `/` separates levels."""
    return text.strip().replace("/", "|") or "none"


# --- Parquet files of the hub --------------------------------------------------------------------


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
        _check_columns(path, schema, texts, images)
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


def _check_columns(path: Path, schema: Any, texts: Sequence[str], images: Sequence[str]) -> None:
    import pyarrow as pa

    missing = [name for name in (*texts, *images) if name not in schema.names]
    if missing:
        known = shortened(", ".join(schema.names))
        raise DataError("E-COLUMN-MISSING", f"{path}: has no column {missing[0]!r}, only {known}.")
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


# --- images by their names -----------------------------------------------------------------------


class ImageIndex:
    """Which images are there, and in which of several folders one is.

    Every folder is listed once: asking the disk for each of a million rows takes minutes.
    """

    def __init__(self, root: Path, *folders: str) -> None:
        self._root, self._folders = root, folders
        self._listings: dict[str, frozenset[str]] = {}

    def __contains__(self, path: str) -> bool:
        folder, _, name = path.rpartition("/")
        if folder not in self._listings:
            self._listings[folder] = _listing(self._root / folder)
        return name in self._listings[folder]

    def find(self, name: str) -> str | None:
        """The path under the data root of an image that is there; None if no folder has it."""
        paths = (f"{folder}/{name}" for folder in self._folders)
        return next((path for path in paths if path in self), None)

    def path(self, name: str) -> str:
        """The path of an image; that in the first folder if no folder has it."""
        return self.find(name) or f"{self._folders[0]}/{name}"


def _listing(folder: Path) -> frozenset[str]:
    if not folder.is_dir():
        return frozenset()
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries)


def genome_name(image_id: int | str) -> str:
    """`2.jpg` from 2, "2", "2.0" (a column that was once floats), "2.jpg" or "VG_100K/2.jpg"."""
    name = PurePosixPath(str(image_id).strip()).name.removesuffix(".jpg").removesuffix(".0")
    return f"{name}.jpg"


def file_below(folder: Path, name: str, root: Path) -> str:
    """The path of a file in a folder, under the data root.

    The name comes from a file, so it is not followed here: what opens images refuses `..`.
    """
    return f"{folder.relative_to(root).as_posix()}/{name}"
