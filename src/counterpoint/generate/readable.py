"""Which captions rules and models can work on; the others are refused, and counted by reason."""

from __future__ import annotations

import re
from typing import Final

from counterpoint.generate import lexicon
from counterpoint.generate.language import is_english

MOST_WORDS: Final = 80  # CLIP reads 77 tokens: of more, an edit might be out of sight
_WORD: Final = re.compile(r"[^\W\d_]+", re.UNICODE)
_LATIN: Final = re.compile(r"[a-z]+")
_SHARE: Final = 0.6  # of the words must be English: captions have names and slips


def _is_known(word: str) -> bool:
    """In the dictionary, or in the lexicon, which has what captions talk about: "frisbee"."""
    return is_english(word) or bool(lexicon.meanings(word) or lexicon.meanings(word[:-1]))


def unreadable(caption: str) -> str:
    """Why a caption is refused; empty if it is not."""
    if not caption.strip():
        return "empty"
    words = _WORD.findall(caption.lower())
    if not words:
        return "no words"
    if len(words) > MOST_WORDS:
        return f"more than {MOST_WORDS} words"
    known = sum(_LATIN.fullmatch(word) is not None and _is_known(word) for word in words)
    return "" if known >= _SHARE * len(words) else "not English"
