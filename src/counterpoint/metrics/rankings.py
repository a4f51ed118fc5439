"""Rankings of galleries: the rank of the right answers of each query among the wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np

from counterpoint.metrics.definitions import Array, Tie, flip

_CELLS: Final = 8_000_000  # scores compared at a time


class Standings(NamedTuple):
    """For each query, the wrong answers above and equal to its best right one.

    `wrong` and `right` count its answers. A query is defined if it has both kinds of answers.
    """

    above: Array
    equal: Array
    wrong: Array
    right: Array

    @property
    def defined(self) -> Array:
        return np.asarray((self.right > 0) & (self.wrong > 0))


def standings(scores: Array, truth: Array) -> Standings:
    """The standings of every image (k) among the captions (m)."""
    parts = [_standing(scores[rows], truth[rows]) for rows in _pieces(*scores.shape)]
    return Standings(*(np.concatenate(columns) for columns in zip(*parts, strict=True)))


def both_standings(scores: Array, truth: Array) -> dict[str, Standings]:
    """By side: images that rank captions, and captions that rank images."""
    across = flip(scores[None])[0], flip(truth[None])[0]
    return {"images": standings(scores, truth), "captions": standings(*across)}


def _pieces(lines: int, width: int) -> Iterator[slice]:
    step = max(1, _CELLS // max(width, 1))
    return (slice(start, start + step) for start in range(0, lines, step))


def _standing(scores: Array, truth: Array) -> Standings:
    best = np.where(truth, scores, -np.inf).max(axis=1, keepdims=True)
    right = truth.sum(axis=1)
    return Standings(
        ((scores > best) & ~truth).sum(axis=1),
        ((scores == best) & ~truth).sum(axis=1),
        truth.shape[1] - right,
        right,
    )


def recall(found: Standings, k: int, tie: Tie) -> Array:
    """Whether a right answer is among the k best; NaN for queries that are not defined."""
    if tie == "half":
        return (recall(found, k, "wrong") + recall(found, k, "right")) / 2
    rank = found.above + (found.equal if tie == "wrong" else 0)
    return np.where(found.defined, rank < k, np.nan)


def recall_by_chance(found: Standings, k: int) -> Array:
    missed = np.ones(len(found.wrong))
    for place in range(k):
        answers = found.wrong + found.right - place
        missed *= np.clip(found.wrong - place, 0, None) / np.maximum(answers, 1)
    return np.where(found.defined, 1 - missed, np.nan)
