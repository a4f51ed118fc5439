"""Chance levels: the expected value of a metric if all orders of the scores are equally likely.

A function takes `truth` (n, k, m) and returns one value per case, NaN where it is not known. In
their code, an image has p positives and n negatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np

from counterpoint.metrics import definitions
from counterpoint.metrics.definitions import Array, Function, flip, image_mean


def counts(truth: Array) -> tuple[Array, Array]:
    return truth.sum(axis=2).astype(float), (~truth).sum(axis=2).astype(float)


def _all_above(p: Array, n: Array) -> Array:
    """One of the C(p + n, p) ways to order them; each is as likely as the others."""
    logs = np.cumsum(np.log(np.arange(1, (p + n).max(initial=0) + 1)))  # log 1!, log 2!, ...
    factorial = np.concatenate([[0.0], logs])
    first, second = p.astype(int), n.astype(int)
    return np.exp(factorial[first] + factorial[second] - factorial[first + second])


def original(truth: Array) -> Array:
    return image_mean(1 / (1 + counts(truth)[1]), truth)


def augmented(truth: Array) -> Array:
    return image_mean(_all_above(*counts(truth)), truth)


def negative_above(truth: Array) -> Array:
    p, n = counts(truth)
    return image_mean(n / (p + n), truth)


def brittle(truth: Array) -> Array:
    return 1 - augmented(truth) - negative_above(truth)


def brittle_original_above(truth: Array) -> Array:
    return original(truth) - augmented(truth)


def brittle_original_below(truth: Array) -> Array:
    return brittle(truth) - brittle_original_above(truth)


def every_image(truth: Array) -> Array:
    p, n = counts(truth)
    return np.where((p > 0) & (n > 0), _all_above(p, n), 1).prod(axis=1)


def every_caption(truth: Array) -> Array:
    return every_image(flip(truth))


def by_counting(function: Function) -> Callable[[Array], Array]:
    """Chance of small blocks by trying every order of the scores; NaN for blocks over 6 cells."""

    def chance(truth: Array) -> Array:
        if truth[0].size > 6:
            return np.full(len(truth), np.nan)
        kinds, which = np.unique(truth, axis=0, return_inverse=True)
        orders = np.array(list(permutations(range(truth[0].size)))).reshape(-1, *truth.shape[1:])
        tables = [np.broadcast_to(kind, orders.shape) for kind in kinds]
        return np.array([function(orders, t, "wrong").mean() for t in tables])[which.reshape(-1)]

    return chance


def image_brittle(truth: Array) -> Array:
    p, n = counts(flip(truth))
    brittle = 1 - _all_above(p, n) - n / (p + n)
    return definitions.mean_of(brittle, definitions.several_positives(flip(truth)))


def by_orders(kept: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Chance that, among the kept cells, every true one is above the false ones of its lines."""

    def chance(truth: Array) -> Array:
        kinds, which = np.unique(truth, axis=0, return_inverse=True)
        found = [_share_of_orders(t, of) for t, of in zip(kinds, kept(kinds), strict=True)]
        return np.array(found)[which.reshape(-1)]

    return chance


def _share_of_orders(truth: Array, kept: Array) -> float:
    """Orders are built from the lowest score up; NaN for blocks over 12 cells."""
    cells = np.argwhere(kept).tolist()
    if len(cells) > 12:
        return math.nan
    false = [(n, i, j) for n, (i, j) in enumerate(cells) if not truth[i, j]]
    needs = [
        sum(1 << n for n, x, y in false if truth[i, j] and (x == i or y == j)) for i, j in cells
    ]
    ways = [1] + [0] * (2 ** len(cells) - 1)  # by the set of cells that have their place
    for placed, count in enumerate(ways):
        for cell, below in enumerate(needs):
            if not placed >> cell & 1 and not below & ~placed:
                ways[placed | 1 << cell] += count
    return ways[-1] / math.factorial(len(cells))


def answer(truth: Array) -> Array:
    """Of questions with a answers each: a given one is right in 1 of a orders."""
    return truth.sum(axis=(1, 2)) / truth[0].size


def question(truth: Array) -> Array:
    return answer(truth) ** truth.shape[1]


def image(truth: Array) -> Array:
    return answer(truth) ** truth[:, 0].sum(axis=1)


def all_answers(truth: Array) -> Array:
    return answer(truth) ** truth.sum(axis=(1, 2))


def matching(truth: Array) -> Array:
    return np.full(len(truth), 1 / math.factorial(truth.shape[1]))


def one_third(truth: Array) -> Array:
    return np.full(len(truth), 1 / 3)


def zero(truth: Array) -> Array:
    return np.zeros(len(truth))
