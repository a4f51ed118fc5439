"""Captions cut into words, to compare them: by checks of pairs, and where positives join a case."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

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
