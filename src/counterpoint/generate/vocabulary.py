"""The words that rules put in place of others: the lexicon, and WordNet where it is installed."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from counterpoint.generate import lexicon
from counterpoint.generate.wordnet import WordNet

_LIKELIEST: Final = 12
_KNOWN: Final = 65_536  # words whose alternatives are remembered


@dataclass(frozen=True)
class Vocabulary:
    """`doubtful`: also narrower words, and others of which the lexicon says why they may fail."""

    wordnet: WordNet | None = None
    doubtful: bool = False

    def others(self, word: str, pos: str, noun: str = "") -> tuple[str, ...]:
        """Words that would make another statement of this noun: never one that may mean the same.

        The likeliest: those of like kind. WordNet is asked for what the lexicon does not have.
        """
        return _others(self, word, pos, noun)

    def synonyms(self, word: str, pos: str, noun: str) -> tuple[str, ...]:
        """Words that say the same of this noun."""
        found = lexicon.synonyms(word, pos, noun)
        return tuple(synonym.text for synonym in found if self.doubtful or not synonym.doubt)

    @property
    def version(self) -> str:
        parts = [f"lexicon={lexicon.version()}"]
        parts += [self.wordnet.version.replace(" ", "=")] if self.wordnet else []
        return " ".join(parts)


@lru_cache(_KNOWN)
def _others(vocabulary: Vocabulary, word: str, pos: str, noun: str) -> tuple[str, ...]:
    found = list(lexicon.rivals(word, pos, noun))
    wordnet = vocabulary.wordnet
    if not found and wordnet is not None and not lexicon.meanings(word, pos):
        asked = (*wordnet.antonyms(word, pos), *wordnet.siblings(word, pos))
        found = [
            other
            for other in asked
            if not wordnet.may_be_same(word, other, pos) and not lexicon.may_be_same(word, other)
        ]
    return tuple(found[:_LIKELIEST])
