"""Chance levels: what a metric gives in expectation if all orders of the scores are equally likely.

Each function takes `truth` (n, k, m) and returns a value for each case, NaN where it is not known.
In the comments, an image has p positives and n negatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
from scipy.special import gammaln

from counterpoint.metrics import Array, Function, flip, image_mean


def _counts(truth: Array) -> tuple[Array, Array]:
    return truth.sum(axis=2).astype(float), (~truth).sum(axis=2).astype(float)


def _all_above(p: Array, n: Array) -> Array:
    return np.exp(gammaln(p + 1) + gammaln(n + 1) - gammaln(p + n + 1))


def original(truth: Array) -> Array:
    return image_mean(1 / (1 + _counts(truth)[1]), truth)


def augmented(truth: Array) -> Array:
    return image_mean(_all_above(*_counts(truth)), truth)


def negative_above(truth: Array) -> Array:
    p, n = _counts(truth)
    return image_mean(n / (p + n), truth)


def brittle(truth: Array) -> Array:
    return 1 - augmented(truth) - negative_above(truth)


def brittle_original_above(truth: Array) -> Array:
    return original(truth) - augmented(truth)


def brittle_original_below(truth: Array) -> Array:
    return brittle(truth) - brittle_original_above(truth)


def every_image(truth: Array) -> Array:
    p, n = _counts(truth)
    return np.where((p > 0) & (n > 0), _all_above(p, n), 1).prod(axis=1)


def every_caption(truth: Array) -> Array:
    return every_image(flip(truth))


def recall(k: int) -> Callable[[Array], Array]:
    def chance(truth: Array) -> Array:
        p, n = _counts(truth)
        missed = np.ones_like(n)  # the k highest are all negatives
        for place in range(k):
            missed *= np.clip(n - place, 0, None) / np.maximum(p + n - place, 1)
        return (1 - missed).mean(axis=1)

    return chance


def mean_rank(truth: Array) -> Array:
    p, n = _counts(truth)
    return (1 + n / (p + 1)).mean(axis=1)


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


def matching(truth: Array) -> Array:
    return np.full(len(truth), 1 / math.factorial(truth.shape[1]))


def third(truth: Array) -> Array:
    return np.full(len(truth), 1 / 3)


def never(truth: Array) -> Array:
    return np.zeros(len(truth))
