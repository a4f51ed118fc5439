"""The questions to a chat model, and what its answers mean.

Captions are data: they stand in quotation marks and cannot close them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

_LEAST: Final = 0.01  # of the probability: with less on yes and no, the answer is something else
_BLANKS: Final = "▁Ġ \n\t\"'*."  # around a word: how vocabularies and Markdown write it
_THOUGHT: Final = re.compile(r"<think>.*?(</think>|\Z)", re.DOTALL)
_ALONE: Final = re.compile(r"\W*([AB])\W*", re.IGNORECASE)
# "A" is a word too: it counts as a letter if a mark follows, or a word like "caption" precedes.
_MARKED: Final = re.compile(r"\W*([AB])\s*[:.)\]*]")
_NAMED: Final = re.compile(r"\b(?i:caption|option|choice)\W*([AB])\b")
_ANSWER: Final = re.compile(r"\b(?i:answer)\W*(?:is\W*)?([AB])\b(?!\s+\w)")


@dataclass(frozen=True, slots=True)
class ChatAnswer:
    """An answer of a chat model.

    `first` holds the candidates for the first token with their log probabilities, if the endpoint
    gives any.
    """

    text: str = ""
    refused: bool = False
    first: tuple[tuple[str, float], ...] = ()
    tokens_in: int = 0
    tokens_out: int = 0
    model: str = ""


def read_answer(data: Mapping[str, Any]) -> ChatAnswer:
    """A chat completion. Raises ValueError, KeyError and the like for anything else."""
    choice = data["choices"][0]
    message, usage = choice["message"], data.get("usage") or {}
    content = message.get("content")
    return ChatAnswer(
        content if isinstance(content, str) else "",
        bool(message.get("refusal")) or choice.get("finish_reason") == "content_filter",
        _first_token((choice.get("logprobs") or {}).get("content") or ()),
        int(usage.get("prompt_tokens") or 0),
        int(usage.get("completion_tokens") or 0),
        str(data.get("model") or ""),
    )


def _first_token(tokens: Any) -> tuple[tuple[str, float], ...]:
    """Of the first token that is not blank."""
    for token in tokens:
        if token["token"].strip(_BLANKS):
            listed = token.get("top_logprobs") or ()
            return tuple((str(each["token"]), float(each["logprob"])) for each in listed)
    return ()


def ask_yes(caption: str) -> str:
    """VQAScore's question (Lin et al. 2024)."""
    return f"Does this figure show {_quoted(caption)}? Please answer yes or no."


def yes_share(answer: ChatAnswer) -> float | None:
    """P(yes) / (P(yes) + P(no)) for the first token; None if the answer is neither.

    Dividing takes away how much a model would rather begin in another way, which differs between
    prompts and says nothing about the image. A word that is not listed has probability 0.
    """
    found = {"yes": 0.0, "no": 0.0}
    for token, logarithm in answer.first:
        word = token.strip(_BLANKS).lower()
        if word in found:
            found[word] += math.exp(logarithm)
    total = sum(found.values())
    return found["yes"] / total if total >= _LEAST else None


def ask_choice(first: str, second: str) -> str:
    captions = f"A: {_quoted(first)}\nB: {_quoted(second)}"
    return f"Which caption fits the image: A or B?\n{captions}\nPlease answer A or B."


def first_wins(answer: ChatAnswer, first: str, second: str) -> float | None:
    """1 if the answer is A, 0 if it is B; None if it is neither, or both."""
    text = _THOUGHT.sub("", answer.text).strip()
    if alone := _ALONE.fullmatch(text):
        return float(alone[1].upper() == "A")
    said = [_bare(text) == _bare(caption) for caption in (first, second)]
    if sum(said) == 1:
        return float(said[0])
    marked = _MARKED.match(text)
    letters = {marked[1]} if marked else {*_NAMED.findall(text), *_ANSWER.findall(text)}
    return float(letters == {"A"}) if len(letters) == 1 else None


def _quoted(caption: str) -> str:
    line = " ".join(caption.splitlines()).replace('"', "'")
    return f'"{line}"'


def _bare(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
