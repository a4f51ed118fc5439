"""Endpoints of chat models: where one is, what it is asked, and what its answers mean.

Where comes from the environment, how from the options of a model's name. Captions are data: they
stand in quotation marks and cannot close them.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from counterpoint._util.errors import ModelError
from counterpoint._util.registry import Option, read_options

LOGPROBS: Final = "logprobs"
CHOICE: Final = "choice"
IMAGES: Final = {"jpeg": {"quality": 95, "subsampling": 0}, "png": {}}  # all colours are kept
PARALLEL: Final = 16  # requests at a time
_OPTIONS: Final = {
    "mode": Option("", (LOGPROBS, CHOICE)),
    "side": Option(1024, least=32),
    "image": Option("jpeg", tuple(IMAGES)),
}


class ApiOptions(NamedTuple):
    """The options after the name of a model: `MODEL?mode=choice&side=512&image=png&parallel=64`."""

    mode: str  # empty: whatever the endpoint can do
    side: int  # the longer side of an image, at most
    image: str
    parallel: int  # requests at a time


def read_model(rest: str) -> tuple[Endpoint, ApiOptions]:
    """Where a model is asked, by its name, and the options after it."""
    name, _, options = rest.partition("?")
    if not name:
        raise ModelError(
            "E-MODEL-ID-INVALID", "api: needs a model's name, for instance api:gpt-4o-mini."
        )
    endpoint = read_endpoint(f"api:{name}")
    known = {**_OPTIONS, "parallel": Option(endpoint.parallel, least=1)}
    values: dict[str, Any] = read_options("api", options, known)
    return endpoint, ApiOptions(**values)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a model is, and how much may be asked of it."""

    name: str  # `api:MODEL`, for messages
    url: str
    key: str = field(repr=False)
    parallel: int = PARALLEL  # requests at a time
    timeout: float = 120.0  # seconds
    price: tuple[float, float] | None = None  # of a million tokens, in and out

    def shown(self) -> str:
        """The address without a user, a password or a query."""
        parts = urlsplit(self.url)
        port = f":{parts.port}" if parts.port else ""
        return f"{parts.scheme}://{parts.hostname}{port}{parts.path}"


def read_endpoint(name: str) -> Endpoint:
    """From the environment."""
    url = _needed(name, "OPENAI_BASE_URL", "for instance http://localhost:8000/v1").rstrip("/")
    key = _needed(name, "OPENAI_API_KEY", "a local server takes any word")
    if not _is_address(url):
        raise _invalid(name, "OPENAI_BASE_URL should be an http address that ends in /v1")
    if not (key.isascii() and key.isprintable()):
        raise _invalid(name, "OPENAI_API_KEY holds characters that cannot be sent in a header")
    [parallel] = _numbers(name, "COUNTERPOINT_API_CONCURRENCY", str(PARALLEL))
    [timeout] = _numbers(name, "COUNTERPOINT_API_TIMEOUT", "120")
    if parallel < 1 or timeout <= 0:
        raise _invalid(
            name,
            "COUNTERPOINT_API_CONCURRENCY should be at least 1, and COUNTERPOINT_API_TIMEOUT more "
            "than 0 seconds",
        )
    return Endpoint(name, url, key, int(parallel), timeout, read_price(name))


def read_price(name: str) -> tuple[float, float] | None:
    """Of a million tokens, in and out; no server needs to be named for it."""
    if not os.environ.get("COUNTERPOINT_API_PRICE", "").strip():
        return None
    cost_in, cost_out = _numbers(name, "COUNTERPOINT_API_PRICE", "0.15,0.6")
    return cost_in, cost_out


def _is_address(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:  # a port that is not a number
        return False


def _needed(name: str, variable: str, hint: str) -> str:
    value = os.environ.get(variable, "").strip()
    if not value:
        raise ModelError(
            "E-VARIABLE-MISSING", f"{name}: the environment variable {variable} is not set; {hint}."
        )
    return value


def _numbers(name: str, variable: str, default: str) -> list[float]:
    """As many as the default has."""
    said = os.environ.get(variable, "").strip() or default
    try:
        found = [float(part) for part in said.split(",")]
    except ValueError:
        found = []
    if len(found) != len(default.split(",")) or not all(0 <= n < float("inf") for n in found):
        raise _invalid(name, f"{variable} is {said!r} and should be like {default}")
    return found


def _invalid(name: str, why: str) -> ModelError:
    return ModelError("E-VARIABLE-INVALID", f"{name}: {why}.")


# --- questions and answers -----------------------------------------------------------------------

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
