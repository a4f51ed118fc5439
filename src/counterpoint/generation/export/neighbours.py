"""The table of `generate neighbours`, for the images that it is used with."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import shown

Neighbours = dict[str, list[str]]


def read_neighbours(path: Path, images: Iterable[str | None], source: str) -> Neighbours:
    """The nearest images of each image. `images`, those of `source`, are read up to a match.

    If none of them is in the table, it was made for other paths, and nothing would come of it.
    """
    table = read_table(path, {"image": pl.String(), "neighbours": pl.List(pl.String())})
    found = dict(zip(table["image"].to_list(), table["neighbours"].to_list(), strict=True))
    here = ""
    for image in images:
        if image in found:
            return found
        here = here or image or ""
    raise DataError(
        "E-NEIGHBOURS-OTHER",
        f"{path}: has no neighbours of any image of {source} ({shown(here)} there, "
        f"{shown(next(iter(found), ''))} here); make it with `generate neighbours {source}`.",
    )
