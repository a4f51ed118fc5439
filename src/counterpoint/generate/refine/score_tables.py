"""Scores that users bring: in a table of texts, or in the `scores` column of the pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint.errors import DataError
from counterpoint.tables import read_table
from counterpoint.untrusted import shown

SIDES: Final = ("caption", "text")
_LONG: Final = ("name", "value")  # with `text`: a score a row; else a column a name
Tables = Mapping[str, tuple[Path, pl.DataFrame]]  # by the names of their scores


class TableScores:
    """The scores of one name in a table, by text."""

    def __init__(self, name: str, values: pl.DataFrame) -> None:
        self.name, self.values = name, values

    def of(self, pairs: pl.DataFrame) -> np.ndarray:
        """Scores (n, 2) of captions and texts; NaN where the table does not have one."""
        found = [
            pairs.select(text=side)
            .join(self.values, on="text", how="left", maintain_order="left")["value"]
            .cast(pl.Float64)
            .to_numpy()
            for side in SIDES
        ]
        return np.column_stack(found)


class ColumnScores:
    """The scores NAME/caption and NAME/text that the pairs have already."""

    def __init__(self, name: str) -> None:
        self.name = name

    def of(self, pairs: pl.DataFrame) -> np.ndarray:
        """Scores (n, 2) of captions and texts; NaN where a pair does not have one."""
        found = np.full((len(pairs), 2), np.nan)
        rows = pairs.select(row=pl.int_range(pl.len()), score="scores").explode("score")
        rows = rows.select("row", pl.col("score").struct.unnest())
        for place, side in enumerate(SIDES):
            mine = rows.filter(pl.col("name") == f"{self.name}/{side}")
            found[mine["row"].to_numpy(), place] = mine["value"].cast(pl.Float64).to_numpy()
        return found


def read_scores(paths: Sequence[Path]) -> Tables:
    """The tables' names, each with the table that has it; two tables may not share a name.

    A table has the column text, and either name and value, or a column for each name. Columns that
    are not asked for may hold anything.
    """
    found: dict[str, tuple[Path, pl.DataFrame]] = {}
    for path in paths:
        table = read_table(path, {"text": pl.String()}).with_columns(pl.col("text").fill_null(""))
        if set(_LONG) <= set(table.columns):
            names = table["name"].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
        else:
            names = [name for name in table.columns if name != "text"]
        for name in names:
            if name in found:
                raise DataError(
                    f"{path}: the scores {shown(name)} are in {found[name][0]} as well."
                )
            found[name] = (path, table)
    return found


def table_scores(name: str, tables: Tables) -> TableScores:
    """The scores of one of the tables' names, a number for each text."""
    path, table = tables[name]
    if set(_LONG) <= set(table.columns):
        table = table.filter(pl.col("name").cast(pl.String) == name)
        column = "value"
    else:
        column = name
    try:
        values = table.select("text", value=pl.col(column).cast(pl.Float64)).unique()
    except pl.exceptions.PolarsError:
        raise DataError(f"{path}: the scores {shown(name)} are not all numbers.") from None
    twice = values.filter(pl.col("text").is_duplicated())["text"]
    if len(twice):
        raise DataError(
            f"{path}: {twice.n_unique():,} texts have several scores {shown(name)}, "
            f"for instance {shown(twice.min())}."
        )
    return TableScores(name, values)
