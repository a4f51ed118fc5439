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
from typing import Final, NamedTuple, Protocol

import numpy as np
import polars as pl

from counterpoint._util.errors import DataError, ModelError
from counterpoint._util.progress import Advance, Progress
from counterpoint._util.tables import read_table
from counterpoint._util.untrusted import shown
from counterpoint.generation.refinement.negatives import SIDES, Negatives, changed, pieces
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


class ScoreSource(Protocol):
    """Something that gives the scores of one name."""

    def of(self, pairs: pl.DataFrame) -> np.ndarray:
        """Scores (n, 2) of captions and texts; NaN where there is none."""


class TableScores(NamedTuple):
    """The scores of one name in a table, by text."""

    values: pl.DataFrame

    def of(self, pairs: pl.DataFrame) -> np.ndarray:
        columns = [
            pairs.select(text=side)
            .join(self.values, on="text", how="left", maintain_order="left")["value"]
            .cast(pl.Float64)
            .to_numpy()
            for side in SIDES
        ]
        return np.column_stack(columns)


class ColumnScores(NamedTuple):
    """The scores NAME/caption and NAME/text that the pairs have already."""

    name: str

    def of(self, pairs: pl.DataFrame) -> np.ndarray:
        scores = np.full((len(pairs), 2), np.nan)
        rows = pairs.select(row=pl.int_range(pl.len()), score="scores").explode("score")
        rows = rows.select("row", pl.col("score").struct.unnest())
        for place, side in enumerate(SIDES):
            mine = rows.filter(pl.col("name") == f"{self.name}/{side}")
            scores[mine["row"].to_numpy(), place] = mine["value"].cast(pl.Float64).to_numpy()
        return scores


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


def table_scores(name: str, tables: Tables) -> TableScores:
    """The scores of one name: one number per text."""
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
    return TableScores(values)


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


class ModelScores:
    """Scores by a model. Each different text is scored once and stored, so that a run resumes.

    Scores of `length` and `format` are not stored.
    """

    def __init__(self, name: str, model: BlindScorer, work: Work, total: int) -> None:
        self.model, self.work = model, work
        self.advance = work.progress.start(f"{name}: pairs", total)

    def of(self, pairs: pl.DataFrame) -> np.ndarray:
        if not len(pairs):
            return np.zeros((0, 2))
        texts = pl.concat([pairs[side].alias("text") for side in SIDES])
        # Sorted by length, so that little is padded.
        order = texts.unique().to_frame().sort(pl.col("text").str.len_chars(), "text")
        unique, bar = order["text"].to_list(), _PartialProgress(self.advance, len(pairs))
        values = order.with_columns(value=self._values(unique, bar))
        both = texts.to_frame().join(values, on="text", how="left", maintain_order="left")
        return both["value"].to_numpy().reshape(2, len(pairs)).T

    def _values(self, texts: list[str], bar: Progress) -> np.ndarray:
        if type(self.model) in _CHEAP:
            bar.start("", 1)(1)
            return self.model.score_captions(texts)
        keys = caption_keys(self.model.fingerprint, texts)
        fill_captions(self.model, keys, texts, replace(self.work, progress=bar))
        return stored(keys, self.work.store)[:, 0]


class _PartialProgress:
    """Counts the steps of a part of the work in steps of the whole, for one progress bar."""

    def __init__(self, advance: Advance, steps: int) -> None:
        self.whole, self.steps = advance, steps

    def note(self, text: str) -> None:
        del text

    def start(self, what: str, total: int | None) -> Advance:
        del what
        done, of = 0, total or 1

        def advance(steps: int) -> None:
            nonlocal done
            before, done = done, done + steps
            self.whole(self.steps * done // of - self.steps * before // of)

        return advance


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

    def __init__(self, id: str, path: Path, negatives: Negatives) -> None:
        self.differences = Differences.of(FITTED[id.partition(":")[2]].grams, _texts(path))
        if len(self.differences.clusters) != len(negatives):
            raise changed(path)
        self.order = np.argsort(negatives.keys, kind="stable")

    def gaps(self, kept: np.ndarray, seed: int) -> np.ndarray:
        """Of all negatives, fitted to those that are kept; NaN for the others."""
        mine = self.order[kept[self.order]]
        gaps = np.full(len(kept), np.nan)
        gaps[mine] = self.differences.only(mine).gaps(seed)
        return gaps


def _texts(path: Path) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Captions, texts, and images; a caption without an image stands for itself."""
    image = pl.coalesce("image", "source")
    for frame in pieces(path):
        for part in frame.iter_slices(_PIECE):
            caption, text, images = part.select(*SIDES, image.alias("of")).get_columns()
            yield caption.to_list(), text.to_list(), images.to_list()
