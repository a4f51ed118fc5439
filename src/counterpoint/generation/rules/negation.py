"""CREPE's negations: a verb, a possession or the whole is denied."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language.sentences import (
    FINITE,
    NOUNS,
    Put,
    Sentence,
    inflected,
    plain,
    rewrite,
)
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import ABSTRACT, noun_phrase_after

_DO: Final = {"VBZ": "does not", "VBP": "do not", "VBD": "did not"}
_NEGATIONS: Final = frozenset({"no", "not", "n't", "never", "none", "without", "nobody", "nothing"})


def _negate(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    if any(token.lower in _NEGATIONS for token in sentence.tokens):
        return  # a second negation would make it true again
    for subtype, found in (("rel", _verbs), ("obj", _possessions), ("obj", _existence)):
        puts = list(found(sentence))
        rng.shuffle(puts)
        yield [Draft(rewrite(sentence, way), "negate", subtype) for way in puts]


def _verbs(sentence: Sentence) -> Iterator[list[Put]]:
    """ "is not sitting", "a dog not sitting", "does not sit"."""
    for i, token in enumerate(sentence.tokens):
        before = sentence.tokens[i - 1] if i else None
        if token.tag in (*FINITE, "MD") and (token.pos == "AUX" or sentence.lemma(i) == "be"):
            yield [Put(i + 1, i + 1, "not")]
        elif token.tag == "VBG" and before is not None and before.tag in NOUNS:
            yield [Put(i, i, "not")]
        elif token.pos == "VERB" and token.tag in FINITE and not _helped(sentence, i):
            if token.tag == "VBP" and before is not None and before.tag == "NN":
                continue  # "a bathroom counter" is no sentence
            base = inflected(sentence.lemma(i), "VB")
            yield [Put(i, i + 1, f"{_DO[token.tag]} {base}")]


def _helped(sentence: Sentence, verb: int) -> bool:
    before = verb - 1
    while before > 0 and sentence.tokens[before].tag == "RB":
        before -= 1
    return before >= 0 and sentence.tokens[before].pos == "AUX"


def _possessions(sentence: Sentence) -> Iterator[list[Put]]:
    """ "with a hat" becomes "without a hat"."""
    for i, token in enumerate(sentence.tokens[:-1]):
        after = sentence.tokens[i + 1]
        before = sentence.tokens[i - 1] if i else None
        noun = before is not None and before.tag in NOUNS
        if token.lower == "with" and noun and after.lower in ("a", "an", "some", "the"):
            yield [Put(i, i + 1, "without")]


def _existence(sentence: Sentence) -> Iterator[list[Put]]:
    """ "There is no dog on a bench", of a caption that is one noun phrase."""
    first = sentence.tokens[0]
    if any(token.tag in (*FINITE, "MD") for token in sentence.tokens) or len(sentence.tokens) < 2:
        return
    noun = next((i for i, token in enumerate(sentence.tokens) if token.tag in NOUNS), None)
    if noun is None or sentence.lemma(noun) in ABSTRACT:
        return  # "there is no picture of a cat" says nothing of the cat
    phrase = noun_phrase_after(sentence, 0)
    if phrase is None or _goes_on(sentence, phrase[1]):
        return
    if first.lower in ("a", "an"):
        yield [Put(0, 1, "there is no")]
    elif first.tag == "NNS":
        yield [Put(0, 1, f"there are no {plain(sentence, 0)}")]


def _goes_on(sentence: Sentence, place: int) -> bool:
    """ "there is no man and a woman"."""
    return place < len(sentence.tokens) and sentence.tokens[place].tag in ("CC", ",")


NEGATE: Final = Rule(
    "crepe-negate", "negative", "1", "a verb, a possession or the whole caption denied", _negate
)
