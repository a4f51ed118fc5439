"""Forced choice: models that say which of two captions fits an image, without a score.

A caption's score is its mean share against the other captions of its case. It depends on these
captions, so it is not stored. The choice between two captions of an image is stored: it depends on
nothing else and is asked once for all benchmarks.

Equal shares are decided by a pseudo-random number: a tie would be a wrong answer, and a model that
always says "A" should be as good as a guess. The number depends on the image and the caption alone
and is smaller than any difference of shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Final, NamedTuple, Protocol

import numpy as np

from counterpoint._util.errors import ModelError
from counterpoint._util.store import digest
from counterpoint.cases import Cases
from counterpoint.images import Picture
from counterpoint.scoring.engine import stored
from counterpoint.scoring.items import Item, fill_items, unique_rows
from counterpoint.scoring.kinds import Work
from counterpoint.scoring.plan import Plan, Scored, kept_pairs, make_plan

COIN: Final = 1e-3  # shares of 32 captions are at least 1 / 62 apart
MOST: Final = 32  # captions of an image: every two of them are compared, 496 choices for 32


class ChoiceScorer(Protocol):
    """Says which of two captions fits an image better."""

    fingerprint: str

    def score_choices(
        self, pictures: Sequence[Picture], firsts: Sequence[str], seconds: Sequence[str]
    ) -> np.ndarray:
        """The first caption's share (n,): 1 if it fits better, 0 if the other does, else 0.5.

        The two are never the same and stand in alphabetical order. Choices of one image stand next
        to each other. May raise RefusedInputsError.
        """


class _ImageLine(NamedTuple):
    """An image with captions of its case that are compared, and the places of their scores."""

    image: int
    captions: np.ndarray
    places: np.ndarray


class _CaptionChoice(NamedTuple):
    """Two captions by their place in the line, and the texts that are compared for them."""

    left: int
    right: int
    item: Item


def score_by_choices(
    model: ChoiceScorer, benchmarks: Mapping[str, Cases], work: Work
) -> dict[str, Scored]:
    """As `engine.score`. The scores of a caption over images are shares among the same captions."""
    for name, cases in benchmarks.items():
        _refuse(name, cases.caption_counts)
    plan = make_plan(benchmarks)
    starts = {name: cases.choice_starts() for name, cases in benchmarks.items()}
    scored = {
        name: Scored(np.full(cases.pair_offsets[-1], np.nan, dtype=np.float32))
        for name, cases in benchmarks.items()
    }

    def wanted() -> np.ndarray:
        lines = (line for _, line in _lines(plan, scored, starts))
        items = ([choice.item for choice in _asked(plan, line)] for line in lines)
        return unique_rows((np.array(found, dtype=np.int64) for found in items), 3)

    keys_of = fill_items(model, "score_choices", "choice", wanted, plan, scored, work)
    for name, line in _lines(plan, scored, starts):
        items = [choice.item for choice in _asked(plan, line)]
        asked = keys_of(np.array(items, dtype=np.int64).reshape(-1, 3))
        found = iter(stored(asked, work.store)[:, 0].tolist() if asked else ())
        shares = _mean_shares(
            len(line.captions),
            [(c, next(found) if _differ(c) else 0.5) for c in _choices(plan, line)],
        )
        scored[name].scores[line.places] = shares + COIN * _coins(plan, line)
    return scored


def _coins(plan: Plan, line: _ImageLine) -> np.ndarray:
    """A number between -1/2 and 1/2 for each caption of an image."""
    image = repr(plan.pictures[line.image].ref)
    heads = (digest("coin", image, plan.captions[i])[:4] for i in line.captions.tolist())
    return np.array([int.from_bytes(head, "little") / 2**32 - 0.5 for head in heads])


def _refuse(name: str, captions: np.ndarray) -> None:
    if captions.max() > MOST:
        raise ModelError(
            "E-CHOICE-CAPTIONS",
            f"{name}: a case has {captions.max():,} captions, and a forced choice compares every "
            f"two of at most {MOST}; use a model that gives a score for each caption.",
        )
    if captions.min() < 2:
        raise ModelError(
            "E-CHOICE-CAPTIONS",
            f"{name}: a case has a single caption, and a forced choice needs two; "
            "use a model that gives a score for each caption.",
        )


def _lines(
    plan: Plan, scored: Mapping[str, Scored], starts: Mapping[str, np.ndarray]
) -> Iterator[tuple[str, _ImageLine]]:
    """Every image of every case that is not left out, with its benchmark's name.

    With questions there is a line for each of them: answers to different ones are not compared.
    """
    for name, pairs in kept_pairs(plan, scored):
        begins = np.isin(pairs.places, starts[name])
        columns = (np.split(column, np.flatnonzero(begins)[1:]) for column in pairs)
        for images, captions, places in zip(*columns, strict=True):
            yield name, _ImageLine(int(images[0]), captions, places)


def _choices(plan: Plan, line: _ImageLine) -> list[_CaptionChoice]:
    """Every two texts of different captions, in an order that depends on the texts alone."""
    texts, begins = plan.prompts_of(line.captions)
    owners = np.searchsorted(begins, np.arange(len(texts)), side="right") - 1
    both = sorted(
        zip(texts.tolist(), owners.tolist(), strict=True), key=lambda found: plan.texts[found[0]]
    )
    return [
        _CaptionChoice(i, j, (line.image, s, t))
        for (s, i), (t, j) in combinations(both, 2)
        if i != j
    ]


def _differ(choice: _CaptionChoice) -> bool:
    return choice.item[1] != choice.item[2]


def _asked(plan: Plan, line: _ImageLine) -> list[_CaptionChoice]:
    """The choices between different texts: a repeated caption ties with itself."""
    return [choice for choice in _choices(plan, line) if _differ(choice)]


def _mean_shares(captions: int, choices: Sequence[tuple[_CaptionChoice, float]]) -> np.ndarray:
    total, count = np.zeros(captions), np.zeros(captions)
    for choice, share in choices:
        total[[choice.left, choice.right]] += share, 1 - share
        count[[choice.left, choice.right]] += 1
    return total / count
