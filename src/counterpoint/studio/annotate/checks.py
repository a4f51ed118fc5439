"""Attention checks: questions whose answer is beyond doubt, made from the campaign's own.

The true answer stands beside something from elsewhere. Elsewhere is another source image, and of
some drawn at random the one whose words have least in common with the caption.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

import numpy as np

from counterpoint.errors import DataError
from counterpoint.studio.annotate.kinds import BEST, RANK, Ask
from counterpoint.studio.annotate.questions import Question, Shown, Subject, chance

_DRAWN: Final = 40


def block_length(rate: float) -> int:
    """Of so many items in a row, one is a check."""
    return max(2, round(1 / rate))


def make_checks(
    asked: Sequence[tuple[Subject, Ask, Question]], rate: float, seed: int
) -> list[tuple[Ask, Question]]:
    """As many checks as an annotator who judges everything will meet."""
    if rate == 0:
        return []
    clusters = {subject.case.cluster for subject, _, _ in asked}
    if len(clusters) < 2:
        raise DataError("attention checks need cases of at least two images; use --checks 0.")
    rng = chance(seed, "checks")
    count = -(-len(asked) // (block_length(rate) - 1))
    chosen = rng.permutation(len(asked))[:count].tolist()
    return [(asked[number][1], _check(asked, number, rng)) for number in chosen]


def _check(
    asked: Sequence[tuple[Subject, Ask, Question]], number: int, rng: np.random.Generator
) -> Question:
    subject, ask, question = asked[number]
    if ask.options == "captions":
        right = question.captions[question.right[0] if question.right else 0]
        false = [s.case.captions[0] for s in _elsewhere(asked, subject, right, rng)]
        wanted = question.options(ask) - 1 if ask is RANK else 1
        return Question(question.images, (right, *false[:wanted]), (0,))
    [caption] = question.captions
    false_images: list[Shown] = [s.shown(0) for s in _elsewhere(asked, subject, caption, rng)]
    if ask is BEST:
        return Question(tuple(false_images[: len(question.images)]), (caption,), ())
    images = (question.images[question.right[0]], false_images[0])
    return Question(images, (caption,), (0,))


def _elsewhere(
    asked: Sequence[tuple[Subject, Ask, Question]],
    subject: Subject,
    caption: str,
    rng: np.random.Generator,
) -> list[Subject]:
    """Other subjects, those that have least in common with a caption first, each once."""
    found: dict[str, Subject] = {}
    drawn = rng.integers(0, len(asked), _DRAWN).tolist()
    for number in [*drawn, *range(min(len(asked), _DRAWN))]:  # in a small campaign, all of them
        other = asked[number][0]
        same = other.case.captions[0] == caption or other.case.cluster == subject.case.cluster
        if not same:
            found.setdefault(other.case.captions[0], other)
    if not found:  # the draw was unlucky: look for one
        found = {
            other.case.captions[0]: other
            for other, _, _ in asked
            if other.case.cluster != subject.case.cluster
        }
    words = _words(caption)
    return sorted(found.values(), key=lambda other: len(words & _words(other.case.captions[0])))


def _words(caption: str) -> set[str]:
    return set(re.findall(r"\w+", caption.lower()))
