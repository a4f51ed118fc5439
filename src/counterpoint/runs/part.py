"""One benchmark of a run: its scored cases, their scores, and what of it was left out."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import polars as pl

from counterpoint.cases import SURPLUS, Absent, Cases, offsets
from counterpoint.metrics import Protocol


class TrainedOn(NamedTuple):
    """How many of the different texts and photographs of a benchmark a model was trained on."""

    texts: int
    of_texts: int
    photographs: int
    of_photographs: int

    def __str__(self) -> str:
        return (
            f"the model was trained on {self.texts:,} of the {self.of_texts:,} texts and "
            f"{self.photographs:,} of the {self.of_photographs:,} photographs of this benchmark"
        )


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark of a run: its scored cases and their scores, flat as `Cases.pair_offsets`."""

    benchmark: str
    cases: Cases
    scores: np.ndarray
    protocol: Protocol
    left_out: tuple[tuple[str, str], ...] = ()  # case id and reason
    cut_captions: int = 0
    data_hash: str = ""  # of all cases asked for, those left out too
    left_out_images: tuple[tuple[str, str], ...] = ()  # of galleries: case id and reason
    absent: tuple[Absent, ...] = ()  # of the published benchmark: not in the data
    trained_on: TrainedOn | None = None  # where the model's record says that some of it was
    whole: int | None = None  # cases of the whole benchmark, or images of a gallery, if known

    def __repr__(self) -> str:
        missing = f", {self.missing:,} left out" if self.missing else ""
        return f"{self.benchmark}: {len(self.cases):,} cases{missing}"

    @property
    def missing(self) -> int:
        """How many cases, and images of galleries, the published benchmark has beyond the scores.

        A file with an unknown number of cases counts as one.
        """
        lacking = [one.cases for one in self.absent if one.reason != SURPLUS]
        absent = sum(1 if count is None else count for count in lacking)
        return len(self.left_out) + len(self.left_out_images) + absent

    @property
    def surplus(self) -> int:
        """How many cases, images and captions there are beyond the published benchmark."""
        return sum(one.cases or 0 for one in self.absent if one.reason == SURPLUS)

    def keep(self, mask: np.ndarray) -> Part:
        """The part without some of its cases."""
        return self.take(np.flatnonzero(mask))

    def take(self, rows: np.ndarray) -> Part:
        """Some of the cases, in the order given."""
        if np.array_equal(rows, np.arange(len(self.cases))):
            return self  # a gallery's scores are not copied
        starts = self.cases.pair_offsets
        sizes = np.diff(starts)[rows]
        pairs = np.repeat(starts[rows] - offsets(sizes)[:-1], sizes) + np.arange(sizes.sum())
        cases = Cases(self.cases.frame[rows], self.cases.root)
        return replace(self, cases=cases, scores=self.scores[pairs])


def same_rows(cases: Cases, other: Cases) -> np.ndarray:
    """Where each case of a table stands in another one, -1 where that has not the very same."""
    found = paired_rows(cases, other)
    return np.where(found.alike, found.rows, -1)


class PairedRows(NamedTuple):
    """Where each case of a table stands in another one, and whether it is the same case there."""

    rows: np.ndarray  # of the case with its id, -1 if there is none
    alike: np.ndarray  # marks those of the same images, captions and truth


def paired_rows(cases: Cases, other: Cases) -> PairedRows:
    keys = ["id", "images", "captions", "truth"]
    one, two = (table.frame.select(keys) for table in (cases, other))
    if one.equals(two):
        return PairedRows(np.arange(len(cases)), np.ones(len(cases), dtype=bool))
    both = one.join(two.with_row_index("row"), on="id", how="left", maintain_order="left")
    rows = both["row"].cast(pl.Int64()).fill_null(-1).to_numpy()
    alike = pl.all_horizontal(pl.col(key) == pl.col(f"{key}_right") for key in keys[1:])
    return PairedRows(rows, both.select(alike.fill_null(False)).to_series().to_numpy())
