"""Galleries: cases of many images (retrieval, classification), counted query by query.

A case of two images and two captions is right or wrong as a whole. In a gallery, each image and
each caption is a query, and each query has a value of its own. If an image of a gallery is missing,
only that image and its captions are left out.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint.cases.checks import MANY
from counterpoint.cases.table import Cases

_SHUFFLE: Final = re.compile(r"shuffle-\w+:\d+:")  # before the reference to an image
DETECTION: Final = ("natural", "synthetic")  # the classes of what a detector tells apart


def is_gallery(images: int, captions: int) -> bool:
    """Many images, or so few captions that images must share them (a small classification).

    One caption and several images are a choice between the images: a case, right or wrong.
    """
    return captions > 1 and (images >= MANY or images > captions)


def gallery_rows(cases: Cases) -> np.ndarray:
    """Which cases are galleries."""
    images, captions = cases.image_counts, cases.caption_counts
    return np.asarray((captions > 1) & ((images >= MANY) | (images > captions)))


def is_classification(truth: np.ndarray) -> np.ndarray | np.bool_:
    """Every image has one caption, its class, and some images share theirs: (..., k, m) -> (...)"""
    single: np.ndarray | np.bool_ = (truth.sum(axis=-1) == 1).all(axis=-1)
    return single & (truth.sum(axis=-2) > 1).any(axis=-1) if single.any() else single


def query_clusters(cases: Cases, row: int) -> list[str]:
    """The source image of every query of a gallery: its images, then its captions.

    Captions belong to the first image they are true of; without one they stand for themselves.
    """
    case = cases.frame.row(row, named=True)
    paths = [image["path"] for image in case["images"]]
    if len(cases) > 1:  # an image that is shuffled in several ways is one source image
        paths = [_SHUFFLE.sub("", path, count=1) for path in paths]
    width = len(case["captions"])
    owners = [f"{case['id']} caption {number}" for number in range(width)]
    for cell in reversed(case["truth"]):
        owners[cell % width] = paths[cell // width]
    return [*paths, *owners]


class Kept(NamedTuple):
    """A table without some images, and which of its pairs are still there."""

    cases: Cases
    pairs: np.ndarray


def without_images(cases: Cases, left_out: dict[int, set[int]]) -> Kept:
    """The table without some images (by row) and the captions that were true of them alone.

    Every row must keep an image.
    """
    rows = {row: _prune(cases.frame.row(row, named=True), gone) for row, gone in left_out.items()}
    starts, pairs = cases.pair_offsets, np.ones(cases.pair_offsets[-1], dtype=bool)
    frames, done = [], 0
    for row, (values, cells) in sorted(rows.items()):
        frames += [cases.frame[done:row], pl.DataFrame([values], schema=cases.frame.schema)]
        pairs[starts[row] : starts[row + 1]] = cells
        done = row + 1
    return Kept(Cases(pl.concat([*frames, cases.frame[done:]]), cases.root), pairs)


def smaller_galleries(cases: Cases, count: int) -> Cases:
    """The table with about `count` images in each gallery, spread evenly, and at least `MANY`.

    Images with captions are preferred to those without.
    """
    count = max(count, MANY)
    large = np.flatnonzero(gallery_rows(cases) & (cases.image_counts > count)).tolist()
    surplus = {row: _surplus(cases.frame.row(row, named=True), count) for row in large}
    return without_images(cases, surplus).cases


def _surplus(case: dict[str, Any], count: int) -> set[int]:
    described = sorted({cell // len(case["captions"]) for cell in case["truth"]})
    others = sorted(set(range(len(case["images"]))) - set(described))
    chosen = [*_spread(described, count), *others[: max(0, count - len(described))]]
    return set(range(len(case["images"]))) - set(chosen)


def _spread(items: list[int], count: int) -> list[int]:
    places = np.linspace(0, len(items) - 1, min(count, len(items))).round().astype(int)
    return [items[place] for place in places]


def unanswered(cases: Cases) -> np.ndarray:
    """Marks cases without a positive or without a negative, unless their pairs are graded."""
    true = cases.frame["truth"].list.len().to_numpy()
    lacking = (true == 0) | (true == cases.image_counts * cases.caption_counts)
    return np.asarray(lacking & ~cases.graded())


def _prune(case: dict[str, Any], gone: set[int]) -> tuple[dict[str, Any], np.ndarray]:
    images, captions = case["images"], case["captions"]
    truth = np.zeros((len(images), len(captions)), dtype=bool)
    truth.reshape(-1)[case["truth"]] = True
    stay = np.array([number not in gone for number in range(len(images))])
    # A caption of no image is a distractor; a class stays an answer even if no image has it.
    keep = truth[stay].any(axis=0) | ~truth.any(axis=0) | is_classification(truth)
    pruned = {
        **case,
        "images": [image for image, kept in zip(images, stay, strict=True) if kept],
        "captions": [caption for caption, kept in zip(captions, keep, strict=True) if kept],
        "truth": np.flatnonzero(truth[stay][:, keep]).tolist(),
    }
    if case.get("queries") is not None:
        pruned["queries"] = _renumbered(case["queries"], np.concatenate([stay, keep]))
    return pruned, np.logical_and.outer(stay, keep).reshape(-1)


def _renumbered(numbers: list[int], kept: np.ndarray) -> list[int]:
    """Numbers of images and captions after some of them were taken out."""
    places = np.cumsum(kept) - 1
    return [int(places[number]) for number in numbers if kept[number]]


def asked(cases: Cases, row: int) -> np.ndarray:
    """Which images, then which captions of a gallery are queries."""
    case = cases.frame.row(row, named=True)
    count = len(case["images"]) + len(case["captions"])
    if case.get("queries") is None:
        return np.ones(count, dtype=bool)
    marks = np.zeros(count, dtype=bool)
    marks[case["queries"]] = True
    return marks
