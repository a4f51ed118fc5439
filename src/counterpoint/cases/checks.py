"""What makes a case table malformed. Each check is a polars expression over all rows at once."""

from __future__ import annotations

from operator import itemgetter
from typing import Final, NamedTuple

import polars as pl

from counterpoint._util.errors import CaseError
from counterpoint._util.untrusted import shown


def _any(column: str, condition: pl.Expr) -> pl.Expr:
    """Whether any element of a list column meets a condition."""
    return pl.col(column).list.eval(condition.fill_null(False)).list.any()


_each = pl.element()
_path, _box = _each.struct.field("path"), _each.struct.field("box").arr
_cells = pl.col("images").list.len().cast(pl.Int64()) * pl.col("captions").list.len()
_truth = pl.col("truth").list


class _Check(NamedTuple):
    """A mistake that a row can have: its code, its description, and which rows have it."""

    code: str
    what: str
    rows: pl.Expr


EMPTY_CAPTION: Final = "E-CAPTION-EMPTY"
MANY: Final = 5  # images from which a case is a gallery
_CHECKS: Final = (
    _Check("E-CASE-NO-ID", "it has no id", pl.col("id").is_null() | (pl.col("id") == "")),
    _Check(
        "E-CASE-NO-IMAGE",
        "it has no image",
        pl.col("images").is_null() | (pl.col("images").list.len() == 0),
    ),
    _Check(
        "E-CASE-NO-CAPTION",
        "it has no captions",
        pl.col("captions").is_null() | (pl.col("captions").list.len() == 0),
    ),
    _Check(
        "E-IMAGE-NO-PATH", "an image has no path", _any("images", _path.is_null() | (_path == ""))
    ),
    _Check(
        "E-CROP-EMPTY",
        "a crop box is empty",
        _any("images", (_box.get(2) < 1) | (_box.get(3) < 1)),
    ),
    _Check(
        "E-CROP-INCOMPLETE",
        "a crop box lacks a number",
        _any(
            "images",
            _each.struct.field("box").is_not_null()
            & pl.any_horizontal(_box.get(side).is_null() for side in range(4)),
        ),
    ),
    _Check("E-CAPTION-NULL", "a caption is null", _any("captions", _each.is_null())),
    _Check(EMPTY_CAPTION, "a caption is empty", _any("captions", _each.str.strip_chars() == "")),
    _Check("E-TRUTH-NULL", "truth has a cell that is null", _any("truth", _each.is_null())),
    _Check(
        "E-TRUTH-OUTSIDE",
        "truth points outside its images x captions",
        (_truth.max() >= _cells) | (_truth.min() < 0),
    ),
    _Check("E-TRUTH-ORDER", "truth is not in ascending order", _truth.diff().list.min() <= 0),
    _Check(
        "E-CASE-NO-POSITIVE",
        "it has no positive: no caption is true of any image",
        pl.col("truth").is_null() | (_truth.len() == 0),
    ),
    _Check(
        "E-CASE-NO-NEGATIVE",
        "it has no negative: every caption is true of every image",
        _truth.len() == _cells,
    ),
    _Check("E-GROUPS-NULL", "groups is null: use an empty list", pl.col("groups").is_null()),
    _Check(
        "E-GROUP-EMPTY", "a group label is empty", _any("groups", _each.is_null() | (_each == ""))
    ),
    _Check(
        "E-GROUP-RESERVED",
        "a group is called 'all', which stands for the whole benchmark",
        _any("groups", _each == "all"),
    ),
    _Check(
        "E-GROUP-RESERVED",
        "a group is called 'without positives', which stands for cases of that kind",
        _any("groups", _each.str.starts_with("without positives")),
    ),
    _Check(
        "E-CASE-NO-CLUSTER",
        "it has no cluster",
        pl.col("cluster").is_null() | (pl.col("cluster") == ""),
    ),
)


_OF_GRADES: Final = (
    _Check(
        "E-GRADES-SHAPE",
        "it does not have one grade for each image and caption",
        pl.col("grades").is_not_null() & (pl.col("grades").list.len() != _cells),
    ),
    _Check(
        "E-GRADE-INVALID",
        "a grade is missing or not a finite number",
        _any("grades", _each.is_null() | ~_each.is_finite()),
    ),
)

_sides = pl.col("images").list.len().cast(pl.Int64()) + pl.col("captions").list.len()
_OF_QUERIES: Final = _Check(
    "E-QUERIES-OUTSIDE",
    "queries has a number that is none of its images and captions",
    (pl.col("queries").list.max() >= _sides)
    | (pl.col("queries").list.min() < 0)
    | _any("queries", _each.is_null()),
)


_asked = pl.col("questions").cast(pl.Int64())
_captions = pl.col("captions").list.len().cast(pl.Int64())
_images = pl.col("images").list.len().cast(pl.Int64())
_OF_QUESTIONS: Final = (
    _Check(
        "E-QUESTIONS-SHAPE",
        "its captions are not as many answers to one question as to another, two at least to each",
        (_asked < 1) | (_captions % _asked != 0) | (_captions < 2 * _asked),
    ),
    _Check(
        "E-QUESTIONS-GALLERY",
        f"it has questions, and as many images as a gallery: {MANY} or more, or more than captions",
        (_asked > 0) & ((_images >= MANY) | (_images > _captions)),
    ),
    _Check(
        "E-QUESTIONS-TRUTH",
        "an image has no true answer to one of its questions, or several",
        # True cells ascend: the n-th is then an answer to the n-th question, image by image.
        (_truth.len() != _images * _asked)
        | (
            pl.col("truth").cast(pl.List(pl.Int64())) // (_captions // _asked)
            != pl.int_ranges(_images * _asked)
        ),
    ),
)


def _of_graded(check: _Check) -> _Check:
    """A case whose pairs are graded need not have both a true and a false one."""
    if check.code not in ("E-CASE-NO-POSITIVE", "E-CASE-NO-NEGATIVE"):
        return check
    return check._replace(rows=check.rows & pl.col("grades").is_null())


def refuse_malformed(frame: pl.DataFrame, start: int, source: str, allowed: str = "") -> None:
    """Raise a CaseError that names the first bad row (counted from `start`) and what is wrong.

    `allowed` is the code of a check that is not made.
    """
    checks = [check for check in _CHECKS if check.code != allowed]
    if "grades" in frame.columns:
        checks = [_of_graded(check) for check in checks] + list(_OF_GRADES)
    if "queries" in frame.columns:
        checks.append(_OF_QUERIES)
    if "questions" in frame.columns:
        checks += _OF_QUESTIONS
    firsts = [
        check.rows.fill_null(False).arg_true().first().alias(str(number))
        for number, check in enumerate(checks)
    ]
    found = frame.select(firsts).row(0)
    bad = [(row, check) for row, check in zip(found, checks, strict=True) if row is not None]
    if bad:
        row, check = min(bad, key=itemgetter(0))
        id, where = frame["id"][row], start + row + 1
        raise CaseError(check.code, f"{source}: row {where} (id {shown(id)}): {check.what}.")


def refuse_repeated_ids(ids: pl.Series, source: str) -> None:
    repeated = ids.is_duplicated()
    if repeated.any():
        rows = repeated.arg_true()
        first = ids[int(rows[0])]
        one, two = ((ids == first).arg_true()[:2] + 1).to_list()
        raise CaseError(
            "E-CASE-DUPLICATE",
            f"{source}: rows {one} and {two} have the same id {shown(first)} "
            f"({len(rows)} rows share an id); ids must be unique.",
        )
