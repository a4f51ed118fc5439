"""The vocabulary of the rules: what they say instead of a word, by the lexicon."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Final

from counterpoint.generation.language import lexicon

_LIKELIEST: Final = 12
_KNOWN: Final = 65_536  # words whose alternatives are remembered


@functools.lru_cache(_KNOWN)
def _others(word: str, pos: str, noun: str) -> tuple[str, ...]:
    return lexicon.rivals(word, pos, noun)[:_LIKELIEST]


@dataclass(frozen=True)
class Vocabulary:
    """The words that rules use. `doubtful`: also narrower words, and others that may be false.

    `true` are other true captions of the image: what they say must not be added to a negative.
    """

    doubtful: bool = False
    true: tuple[str, ...] = field(default=(), compare=False)  # words do not depend on it

    @property
    def version(self) -> str:
        return f"lexicon={lexicon.version()}"

    def others(self, word: str, pos: str, noun: str = "") -> tuple[str, ...]:
        """Words that make another statement about this noun, the most similar ones; none may mean
        the same."""
        return _others(word, pos, noun)

    def synonyms(self, word: str, pos: str, noun: str) -> tuple[lexicon.Synonym, ...]:
        """Words that say the same of this noun."""
        found = lexicon.synonyms(word, pos, noun)
        return tuple(synonym for synonym in found if self.doubtful or not synonym.doubt)
