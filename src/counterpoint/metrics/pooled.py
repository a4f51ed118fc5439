"""Metrics of all pairs at once: what one scale, and one threshold, are good for.

Within a case, captions of one image are compared with each other. Here the scores of all images
stand on one scale, so that a model that ranks the captions of every image well can still be bad.
Such a number is not a mean over cases. Each function takes the pairs of a benchmark (or group),
sorts them once, and returns a function of the clusters' weights: with all weights 1 it gives the
number, and with the numbers of times that each source image was drawn a bootstrap sample of it. A
weight of n is the same as n copies.

**Ties** do not depend on the protocol: equal scores count half for `auroc`, share their mean rank
for `rank_correlation`, and are on one side of every threshold.

**Undefined** (NaN) if a weighted sample has no true or no false pair, or if all grades are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from counterpoint.metrics.definitions import Array

Weighted = Callable[[Array], float]
BINS: Final = 15  # of equal width, as is usual since Guo et al. 2017
_STEPS: Final = 50  # of Newton's method; it takes five to ten


class PairPool(NamedTuple):
    """Pairs of images and captions. `clusters` are numbered from 0; `shares` are the weights that
    pairs have beside those of their clusters.
    """

    clusters: Array
    scores: Array
    truth: Array
    grades: Array
    shares: Array


def auroc(pool: PairPool) -> Weighted:
    """The area under the ROC curve over all pairs: how often a true pair scores above a false one
    of any image, equal scores counting half. Chance 1/2.
    """
    true, false = _ascending(pool, pool.truth), _ascending(pool, ~pool.truth)
    # Of each false pair: how many true pairs are below it, and how many are not above it.
    ends = [np.searchsorted(true.scores, false.scores, side) for side in ("left", "right")]
    ends = ends[:1] if np.array_equal(ends[0], ends[1]) else ends

    def value(weights: Array) -> float:
        exact = weights.astype(float)
        below, drawn = np.append(0, exact[true.clusters].cumsum()), exact[false.clusters]
        both = float(below[-1] * drawn.sum())
        lost = sum(_sum(drawn, below[end]) for end in ends) / len(ends)
        return 1 - lost / both if both else float("nan")

    return value


def true_below_threshold(pool: PairPool) -> Weighted:
    """The share of true pairs below the best single threshold; lower is better.

    The best threshold has the highest mean of two shares: of true pairs above it, and of false
    pairs below it (so it does not depend on how many false captions there are). Of several that are
    equally good, the lowest and the highest are averaged. It is chosen anew in each resample.
    Random scores give a bit less than 1/2, the less the fewer pairs there are, so no chance level
    is printed.
    """
    true, false = _ascending(pool, pool.truth), _ascending(pool, ~pool.truth)
    # A threshold is best right above a false pair, or below all pairs.
    levels, counts = np.unique(false.scores, return_counts=True)
    at_or_below = np.cumsum(counts)
    not_above = np.searchsorted(true.scores, levels, "right")

    def value(weights: Array) -> float:
        exact = weights.astype(float)
        found = [np.append(0, exact[side.clusters].cumsum()) for side in (true, false)]
        everything = [side[-1] for side in found]
        if not all(everything):
            return float("nan")
        below = np.append(0, found[0][not_above])
        rejected = np.append(0, found[1][at_or_below])
        gain = rejected * everything[0] - below * everything[1]  # whole numbers: equal is equal
        best = below[gain == gain.max()]
        return float((best[0] + best[-1]) / 2 / everything[0])

    return value


def calibration_error(pool: PairPool) -> Weighted:
    """Expected calibration error after Platt scaling (Platt 1999, Guo et al. 2017).

    Source images, in the order of their names, are dealt to two halves. The scores of each half
    become probabilities by a logistic curve that is fitted to the other half, with Platt's targets.
    Pairs are put in 15 bins of equal width; the error is the mean, over pairs, of the distance
    between a bin's mean probability and its share of true pairs. Lower is better. There is no
    chance level: scores that say nothing are well calibrated, so read it beside `auroc`. A
    bootstrap resamples the pairs and keeps the two curves.
    """
    half = pool.clusters % 2
    probability = np.full(len(half), np.nan)
    for side in (0, 1):
        mine, other = half == side, half != side
        probability[mine] = platt(pool.scores[other], pool.truth[other])(pool.scores[mine])
    if not np.isfinite(probability).all():
        return lambda weights: float("nan")
    place = np.minimum((probability * BINS).astype(np.int64), BINS - 1)
    gap = probability - pool.truth

    def value(weights: Array) -> float:
        drawn = weights[pool.clusters]
        with np.errstate(invalid="ignore"):
            return float(np.abs(np.bincount(place, drawn * gap)).sum() / drawn.sum())

    return value


def platt(scores: Array, truth: Array) -> Callable[[Array], Array]:
    """A logistic curve from scores to probabilities, by Newton's method with halved steps.

    Targets are (n + 1)/(n + 2) for the n true pairs and 1/(n + 2) for the n false ones, so that
    the fit is finite even if a threshold separates them. Without both kinds it is undefined.
    """
    true = int(truth.sum())
    false = len(truth) - true
    if not true or not false:
        return lambda new: np.full(len(new), np.nan)
    middle, spread = float(scores.mean()), float(scores.std()) or 1.0
    design = np.column_stack([np.ones(len(scores)), (scores - middle) / spread])
    target = np.where(truth, (true + 1) / (true + 2), 1 / (false + 2))
    fit = np.array([np.log((true + 1) / (false + 1)), 0.0])
    for _ in range(_STEPS):
        guess = _logistic(design @ fit)
        slope = design.T @ (target - guess)
        curve = (design * (guess * (1 - guess))[:, None]).T @ design
        step = np.linalg.solve(curve + 1e-9 * np.eye(2), slope)
        size = 1.0
        while size > 1e-6 and _loss(design, target, fit + size * step) > _loss(design, target, fit):
            size /= 2
        fit = fit + size * step
        if np.abs(size * step).max() < 1e-10:
            break
    return lambda new: _logistic(fit[0] + fit[1] * (new - middle) / spread)


def _logistic(values: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-np.clip(values, -500, 500))))


def _loss(design: Array, target: Array, fit: Array) -> float:
    odds = design @ fit
    return float((np.logaddexp(0, odds) - target * odds).sum())


def rank_correlation(pool: PairPool) -> Weighted:
    """Spearman's rank correlation of scores with people's grades. Chance 0.

    Each query counts once: of a caption (or image) with n graded pairs, each has weight 1/n. Equal
    values share their mean rank.
    """
    ranked = _Ranked(pool)
    shares = pool.shares[ranked.order]
    steps, grade = np.unique(pool.grades[ranked.order], return_inverse=True)

    def value(weights: Array) -> float:
        drawn = ranked.drawn(weights) * shares
        sizes = np.bincount(grade, drawn, len(steps))
        # Ranks are counted from the middle one, which is their mean.
        middle = drawn.sum() / 2
        by_grade = sizes.cumsum() - sizes / 2 - middle
        by_score = ranked.mean_ranks(drawn) - middle
        weighted = drawn * by_score
        spread = _sum(weighted, by_score) * _sum(sizes, by_grade**2)
        return _sum(weighted, by_grade[grade]) / spread**0.5 if spread > 0 else float("nan")

    return value


def _sum(a: Array, b: Array) -> float:
    """The dot product without BLAS, whose threads take longer to start than this takes."""
    return float(np.einsum("i,i->", a, b))


class _Side(NamedTuple):
    """Some pairs in the order of their scores."""

    scores: Array
    clusters: Array


def _ascending(pool: PairPool, chosen: Array) -> _Side:
    order = np.argsort(pool.scores[chosen], kind="stable")
    return _Side(pool.scores[chosen][order], pool.clusters[chosen][order])


class _Ranked:
    """Pairs in the order of their scores, to be ranked with weights."""

    def __init__(self, pool: PairPool) -> None:
        self.order = np.argsort(pool.scores, kind="stable")
        self.clusters = pool.clusters[self.order]
        scores = pool.scores[self.order]
        self.starts = np.flatnonzero(np.append(True, scores[1:] != scores[:-1]))
        self.sizes = np.diff(np.append(self.starts, len(scores)))
        self.tied = len(self.starts) < len(scores)

    def drawn(self, weights: Array) -> Array:
        """The weight of each pair."""
        return np.asarray(weights.astype(float)[self.clusters])

    def mean_ranks(self, drawn: Array) -> Array:
        """The rank of each pair among weighted ones, equal scores sharing theirs."""
        if not self.tied:
            return np.asarray(drawn.cumsum() - drawn / 2)
        sizes = np.add.reduceat(drawn, self.starts)
        return np.repeat(sizes.cumsum() - sizes / 2, self.sizes)
