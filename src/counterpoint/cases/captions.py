"""Captions cut into words, to compare them: by checks of pairs, and where positives join a case."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

import polars as pl

from counterpoint.cases.table import Cases

# --- How a protocol writes captions before a model sees them ------------------------------------


def raw(caption: str) -> str:
    """The caption as the benchmark has it."""
    return caption


def aro(caption: str) -> str:
    """ARO's clean-up: lower case, none of `.!"()*#:;~`, single blanks, at most 30 words."""
    words = re.sub(r'[.!"()*#:;~]', " ", caption.lower())
    return " ".join(words.split()[:30])


def formatted(cases: Cases, name: str) -> Cases:
    """The cases with their captions written so."""
    if name == "raw":
        return cases
    rewrite = CAPTION_FORMATS[name]
    captions = [[rewrite(text) for text in texts] for texts in cases.frame["captions"].to_list()]
    column = pl.Series("captions", captions, dtype=pl.List(pl.String()))
    return Cases(cases.frame.with_columns(column), cases.root)


CAPTION_FORMATS: Final[dict[str, Callable[[str], str]]] = {"raw": raw, "aro": aro}


_WORD: Final = re.compile(r"(\w+(?:['’-]\w+)*)")
_REMEMBERED: Final = 4096  # texts: a caption is compared with all that was made from it


class Words(NamedTuple):
    """A text cut into words, case-folded, with `a` for `an`.

    `raw` has them as they are written, `gaps` what stands before each and after the last.
    """

    words: tuple[str, ...]
    raw: tuple[str, ...]
    gaps: tuple[str, ...]


@lru_cache(maxsize=_REMEMBERED)
def read_words(text: str) -> Words:
    """Cut a text at everything that is not part of a word."""
    parts = _WORD.split(text)
    raw = tuple(parts[1::2])
    # In one go, since it is done for every text; no word has a line end in it.
    words = "\n".join(raw).casefold().replace("’", "'").split("\n") if raw else []
    if "an" in words:
        words = ["a" if word == "an" else word for word in words]
    return Words(tuple(words), raw, tuple(parts[0::2]))


def normal(text: str) -> tuple[str, ...]:
    """What two texts have in common that differ only in case, blanks, marks and a/an.

    A text without words is its own characters.
    """
    return read_words(text).words or tuple("".join(text.split()))
