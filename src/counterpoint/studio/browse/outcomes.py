"""What became of each case: one word a case, whatever its shape.

Of one image:

- right: every positive is above every negative;
- tied: some positive equals the best negative;
- brittle: some positives are above the best negative, others below;
- wrong: the best negative is above all positives.

Of several images, or texts in their place:

- right: every image prefers its captions and every caption its images (texts: as
  `text_only_accuracy` has it);
- tied: it would be right if equal scores counted as above;
- brittle: some image with two positives or more is brittle, as above;
- wrong: anything else.

Equal scores are never right here, whatever the protocol does with them: they are an outcome of
their own. A gallery (retrieval, classification) has many queries and no outcome.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from counterpoint import metrics
from counterpoint.cases import Block
from counterpoint.galleries import is_gallery
from counterpoint.runs import Part

OUTCOMES: Final = ("right", "brittle", "wrong", "tied")
NONE: Final = "gallery"
_CODES: Final = {name: code for code, name in enumerate((*OUTCOMES, NONE))}


def name_of(code: int) -> str:
    return (*OUTCOMES, NONE)[code]


def code_of(outcome: str) -> int:
    return _CODES[outcome]


def outcomes_of(part: Part) -> np.ndarray:
    """The code of every case's outcome (uint8)."""
    found = np.full(len(part.cases), _CODES[NONE], dtype=np.uint8)
    for block in part.cases.blocks():
        if not is_gallery(*block.truth.shape[1:]):
            scores = part.cases.scores_of(block, part.scores)
            found[block.rows] = _block_outcomes(block, scores)
    return found


def _block_outcomes(block: Block, scores: np.ndarray) -> np.ndarray:
    truth = block.truth
    if block.texts:
        right, lenient = (metrics.text_only_accuracy(scores, truth, t) for t in _POLICIES)
        tied = lenient > 0
    elif truth.shape[1] == 1:
        right = metrics.augmented_accuracy(scores, truth)
        tied = metrics.tied(scores, truth) > 0
    else:
        right, lenient = (metrics.group(scores, truth, t) for t in _POLICIES)
        tied = lenient > 0
    several = (truth.sum(axis=2) > 1).any(axis=1)
    brittle = several & (np.nan_to_num(metrics.brittleness(scores, truth)) > 0)
    chosen = [right > 0, tied, brittle & (not block.texts)]
    names = [_CODES[name] for name in ("right", "tied", "brittle")]
    return np.select(chosen, names, _CODES["wrong"]).astype(np.uint8)


_POLICIES: Final[tuple[metrics.Tie, metrics.Tie]] = ("wrong", "right")


def outcome_of_one(scores: np.ndarray, truth: np.ndarray) -> str:
    """The outcome of one image and its captions, flat; empty where no caption is false."""
    if truth.all():
        return ""
    block = Block(np.zeros(1, dtype=np.int64), truth[None, None])
    return name_of(int(_block_outcomes(block, scores[None, None])[0]))
