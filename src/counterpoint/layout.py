"""How images, captions and pairs of many cases lie in flat arrays."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np


def offsets(counts: np.ndarray) -> np.ndarray:
    """Cumulative sums from 0: where each of consecutive runs of `counts` starts, and the end."""
    return np.concatenate([[0], np.cumsum(counts)])


class PairNumbers(NamedTuple):
    """For each pair: its case, image and caption, numbered over all cases, and its own number."""

    cases: np.ndarray
    images: np.ndarray
    captions: np.ndarray
    places: np.ndarray


class Layout:
    """Where the cases' images, captions and pairs stand in flat arrays.

    A *line* is one image with all captions of its case: lines are numbered as images are.
    """

    def __init__(self, image_counts: np.ndarray, caption_counts: np.ndarray) -> None:
        self.images, self.captions = offsets(image_counts), offsets(caption_counts)
        self.line_cases = np.repeat(np.arange(len(image_counts)), image_counts)
        self.line_pairs = offsets(caption_counts[self.line_cases])

    def lines(self, rows: np.ndarray) -> np.ndarray:
        """The lines of some cases."""
        marked = np.zeros(len(self.images) - 1, dtype=bool)
        marked[rows] = True
        return np.flatnonzero(marked[self.line_cases])

    def pairs(self, lines: np.ndarray) -> PairNumbers:
        """All pairs of some lines, line by line."""
        sizes = np.diff(self.line_pairs)[lines]
        line = np.repeat(lines, sizes)
        column = np.arange(len(line)) - np.repeat(offsets(sizes)[:-1], sizes)
        case = self.line_cases[line]
        return PairNumbers(case, line, self.captions[case] + column, self.line_pairs[line] + column)

    def pieces(self, lines: np.ndarray, most: int, pairs: int) -> Iterator[np.ndarray]:
        """`lines`, at most `most` at a time, with about `pairs` pairs at most."""
        done = np.cumsum(np.diff(self.line_pairs)[lines]) // pairs
        done += np.arange(len(lines)) // most
        yield from np.split(lines, np.flatnonzero(np.diff(done)) + 1)
