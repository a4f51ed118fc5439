"""What makes a case table malformed. Each check is a polars expression over all rows at once."""

from __future__ import annotations

from typing import Final

import polars as pl

from counterpoint.errors import CaseError
from counterpoint.untrusted import shown


def _any(column: str, condition: pl.Expr) -> pl.Expr:
    """Whether any element of a list column meets a condition."""
    return pl.col(column).list.eval(condition.fill_null(False)).list.any()


_each = pl.element()
_path, _box = _each.struct.field("path"), _each.struct.field("box").arr
_cells = pl.col("images").list.len().cast(pl.Int64()) * pl.col("captions").list.len()
_truth = pl.col("truth").list

EMPTY_CAPTION: Final = "a caption is empty"
_CHECKS: Final[dict[str, pl.Expr]] = {
    "it has no id": pl.col("id").is_null() | (pl.col("id") == ""),
    "it has no image": pl.col("images").is_null() | (pl.col("images").list.len() == 0),
    "it has no captions": pl.col("captions").is_null() | (pl.col("captions").list.len() == 0),
    "an image has no path": _any("images", _path.is_null() | (_path == "")),
    "a crop box is empty": _any("images", (_box.get(2) < 1) | (_box.get(3) < 1)),
    "a crop box lacks a number": _any(
        "images",
        _each.struct.field("box").is_not_null()
        & pl.any_horizontal(_box.get(side).is_null() for side in range(4)),
    ),
    "a caption is null": _any("captions", _each.is_null()),
    EMPTY_CAPTION: _any("captions", _each.str.strip_chars() == ""),
    "truth has a cell that is null": _any("truth", _each.is_null()),
    "truth points outside its images x captions": (_truth.max() >= _cells) | (_truth.min() < 0),
    "truth is not in ascending order": _truth.diff().list.min() <= 0,
    "it has no positive: no caption is true of any image": pl.col("truth").is_null()
    | (_truth.len() == 0),
    "it has no negative: every caption is true of every image": _truth.len() == _cells,
    "groups is null: use an empty list": pl.col("groups").is_null(),
    "a group label is empty": _any("groups", _each.is_null() | (_each == "")),
    "a group is called 'all', which stands for the whole benchmark": _any("groups", _each == "all"),
    "a group is called 'without positives', which stands for cases of that kind": _any(
        "groups", _each.str.starts_with("without positives")
    ),
    "it has no cluster": pl.col("cluster").is_null() | (pl.col("cluster") == ""),
}


def refuse_malformed(frame: pl.DataFrame, start: int, source: str, allowed: str = "") -> None:
    """Raise a CaseError that names the first bad row (counted from `start`) and what is wrong.

    `allowed` names a check that is not made.
    """
    firsts = [
        condition.fill_null(False).arg_true().first().alias(what)
        for what, condition in _CHECKS.items()
        if what != allowed
    ]
    found = frame.select(firsts).row(0, named=True)
    bad = {what: row for what, row in found.items() if row is not None}
    if bad:
        what, row = min(bad.items(), key=lambda item: item[1])
        raise CaseError(f"{source}: row {start + row} (id {shown(frame['id'][row])}): {what}.")


def refuse_duplicates(ids: pl.Series, source: str) -> None:
    repeated = ids.is_duplicated()
    if repeated.any():
        rows = repeated.arg_true()
        first = ids[int(rows[0])]
        where = (ids == first).arg_true().to_list()
        raise CaseError(
            f"{source}: rows {where[0]} and {where[1]} have the same id {shown(first)} "
            f"({len(rows)} rows share an id); ids must be unique."
        )
