"""Metrics of all pairs at once: what one scale, and one threshold, are good for.

Within a case, captions of one image are compared with each other. Here the scores of all images
stand on one scale, so that a model that ranks the captions of every image well can still be bad.
Such a number is not a mean over cases. Each function takes the pairs of a benchmark (or group),
sorts them once, and returns a function of the clusters' weights, of many draws at once: a row of
ones gives the number, and the numbers of times that each source image was drawn a bootstrap sample
of it. A weight of n is the same as n copies.

**Ties** do not depend on the protocol: equal scores count half for `auroc`, share their mean rank
for `rank_correlation`, and are on one side of every threshold.

**Undefined** (NaN) if a weighted sample has no true or no false pair, or if all grades are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from counterpoint.metrics.definitions import Array

Weighted = Callable[[Array], Array]  # from weights (draws, clusters) to one number per draw
BINS: Final = 15  # of equal width, as is usual since Guo et al. 2017
_STEPS: Final = 50  # of Newton's method; it takes five to ten
_CELLS: Final = 1 << 17  # draws x pairs at a time


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

    def value(weights: Array) -> Array:
        below, drawn = true.counted(weights), np.take(weights, false.clusters, axis=-1)
        lost = np.mean([_sum(drawn, np.take(below, end, axis=-1)) for end in ends], axis=0)
        return 1 - ratio(lost, below[:, -1] * drawn.sum(axis=-1))

    return _of_rows(pool, value)


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
    at_or_below = np.append(0, np.cumsum(counts))
    not_above = np.append(0, np.searchsorted(true.scores, levels, "right"))

    def value(weights: Array) -> Array:
        accepted, rejected = true.counted(weights), false.counted(weights)
        all_true, all_false = accepted[:, -1:], rejected[:, -1:]
        below = np.take(accepted, not_above, axis=-1)
        gain = np.take(rejected, at_or_below, axis=-1) * all_true - below * all_false
        best = gain == gain.max(axis=-1, keepdims=True)  # whole numbers: equal is equal
        ends = best.argmax(axis=-1), best.shape[1] - 1 - best[:, ::-1].argmax(axis=-1)
        lowest, highest = (below[np.arange(len(below)), end] for end in ends)
        found = ratio((lowest + highest) / 2, all_true[:, 0])
        return np.where(all_false[:, 0] > 0, found, np.nan)

    return _of_rows(pool, value)


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
        return lambda weights: np.full(len(weights), np.nan)
    bins = _Runs(np.minimum((probability * BINS).astype(np.int64), BINS - 1))
    gap = probability - pool.truth

    def value(weights: Array) -> Array:
        drawn = np.take(weights, pool.clusters, axis=-1)
        return ratio(np.abs(bins.sums(drawn * gap)).sum(axis=-1), drawn.sum(axis=-1))

    return _of_rows(pool, value)


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
    order = np.argsort(pool.scores, kind="stable")
    clusters, scores, _, grades, shares = (column[order] for column in pool)
    by_score, by_grade = _Runs(scores), _Runs(grades)

    def value(weights: Array) -> Array:
        drawn = np.take(weights, clusters, axis=-1) * shares
        of_score, of_grade = (runs.sums(drawn) for runs in (by_score, by_grade))
        score_ranks, grade_ranks = _mean_ranks(of_score), _mean_ranks(of_grade)
        spread = _sum(of_score, score_ranks**2) * _sum(of_grade, grade_ranks**2)
        ranks = drawn * by_score.of_each(score_ranks)
        return ratio(_sum(ranks, by_grade.of_each(grade_ranks)), spread**0.5)

    return _of_rows(pool, value)


def _mean_ranks(weights: Array) -> Array:
    """Of values in ascending order with these weights, counted from the mean rank."""
    return np.asarray(weights.cumsum(axis=-1) - weights / 2 - weights.sum(-1, keepdims=True) / 2)


def _of_rows(pool: PairPool, value: Callable[[Array], Array]) -> Weighted:
    """A number of each row of weights, of so many rows at a time as a processor's cache holds."""
    pairs = len(pool.scores)
    rows = max(1, _CELLS // max(pairs, 1))

    def values(weights: Array) -> Array:
        if not pairs:
            return np.full(len(weights), np.nan)
        starts = range(0, len(weights), rows)
        return np.concatenate([value(weights[i : i + rows].astype(float)) for i in starts])

    return values


def _sum(a: Array, b: Array) -> Array:
    """Dot products of rows without BLAS, whose threads take longer to start than this takes."""
    return np.asarray(np.einsum("ij,ij->i", a, b))


def ratio(above: Array, below: Array) -> Array:
    """Of the same shape, and NaN where the divisor is zero."""
    nothing = np.full(below.shape, np.nan, dtype=np.result_type(above, below))
    return np.divide(above, below, out=nothing, where=below > 0)


class _Side(NamedTuple):
    """Some pairs in the order of their scores."""

    scores: Array
    clusters: Array

    def counted(self, weights: Array) -> Array:
        """The weight of the first 0, 1, 2, ... pairs."""
        found = np.zeros((len(weights), len(self.clusters) + 1))
        np.cumsum(np.take(weights, self.clusters, axis=-1), axis=-1, out=found[:, 1:])
        return found


def _ascending(pool: PairPool, chosen: Array) -> _Side:
    order = np.argsort(pool.scores[chosen], kind="stable")
    return _Side(pool.scores[chosen][order], pool.clusters[chosen][order])


class _Runs:
    """Which values are equal: in ascending order, they are runs."""

    def __init__(self, values: Array) -> None:
        order = np.argsort(values, kind="stable")
        is_first = np.append(True, np.diff(values[order]) != 0)[: len(order)]
        self._starts = np.flatnonzero(is_first)
        self._order = None if (np.diff(order) > 0).all() else order  # None: as they are
        self._places = np.empty(len(order), dtype=np.int64)
        self._places[order] = np.cumsum(is_first) - 1

    def sums(self, weights: Array) -> Array:
        """The weight of each run."""
        ordered = weights if self._order is None else np.take(weights, self._order, axis=-1)
        return np.add.reduceat(ordered, self._starts, axis=-1)

    def of_each(self, of_runs: Array) -> Array:
        """What belongs to the run of each value."""
        return np.take(of_runs, self._places, axis=-1)
