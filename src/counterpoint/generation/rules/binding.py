"""Attribute binding: two things exchange their attributes, or their numbers.

"A black dog and a white cat" becomes "a white dog and a black cat": the words are the same, and
only what belongs to what has changed. Both exclude each other (two colours, two sizes, two numbers)
and fit both nouns, so that the text is false, and possible. The pairs are a group of their own:
`swap/bind`. `unlike_adjectives` asks the same of the adjectives that `negclip` and `crepe-swap`
exchange.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from random import Random
from typing import Final, NamedTuple

from counterpoint.generation.language import lexicon, plausibility
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import ADJECTIVES, NOUNS, Sentence, swap
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules import fitting
from counterpoint.generation.rules.exchanges import (
    MUTUAL,
    PART,
    SAME,
    UNFIT,
    UNLIKE,
    is_mutual,
    is_name,
    phrase_start,
)
from counterpoint.generation.rules.phrases import Range, attributes, noun_described
from counterpoint.generation.rules.siblings import name_of

_TRIES: Final = 6
_LISTS: Final = frozenset([",", ":", ";", "-", "--", "including", "containing"])


class _Bound(NamedTuple):
    """An attribute, and what it is said of."""

    place: int
    word: str
    noun: int
    name: str
    pos: str


def _bind(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    found = [
        swap(sentence, (a.place, a.place + 1), (b.place, b.place + 1))
        for a, b in combinations(sorted(_bound(sentence)), 2)
        if _can_exchange(sentence, a, b)
    ]
    some = rng.sample(found, min(_TRIES, len(found)))
    yield [Draft(text, "swap", "bind") for text in some]


def _bound(sentence: Sentence) -> Iterator[_Bound]:
    tokens = sentence.tokens
    numbers = [i for i, token in enumerate(tokens) if token.tag == "CD"]
    # "an orange bus": nouns that are attributes
    nouns = [
        i
        for i, token in enumerate(tokens[:-1])
        if token.tag == "NN" and tokens[i + 1].tag in NOUNS and lexicon.meanings(token.lower, "ADJ")
    ]
    for pos, places in (("NUM", numbers), ("ADJ", [*attributes(sentence), *nouns])):
        for place in places:
            noun = noun_described(sentence, place)
            if noun >= 0 and not _is_joined(sentence, place):
                yield _Bound(place, sentence.lemma(place), noun, name_of(sentence, noun), pos)


def _is_joined(sentence: Sentence, place: int) -> bool:
    """A part of "black and white", "dark blue" or "blue-green"."""
    tokens = sentence.tokens
    for step in (-1, 1):
        near = [tokens[i] for i in (place + step, place + 2 * step) if 0 <= i < len(tokens)]
        if near and (near[0].lower == "-" or near[0].lower in WORDS.shades):
            return True
        if len(near) == 2 and near[0].lower in ("and", "or", ",", "&"):
            return near[1].tag in ADJECTIVES or bool(lexicon.meanings(near[1].lower, "ADJ"))
    return False


def _can_exchange(sentence: Sentence, a: _Bound, b: _Bound) -> bool:
    if a.noun == b.noun or a.name == b.name or a.pos != b.pos:
        return False  # "a black dog and a white dog"
    if not lexicon.exclude(a.word, b.word):
        return False
    if a.pos == "NUM":
        plural = all(sentence.tokens[each.noun].tag == "NNS" for each in (a, b))
        return plural and not _is_sum(sentence, a) and not _is_sum(sentence, b)
    if _has_one_colour(sentence, a.noun) or _has_one_colour(sentence, b.noun):
        return False
    return _fits(sentence, a.word, b.noun) and _fits(sentence, b.word, a.noun)


def _fits(sentence: Sentence, adjective: str, noun: int) -> bool:
    """Whether an adjective is said of a noun; one of no usual kind, if captions say so."""
    if WORDS.usual_fields.isdisjoint(
        fitting.fields_of(adjective, "ADJ")
    ) and not plausibility.shipped().count(adjective, sentence.tokens[noun].lower):
        return False  # "a residential jet"
    return fitting.is_said_of(adjective, name_of(sentence, noun))


def _is_sum(sentence: Sentence, number: _Bound) -> bool:
    """Whether what was counted is listed behind it: "four animals, a leopard and three bears"."""
    after = sentence.tokens[number.noun + 1 : number.noun + 2]
    return any(token.lower in _LISTS for token in after)


def unlike_adjectives(sentence: Sentence, first: Range, second: Range) -> str:
    """Why two adjectives cannot change places: each has to fit the noun of the other."""
    one, two = first[0], second[0]
    nouns = noun_described(sentence, one), noun_described(sentence, two)
    if -1 in nouns or nouns[0] == nouns[1]:
        return UNFIT
    if _is_shaded(sentence, one) or _is_shaded(sentence, two):
        return PART
    words = sentence.lemma(one), sentence.lemma(two)
    if not lexicon.exclude(*words):
        return UNLIKE  # "a white sink in a small bathroom": both may be true of both
    if any(_has_one_colour(sentence, noun) for noun in nouns):
        return UNFIT
    fields = [{m.field for m in lexicon.meanings(word, "ADJ")} for word in words]
    if not (_joins(sentence, one, fields[1]) and _joins(sentence, two, fields[0])):
        return UNLIKE
    same = sentence.lemma(nouns[0]) == sentence.lemma(nouns[1])
    if same and is_mutual(sentence, nouns[0] + 1, phrase_start(sentence, two)):
        return MUTUAL  # "a young man riding with an older man"
    if _describes(sentence, words[1], nouns[0]) or _describes(sentence, words[0], nouns[1]):
        return SAME
    fit = _fits(sentence, words[1], nouns[0]) and _fits(sentence, words[0], nouns[1])
    return "" if fit else UNFIT


def _has_one_colour(sentence: Sentence, noun: int) -> bool:
    """Whether a thing has a colour of its own: a stop sign, a traffic light."""
    return sentence.lemma(noun) == "light" or sentence.tokens[max(noun - 1, 0)].lower == "stop"


def _joins(sentence: Sentence, place: int, fields: set[str]) -> bool:
    """Whether what comes to a place is like the adjective with which "and" joins it."""
    tokens = sentence.tokens
    for near in (place - 1, place + 1):  # "a green white truck"
        if 0 <= near < len(tokens) and tokens[near].tag in ADJECTIVES:
            senses = lexicon.meanings(sentence.lemma(near), "ADJ")
            if not fields.isdisjoint(meaning.field for meaning in senses):
                return False
    for near, other in ((place - 1, place - 2), (place + 1, place + 2)):
        if not 0 <= other < len(tokens) or tokens[near].lower not in ("and", ","):
            continue
        senses = lexicon.meanings(sentence.lemma(other), "ADJ")
        if tokens[other].tag in ADJECTIVES and fields.isdisjoint(m.field for m in senses):
            return False
    return True


def _describes(sentence: Sentence, word: str, noun: int) -> bool:
    """Whether a word stands before a noun already: "a black and white dog, a black frisbee"."""
    place = noun - 1
    while place >= 0 and sentence.tokens[place].tag in (*ADJECTIVES, *NOUNS, "CC", ",", "VBN"):
        if sentence.lemma(place) == word:
            return True
        place -= 1
    return False


def _is_shaded(sentence: Sentence, place: int) -> bool:
    """ "light blue", "black and white", "red-haired", "polar bear"."""
    tokens = sentence.tokens
    before = tokens[place - 1] if place else None
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if before is not None and (before.lower in WORDS.shades or before.tag == "HYPH"):
        return True
    if after is None or after.tag == "HYPH" or after.lower.endswith(("colored", "coloured")):
        return True
    if {"black", "white"} <= {token.lower for token in tokens[max(0, place - 2) : place + 3]}:
        return True
    return after.tag in NOUNS and is_name(sentence, place)


BIND: Final = Rule(
    "bind", "negative", "2", "the attributes or the numbers of two things exchanged", _bind
)
