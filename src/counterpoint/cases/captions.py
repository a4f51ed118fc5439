"""Captions as texts: the formats that protocols ask for, and captions cut into words."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import polars as pl

from counterpoint.cases.table import Cases

_WORD: Final = re.compile(r"(\w+(?:['’-]\w+)*)")
_REMEMBERED: Final = 4096  # texts: a caption is compared with every text that was made from it


def raw(caption: str) -> str:
    """The caption as the benchmark has it."""
    return caption


def aro(caption: str) -> str:
    """ARO's clean-up: lower case, none of `.!"()*#:;~`, single blanks, at most 30 words."""
    words = re.sub(r'[.!"()*#:;~]', " ", caption.lower())
    return " ".join(words.split()[:30])


def formatted(cases: Cases, name: str) -> Cases:
    """The cases with their captions in the format of this name."""
    if name in ("raw", BEFORE_SHUFFLES):
        return cases
    rewrite, lists = CAPTION_FORMATS[name], cases.frame["captions"].to_list()
    captions = [[rewrite(text) for text in texts] for texts in lists]
    column = pl.Series("captions", captions, dtype=pl.List(pl.String()))
    return Cases(cases.frame.with_columns(column), cases.root)


BEFORE_SHUFFLES: Final = "aro, then shuffled"  # the loader has cleaned captions, then shuffled
CAPTION_FORMATS: Final[dict[str, Callable[[str], str]]] = {
    "raw": raw,
    "aro": aro,
    BEFORE_SHUFFLES: raw,
}


class CaptionWords(NamedTuple):
    """A text cut into words, case-folded, with `a` for `an`.

    `raw` has the words as they are written, `gaps` the texts before each word and after the last.
    """

    words: tuple[str, ...]
    raw: tuple[str, ...]
    gaps: tuple[str, ...]


@lru_cache(maxsize=_REMEMBERED)
def read_words(text: str) -> CaptionWords:
    """Cut a text at everything that is not part of a word."""
    parts = _WORD.split(text)
    raw = tuple(parts[1::2])
    # All words at once, since this is done for every text; no word contains a line end.
    words = "\n".join(raw).casefold().replace("’", "'").split("\n") if raw else []
    if "an" in words:
        words = ["a" if word == "an" else word for word in words]
    return CaptionWords(tuple(words), raw, tuple(parts[0::2]))


def normal(text: str) -> tuple[str, ...]:
    """A normal form: equal for texts that differ only in case, blanks, punctuation and a/an.

    For a text without words, it is its characters.
    """
    return read_words(text).words or tuple("".join(text.split()))


def shared_ends(old: Sequence[object], new: Sequence[object]) -> tuple[int, int]:
    """How many items two sequences share at the start, and of the rest at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    tail, rest = 0, shorter - start
    while tail < rest and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return start, tail
