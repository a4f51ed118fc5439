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

**Chance**, the expected value for random scores, is in `chances`; recall and ranks are in
`rankings`; which metrics a shape of case defines, in `registry`.

Papers: Kamath et al. 2024 (Hard Positives), Miranda et al. 2024 (BiVLC), Thrush et al. 2022
(Winoground), Zhu et al. 2025 (group matching), Li et al. 2024 (NaturalBench).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import permutations
from typing import Any, Literal

import numpy as np

Tie = Literal["wrong", "right", "half"]
Array = np.ndarray
Function = Callable[[Array, Array, Tie], Array]
_Equal = Literal["apart", "above", "below"]


@dataclass(frozen=True, slots=True)
class _Sides:
    """For each image of each case (n, k): how its positives stand to its best negative.

    `defined` is False where an image has no positive or no negative.
    """

    original_above: Array
    all_above: Array
    any_above: Array
    any_equal: Array
    defined: Array


def _sides(scores: Array, truth: Array, equal: _Equal) -> _Sides:
    """Compare; `equal` says how equal scores count: separately, as above, or as below."""
    best_negative = np.where(truth, -np.inf, scores).max(axis=2, keepdims=True)
    # Here a tie is decided: `equal` comes from the tie policy of the protocol.
    above = (scores >= best_negative if equal == "above" else scores > best_negative) & truth
    same = (scores == best_negative) & truth & (equal == "apart")
    first = truth.argmax(axis=2)[..., None]
    return _Sides(
        original_above=np.take_along_axis(above, first, 2)[..., 0],
        all_above=(above | ~truth).all(axis=2),
        any_above=above.any(axis=2),
        any_equal=same.any(axis=2),
        defined=_has_both(truth),
    )


def _has_both(truth: Array) -> Array:
    """Which images have both a positive and a negative (n, k)."""
    return np.asarray(truth.any(axis=2) & ~truth.all(axis=2))


def with_ties(tie: Tie, outcome: Callable[[_Equal], Array]) -> Array:
    """An outcome under a tie policy."""
    if tie == "wrong":
        return outcome("apart").astype(float)
    if tie == "right":
        return outcome("above").astype(float)
    return (outcome("above").astype(float) + outcome("below")) / 2


def _by_image(scores: Array, truth: Array, tie: Tie, outcome: Callable[[_Sides], Array]) -> Array:
    """The mean of an outcome over a case's images, with ties resolved by the policy."""
    values = with_ties(tie, lambda equal: outcome(_sides(scores, truth, equal)))
    return image_mean(values, truth)


def image_mean(values: Array, truth: Array) -> Array:
    """The mean over the images that have both a positive and a negative; NaN if none has."""
    return mean_of(values, _has_both(truth))


def mean_of(values: Array, counted: Array) -> Array:
    """The mean over the lines (n, k) of each case that count; NaN if none does."""
    count = counted.sum(axis=1)
    total = np.where(counted, values, 0).sum(axis=1)
    return np.where(count > 0, total / np.maximum(count, 1), np.nan)


def several_positives(truth: Array) -> Array:
    """Which images have two positives at least, and a negative (n, k)."""
    return np.asarray((truth.sum(axis=2) > 1) & ~truth.all(axis=2))


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
    return any_ties(scores, truth)


def any_ties(scores: Array, truth: Array) -> Array:
    sides = _sides(scores, truth, "apart")
    return (sides.any_equal & sides.defined).any(axis=1).astype(float)


def flip(values: Array) -> Array:
    return np.swapaxes(values, 1, 2)


def _all_lines(scores: Array, truth: Array, tie: Tie) -> Array:
    """For every image, all positives above all negatives: 1, 0, or (ties, "half") 1/2."""

    def right(equal: _Equal) -> Array:
        sides = _sides(scores, truth, equal)
        return (sides.all_above | ~sides.defined).all(axis=1)

    return with_ties(tie, right)


def image_to_text(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Each image prefers its own captions (Winoground's text score). Chance 1/4 for 2 x 2."""
    return _all_lines(scores, truth, tie)


def text_only_accuracy(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Two texts of one meaning are closer to each other than either is to the negative.

    SugarCrepe++'s TOT. The lines are the two texts, the columns are they again and the negative; a
    text's similarity to itself decides nothing. Chance 1/3: one of three similarities is highest.
    """
    # Of each text: its similarity to the other one, and to the negative.
    pairs = np.stack([scores[:, (0, 1), (1, 0)], scores[:, (0, 1), 2]], axis=2)
    return _all_lines(pairs, np.stack([truth[:, (0, 1), (1, 0)], truth[:, (0, 1), 2]], axis=2), tie)


def text_to_image(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Each caption prefers its own images (Winoground's image score). Chance 1/4 for 2 x 2."""
    return _all_lines(flip(scores), flip(truth), tie)


def group(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Both `image_to_text` and `text_to_image`. Chance 1/6 for 2 x 2."""
    return np.minimum(image_to_text(scores, truth, tie), text_to_image(scores, truth, tie))


def image_brittleness(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """Some but not all renderings of a caption are above its best false image, none equal.

    `brittleness` with images and captions exchanged: the text is fixed, and the image was changed
    without a change of what the caption says. The mean over the captions that have two true images
    or more, and a false one. Chance 1/3 for 2 + 1.
    """
    lines, own = flip(scores), flip(truth)
    values = with_ties(tie, lambda equal: _brittle(_sides(lines, own, equal)))
    return mean_of(values, several_positives(own))


def image_ties(scores: Array, truth: Array) -> Array:
    """Whether, for a caption with several true images, one of them equals the best false image."""
    own = flip(truth)
    equal = _sides(flip(scores), own, "apart").any_equal
    return (equal & several_positives(own)).any(axis=1).astype(float)


def original_group(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """`group` of the first images and captions alone: without re-renderings and rewordings.

    Chance 1/6 where they are 2 x 2.
    """
    kept = firsts(truth)
    return group(np.where(kept, scores, -np.inf), truth & kept, tie)


def augmented_group(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """`group` with every rendering and every wording: all of their 2 x 2 cases are right.

    Each true cell is above all false cells of its image and of its caption. Chance 5/378 for two
    renderings, two wordings and a negative with its own image.
    """
    return group(scores, truth, tie)


def firsts(truth: Array) -> Array:
    """The cells (n, k, m) of images and captions that are the first of their meaning.

    An image that is not the first true one of any caption is a re-rendering; a caption that is not
    the first true one of any image is a rewording.
    """
    images = flip(_first_true(flip(truth))).any(axis=2, keepdims=True)
    captions = _first_true(truth).any(axis=1, keepdims=True)
    return np.asarray(images & captions)


def _one_line(index: int, *, of_captions: bool) -> Function:
    """One of the four single comparisons of a 2 x 2 case."""

    def compare(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
        if of_captions:
            scores, truth = flip(scores), flip(truth)
        return _all_lines(scores[:, [index]], truth[:, [index]], tie)

    own, other = ("caption", "image") if of_captions else ("image", "caption")
    compare.__doc__ = (
        f"A single comparison of BiVLC: {own} {index} prefers its own {other}. Chance 1/2."
    )
    return compare


image_to_text_0 = _one_line(0, of_captions=False)
image_to_text_1 = _one_line(1, of_captions=False)
text_to_image_0 = _one_line(0, of_captions=True)
text_to_image_1 = _one_line(1, of_captions=True)


def group_matching(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The true one-to-one matching of images and captions has the highest sum of scores.

    GroupMatch of Test-Time Matching (Zhu et al. 2025): sum_i s(i, t(i)) > sum_i s(i, m(i)) for
    every other one-to-one m, with t(i) the caption of image i. For square cases of two to four
    images whose truth is a permutation. Unlike the others it is not a matter of order: the sizes of
    the scores count. A case that is right by `group` is right here as well, unless sums are rounded
    to the same number. Chance 1 / k! (1/2 for 2 x 2). With equal sums the case is tied.
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
    """Here a tie is decided where sums or best answers are compared."""
    credit = {"wrong": 0.0, "right": 1.0, "half": 0.5}[tie]
    return np.where(own > other, 1.0, np.where(own == other, credit, 0.0))


# --- Cases whose captions are answers to questions about their images (NaturalBench) ------------
#
# A case has k images and q questions; its m captions are m / q answers to the first question, then
# as many to the second, and so on. Each image has one true answer to each question. A question is
# answered *right* for an image if the true answer has a higher score than the other answers to the
# same question; answers to different questions are not compared. An equal answer makes it wrong,
# right, or half of the two. Li et al. 2024 call the four Acc, Q-Acc, I-Acc and G-Acc.


def _over_answers(scores: Array, truth: Array, tie: Tie, value: Callable[[Array], Any]) -> Array:
    """A value of which questions are answered right: (n, images, questions) -> n."""
    n, images, captions = truth.shape
    questions = max(1, int(truth[:1, 0].sum()))  # an image has one true answer to each
    shape = (n, images, questions, captions // questions)
    values, true = scores.reshape(shape), truth.reshape(shape)
    own = np.where(true, values, -np.inf).max(axis=3)
    other = np.where(true, -np.inf, values).max(axis=3)
    # Here a tie is decided, by the policy of the protocol.
    return with_ties(
        tie, lambda e: np.asarray(value(own >= other if e == "above" else own > other))
    )


def answer_accuracy(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The share of right answers (Acc). Chance 1/2 with two answers to a question."""
    return _over_answers(scores, truth, tie, lambda right: right.mean(axis=(1, 2)))


def question_accuracy(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The share of questions that are answered right for all images (Q-Acc).

    Chance 1/4 with two images and two answers.
    """
    return _over_answers(scores, truth, tie, lambda right: right.all(axis=1).mean(axis=1))


def image_accuracy(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """The share of images for which all questions are answered right (I-Acc).

    Chance 1/4 with two questions of two answers.
    """
    return _over_answers(scores, truth, tie, lambda right: right.all(axis=2).mean(axis=1))


def all_answers(scores: Array, truth: Array, tie: Tie = "wrong") -> Array:
    """All questions are answered right for all images (G-Acc).

    Chance 1/16 with two images and two questions of two answers.
    """
    return _over_answers(scores, truth, tie, lambda right: right.all(axis=(1, 2)))


# --- Mean scores --------------------------------------------------------------------------------


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
