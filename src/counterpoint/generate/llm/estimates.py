"""What asking about captions takes, before anything is asked.

Requests: a caption that is asked about takes one a step, and fewer if a step ends it: an upper
bound. Tokens: four characters each, which is about right for English, and four a message for its
frame. The answer to a step is taken to be as long as its shots' answers are on average; where it
repeats the caption, as much longer or shorter as the caption is.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean
from typing import Final, NamedTuple

from counterpoint.generate.llm.prompts import messages, why_not
from counterpoint.generate.llm.templates import Step, Template
from counterpoint.models.api_settings import read_price

_CHARACTERS: Final = 4  # a token
_FRAME: Final = 4  # tokens around a message


class Estimate(NamedTuple):
    """`cost` is in whatever the price is in; None without a price."""

    requests: int
    tokens_in: int
    tokens_out: int
    cost: float | None


def estimate(template: Template, captions: Sequence[str]) -> Estimate:
    asked = [caption for caption in captions if why_not(template, caption) is None]
    tokens_in, tokens_out = 0.0, 0.0
    characters = sum(map(len, asked))
    for step in template.steps:
        fixed, repeats = _prompt_characters(step)
        tokens_in += _FRAME * len(asked) * (2 * len(step.shots) + 1)
        tokens_in += (fixed * len(asked) + characters) / _CHARACTERS
        tokens_out += (_extra(step) * len(asked) + repeats * characters) / _CHARACTERS
    price = read_price("llm")
    cost = None
    if price is not None:
        cost = (tokens_in * price[0] + tokens_out * price[1]) / 1e6
    return Estimate(len(asked) * len(template.steps), round(tokens_in), round(tokens_out), cost)


def _prompt_characters(step: Step) -> tuple[int, bool]:
    """Without the caption; and whether the answer repeats it."""
    example = max((shot.chosen for shot in step.shots), key=len, default="")
    empty = messages(step, {"caption": "", "chosen": example, "new": example})
    return sum(len(m["content"]) for m in empty), step.answer in ("sentence", "swap")


def _extra(step: Step) -> float:
    """Characters of an answer beside the caption."""
    shots = [shot for shot in step.shots if not shot.answer.endswith("No")]
    if step.answer in ("sentence", "swap"):
        return fmean([len(shot.answer) - len(shot.caption) for shot in shots] or [0])
    return fmean([len(shot.answer) for shot in shots] or [0])
