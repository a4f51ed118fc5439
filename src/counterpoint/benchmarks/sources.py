"""Reading published annotation files: found or explained, and never trusted to be well-formed."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from counterpoint.errors import DataError


def require(path: Path, benchmark: str) -> Path:
    """The path, if it is there; else an error that says how to get it."""
    if not path.exists():
        raise DataError(
            f"{benchmark} needs {path}, which is not there; "
            f"see `counterpoint data get {benchmark}`, or name another folder with --data."
        )
    return path


def read_json(path: Path, benchmark: str) -> Any:
    try:
        return json.loads(require(path, benchmark).read_text(encoding="utf-8-sig"))
    except ValueError as error:  # a decoding error is one too
        raise DataError(f"{path}: not valid JSON: {error}; get the file again.") from None
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}.") from None


def json_rows(path: Path, benchmark: str) -> list[dict[str, Any]]:
    """A JSON list of objects."""
    rows = read_json(path, benchmark)
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise DataError(f"{path}: should hold a list of objects.")
    return rows


def table_rows(path: Path, benchmark: str, separator: str = ",") -> Iterator[dict[str, str]]:
    """The rows of a CSV or TSV file with a header; quotes are honoured as Python's csv does."""
    csv.field_size_limit(1 << 24)  # CREPE's lists of negatives are long
    with require(path, benchmark).open(encoding="utf-8-sig", newline="") as file:
        try:
            yield from csv.DictReader(file, delimiter=separator)
        except (csv.Error, UnicodeDecodeError) as error:
            raise DataError(f"{path}: not a readable table: {error}.") from None


def text(row: dict[str, Any], key: str, where: str) -> str:
    """A field that must be a text; `where` names the file and row."""
    value = row.get(key)
    if not isinstance(value, str) or not value.strip():
        found = "missing" if key not in row else f"{value!r:.60}"
        raise DataError(f"{where}: {key!r} should hold a text, it is {found}.")
    return value


def number(row: dict[str, Any], key: str, where: str) -> int:
    """A field that must be a whole number, or a text that says one."""
    value = row.get(key)
    try:
        if isinstance(value, bool) or value is None:
            raise ValueError
        return round(float(value))
    except (TypeError, ValueError):
        raise DataError(f"{where}: {key!r} should hold a number, it is {value!r:.60}.") from None


def label(text: str) -> str:
    """A text as one level of a group label, in which `/` separates levels."""
    return text.strip().replace("/", "|") or "none"
