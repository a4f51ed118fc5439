"""Scores of captions and texts by models that see no image, or from tables of the user.

`length`, `format`, `grammar`, `plausible`, `lm:WHERE` and any other id of a model that scores texts
alone; `column:NAME` for scores in a table or in the `scores` column of the pairs. `NAME=` before it
gives the scores another name.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.progress import Named
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import shown
from counterpoint.generation.refinement.negatives import SIDES, Negatives
from counterpoint.models import LoadOptions, load_model
from counterpoint.models.blind import (
    FITTED,
    SCORERS,
    TEXT_MODELS,
    Differences,
    Format,
    Length,
)
from counterpoint.scoring import BlindScorer, Work, caption_keys, fill_captions, stored

COLUMN: Final = "column"
_FAMILY: Final = "blind"
_CHEAP: Final = (Length, Format)  # computed faster than the store finds them
_PIECE: Final = 20_000
_LONG: Final = ("name", "value")  # with `text`: one score per row; else one column per name
Tables = Mapping[str, tuple[Path, pl.DataFrame]]  # by the names of their scores


def read_scores(paths: Sequence[Path]) -> Tables:
    """The names of the scores, each with its table; two tables may not share a name.

    A table has the column `text`, and either `name` and `value`, or one column per name. Columns
    that are not used may hold anything.
    """
    tables: dict[str, tuple[Path, pl.DataFrame]] = {}
    for path in paths:
        table = read_table(path, {"text": pl.String()}).with_columns(pl.col("text").fill_null(""))
        if set(_LONG) <= set(table.columns):
            names = table["name"].cast(pl.String).drop_nulls().unique(maintain_order=True).to_list()
        else:
            names = [name for name in table.columns if name != "text"]
        for name in names:
            if name in tables:
                raise DataError(
                    "E-NAME-REPEATED",
                    f"{path}: the scores {shown(name)} are also in {tables[name][0]}.",
                )
            tables[name] = (path, table)
    return tables


def table_scores(name: str, tables: Tables, pairs: pl.DataFrame) -> np.ndarray:
    """The scores (n, 2) of one name, which has one number per text; NaN where there is none."""
    path, table = tables[name]
    if set(_LONG) <= set(table.columns):
        table = table.filter(pl.col("name").cast(pl.String) == name)
        column = "value"
    else:
        column = name
    try:
        values = table.select("text", value=pl.col(column).cast(pl.Float64)).unique()
    except pl.exceptions.PolarsError:
        raise DataError(
            "E-SCORE-INVALID", f"{path}: the scores {shown(name)} are not all numbers."
        ) from None
    twice = values.filter(pl.col("text").is_duplicated())["text"]
    if len(twice):
        raise DataError(
            "E-SCORE-REPEATED",
            f"{path}: {twice.n_unique():,} texts have several scores {shown(name)}, "
            f"for instance {shown(twice.min())}.",
        )
    return _by_text(pairs, values)


def _by_text(pairs: pl.DataFrame, values: pl.DataFrame) -> np.ndarray:
    """The value (n, 2) of each caption and text, from a table of texts."""
    texts = pl.concat([pairs[side].alias("text") for side in SIDES]).to_frame()
    both = texts.join(values, on="text", how="left", maintain_order="left")["value"]
    return both.cast(pl.Float64).to_numpy().reshape(2, len(pairs)).T


def _own_scores(name: str, pairs: pl.DataFrame) -> np.ndarray:
    """The scores NAME/caption and NAME/text that the pairs have already."""
    scores = np.full((len(pairs), 2), np.nan)
    rows = pairs.select(row=pl.int_range(pl.len()), score="scores").explode("score")
    rows = rows.select("row", pl.col("score").struct.unnest())
    for place, side in enumerate(SIDES):
        mine = rows.filter(pl.col("name") == f"{name}/{side}")
        scores[mine["row"].to_numpy(), place] = mine["value"].cast(pl.Float64).to_numpy()
    return scores


class BlindModel(NamedTuple):
    """A blind model: the name of its scores, and its id."""

    name: str
    id: str

    @property
    def fitted(self) -> bool:
        """Whether it is fitted to the pairs themselves, and has no score for a text alone."""
        return self.id.removeprefix(f"{_FAMILY}:") in FITTED


def parse_blind_model(spec: str) -> BlindModel:
    """The model of `grammar`, `blind:grammar:FOLDER`, `column:NAME` or `NAME=ID`."""
    named = re.fullmatch(r"([A-Za-z][\w.-]*)=(.+)", spec, re.DOTALL)
    name, id = named.groups() if named else ("", spec)
    family, _, rest = id.partition(":")
    # `lm:` as well: the family of that name needs images.
    if family in (*SCORERS, *FITTED, *TEXT_MODELS):
        id = f"{_FAMILY}:{id}"
    return BlindModel(name or (rest if family == COLUMN else id.removeprefix(f"{_FAMILY}:")), id)


def scores_of(
    wanted: BlindModel, pairs: pl.DataFrame, tables: Tables, options: LoadOptions, work: Work
) -> np.ndarray:
    """Scores (n, 2) of captions and texts; NaN where there is none."""
    family, _, column = wanted.id.partition(":")
    if family == COLUMN:
        own = column not in tables
        return _own_scores(column, pairs) if own else table_scores(column, tables, pairs)
    return model_scores(load_blind(wanted, options), pairs, work, wanted.name)


def model_scores(model: BlindScorer, pairs: pl.DataFrame, work: Work, name: str) -> np.ndarray:
    """Each different text is scored once and stored, so that a run resumes.

    Scores of `length` and `format` are not stored.
    """
    if not len(pairs):
        return np.zeros((0, 2))
    if type(model) in _CHEAP:
        return np.column_stack([model.score_captions(pairs[side].to_list()) for side in SIDES])
    every = pl.concat([pairs[side].alias("text") for side in SIDES]).unique().to_frame()
    # Sorted by length, so that little is padded.
    texts = every.sort(pl.col("text").str.len_chars(), "text")["text"].to_list()
    keys = caption_keys(model.fingerprint, texts)
    shown = replace(work, progress=Named(work.progress, f"{name}:"))
    fill_captions(model, keys, texts, shown)
    values = stored(keys, work.store)[:, 0]
    return _by_text(pairs, pl.DataFrame({"text": texts, "value": values}))


def load_blind(wanted: BlindModel, options: LoadOptions) -> BlindScorer:
    """The model of that id. Raises unless it scores a text by itself."""
    model = load_model(wanted.id, options)
    if not isinstance(model, BlindScorer):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{wanted.id} does not score a text by itself; refine needs models that see no image "
            "and no other text, such as length, format, grammar, plausible or lm:FOLDER, or that "
            "are fitted to the pairs: ngram, chars.",
        )
    return model


class FittedScores:
    """A model of `FITTED` on the negatives of a file.

    Pairs are put in the order of their keys, so that the order of the file has no say, not even in
    the last bit.
    """

    def __init__(self, id: str, negatives: Negatives) -> None:
        self.differences = Differences.of(FITTED[id.partition(":")[2]].grams, _texts(negatives))
        self.order = np.argsort(negatives.keys, kind="stable")

    def gaps(self, kept: np.ndarray, seed: int) -> np.ndarray:
        """Of all negatives, fitted to those that are kept; NaN for the others."""
        mine = self.order[kept[self.order]]
        gaps = np.full(len(kept), np.nan)
        gaps[mine] = self.differences.only(mine).gaps(seed)
        return gaps


def _texts(negatives: Negatives) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Captions, texts, and images; a caption without an image stands for itself."""
    columns = negatives.pairs.select(*SIDES, of=pl.coalesce("image", "source"))
    for part in columns.iter_slices(_PIECE):
        caption, text, image = part.get_columns()
        yield caption.to_list(), text.to_list(), image.to_list()
