"""Tables of scores with one row per case, as they are published for Winoground.

    id  ...  C0I0  C0I1  C1I0  C1I1

`C0I1` is the score of caption 0 with image 1; it may be written `c0_i1`, `i1_c0`, `score_c0_i1` or
`caption_0_image_1`. A `.txt` file has non-breaking blanks, or tabs, between its fields.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Final

import polars as pl

from counterpoint.errors import DataError
from counterpoint.tables import read_table
from counterpoint.untrusted import shown

_CAPTION: Final = r"c(?:aption)?_?(?P<caption>\d+)"
_IMAGE: Final = r"i(?:mage)?_?(?P<image>\d+)"
_FORMS: Final = [
    re.compile(rf"(?:s(?:core)?_)?{one}_?{two}", re.IGNORECASE)
    for one, two in ((_CAPTION, _IMAGE), (_IMAGE, _CAPTION))
]
_IDS: Final = ("case_id", "id")


def read_wide(path: Path) -> pl.DataFrame | None:
    """case_id, image, caption, score of a table with one row per case; None if it is another."""
    table = _read_text(path) if path.suffix == ".txt" else read_table(path, {})
    places = {name: place for name in table.columns if (place := _place(name)) is not None}
    names = {name.lower(): name for name in table.columns}
    id = next((names[name] for name in _IDS if name in names), None)
    if not places or "score" in names:
        return None
    if id is None:
        raise DataError(f"{path}: the scores {', '.join(places)} need a column case_id or id.")
    if len(set(places.values())) < len(places):
        raise DataError(f"{path}: two of the columns {', '.join(places)} are of the same pair.")
    pieces = [
        table.select(
            case_id=pl.col(id).cast(pl.String()),
            image=pl.lit(image),
            caption=pl.lit(caption),
            score=_numbers(table, name, id, path),
        )
        for name, (image, caption) in places.items()
    ]
    return pl.concat(pieces)


def _place(name: str) -> tuple[int, int] | None:
    """The image and the caption that the name of a column says."""
    for form in _FORMS:
        if found := form.fullmatch(re.sub(r"[\s_-]+", "_", name.strip())):
            return int(found["image"]), int(found["caption"])
    return None


def _numbers(table: pl.DataFrame, name: str, id: str, path: Path) -> pl.Series:
    numbers = table[name].cast(pl.Float64(), strict=False)
    bad = table.filter(numbers.is_null() & table[name].is_not_null())
    if not bad.is_empty():
        raise DataError(
            f"{path}: {bad.height:,} rows have no number in the column {name}; the first: "
            f"{id} {shown(bad[id][0])}, {shown(bad[name][0])}."
        )
    return numbers


def _read_text(path: Path) -> pl.DataFrame:
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path}: not a readable table: {error}.") from None
    rows = [_fields(line) for line in lines if line.strip()]
    if not rows or len(set(rows[0])) < len(rows[0]):
        raise DataError(f"{path}: the first line should name the columns, each once.")
    for number, row in enumerate(rows, 1):
        if len(row) != len(rows[0]):
            raise DataError(
                f"{path}: line {number} has {len(row)} fields and the header {len(rows[0])}."
            )
    return pl.DataFrame(rows[1:], schema=_texts(rows[0]), orient="row")


def _fields(line: str) -> list[str]:
    return line.split("\u00a0" if "\u00a0" in line else "\t")


def _texts(names: Iterable[str]) -> dict[str, pl.DataType]:
    return {name: pl.String() for name in names}
