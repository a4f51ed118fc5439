"""Gaps of any unit, brought into [-1, 1] for the grid: monotone, odd, and 0 stays 0."""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np

Scale = Literal["max", "rank"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)


def is_probability(scores: np.ndarray) -> bool:
    """Whether all scores lie within [0, 1]: then their gaps need no scaling."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def scaled(gaps: np.ndarray, groups: np.ndarray, scale: Scale) -> np.ndarray:
    """One model's gaps (n,) within [-1, 1], each group by itself.

    `max` divides by the group's largest |gap|, so that cells are equally wide. `rank` takes the
    share of the group's gaps, zeros left out, that are no larger, so that cells are equally full.
    """
    found = np.zeros(len(gaps))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        rows = rows[gaps[rows] != 0]
        if len(rows):
            found[rows] = np.sign(gaps[rows]) * _size(np.abs(gaps[rows]), scale)
    return found


def _size(sizes: np.ndarray, scale: Scale) -> np.ndarray:
    if scale == "max":
        return sizes / sizes.max()
    ordered = np.sort(sizes)
    return np.searchsorted(ordered, sizes, side="right") / len(sizes)
