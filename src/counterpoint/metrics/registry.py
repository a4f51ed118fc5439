"""The metrics by name: direction, chance level, and the cases that define them.

A chance level is the expected value of a metric if all orders of the scores are equally likely. Its
function takes `truth` (n, k, m) and returns one value per case, NaN where it is not known. In their
code, an image has p positives and n negatives.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Final, Literal

import numpy as np

from counterpoint.cases import is_classification, is_gallery
from counterpoint.metrics import definitions, pooled, rankings
from counterpoint.metrics.definitions import Array, Function, Tie, flip, image_mean
from counterpoint.metrics.pooled import PairPool, Weighted
from counterpoint.metrics.rankings import Standings

# --- Chance levels ------------------------------------------------------------------------------


def _counts(truth: Array) -> tuple[Array, Array]:
    return truth.sum(axis=2).astype(float), (~truth).sum(axis=2).astype(float)


def _all_above(p: Array, n: Array) -> Array:
    """One of the C(p + n, p) ways to order them; each is as likely as the others."""
    logs = np.cumsum(np.log(np.arange(1, (p + n).max(initial=0) + 1)))  # log 1!, log 2!, ...
    factorial = np.concatenate([[0.0], logs])
    first, second = p.astype(int), n.astype(int)
    return np.exp(factorial[first] + factorial[second] - factorial[first + second])


def _original_chance(truth: Array) -> Array:
    return image_mean(1 / (1 + _counts(truth)[1]), truth)


def _augmented_chance(truth: Array) -> Array:
    return image_mean(_all_above(*_counts(truth)), truth)


def _negative_above_chance(truth: Array) -> Array:
    p, n = _counts(truth)
    return image_mean(n / (p + n), truth)


def _brittle_chance(truth: Array) -> Array:
    return 1 - _augmented_chance(truth) - _negative_above_chance(truth)


def _brittle_original_above_chance(truth: Array) -> Array:
    return _original_chance(truth) - _augmented_chance(truth)


def _brittle_original_below_chance(truth: Array) -> Array:
    return _brittle_chance(truth) - _brittle_original_above_chance(truth)


def _every_image_chance(truth: Array) -> Array:
    p, n = _counts(truth)
    return np.where((p > 0) & (n > 0), _all_above(p, n), 1).prod(axis=1)


def _every_caption_chance(truth: Array) -> Array:
    return _every_image_chance(flip(truth))


def _recall_chance(k: int) -> Callable[[Array], Array]:
    def chance(truth: Array) -> Array:
        p, n = _counts(truth)
        missed = np.ones_like(n)  # the k highest are all negatives
        for place in range(k):
            missed *= np.clip(n - place, 0, None) / np.maximum(p + n - place, 1)
        return (1 - missed).mean(axis=1)

    return chance


def _mean_rank_chance(truth: Array) -> Array:
    p, n = _counts(truth)
    return (1 + n / (p + 1)).mean(axis=1)


def _chance_by_counting(function: Function) -> Callable[[Array], Array]:
    """Chance of small blocks by trying every order of the scores; NaN for blocks over 6 cells."""

    def chance(truth: Array) -> Array:
        if truth[0].size > 6:
            return np.full(len(truth), np.nan)
        kinds, which = np.unique(truth, axis=0, return_inverse=True)
        orders = np.array(list(permutations(range(truth[0].size)))).reshape(-1, *truth.shape[1:])
        tables = [np.broadcast_to(kind, orders.shape) for kind in kinds]
        return np.array([function(orders, t, "wrong").mean() for t in tables])[which.reshape(-1)]

    return chance


def _matching_chance(truth: Array) -> Array:
    return np.full(len(truth), 1 / math.factorial(truth.shape[1]))


def _one_third(truth: Array) -> Array:
    return np.full(len(truth), 1 / 3)


def _zero(truth: Array) -> Array:
    return np.zeros(len(truth))


# --- Metrics ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of cases, as tables need it."""

    name: str
    values: Function
    chance: Callable[[Array], Array] | None
    better: Literal["higher", "lower"] | None
    applies: Callable[[Array], Array]  # which cases of a block define it
    unit: Literal["share", "rank", "score"] = "share"
    main: bool = False  # shown in the short table
    partition: bool = False  # one of the outcomes that sum to 1; `tied` is an outcome too
    texts: bool = False  # for cases that compare captions with texts
    median: bool = False  # of its values, instead of their mean
    asked_by: Callable[[Array], Array] | None = None  # a benchmark shows it if it has such cases

    def ties(self, scores: Array, truth: Array) -> Array:
        """The cases whose value depends on a tie: another tie policy gives another value."""
        if self.partition:
            return definitions.any_ties(scores, truth)
        strict, lenient = (self.values(scores, truth, tie) for tie in ("wrong", "right"))
        return ((strict != lenient) & ~np.isnan(strict)).astype(float)


@dataclass(frozen=True, slots=True)
class QueryMetric:
    """A metric of a gallery's images (or captions): one value for each of them.

    It is recall@k, unless another `function` and its `expected` value by chance are given.
    """

    name: str
    side: Literal["images", "captions"]
    k: int
    applies: Callable[[Array], Array]  # which cases of a block define it
    main: bool = False
    better: Literal["higher", "lower"] | None = "higher"
    unit: Literal["share", "rank", "score"] = "share"
    median: bool = False
    asked_by: Callable[[Array], Array] | None = None
    texts: bool = False  # also where texts stand in the images' place
    function: Callable[[Standings, Tie], Array] | None = None
    expected: Callable[[Standings], Array] | None = None
    listed: bool = False  # only of galleries that name their queries

    def values(self, found: Standings, tie: Tie) -> Array:
        if self.function is not None:
            return self.function(found, tie)
        return rankings.recall(found, self.k, tie)

    def chance(self, found: Standings) -> Array:
        if self.expected is not None:
            return self.expected(found)
        return rankings.recall_by_chance(found, self.k)

    def ties(self, found: Standings) -> Array:
        strict, lenient = self.values(found, "wrong"), self.values(found, "right")
        return ((strict != lenient) & found.defined).astype(float)


@dataclass(frozen=True, slots=True)
class PooledMetric:
    """A metric of all pairs of a benchmark or group: it is not a mean over cases."""

    name: str
    function: Callable[[PairPool], Weighted]
    expected: float | None  # by chance
    better: Literal["higher", "lower"]
    applies: Callable[[Array], Array]  # which cases of a block define it
    graded: bool = False  # of pairs with grades
    main: bool = False
    unit: Literal["share", "rank", "score"] = "share"
    median: bool = False
    asked_by: Callable[[Array], Array] | None = None
    texts: bool = False


AnyMetric = Metric | QueryMetric | PooledMetric


# --- Which cases of a block define a metric: truth (n, k, m) -> n booleans ----------------------


def _all(truth: Array, marked: bool) -> Array:
    return np.full(len(truth), marked)


def _captions_only(truth: Array) -> Array:
    """One image and several captions; a single pair is graded, and compared with nothing."""
    return _all(truth, truth.shape[1] == 1 and truth.shape[2] > 1)


def _few_images(truth: Array) -> Array:
    return _all(truth, not is_gallery(*truth.shape[1:]))


def _retrieval(truth: Array) -> Array:
    return ~_few_images(truth) & ~_classes(truth)


def _classification(truth: Array) -> Array:
    return ~_few_images(truth) & _classes(truth)


def _five_classes(truth: Array) -> Array:
    """With fewer classes, the five best are always all of them."""
    return _classification(truth) & (truth.shape[2] >= 5)


def _classes(truth: Array) -> Array:
    return np.asarray(is_classification(truth))


def _with_positives(truth: Array) -> Array:
    """Some image has two positives and a negative, so that rewording can be measured."""
    reworded = ((truth.sum(axis=2) > 1) & ~truth.all(axis=2)).any(axis=1)
    return np.asarray(reworded & _few_images(truth))


def _caption_choice(truth: Array) -> Array:
    return _captions_only(truth) | _with_positives(truth)


def _several_images(truth: Array) -> Array:
    return _few_images(truth) & (truth.shape[1] > 1)


def _choosing_images(truth: Array) -> Array:
    """Several images, one of which at least has a true and a false caption to choose from."""
    p, n = _counts(truth)
    return np.asarray(_several_images(truth) & ((p > 0) & (n > 0)).any(axis=1))


def _two_texts(truth: Array) -> Array:
    """Two texts that mean the same, against themselves and a negative."""
    same = np.array([[True, True, False]] * 2)
    if truth.shape[1:] != same.shape:
        return _all(truth, False)
    return np.asarray((truth == same).all(axis=(1, 2)))


def _square(truth: Array) -> Array:
    if truth.shape[1:] != (2, 2):
        return _all(truth, False)
    return np.asarray((truth.sum(axis=1) == 1).all(axis=1) & (truth.sum(axis=2) == 1).all(axis=1))


def _matched(truth: Array) -> Array:
    """Square cases, smaller than a gallery, of which each image has one caption and each caption
    one image."""
    size = truth.shape[1]
    if size != truth.shape[2] or size < 2 or is_gallery(size, size):
        return _all(truth, False)
    return np.asarray((truth.sum(axis=1) == 1).all(axis=1) & (truth.sum(axis=2) == 1).all(axis=1))


def _several_negatives(truth: Array) -> Array:
    """Of one negative, ranks say what the accuracy says."""
    return _captions_only(truth) & ((~truth).sum(axis=2) > 1).any(axis=1)


_ALL: Final[tuple[AnyMetric, ...]] = (
    Metric(
        "original_accuracy",
        definitions.original_accuracy,
        _original_chance,
        "higher",
        _caption_choice,
        main=True,
    ),
    Metric(
        "augmented_accuracy",
        definitions.augmented_accuracy,
        _augmented_chance,
        "higher",
        _with_positives,
        main=True,
    ),
    Metric(
        "brittleness",
        definitions.brittleness,
        _brittle_chance,
        "lower",
        _with_positives,
        main=True,
        partition=True,
    ),
    Metric(
        "brittle_original_above",
        definitions.brittle_original_above,
        _brittle_original_above_chance,
        "lower",
        _with_positives,
        partition=True,
    ),
    Metric(
        "brittle_original_below",
        definitions.brittle_original_below,
        _brittle_original_below_chance,
        "lower",
        _with_positives,
        partition=True,
    ),
    Metric(
        "negative_above_both",
        definitions.negative_above_both,
        _negative_above_chance,
        "lower",
        _with_positives,
        partition=True,
    ),
    Metric("tied", definitions.tied, _zero, "lower", _with_positives, partition=True),
    Metric(
        "image_to_text",
        definitions.image_to_text,
        _every_image_chance,
        "higher",
        _choosing_images,
        main=True,
    ),
    Metric(
        "text_to_image",
        definitions.text_to_image,
        _every_caption_chance,
        "higher",
        _several_images,
        main=True,
    ),
    Metric(
        "group",
        definitions.group,
        _chance_by_counting(definitions.group),
        "higher",
        _choosing_images,
        main=True,
    ),
    *(
        Metric(name, function, _chance_by_counting(function), "higher", _square)
        for name, function in (
            ("image_to_text_0", definitions.image_to_text_0),
            ("image_to_text_1", definitions.image_to_text_1),
            ("text_to_image_0", definitions.text_to_image_0),
            ("text_to_image_1", definitions.text_to_image_1),
        )
    ),
    Metric(
        "group_matching",
        definitions.group_matching,
        _matching_chance,
        "higher",
        _matched,
    ),
    *(
        Metric(
            f"recall@{k}",
            definitions.recall_at(k),
            _recall_chance(k),
            "higher",
            _captions_only,
            asked_by=_several_negatives,
        )
        for k in (1, 3, 5, 10)
    ),
    *(
        Metric(
            name,
            definitions.mean_rank,
            chance,
            "lower",
            _captions_only,
            unit="rank",
            median=chance is None,
            asked_by=_several_negatives,
        )
        for name, chance in (("mean_rank", _mean_rank_chance), ("median_rank", None))
    ),
    *(
        QueryMetric(f"image_to_text_recall@{k}", "images", k, _retrieval, main=k < 10)
        for k in (1, 5, 10)
    ),
    *(
        QueryMetric(f"text_to_image_recall@{k}", "captions", k, _retrieval, main=k < 10)
        for k in (1, 5, 10)
    ),
    *(
        QueryMetric(
            f"{side}_{name}",
            "images" if side == "image_to_text" else "captions",
            0,
            _retrieval,
            main=name == "map@R",  # the paper's first number; the table has no room for both
            function=function,
            expected=expected,
            listed=True,
        )
        for name, function, expected in (
            ("r_precision", rankings.r_precision, rankings.r_precision_by_chance),
            ("map@R", rankings.map_at_r, rankings.map_at_r_by_chance),
        )
        for side in ("image_to_text", "text_to_image")
    ),
    QueryMetric("accuracy@1", "images", 1, _classification, main=True, texts=True),
    QueryMetric("accuracy@5", "images", 5, _five_classes, main=True, texts=True),
    PooledMetric(
        "rank_correlation",
        pooled.rank_correlation,
        0.0,
        "higher",
        _few_images,
        graded=True,
        main=True,
    ),
    PooledMetric("auroc", pooled.auroc, 0.5, "higher", _few_images),
    PooledMetric("calibration_error", pooled.calibration_error, None, "lower", _few_images),
    PooledMetric("true_below_threshold", pooled.true_below_threshold, None, "lower", _few_images),
    Metric(
        "text_only_accuracy",
        definitions.text_only_accuracy,
        _one_third,
        "higher",
        _two_texts,
        main=True,
        texts=True,
    ),
    Metric("tie_rate", definitions.tie_rate, _zero, "lower", _caption_choice, partition=True),
    Metric(
        "mean_score_original",
        definitions.mean_score_original,
        None,
        None,
        _caption_choice,
        unit="score",
    ),
    Metric(
        "mean_score_positive",
        definitions.mean_score_positive,
        None,
        None,
        _with_positives,
        unit="score",
    ),
    Metric(
        "mean_score_negative",
        definitions.mean_score_negative,
        None,
        None,
        _caption_choice,
        unit="score",
    ),
)
METRICS: Final = {metric.name: metric for metric in _ALL}
