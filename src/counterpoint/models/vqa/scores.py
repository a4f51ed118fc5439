"""Scores from logits, and how far those of several templates are apart."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import torch

from counterpoint._util.errors import ModelError
from counterpoint.models.vqa.prompts import on_device

_BLANKS: Final = "▁Ġ "  # how vocabularies write a blank before a word


def chance_of_yes(logits: torch.Tensor, answers: Mapping[str, list[int]]) -> torch.Tensor:
    """P(yes) / (P(yes) + P(no)) for the next token, from its logits (prompts, vocabulary)."""
    yes, no = (
        logits.index_select(1, on_device(answers[answer], logits.device)).double().logsumexp(1)
        for answer in ("yes", "no")
    )
    return torch.sigmoid(yes - no)


def mean_log_likelihood(logits: torch.Tensor, said: list[int]) -> torch.Tensor:
    """The mean log-probability of tokens, from the logits before each (tokens, vocabulary)."""
    chances = logits.double().log_softmax(-1)
    return chances.gather(1, on_device(said, logits.device)[:, None]).mean()


def yes_and_no(tokenizer: Any) -> dict[str, list[int]]:
    """The tokens that begin the answers Yes and No.

    Those are the tokens that are the word, with or without a blank before it. A vocabulary without
    such a token has the word's first pieces instead, less those that yes and no have in common.
    """
    words = {"yes": ("Yes", "yes"), "no": ("No", "no")}
    vocabulary = tokenizer.get_vocab().items()
    found = {
        answer: {id for token, id in vocabulary if token.lstrip(_BLANKS) in spellings}
        for answer, spellings in words.items()
    }
    if not all(found.values()):
        pieces = {
            answer: {
                tokenizer(blank + word, add_special_tokens=False)["input_ids"][0]
                for word in spellings
                for blank in ("", " ")
            }
            for answer, spellings in words.items()
        }
        common = {tokenizer.unk_token_id} | (pieces["yes"] & pieces["no"])
        found = {answer: ids - common for answer, ids in pieces.items()}
    if not all(found.values()):
        raise ModelError(
            "E-TOKENIZER-UNSUITABLE", "its tokenizer cannot tell yes from no by their first token."
        )
    return {answer: sorted(ids) for answer, ids in found.items()}


@dataclass(slots=True)
class TemplateSpread:
    """How far the scores of several templates are apart, summed over all pairs so far."""

    pairs: int = 0
    deviation: float = 0.0  # the sum over pairs of the standard deviation over templates
    answers: int = 0  # pairs whose answer (yes is likelier than no) depends on the template
    comparisons: int = 0  # of two captions of an image
    orders: int = 0  # comparisons whose winner depends on the template

    def add(self, chances: np.ndarray) -> None:
        """P(yes) of the captions of an image (templates, captions)."""
        self.pairs += chances.shape[1]
        self.deviation += float(chances.std(axis=0, ddof=1).sum())
        self.answers += _depend((chances > 0.5).astype(int))
        first, second = np.triu_indices(chances.shape[1], k=1)
        self.comparisons += len(first)
        self.orders += _depend(np.sign(chances[:, first] - chances[:, second]))

    def note(self, templates: int) -> str:
        return (
            f"asked in {templates} templates, whose P(yes) differ by a standard deviation of "
            f"{self.deviation / self.pairs:.4f} on average over the {self.pairs:,} pairs computed "
            f"here; the answer to {self.answers:,} of them depends on the template, and so does "
            f"which of two captions of an image wins in {self.orders:,} of {self.comparisons:,}."
        )


def _depend(verdicts: np.ndarray) -> int:
    """How many columns hold more than one value."""
    return int((verdicts != verdicts[:1]).any(axis=0).sum())
