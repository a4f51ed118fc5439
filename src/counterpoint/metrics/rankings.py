"""Ranks of right answers among wrong ones, and recall: of an image's few captions (CREPE), and of
the queries of a gallery. Chance levels stand beside them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import numpy as np

from counterpoint.metrics.definitions import Array, Function, Tie, flip

_CELLS: Final = 8_000_000  # scores compared at a time


class RightRanks(NamedTuple):
    """Every right answer of every query, the best first: its query, its rank among the right
    answers from 1, and the wrong answers above and equal to it.
    """

    query: Array
    rank: Array
    above: Array
    equal: Array


class Standings(NamedTuple):
    """For each query, the wrong answers above and equal to its best right one.

    `wrong` and `right` count its answers. A query is defined if it has both kinds of answers; what
    is not asked for has no right answers here. `ranks` has all right answers, where these are
    needed.
    """

    above: Array
    equal: Array
    wrong: Array
    right: Array
    ranks: RightRanks | None = None

    @property
    def defined(self) -> Array:
        return np.asarray((self.right > 0) & (self.wrong > 0))


def standings(scores: Array, truth: Array) -> Standings:
    """The standings of every image (k) among the captions (m)."""
    parts = [_standing(scores[rows], truth[rows]) for rows in _pieces(*scores.shape)]
    columns = zip(*(part[:4] for part in parts), strict=True)
    above, equal, wrong, right = (np.concatenate(column) for column in columns)
    return Standings(above, equal, wrong, right)


def both_standings(scores: Array, truth: Array, asked: Array | None = None) -> dict[str, Standings]:
    """By side: images that rank captions, and captions that rank images.

    `asked` marks the images, then the captions, that are queries whose right answers are all known.
    """
    across = flip(scores[None])[0], flip(truth[None])[0]
    if asked is None:
        return {"images": standings(scores, truth), "captions": standings(*across)}
    images, captions = np.split(asked, [len(scores)])
    return {"images": _asked(scores, truth, images), "captions": _asked(*across, captions)}


def _asked(scores: Array, truth: Array, asked: Array) -> Standings:
    found = standings(scores, truth)
    return found._replace(
        right=np.where(asked, found.right, 0),
        ranks=right_ranks(scores, truth, np.flatnonzero(asked & found.defined)),
    )


def right_ranks(scores: Array, truth: Array, queries: Array) -> RightRanks:
    """The ranks of all right answers of some queries."""
    parts = []
    for query in queries.tolist():
        mine, true = scores[query], truth[query]
        right = np.sort(mine[true])[::-1]
        wrong = np.sort(mine[~true])
        below = np.searchsorted(wrong, right, side="left")
        not_above = np.searchsorted(wrong, right, side="right")
        parts.append(
            (
                np.full(len(right), query),
                np.arange(1, len(right) + 1),
                len(wrong) - not_above,
                not_above - below,
            )
        )
    empty = [(np.zeros(0, dtype=np.int64),) * 4]
    return RightRanks(*(np.concatenate(column) for column in zip(*(parts or empty), strict=True)))


def _pieces(lines: int, width: int) -> Iterator[slice]:
    step = max(1, _CELLS // max(width, 1))
    return (slice(start, start + step) for start in range(0, lines, step))


def _standing(scores: Array, truth: Array) -> Standings:
    """Of lines along the last axis."""
    best = np.where(truth, scores, -np.inf).max(axis=-1, keepdims=True)
    right = truth.sum(axis=-1)
    return Standings(
        ((scores > best) & ~truth).sum(axis=-1),
        ((scores == best) & ~truth).sum(axis=-1),
        truth.shape[-1] - right,
        right,
    )


# --- Of an image's captions ---------------------------------------------------------------------


def ranks(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The place, from 1, of each image's best positive among the negatives: (n, k).

    Here a tie is decided: equal negatives come before it ("wrong"), after it ("right") or half of
    them do ("half").
    """
    found = _standing(scores, truth)
    return 1 + found.above + {"wrong": 1.0, "right": 0.0, "half": 0.5}[tie] * found.equal


def recall_at(k: int) -> Function:
    """Recall@k: an image's best positive is among its k best captions (CREPE, retrieval)."""

    def recall(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
        if tie == "half":
            return (recall(scores, truth, "wrong") + recall(scores, truth, "right")) / 2
        found: Array = (ranks(scores, truth, tie) <= k).mean(axis=1)
        return found

    recall.__doc__ = f"The best positive is among the {k} highest captions of its image."
    return recall


def mean_rank(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The mean place of the images' best positive, from 1."""
    return ranks(scores, truth, tie).mean(axis=1)


def chance_of_recall(k: int) -> Callable[[Array], Array]:
    def chance(truth: Array) -> Array:
        right = truth.sum(axis=2)
        return (1 - _missed(truth.shape[2] - right, right, k)).mean(axis=1)

    return chance


def chance_of_mean_rank(truth: Array) -> Array:
    right = truth.sum(axis=2)
    return (1 + (truth.shape[2] - right) / (right + 1)).mean(axis=1)


def _missed(wrong: Array, right: Array, k: int) -> Array:
    """How likely the k highest are all wrong."""
    missed = np.ones(wrong.shape)
    for place in range(k):
        missed *= np.clip(wrong - place, 0, None) / np.maximum(wrong + right - place, 1)
    return missed


# --- Of the queries of a gallery ----------------------------------------------------------------


def recall(found: Standings, k: int, tie: Tie) -> Array:
    """Whether a right answer is among the k best; NaN for queries that are not defined."""
    if tie == "half":
        return (recall(found, k, "wrong") + recall(found, k, "right")) / 2
    rank = found.above + (found.equal if tie == "wrong" else 0)
    return np.where(found.defined, rank < k, np.nan)


def r_precision(found: Standings, tie: Tie) -> Array:
    """Of a query with R right answers, the share of right ones among its R best answers.

    Equal wrong answers come before a right one ("wrong") or after it ("right"); "half" is the mean
    of the two. Musgrave et al. 2020; Chun et al. 2022.
    """
    return _over_ranks(found, tie, lambda ranks, place: np.ones(len(place)))


def map_at_r(found: Standings, tie: Tie) -> Array:
    """Mean average precision at R: the precision at the place of every right answer among the R
    best, summed and divided by R. Ties as in `r_precision`.
    """
    return _over_ranks(found, tie, lambda ranks, place: ranks.rank / place)


def _over_ranks(found: Standings, tie: Tie, gain: Callable[[RightRanks, Array], Array]) -> Array:
    """The sum of the gains of the right answers among the R best, divided by R."""
    if tie == "half":
        return (_over_ranks(found, "wrong", gain) + _over_ranks(found, "right", gain)) / 2
    ranks = found.ranks
    assert ranks is not None, "asked for galleries that name their queries"
    place = ranks.rank + ranks.above + (ranks.equal if tie == "wrong" else 0)
    gains = np.where(place <= found.right[ranks.query], gain(ranks, place), 0)
    total = np.bincount(ranks.query, gains, minlength=len(found.right))
    return np.where(found.defined, total / np.maximum(found.right, 1), np.nan)


def r_precision_by_chance(found: Standings) -> Array:
    answers = found.wrong + found.right
    return np.where(found.defined, found.right / np.maximum(answers, 1), np.nan)


def map_at_r_by_chance(found: Standings) -> Array:
    """The place k is right with probability R/N, and with it (k - 1)(R - 1)/(N - 1) before it."""
    right, answers = found.right.astype(float), np.maximum(found.wrong + found.right, 2)
    harmonic = np.concatenate([[0.0], np.cumsum(1 / np.arange(1, right.max(initial=0) + 1))])
    first = harmonic[found.right]  # the sum of 1/k up to R
    others = (right - first) * (right - 1) / (answers - 1)  # the sum of (k - 1)/k, times the rest
    return np.where(found.defined, (first + others) / answers, np.nan)


def recall_by_chance(found: Standings, k: int) -> Array:
    return np.where(found.defined, 1 - _missed(found.wrong, found.right, k), np.nan)
