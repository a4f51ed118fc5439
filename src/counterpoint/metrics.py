"""Metrics: pure functions of a block of scores and its truth.

Every function takes `scores` (n, k, m) and `truth` (n, k, m, bool): n cases of k images and m
captions, and returns n values, one per case; a benchmark's number is an average of them. No value
is rounded and no case is dropped.

**Words.** Of one image, the *positives* are its true captions, the *original* is the first of them,
the *negatives* are its false captions, and the *best negative* is the one with the highest score.
A caption is *above* another if its score is higher. Metrics of captions are computed for each image
and averaged over the images of the case (for most benchmarks there is one).

**Ties.** With `tie="wrong"` (the default) an equal score is not above: the case is wrong, and where
outcomes are counted it is `tied`. With `"right"` equal scores count as above the negative. With
`"half"` the value is the mean of counting them as above and as below.

**Chance** is what scores drawn at random, without ties, give in expectation.

Papers: Kamath et al. 2024 (Hard Positives), Miranda et al. 2024 (BiVLC), Thrush et al. 2022
(Winoground), Ma et al. 2023 (CREPE), Zhu et al. 2025 (group matching).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Final, Literal

import numpy as np
from scipy.special import gammaln

Tie = Literal["wrong", "right", "half"]
Array = np.ndarray
Function = Callable[[Array, Array, Tie], Array]
_Equal = Literal["apart", "above", "below"]


@dataclass(frozen=True, slots=True)
class _Sides:
    """For each image of each case (n, k): how its positives stand to its best negative.

    `defined` is False where an image has no positive or no negative, which says nothing.
    """

    original_above: Array
    all_above: Array
    any_above: Array
    any_equal: Array
    defined: Array


def _sides(scores: Array, truth: Array, equal: _Equal) -> _Sides:
    """Compare; `equal` says what an equal score is: a thing apart, or above, or below."""
    best_negative = np.where(truth, -np.inf, scores).max(axis=2, keepdims=True)
    above = (scores >= best_negative if equal == "above" else scores > best_negative) & truth
    same = (scores == best_negative) & truth & (equal == "apart")
    first = truth.argmax(axis=2)[..., None]
    return _Sides(
        original_above=np.take_along_axis(above, first, 2)[..., 0],
        all_above=(above | ~truth).all(axis=2),
        any_above=above.any(axis=2),
        any_equal=same.any(axis=2),
        defined=truth.any(axis=2) & ~truth.all(axis=2),
    )


def _with_ties(tie: Tie, outcome: Callable[[_Equal], Array]) -> Array:
    """An outcome under a tie policy."""
    if tie == "wrong":
        return outcome("apart").astype(float)
    if tie == "right":
        return outcome("above").astype(float)
    return (outcome("above").astype(float) + outcome("below")) / 2


def _by_image(scores: Array, truth: Array, tie: Tie, outcome: Callable[[_Sides], Array]) -> Array:
    """The mean of an outcome over a case's images, with ties resolved by the policy."""
    values = _with_ties(tie, lambda equal: outcome(_sides(scores, truth, equal)))
    return _image_mean(values, truth)


def _image_mean(values: Array, truth: Array) -> Array:
    """The mean over the images that have both a positive and a negative."""
    defined = truth.any(axis=2) & ~truth.all(axis=2)
    return np.where(defined, values, 0).sum(axis=1) / defined.sum(axis=1)


def original_accuracy(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The original is above every negative. Chance 1 / (1 + negatives)."""
    return _by_image(scores, truth, tie, lambda s: s.original_above)


def augmented_accuracy(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Every positive is above every negative (SugarCrepe++ calls it ITT). Chance 1/3 for 2 + 1."""
    return _by_image(scores, truth, tie, lambda s: s.all_above)


def brittleness(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Some but not all positives are above the best negative, none equal. Chance 1/3 for 2 + 1."""
    return _by_image(scores, truth, tie, _brittle)


def _brittle(s: _Sides) -> Array:
    return s.any_above & ~s.all_above & ~s.any_equal


def brittle_original_above(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Brittle, and it is the original that is above: original > negative > positive."""
    return _by_image(scores, truth, tie, lambda s: _brittle(s) & s.original_above)


def brittle_original_below(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Brittle, and the original is below: positive > negative > original."""
    return _by_image(scores, truth, tie, lambda s: _brittle(s) & ~s.original_above)


def negative_above_both(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The best negative is above every positive."""
    return _by_image(scores, truth, tie, lambda s: ~s.any_above & ~s.any_equal)


def tied(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Some positive equals the best negative, which makes the case neither right nor brittle.

    With `tie="wrong"`: augmented + brittleness + negative_above_both + tied = 1. With the other
    policies ties are resolved and `tied` is 0.
    """
    return _by_image(scores, truth, tie, lambda s: s.any_equal)


def tie_rate(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Whether any image's positive equals its best negative, whatever the policy."""
    del tie
    return _ties_of_images(scores, truth)


def _ties_of_images(scores: Array, truth: Array) -> Array:
    sides = _sides(scores, truth, "apart")
    return (sides.any_equal & sides.defined).any(axis=1).astype(float)


def _flip(values: Array) -> Array:
    return np.swapaxes(values, 1, 2)


def _ties_of_captions(scores: Array, truth: Array) -> Array:
    return _ties_of_images(_flip(scores), _flip(truth))


def _ties_of_both(scores: Array, truth: Array) -> Array:
    return np.maximum(_ties_of_images(scores, truth), _ties_of_captions(scores, truth))


def _all_lines(scores: Array, truth: Array, tie: Tie) -> Array:
    """For every image, all positives above all negatives: 1, 0, or (ties, "half") 1/2."""

    def right(equal: _Equal) -> Array:
        sides = _sides(scores, truth, equal)
        return (sides.all_above | ~sides.defined).all(axis=1)

    return _with_ties(tie, right)


def image_to_text(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Each image prefers its own captions (Winoground's text score). Chance 1/4 for 2 x 2."""
    return _all_lines(scores, truth, tie)


def text_to_image(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Each caption prefers its own images (Winoground's image score). Chance 1/4 for 2 x 2."""
    return _all_lines(_flip(scores), _flip(truth), tie)


def group(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Both `image_to_text` and `text_to_image`. Chance 1/6 for 2 x 2."""
    return np.minimum(image_to_text(scores, truth, tie), text_to_image(scores, truth, tie))


def _one_line(index: int, flip: bool) -> Function:
    """One of the four single comparisons of a 2 x 2 case."""

    def compare(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
        if flip:
            scores, truth = _flip(scores), _flip(truth)
        return _all_lines(scores[:, [index]], truth[:, [index]], tie)

    where = (
        f"{'caption' if flip else 'image'} {index} prefers its own {'image' if flip else 'caption'}"
    )
    compare.__doc__ = f"A single comparison of BiVLC: {where}. Chance 1/2 for 2 x 2."
    return compare


image_to_text_0 = _one_line(0, flip=False)
image_to_text_1 = _one_line(1, flip=False)
text_to_image_0 = _one_line(0, flip=True)
text_to_image_1 = _one_line(1, flip=True)


def group_matching(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The true one-to-one matching of images and captions has the highest sum of scores.

    For square cases whose truth is a permutation. Chance 1 / k! (1/2 for 2 x 2).
    """
    k = scores.shape[1]
    images = np.arange(k)
    scores = scores.astype(float)
    own = np.where(truth, scores, 0).sum(axis=(1, 2))
    others = np.full(len(scores), -np.inf)
    for matching in permutations(range(k)):
        total = scores[:, images, matching].sum(axis=1)
        others = np.where(truth[:, images, matching].all(axis=1), others, np.maximum(others, total))
    return _threshold(own, others, tie)


def _threshold(own: Array, other: Array, tie: Tie) -> Array:
    credit = {"wrong": 0.0, "right": 1.0, "half": 0.5}[tie]
    return np.where(own > other, 1.0, np.where(own == other, credit, 0.0))


def ranks(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The place, from 1, of each image's best positive among the negatives: (n, k).

    Equal negatives come before it ("wrong"), after it ("right") or half of them do ("half").
    """
    best_positive = np.where(truth, scores, -np.inf).max(axis=2, keepdims=True)
    above = ((scores > best_positive) & ~truth).sum(axis=2)
    equal = ((scores == best_positive) & ~truth).sum(axis=2)
    return 1 + above + {"wrong": 1.0, "right": 0.0, "half": 0.5}[tie] * equal


def recall_at(k: int) -> Function:
    """Recall@k: an image's best positive is among its k best captions, as CREPE and retrieval do."""

    def recall(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
        return (ranks(scores, truth, tie) <= k).mean(axis=1)

    recall.__doc__ = f"The best positive is among the {k} highest captions of its image."
    return recall


def mean_rank(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The mean place of the images' best positive, from 1."""
    return ranks(scores, truth, tie).mean(axis=1)


def mean_score_original(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Mean score of the originals: a tuned model that lowers it has moved everything apart."""
    del tie
    return _mean_where(scores, truth & _first_true(truth))


def mean_score_positive(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Mean score of the positives that are not the original."""
    del tie
    return _mean_where(scores, truth & ~_first_true(truth))


def mean_score_negative(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Mean score of the negatives."""
    del tie
    return _mean_where(scores, ~truth)


def _first_true(truth: Array) -> Array:
    return truth & (truth.cumsum(axis=2) == 1)


def _mean_where(scores: Array, mask: Array) -> Array:
    """The mean over the chosen cells; NaN (left out of averages) where there are none."""
    count = mask.sum(axis=(1, 2))
    total = np.where(mask, scores, 0).sum(axis=(1, 2), dtype=float)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


# --- chance: p positives and n negatives for each image, all orders equally likely ---


def _counts(truth: Array) -> tuple[Array, Array]:
    return truth.sum(axis=2).astype(float), (~truth).sum(axis=2).astype(float)


def _chance_all_above(p: Array, n: Array) -> Array:
    return np.exp(gammaln(p + 1) + gammaln(n + 1) - gammaln(p + n + 1))


def _chance_original(truth: Array) -> Array:
    return _image_mean(1 / (1 + _counts(truth)[1]), truth)


def _chance_augmented(truth: Array) -> Array:
    return _image_mean(_chance_all_above(*_counts(truth)), truth)


def _chance_negative_above(truth: Array) -> Array:
    p, n = _counts(truth)
    return _image_mean(n / (p + n), truth)


def _chance_brittle(truth: Array) -> Array:
    return 1 - _chance_augmented(truth) - _chance_negative_above(truth)


def _chance_original_only(truth: Array) -> Array:
    return _chance_original(truth) - _chance_augmented(truth)


def _chance_positive_only(truth: Array) -> Array:
    return _chance_brittle(truth) - _chance_original_only(truth)


def _chance_lines(truth: Array) -> Array:
    p, n = _counts(truth)
    return np.where((p > 0) & (n > 0), _chance_all_above(p, n), 1).prod(axis=1)


def _chance_recall(k: int) -> Callable[[Array], Array]:
    def chance(truth: Array) -> Array:
        p, n = _counts(truth)
        missed = np.ones_like(n)  # the k highest are all negatives
        for place in range(k):
            missed *= np.clip(n - place, 0, None) / np.maximum(p + n - place, 1)
        return (1 - missed).mean(axis=1)

    return chance


def _chance_rank(truth: Array) -> Array:
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


def _chance_matching(truth: Array) -> Array:
    return np.full(len(truth), 1 / math.factorial(truth.shape[1]))


def _chance_none(truth: Array) -> Array:
    return np.zeros(len(truth))


# --- which metrics a shape defines ---


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with what a table must know of it."""

    name: str
    values: Function
    chance: Callable[[Array], Array] | None
    better: Literal["higher", "lower"] | None
    applies: Callable[[Array], bool]
    unit: Literal["share", "rank", "score"] = "share"
    main: bool = False  # shown in the short table
    ties: Callable[[Array, Array], Array] = _ties_of_images  # cases in which a tie is at stake


def _captions_only(truth: Array) -> bool:
    return truth.shape[1] == 1


def _with_positives(truth: Array) -> bool:
    """Some image has two positives and a negative, so that rewording can be measured."""
    return bool((truth.sum(axis=2) > 1).any()) and not truth.all(axis=2).any()


def _caption_choice(truth: Array) -> bool:
    return _captions_only(truth) or _with_positives(truth)


def _several_images(truth: Array) -> bool:
    return truth.shape[1] > 1


def _square(truth: Array) -> bool:
    return truth.shape[1] == truth.shape[2] == 2 and bool(
        (truth.sum(axis=1) == 1).all() and (truth.sum(axis=2) == 1).all()
    )


def _many_negatives(truth: Array) -> bool:
    return _captions_only(truth) and truth.shape[2] >= 5


METRICS: Final[dict[str, Metric]] = {
    metric.name: metric
    for metric in (
        Metric(
            "original_accuracy",
            original_accuracy,
            _chance_original,
            "higher",
            _caption_choice,
            main=True,
        ),
        Metric(
            "augmented_accuracy",
            augmented_accuracy,
            _chance_augmented,
            "higher",
            _with_positives,
            main=True,
        ),
        Metric("brittleness", brittleness, _chance_brittle, "lower", _with_positives, main=True),
        Metric(
            "brittle_original_above",
            brittle_original_above,
            _chance_original_only,
            "lower",
            _with_positives,
        ),
        Metric(
            "brittle_original_below",
            brittle_original_below,
            _chance_positive_only,
            "lower",
            _with_positives,
        ),
        Metric(
            "negative_above_both",
            negative_above_both,
            _chance_negative_above,
            "lower",
            _with_positives,
        ),
        Metric("tied", tied, _chance_none, "lower", _with_positives),
        Metric("image_to_text", image_to_text, _chance_lines, "higher", _several_images, main=True),
        Metric(
            "text_to_image",
            text_to_image,
            lambda truth: _chance_lines(_flip(truth)),
            "higher",
            _several_images,
            main=True,
            ties=_ties_of_captions,
        ),
        Metric(
            "group",
            group,
            _chance_by_counting(group),
            "higher",
            _several_images,
            main=True,
            ties=_ties_of_both,
        ),
        *(
            Metric(name, function, _chance_by_counting(function), "higher", _square, ties=ties)
            for name, function, ties in (
                ("image_to_text_0", image_to_text_0, _ties_of_images),
                ("image_to_text_1", image_to_text_1, _ties_of_images),
                ("text_to_image_0", text_to_image_0, _ties_of_captions),
                ("text_to_image_1", text_to_image_1, _ties_of_captions),
            )
        ),
        Metric(
            "group_matching",
            group_matching,
            _chance_matching,
            "higher",
            _square,
            ties=_ties_of_both,
        ),
        *(
            Metric(f"recall@{k}", recall_at(k), _chance_recall(k), "higher", _many_negatives)
            for k in (1, 3, 5, 10)
        ),
        Metric("mean_rank", mean_rank, _chance_rank, "lower", _many_negatives, unit="rank"),
        Metric("tie_rate", tie_rate, _chance_none, "lower", _caption_choice),
        Metric(
            "mean_score_original", mean_score_original, None, None, _caption_choice, unit="score"
        ),
        Metric(
            "mean_score_positive", mean_score_positive, None, None, _with_positives, unit="score"
        ),
        Metric(
            "mean_score_negative", mean_score_negative, None, None, _caption_choice, unit="score"
        ),
    )
}
