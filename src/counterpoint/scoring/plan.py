"""What has to be computed: the unique images and captions of all benchmarks asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from counterpoint.cases import Cases, ImageRef, offsets, pair_numbers
from counterpoint.scoring.pictures import Picture


class Pairs(NamedTuple):
    """Pairs of images and captions (numbers into a plan), and their places among the scores."""

    images: np.ndarray
    captions: np.ndarray
    places: np.ndarray


@dataclass(frozen=True, slots=True)
class Share:
    """One benchmark's part of a plan: its images and captions as numbers into the plan's lists."""

    images: np.ndarray
    captions: np.ndarray
    image_offsets: np.ndarray
    caption_offsets: np.ndarray

    def pairs(self, rows: np.ndarray) -> Pairs:
        """All pairs of the cases in `rows`, case by case, image by image."""
        pairs = pair_numbers(self.image_offsets, self.caption_offsets, rows)
        places = self.pair_offsets[pairs.cases] + pairs.cells
        return Pairs(self.images[pairs.images], self.captions[pairs.captions], places)

    @property
    def pair_offsets(self) -> np.ndarray:
        return offsets(np.diff(self.image_offsets) * np.diff(self.caption_offsets))

    def images_of(self, row: int) -> np.ndarray:
        return self.images[self.image_offsets[row] : self.image_offsets[row + 1]]

    def captions_of(self, row: int) -> np.ndarray:
        return self.captions[self.caption_offsets[row] : self.caption_offsets[row + 1]]

    def cases_with_image(self, marked: np.ndarray) -> np.ndarray:
        """Which cases use an image that is marked (a boolean for each of the plan's images)."""
        return _any_in(marked[self.images], self.image_offsets)

    def cases_with_caption(self, marked: np.ndarray) -> np.ndarray:
        return _any_in(marked[self.captions], self.caption_offsets)


@dataclass(frozen=True, slots=True)
class Plan:
    """The unique images and captions, and where each benchmark uses them."""

    pictures: list[Picture]
    captions: list[str]
    shares: dict[str, Share]


def make_plan(benchmarks: Mapping[str, Cases]) -> Plan:
    images = pl.concat([_images(cases) for cases in benchmarks.values()])
    captions = pl.concat([cases.frame["captions"].explode() for cases in benchmarks.values()])
    image_codes, image_firsts = _codes(images["key"])
    caption_codes, caption_firsts = _codes(captions)
    shares, image_start, caption_start = {}, 0, 0
    for name, cases in benchmarks.items():
        k, m = offsets(cases.image_counts), offsets(cases.caption_counts)
        image_end, caption_end = image_start + k[-1], caption_start + m[-1]
        shares[name] = Share(
            image_codes[image_start:image_end], caption_codes[caption_start:caption_end], k, m
        )
        image_start, caption_start = image_end, caption_end
    pictures = [
        Picture(ImageRef(path, None if box is None else tuple(box)), Path(root) if root else None)
        for path, box, root in images[image_firsts].select("path", "box", "root").iter_rows()
    ]
    return Plan(pictures, captions[caption_firsts].to_list(), shares)


def _images(cases: Cases) -> pl.DataFrame:
    fields = cases.frame["images"].explode().struct.unnest()
    sides = [pl.col("box").arr.get(i).fill_null(-1) for i in range(4)]
    root = pl.lit("" if cases.root is None else str(cases.root)).alias("root")
    key = pl.concat_str(root, "path", *sides, separator="\0").alias("key")
    return fields.select("path", "box", root, key)


def _codes(values: pl.Series) -> tuple[np.ndarray, np.ndarray]:
    """Each value's number in order of first appearance, and the row where each number appears."""
    numbered = values.to_frame("value").with_row_index("row")
    first = numbered.select(pl.col("row").min().over("value")).to_series().to_numpy()
    firsts, codes = np.unique(first, return_inverse=True)
    return codes.astype(np.int32), firsts


def _any_in(marks: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Whether any of each case's marks is set; no case is empty."""
    return np.logical_or.reduceat(marks, starts[:-1])
