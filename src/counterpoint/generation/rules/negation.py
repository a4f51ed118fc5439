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
    word_set,
)
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import ABSTRACT, noun_phrase_after, noun_phrase_before

_DO: Final = {"VBZ": "does not", "VBP": "do not", "VBD": "did not"}
_QUANTITIES: Final = frozenset({"all", "both", "each", "some", "others", "one", "most", "many"})
_VIEWS: Final = word_set("close closeup view photo photograph picture image shot scene painting")
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
        if token.tag not in (*FINITE, "MD", "VBG") or _is_open(sentence, i):
            continue
        if token.tag in (*FINITE, "MD") and (token.pos == "AUX" or sentence.lemma(i) == "be"):
            yield [Put(i + 1, i + 1, "not")]
        elif token.tag == "VBG" and before is not None and before.tag in NOUNS:
            if not _is_detail(sentence, i):
                yield [Put(i, i, "not")]
        elif token.pos == "VERB" and token.tag in FINITE and not _helped(sentence, i):
            if token.tag == "VBP" and before is not None and before.tag == "NN":
                continue  # "a bathroom counter" is no sentence
            base = inflected(sentence.lemma(i), "VB")
            yield [Put(i, i + 1, f"{_DO[token.tag]} {base}")]


def _is_open(sentence: Sentence, verb: int) -> bool:
    """Whether it is not clear what is denied: "all are", "sits and eats"."""
    tokens = sentence.tokens
    if verb and tokens[verb - 1].lower in _QUANTITIES:
        return True
    if any(token.lower == "some" for token in tokens[verb + 1 :]):
        return True  # "does not have some graffiti"
    joints = (i for i in range(verb + 1, len(tokens) - 1) if tokens[i].tag == "CC")
    return any(tokens[i + 1].pos in ("VERB", "AUX") for i in joints)


def _is_detail(sentence: Sentence, verb: int) -> bool:
    """ "with a plunger sitting next to it", or no verb: "kite flying, bathing, walking"."""
    tokens = sentence.tokens
    phrase = noun_phrase_before(sentence, verb)
    if phrase is None or (phrase[0] and tokens[phrase[0] - 1].lower in ("with", "of", "for")):
        return True
    ends = verb + 1 == len(tokens) or tokens[verb + 1].tag in ("CC", ",", ".")
    return ends and tokens[verb - 1].tag == "NN" and tokens[phrase[0]].tag not in ("DT", "PRP$")


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
        if token.lower == "with" and noun and after.lower in ("a", "an", "the"):
            phrase = noun_phrase_after(sentence, i + 1)
            rest = sentence.tokens[phrase[1] : phrase[1] + 1] if phrase else ()
            if any(token.tag in ("CC", ",") for token in rest):
                continue  # "without a banana and two oranges"
            yield [Put(i, i + 1, "without")]


def _existence(sentence: Sentence) -> Iterator[list[Put]]:
    """ "There is no dog on a bench", of a caption that is one noun phrase."""
    first = sentence.tokens[0]
    if any(token.tag in (*FINITE, "MD") for token in sentence.tokens) or len(sentence.tokens) < 2:
        return
    noun = next((i for i, token in enumerate(sentence.tokens) if token.tag in NOUNS), None)
    if noun is None or sentence.lemma(noun) in ABSTRACT or _is_view(sentence):
        return  # "there is no picture of a cat" says nothing of the cat
    phrase = noun_phrase_after(sentence, 0)
    if phrase is None or any(token.tag == "CC" for token in sentence.tokens):
        return  # "there is no man and a woman"
    if first.lower in ("a", "an"):
        yield [Put(0, 1, "there is no")]
    elif first.tag == "NNS":
        yield [Put(0, 1, f"there are no {plain(sentence, 0)}")]


def _is_view(sentence: Sentence) -> bool:
    """ "a close up of a cat", "a black and white photo of a cat"."""
    words = [token.lower for token in sentence.tokens]
    start = words[: words.index("of")] if "of" in words else []
    return not _VIEWS.isdisjoint(start)


NEGATE: Final = Rule(
    "crepe-negate", "negative", "2", "a verb, a possession or the whole caption denied", _negate
)
