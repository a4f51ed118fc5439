"""What a model did with a case: right, brittle, wrong or tied. One rule for pages and lists.

Of one image:

- right: every positive is above every negative;
- tied: some positive equals the best negative;
- brittle: some positives are above the best negative, others below;
- wrong: the best negative is above all positives.

Of several images, or texts in their place:

- right: every image prefers its captions and every caption its images (texts: as
  `text_only_accuracy` has it; questions: as `all_answers` has it);
- tied: it would be right if equal scores counted as above;
- brittle: some image with two positives or more is brittle, as above (never with questions);
- wrong: anything else.

Equal scores are never right here, whatever the protocol does with them: they are an outcome of
their own. A gallery (retrieval, classification) has many queries and no outcome.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from counterpoint.cases import Block, is_gallery
from counterpoint.metrics import (
    all_answers,
    augmented_accuracy,
    brittleness,
    group,
    image_to_text,
    text_only_accuracy,
    tied,
)
from counterpoint.runs.part import Part

OUTCOMES: Final = ("right", "brittle", "wrong", "tied")
NO_OUTCOME: Final = "gallery"


def case_outcomes(part: Part) -> np.ndarray:
    """One of `OUTCOMES` for each case, or `NO_OUTCOME`."""
    found = np.full(len(part.cases), NO_OUTCOME)
    for block in part.cases.blocks():
        if not is_gallery(*block.truth.shape[1:]):
            found[block.rows] = _of_block(block, part.cases.scores_of(block, part.scores))
    return found


def outcome_of_one(scores: np.ndarray, truth: np.ndarray) -> str:
    """The outcome of one image and its captions, flat; empty where no caption is false."""
    if truth.all():
        return ""
    block = Block(np.zeros(1, dtype=np.int64), truth[None, None])
    return str(_of_block(block, scores[None, None])[0])


def _of_block(block: Block, scores: np.ndarray) -> np.ndarray:
    truth = block.truth
    several = (truth.sum(axis=2) > 1).any(axis=1)
    brittle = several & (np.nan_to_num(brittleness(scores, truth)) > 0)
    if truth.shape[1] == 1 and not block.texts and not block.questions:
        right, equal = augmented_accuracy(scores, truth), tied(scores, truth)
    else:
        metric = group
        if block.texts:
            metric = text_only_accuracy if truth.shape[1:] == (2, 3) else image_to_text
        elif block.questions:
            metric = all_answers
        brittle &= metric is group
        right, equal = metric(scores, truth, "wrong"), metric(scores, truth, "right")
    return np.select([right > 0, equal > 0, brittle], ["right", "tied", "brittle"], "wrong")
