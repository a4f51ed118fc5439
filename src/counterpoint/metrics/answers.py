"""Metrics of cases whose captions are answers to questions about their images (NaturalBench).

A case has k images and q questions; its m captions are m / q answers to the first question, then as
many to the second, and so on. Each image has one true answer to each question. A question is
answered *right* for an image if the true answer has a higher score than the other answers to the
same question; answers to different questions are not compared.

**Ties** are as in `definitions`: an equal answer makes it wrong, right, or half of the two.

Li et al. 2024 (NaturalBench) call the four Acc, Q-Acc, I-Acc and G-Acc.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from counterpoint.metrics.definitions import Array, Tie, with_ties


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
