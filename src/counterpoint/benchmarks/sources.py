"""Reading published annotation files: found or explained, and never trusted to be well-formed."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from counterpoint.errors import DataError, reason
from counterpoint.untrusted import open_regular, parse_json, shortened, shown


def require(path: Path, benchmark: str) -> Path:
    """The path, if it is there; else an error that says how to get it."""
    if not path.exists():
        raise DataError(
            f"{benchmark} needs {path}, which is not there; "
            f"see `counterpoint data get {benchmark}`, or name another folder with --data."
        )
    return path


def opened(path: Path, benchmark: str) -> BinaryIO:
    """The file, open to be read."""
    try:
        return open_regular(require(path, benchmark))
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {reason(error)}.") from None


def read_json(path: Path, benchmark: str) -> Any:
    with opened(path, benchmark) as file:
        try:
            return parse_json(file.read(), path)
        except DataError as error:
            raise DataError(f"{str(error).rstrip('.')}; get the file again.") from None


def json_rows(path: Path, benchmark: str) -> list[dict[str, Any]]:
    """A JSON list of objects."""
    rows = read_json(path, benchmark)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: should hold a list of objects.")
    return rows


def table_rows(path: Path, benchmark: str, separator: str = ",") -> Iterator[dict[str, str]]:
    """The rows of a CSV or TSV file with a header; quotes are honoured as Python's csv does."""
    csv.field_size_limit(1 << 24)  # CREPE's lists of negatives are long
    with io.TextIOWrapper(opened(path, benchmark), encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.DictReader(file, delimiter=separator)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path}: not a readable table: {shortened(error)}.") from None


def text(row: dict[str, Any], key: str, where: str) -> str:
    """A field that must be a text; `where` names the file and row."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "missing" if key not in row else shown(value)
        raise DataError(f"{where}: {key!r} should hold a text, it is {found}.")
    return value


def number(row: dict[str, Any], key: str, where: str) -> int:
    """A field that must be a whole number, or a text that says one."""
    value = row.get(key)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        return round(float(value))
    except (TypeError, ValueError, OverflowError):  # the last of an infinite one
        raise DataError(f"{where}: {key!r} should hold a number, it is {shown(value)}.") from None


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
        raise DataError(f"{path}: should hold objects, in a list or by their ids.")
    for key, row in found.items() if isinstance(found, dict) else enumerate(found):
        if not isinstance(row, dict):
            raise DataError(
                f"{path}: row {shortened(key)} should be an object, it is {shown(row)}."
            )
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
                raise DataError(f"{path}: line {place}: not an object but {shown(row)}.")
            yield row


def whole(row: dict[Any, Any], where: str) -> dict[str, str]:
    """A row of a table, if it has as many fields as the header."""
    if None in row or None in row.values():  # how csv marks fields too many and too few
        raise DataError(f"{where}: has more or fewer fields than the header.")
    return row
