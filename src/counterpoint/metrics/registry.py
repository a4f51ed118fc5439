"""The metrics by name: direction, chance level, and the cases that define them.

Chance levels are in `chances`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from counterpoint.cases import Block, is_classification, is_gallery
from counterpoint.metrics import chances, definitions, pooled, rankings
from counterpoint.metrics.definitions import Array, Function, Tie, flip
from counterpoint.metrics.pooled import PairPool, Weighted
from counterpoint.metrics.rankings import Standings

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
    tied: Callable[[Array, Array], Array] = definitions.any_ties  # of an outcome: the cases
    questions: bool = False  # for cases whose captions answer questions

    def defined(self, block: Block) -> Array:
        """Which cases of a block define it."""
        fits = self.texts == block.texts and self.questions == (block.questions > 0)
        return self.applies(block.truth) & fits

    def ties(self, scores: Array, truth: Array) -> Array:
        """The cases whose value depends on a tie: another tie policy gives another value."""
        if self.partition:
            return self.tied(scores, truth)
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

    def defined(self, block: Block) -> Array:
        """Which cases of a block define it. Texts can be classified as images are."""
        fits = (self.texts or not block.texts) and (block.listed or not self.listed)
        return self.applies(block.truth) & fits

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

    def defined(self, block: Block) -> Array:
        """Which cases of a block define it, if they have the grades that it may need."""
        return self.applies(block.truth) & (self.texts == block.texts)


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


def _reworded(truth: Array) -> Array:
    """Some image has two positives and a negative."""
    return np.asarray(definitions.several_positives(truth).any(axis=1) & _few_images(truth))


def _rerendered(truth: Array) -> Array:
    """Some caption has two true images and a false one."""
    return np.asarray(definitions.several_positives(flip(truth)).any(axis=1) & _few_images(truth))


def _rendered_and_reworded(truth: Array) -> Array:
    return _rerendered(truth) & _reworded(truth)


def _with_positives(truth: Array) -> Array:
    """Rewording can be measured. Beside re-renderings, the group scores measure it."""
    return _reworded(truth) & ~_rerendered(truth)


def _caption_choice(truth: Array) -> Array:
    return _captions_only(truth) | _with_positives(truth)


def _several_images(truth: Array) -> Array:
    return _few_images(truth) & (truth.shape[1] > 1)


def _choosing_images(truth: Array) -> Array:
    """Several images, one of which at least has a true and a false caption to choose from."""
    p, n = chances.counts(truth)
    return np.asarray(_several_images(truth) & ((p > 0) & (n > 0)).any(axis=1))


def _one_rendering(truth: Array) -> Array:
    return _choosing_images(truth) & ~_rendered_and_reworded(truth)


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


def _of(
    values: Function,
    chance: Callable[[Array], Array] | None,
    better: Literal["higher", "lower"] | None,
    applies: Callable[[Array], Array],
    **more: Any,
) -> Metric:
    """The metric of a function, under its name."""
    return Metric(values.__name__, values, chance, better, applies, **more)


_ALL: Final[tuple[AnyMetric, ...]] = (
    _of(definitions.original_accuracy, chances.original, "higher", _caption_choice, main=True),
    _of(definitions.augmented_accuracy, chances.augmented, "higher", _with_positives, main=True),
    *(
        _of(values, chance, "lower", _with_positives, main=main, partition=True)
        for values, chance, main in (
            (definitions.brittleness, chances.brittle, True),
            (definitions.brittle_original_above, chances.brittle_original_above, False),
            (definitions.brittle_original_below, chances.brittle_original_below, False),
            (definitions.negative_above_both, chances.negative_above, False),
            (definitions.tied, chances.zero, False),
        )
    ),
    *(
        _of(values, chance, "higher", applies, main=True)
        for values, chance, applies in (
            (definitions.image_to_text, chances.every_image, _choosing_images),
            (definitions.text_to_image, chances.every_caption, _several_images),
            (definitions.group, chances.by_counting(definitions.group), _one_rendering),
            (
                definitions.original_group,
                chances.by_orders(definitions.firsts),
                _rendered_and_reworded,
            ),
            (definitions.augmented_group, chances.by_orders(np.ones_like), _rendered_and_reworded),
        )
    ),
    _of(
        definitions.image_brittleness,
        chances.image_brittle,
        "lower",
        _rerendered,
        main=True,
        partition=True,
        tied=definitions.image_ties,
    ),
    *(
        Metric(name, function, chances.by_counting(function), "higher", _square)
        for name, function in (
            ("image_to_text_0", definitions.image_to_text_0),
            ("image_to_text_1", definitions.image_to_text_1),
            ("text_to_image_0", definitions.text_to_image_0),
            ("text_to_image_1", definitions.text_to_image_1),
        )
    ),
    _of(definitions.group_matching, chances.matching, "higher", _matched),
    *(
        _of(values, chance, "higher", _few_images, main=True, questions=True)
        for values, chance in (
            (definitions.answer_accuracy, chances.answer),
            (definitions.question_accuracy, chances.question),
            (definitions.image_accuracy, chances.image),
            (definitions.all_answers, chances.all_answers),
        )
    ),
    *(
        Metric(
            f"recall@{k}",
            rankings.recall_at(k),
            rankings.chance_of_recall(k),
            "higher",
            _captions_only,
            asked_by=_several_negatives,
        )
        for k in (1, 3, 5, 10)
    ),
    *(
        Metric(
            name,
            rankings.mean_rank,
            chance,
            "lower",
            _captions_only,
            unit="rank",
            median=chance is None,
            asked_by=_several_negatives,
        )
        for name, chance in (("mean_rank", rankings.chance_of_mean_rank), ("median_rank", None))
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
    _of(
        definitions.text_only_accuracy,
        chances.one_third,
        "higher",
        _two_texts,
        main=True,
        texts=True,
    ),
    _of(definitions.tie_rate, chances.zero, "lower", _caption_choice, partition=True),
    *(
        _of(values, None, None, applies, unit="score")
        for values, applies in (
            (definitions.mean_score_original, _caption_choice),
            (definitions.mean_score_positive, _with_positives),
            (definitions.mean_score_negative, _caption_choice),
        )
    ),
)
METRICS: Final = {metric.name: metric for metric in _ALL}
