"""What has to be computed: the unique images and captions of all benchmarks asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl

from counterpoint.cases import PROMPTS, Cases, ImageRef
from counterpoint.layout import Layout, offsets
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
    layout: Layout

    def pairs(self, lines: np.ndarray) -> Pairs:
        """All pairs of some lines (images of a case, with all its captions), line by line."""
        pairs = self.layout.pairs(lines)
        return Pairs(self.images[pairs.images], self.captions[pairs.captions], pairs.places)

    def images_of(self, row: int) -> np.ndarray:
        return self.images[self.layout.images[row] : self.layout.images[row + 1]]

    def captions_of(self, row: int) -> np.ndarray:
        return self.captions[self.layout.captions[row] : self.layout.captions[row + 1]]

    def cases_with_image(self, marked: np.ndarray) -> np.ndarray:
        """Which cases use an image that is marked (a boolean for each of the plan's images)."""
        return _any_in(marked[self.images], self.layout.images)

    def cases_with_caption(self, marked: np.ndarray) -> np.ndarray:
        return _any_in(marked[self.captions], self.layout.captions)


@dataclass(frozen=True, slots=True)
class Plan:
    """The unique images and captions, and where each benchmark uses them.

    `texts` are what a model reads: the captions, those made of several prompts taken apart. The
    prompts of caption i are `prompts[starts[i] : starts[i + 1]]`, numbers into `texts`.
    """

    pictures: list[Picture]
    captions: list[str]
    shares: dict[str, Share]
    texts: list[str]
    prompts: np.ndarray
    starts: np.ndarray

    def prompts_of(self, captions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The prompts of some captions, one after the other, and where each caption's begin."""
        sizes = np.diff(self.starts)[captions]
        begins = offsets(sizes)[:-1]
        places = np.repeat(self.starts[captions] - begins, sizes) + np.arange(sizes.sum())
        return self.prompts[places], begins


def make_plan(benchmarks: Mapping[str, Cases]) -> Plan:
    images = pl.concat([_images(cases) for cases in benchmarks.values()])
    captions = pl.concat([cases.frame["captions"].explode() for cases in benchmarks.values()])
    image_codes, image_firsts = _codes(images["key"])
    caption_codes, caption_firsts = _codes(captions)
    shares, image_start, caption_start = {}, 0, 0
    for name, cases in benchmarks.items():
        layout = cases.layout()
        image_end = image_start + layout.images[-1]
        caption_end = caption_start + layout.captions[-1]
        shares[name] = Share(
            image_codes[image_start:image_end], caption_codes[caption_start:caption_end], layout
        )
        image_start, caption_start = image_end, caption_end
    pictures = [
        Picture(ImageRef(path, None if box is None else tuple(box)), Path(root) if root else None)
        for path, box, root in images[image_firsts].select("path", "box", "root").iter_rows()
    ]
    unique = captions[caption_firsts].to_list()
    return Plan(pictures, unique, shares, *_texts(unique))


def _texts(captions: list[str]) -> tuple[list[str], np.ndarray, np.ndarray]:
    if not any(PROMPTS in caption for caption in captions):
        numbers = np.arange(len(captions))
        return captions, numbers, np.arange(len(captions) + 1)
    parts = [caption.split(PROMPTS) for caption in captions]
    numbers_of: dict[str, int] = {}
    prompts = [numbers_of.setdefault(text, len(numbers_of)) for texts in parts for text in texts]
    starts = offsets(np.array([len(texts) for texts in parts]))
    return list(numbers_of), np.array(prompts), starts


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
