"""The metrics by name, with what a table must know of them: direction, chance, where they apply."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from counterpoint import chance, metrics, rankings
from counterpoint.galleries import is_classification, is_gallery
from counterpoint.rankings import Standings
from counterpoint.metrics import Array, Function, Tie


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric with what a table must know of it."""

    name: str
    values: Function
    chance: Callable[[Array], Array] | None
    better: Literal["higher", "lower"] | None
    applies: Callable[[Array], Array]  # which cases of a block define it
    unit: Literal["share", "rank", "score"] = "share"
    main: bool = False  # shown in the short table
    partition: bool = False  # one of the outcomes that sum to 1, where `tied` is one of its own
    texts: bool = False  # of cases that compare captions with texts

    def ties(self, scores: Array, truth: Array) -> Array:
        """The cases in which a tie is at stake: with another policy they would be another value."""
        if self.partition:
            return metrics.any_ties(scores, truth)
        strict, lenient = (self.values(scores, truth, tie) for tie in ("wrong", "right"))
        return ((strict != lenient) & ~np.isnan(strict)).astype(float)


@dataclass(frozen=True, slots=True)
class QueryMetric:
    """Recall@k of a gallery's images (or captions): a value for each of them."""

    name: str
    side: Literal["images", "captions"]
    k: int
    applies: Callable[[Array], Array]  # which cases of a block define it
    main: bool = False
    better: Literal["higher", "lower"] | None = "higher"
    unit: Literal["share", "rank", "score"] = "share"

    def values(self, found: Standings, tie: Tie) -> Array:
        return rankings.recall(found, self.k, tie)

    def chance(self, found: Standings) -> Array:
        return rankings.recall_by_chance(found, self.k)

    def ties(self, found: Standings) -> Array:
        strict, lenient = self.values(found, "wrong"), self.values(found, "right")
        return ((strict != lenient) & found.defined).astype(float)


# Which cases of a block define a metric: truth (n, k, m) -> n marks.


def _all(truth: Array, marked: bool) -> Array:
    return np.full(len(truth), marked)


def _captions_only(truth: Array) -> Array:
    return _all(truth, truth.shape[1] == 1)


def _few_images(truth: Array) -> Array:
    return _all(truth, not is_gallery(*truth.shape[1:]))


def _retrieval(truth: Array) -> Array:
    return ~_few_images(truth) & ~_classes(truth)


def _classification(truth: Array) -> Array:
    return ~_few_images(truth) & _classes(truth)


def _classes(truth: Array) -> Array:
    return np.array([is_classification(one) for one in truth], dtype=bool)


def _with_positives(truth: Array) -> Array:
    """Some image has two positives and a negative, so that rewording can be measured."""
    reworded = ((truth.sum(axis=2) > 1) & ~truth.all(axis=2)).any(axis=1)
    return np.asarray(reworded & _few_images(truth))


def _caption_choice(truth: Array) -> Array:
    return _captions_only(truth) | _with_positives(truth)


def _several_images(truth: Array) -> Array:
    return _few_images(truth) & (truth.shape[1] > 1)


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


def _many_negatives(truth: Array) -> Array:
    return _captions_only(truth) & (truth.shape[2] >= 5)


_ALL: Final[tuple[Metric | QueryMetric, ...]] = (
    Metric(
        "original_accuracy",
        metrics.original_accuracy,
        chance.original,
        "higher",
        _caption_choice,
        main=True,
    ),
    Metric(
        "augmented_accuracy",
        metrics.augmented_accuracy,
        chance.augmented,
        "higher",
        _with_positives,
        main=True,
    ),
    Metric(
        "brittleness",
        metrics.brittleness,
        chance.brittle,
        "lower",
        _with_positives,
        main=True,
        partition=True,
    ),
    Metric(
        "brittle_original_above",
        metrics.brittle_original_above,
        chance.brittle_original_above,
        "lower",
        _with_positives,
        partition=True,
    ),
    Metric(
        "brittle_original_below",
        metrics.brittle_original_below,
        chance.brittle_original_below,
        "lower",
        _with_positives,
        partition=True,
    ),
    Metric(
        "negative_above_both",
        metrics.negative_above_both,
        chance.negative_above,
        "lower",
        _with_positives,
        partition=True,
    ),
    Metric("tied", metrics.tied, chance.never, "lower", _with_positives, partition=True),
    Metric(
        "image_to_text",
        metrics.image_to_text,
        chance.every_image,
        "higher",
        _several_images,
        main=True,
    ),
    Metric(
        "text_to_image",
        metrics.text_to_image,
        chance.every_caption,
        "higher",
        _several_images,
        main=True,
    ),
    Metric(
        "group",
        metrics.group,
        chance.by_counting(metrics.group),
        "higher",
        _several_images,
        main=True,
    ),
    *(
        Metric(name, function, chance.by_counting(function), "higher", _square)
        for name, function in (
            ("image_to_text_0", metrics.image_to_text_0),
            ("image_to_text_1", metrics.image_to_text_1),
            ("text_to_image_0", metrics.text_to_image_0),
            ("text_to_image_1", metrics.text_to_image_1),
        )
    ),
    Metric(
        "group_matching",
        metrics.group_matching,
        chance.matching,
        "higher",
        _square,
    ),
    *(
        Metric(f"recall@{k}", metrics.recall_at(k), chance.recall(k), "higher", _many_negatives)
        for k in (1, 3, 5, 10)
    ),
    Metric("mean_rank", metrics.mean_rank, chance.mean_rank, "lower", _many_negatives, unit="rank"),
    *(
        QueryMetric(f"image_to_text_recall@{k}", "images", k, _retrieval, main=k < 10)
        for k in (1, 5, 10)
    ),
    *(
        QueryMetric(f"text_to_image_recall@{k}", "captions", k, _retrieval, main=k < 10)
        for k in (1, 5, 10)
    ),
    *(QueryMetric(f"accuracy@{k}", "images", k, _classification, main=True) for k in (1, 5)),
    Metric(
        "text_only_accuracy",
        metrics.text_only_accuracy,
        chance.third,
        "higher",
        _two_texts,
        main=True,
        texts=True,
    ),
    Metric("tie_rate", metrics.tie_rate, chance.never, "lower", _caption_choice, partition=True),
    Metric(
        "mean_score_original",
        metrics.mean_score_original,
        None,
        None,
        _caption_choice,
        unit="score",
    ),
    Metric(
        "mean_score_positive",
        metrics.mean_score_positive,
        None,
        None,
        _with_positives,
        unit="score",
    ),
    Metric(
        "mean_score_negative",
        metrics.mean_score_negative,
        None,
        None,
        _caption_choice,
        unit="score",
    ),
)
METRICS: Final = {metric.name: metric for metric in _ALL}
