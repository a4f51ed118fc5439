"""Case tables on disk: Parquet in the table's own schema, or JSON Lines, one case per line.

    {"id": "1", "images": ["a.jpg"], "captions": ["a b", "b a"], "truth": [[true, false]]}

`groups` (a list of labels) and `cluster` may be left out, and so may `grades` (people's grades of
the pairs, a list for each image as in `truth`), `query` (what a graded pair asks about, if its
caption's text does not say it) and `questions` (how many questions the captions
answer, the answers to one behind the other); an image may be {"path": ..., "box": [x,
y, width, height]}. Images are found relative to the file's folder.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import polars as pl

from counterpoint._util.errors import CaseError
from counterpoint._util.tables import parquet_frames
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint._util.writing import whole_file
from counterpoint.cases.table import CHUNK, SCHEMA, Case, Cases, ImageRef, columns_in, tabulate


def read_cases(path: str | Path) -> Cases:
    """Read and check a case file, piece by piece."""
    path = Path(path)
    if not path.is_file():
        raise CaseError("E-FILE-MISSING", f"{path}: no such file.")
    readers = {".parquet": _parquet_frames, ".jsonl": _json_frames}
    if path.suffix not in readers:
        raise CaseError("E-FILE-FORMAT", f"{path}: a case file ends in .parquet or .jsonl.")
    return Cases.checked(readers[path.suffix](path), path.parent, str(path))


def write_cases(cases: Cases, path: str | Path) -> None:
    """Write a case table as Parquet."""
    if Path(path).suffix != ".parquet":
        raise CaseError(
            "E-FILE-FORMAT", f"{path}: cases are written as Parquet; the name must end in .parquet."
        )
    with whole_file(Path(path), CaseError) as draft:
        cases.frame.write_parquet(draft)


def _parquet_frames(path: Path) -> Iterator[pl.DataFrame]:
    for frame in parquet_frames(path, CaseError, rows=CHUNK):
        missing = [name for name in SCHEMA.names() if name not in frame.columns]
        if missing:
            raise CaseError("E-COLUMN-MISSING", f"{path}: the column {missing[0]!r} is missing.")
        try:
            kinds = columns_in(frame.columns)
            yield frame.select(pl.col(name).cast(kind) for name, kind in kinds.items())
        except pl.exceptions.PolarsError as error:
            why = shortened(error).rstrip(". ") or type(error).__name__
            raise CaseError(
                "E-FILE-MALFORMED", f"{path}: not a readable case table: {why}."
            ) from None


def _json_frames(path: Path) -> Iterator[pl.DataFrame]:
    with path.open(encoding="utf-8-sig") as lines:  # Windows writes a byte order mark
        numbered = ((n, line) for n, line in enumerate(lines, 1) if line.strip())
        try:
            while rows := [_read(line, path, n) for n, line in islice(numbered, CHUNK)]:
                yield tabulate(rows)
        except UnicodeDecodeError as error:
            raise CaseError(
                "E-TEXT-ENCODING", f"{path}: not a text file in UTF-8: {error.reason}."
            ) from None


def _read(line: str, path: Path, number: int) -> Case:
    where = f"{path}: line {number}"
    values = parse_json(line, where, CaseError)
    try:
        case = _case(values)
        case.cells()  # checks the shape of its truth
    except _NotACaseError as error:
        raise CaseError("E-CASE-MALFORMED", f"{where} is not a case: {error}") from None
    except CaseError as error:
        raise CaseError(error.code, f"{where}: {error}") from None
    return case


class _NotACaseError(Exception):
    """A field is missing or of the wrong kind."""


def _case(values: Any) -> Case:
    if not isinstance(values, dict):
        raise _NotACaseError("a case is an object with id, images, captions and truth.")
    return Case(
        _text(values, "id"),
        tuple(map(_image, _list(values, "images"))),
        tuple(_check(caption, str, "captions") for caption in _list(values, "captions")),
        tuple(tuple(map(_truth, cells)) for cells in _rows(values, "truth")),
        tuple(_check(label, str, "groups") for label in _list(values, "groups", [])),
        _text({"cluster": values.get("cluster") or ""}, "cluster"),
        tuple(_grade(cell) for cells in _rows(values, "grades", []) for cell in cells),
        _questions(values.get("questions", 0)),
        _text({"query": values.get("query") or ""}, "query"),
    )


def _questions(value: Any) -> int:
    if type(value) is int and value >= 0:
        return value
    what = f"'questions' should be the number of questions, it is {shown(value)}."
    raise _NotACaseError(what)


def _grade(cell: Any) -> float:
    if type(cell) in (int, float):
        return float(cell)
    raise _NotACaseError(f"a cell of 'grades' should be a number, it is {shown(cell)}.")


def _truth(cell: Any) -> bool:
    if type(cell) in (bool, int) and cell in (0, 1):
        return bool(cell)
    raise _NotACaseError(f"a cell of 'truth' should be true or false, it is {shown(cell)}.")


def _image(value: Any) -> ImageRef:
    if isinstance(value, str):
        return ImageRef(value)
    path = _text(_check(value, dict, "images"), "path")
    box = value.get("box")
    if box is None:
        return ImageRef(path)
    if not (isinstance(box, list) and len(box) == 4 and all(type(side) is int for side in box)):
        what = f"the box {shown(box)} is not [x, y, width, height] in whole pixels."
        raise _NotACaseError(what)
    return ImageRef(path, (box[0], box[1], box[2], box[3]))


def _list(values: dict[str, Any], key: str, default: Any = None) -> list[Any]:
    return list(_check(values.get(key, default), list, key))


def _rows(values: dict[str, Any], key: str, default: Any = None) -> Iterator[list[Any]]:
    return (_check(cells, list, key) for cells in _list(values, key, default))


def _text(values: dict[str, Any], key: str) -> str:
    value = values.get(key)
    if type(value) is int:
        return str(value)  # ids are often numbers
    return str(_check(value, str, key))


def _check(value: Any, kind: type, key: str) -> Any:
    if not isinstance(value, kind):
        found = "missing or null" if value is None else shown(value)
        names = {"str": "a text", "list": "a list", "dict": "a path or an object"}
        raise _NotACaseError(f"{key!r} should hold {names[kind.__name__]}, it is {found}.")
    return value
