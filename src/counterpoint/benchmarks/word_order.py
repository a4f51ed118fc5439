"""The caption shuffles of ARO: words in another order, by a random seed.

Tags are those of spaCy's small English model; trigrams are over NLTK's Treebank tokens, as in the
authors' code. Two streams of random numbers run through a whole file, as theirs do, so that a seed
gives the shuffles that their code would give (but for sentence ends inside a caption, which they
find with a trained model and here a full stop and a blank are).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint._util.english import english_tagger, english_versions

_NOUNS: Final = {"NN", "NNS", "NNP", "NNPS"}
_ADJECTIVES: Final = {"JJ", "JJR", "JJS"}


class TaggedCaption(NamedTuple):
    """A caption as spaCy's tokens and tags."""

    text: str
    tokens: list[str]
    tags: list[str]


def tag_captions(captions: Iterable[str], *, tagged: bool = True) -> Iterator[TaggedCaption]:
    """Captions as the shuffles take them. Only some shuffles need tags, which cost time."""
    if not tagged:
        yield from (TaggedCaption(caption, [], []) for caption in captions)
        return
    for doc in english_tagger().pipe(captions, batch_size=256):
        yield TaggedCaption(doc.text, [token.text for token in doc], [token.tag_ for token in doc])


class Shuffler:
    """The shuffles, with the state of their random numbers."""

    def __init__(self, seed: int) -> None:
        self._words = np.random.RandomState(seed)
        self._trigrams = random.Random(seed)

    def nouns_and_adjectives(self, words: TaggedCaption) -> str:
        """Nouns change places with nouns, adjectives with adjectives."""
        tokens = np.array(words.tokens)
        for kind in (_NOUNS, _ADJECTIVES):
            places = [i for i, tag in enumerate(words.tags) if tag in kind]
            tokens[places] = self._words.permutation(tokens[places])
        return " ".join(tokens)

    def other_words(self, words: TaggedCaption) -> str:
        """Everything but nouns and adjectives changes places."""
        tokens = np.array(words.tokens)
        kept = _NOUNS | _ADJECTIVES
        places = [i for i, tag in enumerate(words.tags) if tag not in kept]
        tokens[places] = self._words.permutation(tokens[places])
        return " ".join(tokens)

    def within_trigrams(self, words: TaggedCaption) -> str:
        """Each three words in a row change places among themselves."""
        trigrams = _trigrams(words.text)
        for trigram in trigrams:
            self._trigrams.shuffle(trigram)
        return _joined(trigrams)

    def trigrams(self, words: TaggedCaption) -> str:
        """Threes of words change places, and stay as they are inside."""
        trigrams = _trigrams(words.text)
        self._trigrams.shuffle(trigrams)
        return _joined(trigrams)

    def all_words(self, words: TaggedCaption) -> str:
        return " ".join(self._words.permutation(words.text.split(" ")))


SHUFFLES: Final[dict[str, Callable[[Shuffler, TaggedCaption], str]]] = {
    "nouns-adjectives": Shuffler.nouns_and_adjectives,
    "other-words": Shuffler.other_words,
    "within-trigrams": Shuffler.within_trigrams,
    "trigrams": Shuffler.trigrams,
    "all": Shuffler.all_words,
}
TAGGED: Final = frozenset({"nouns-adjectives", "other-words"})
ORDER: Final = ("nouns-adjectives", "other-words", "within-trigrams", "trigrams")


def version() -> str:
    """What the shuffles of a seed depend on."""
    return english_versions("nltk")


def _trigrams(caption: str) -> list[list[str]]:
    tokenize = _tokenizer().tokenize
    tokens = [token for part in re.split(r"(?<=[.?!])\s+", caption) for token in tokenize(part)]
    return [tokens[start : start + 3] for start in range(0, len(tokens), 3)]


@cache
def _tokenizer() -> Any:
    from nltk.tokenize import NLTKWordTokenizer

    return NLTKWordTokenizer()


def _joined(trigrams: list[list[str]]) -> str:
    return " ".join(token for trigram in trigrams for token in trigram)
