"""Scores from the logits of a generative model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from counterpoint.errors import ModelError

_BLANKS: Final = "▁Ġ "  # how vocabularies write a blank before a word


def chance_of_yes(logits: torch.Tensor, answers: Mapping[str, list[int]]) -> float:
    """P(yes) / (P(yes) + P(no)) for the next token, from its logits (vocabulary)."""
    yes, no = (logits.double()[answers[answer]].logsumexp(0) for answer in ("yes", "no"))
    return float(torch.sigmoid(yes - no))


def mean_log_likelihood(logits: torch.Tensor, said: list[int]) -> float:
    """The mean log-probability of tokens, from the logits before each (tokens, vocabulary)."""
    chances = logits.double().log_softmax(-1)
    places = torch.tensor(said, device=logits.device)
    return float(chances.gather(1, places[:, None]).mean())


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
        raise ModelError("its tokenizer cannot tell yes from no by their first token.")
    return {answer: sorted(ids) for answer, ids in found.items()}
