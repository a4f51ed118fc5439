"""ARO's four shuffles of word order, written as normal sentences.

The benchmark's own (benchmarks/word_order.py) keep the authors' tokens and random numbers, and with
them the spaces that reveal a shuffle ("man ' s"). These do not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from random import Random
from typing import Final

from counterpoint.generation.language.editing import plain
from counterpoint.generation.language.tagging import ADJECTIVES, NOUNS, Sentence
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways

_BLANK: Final = re.compile(r"\s+")
_TRIES: Final = 3  # a shuffle of a short caption is often the caption itself
_NAMES: Final = frozenset({*NOUNS, "NNP", "NNPS"})

Words = list[str]
Shuffle = Callable[[Words, Sequence[str], Random], Words]


def _permuted(words: Words, places: Sequence[int], rng: Random) -> Words:
    found = list(words)
    for place, other in zip(places, rng.sample(places, len(places)), strict=True):
        found[place] = words[other]
    return found


def nouns_and_adjectives(words: Words, tags: Sequence[str], rng: Random) -> Words:
    """Nouns change places with nouns, adjectives with adjectives."""
    for kind in (_NAMES, ADJECTIVES):
        words = _permuted(words, [i for i, tag in enumerate(tags) if tag in kind], rng)
    return words


def other_words(words: Words, tags: Sequence[str], rng: Random) -> Words:
    """Everything but nouns and adjectives changes places."""
    kept = _NAMES | ADJECTIVES
    return _permuted(words, [i for i, tag in enumerate(tags) if tag not in kept], rng)


def within_trigrams(words: Words, tags: Sequence[str], rng: Random) -> Words:
    """Each three words in a row change places among themselves."""
    del tags
    return [word for three in _threes(words) for word in rng.sample(three, len(three))]


def trigrams(words: Words, tags: Sequence[str], rng: Random) -> Words:
    """Threes of words change places, and stay as they are inside."""
    del tags
    threes = _threes(words)
    return [word for three in rng.sample(threes, len(threes)) for word in three]


def _threes(words: Words) -> list[Words]:
    return [words[start : start + 3] for start in range(0, len(words), 3)]


SHUFFLES: Final[tuple[Shuffle, ...]] = (
    nouns_and_adjectives,
    other_words,
    within_trigrams,
    trigrams,
)


def _shuffle(sentence: Sentence, vocabulary: Vocabulary, rng: Random) -> Iterator[Ways]:
    del vocabulary
    words, tags, ending = _words(sentence)
    blanks = _BLANK.findall(sentence.text.strip())[: len(words) - 1]  # double spaces are kept
    for shuffle in SHUFFLES if len(words) > 1 else ():
        yield _ways(sentence, (shuffle, words, tags), blanks, ending, rng)


def _words(sentence: Sentence) -> tuple[Words, list[str], str]:
    """Words between spaces, so that marks stay with their words; one tag each; the final mark."""
    words: Words = []
    tags: list[str] = []
    end = -1
    for number, token in enumerate(sentence.tokens):
        text = plain(sentence, number)
        if token.start == end:
            words[-1] += text
        else:
            words.append(text)
            tags.append(token.tag)
        end = token.end
    last = words[-1].rstrip(".!?")
    ending = words[-1][len(last) :]
    if last:
        words[-1] = last
    else:
        words.pop()
        tags.pop()
        ending = " " + ending
    return words, tags, ending


def _ways(
    sentence: Sentence,
    how: tuple[Shuffle, Words, Sequence[str]],
    blanks: Sequence[str],
    ending: str,
    rng: Random,
) -> Ways:
    high = sentence.tokens[0].text[:1].isupper()
    shuffle, words, tags = how
    for _ in range(_TRIES):
        pieces = zip(shuffle(words, tags, rng), (*blanks, ending), strict=True)
        text = "".join(word + after for word, after in pieces)
        yield Draft(text[:1].upper() + text[1:] if high else text, "shuffle")


SHUFFLE: Final = Rule("shuffle", "negative", "1", "words in another order, in four ways", _shuffle)
