"""Replacements: one word is replaced by another that makes the caption false.

`crepe-replace` takes an opposite or a sibling, for a thing, an attribute and a relation each.
`svlc` goes by type (colour, size, material, state, relation) as SVLC's lists do, but never from a
word to one with the same meaning: in the authors' lists "big" is a negative of "large".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.editing import Put, in_form_of, rewrite
from counterpoint.generation.language.tagging import NOUNS, Sentence, word_set
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import (
    Range,
    attributes,
    is_place_for,
    object_of,
    prepositions,
    said_of,
    things,
    whole,
)

_TRIES: Final = 6
_GENDERED: Final = word_set("he she him her his hers himself herself")
# Prepositions that fit nearly any place: "a dog onto a bench" is not a caption.
_SETTLED: Final = word_set(
    """above behind below beside inside outside near on over under without in"""
) | {"in front of", "far from", "left of", "right of", "next to", "to the left of", "away from"}
_SVLC: Final = {
    "colour": ("colour",),
    "size": ("size", "height", "length", "width", "depth", "thickness", "weight", "build"),
    "material": ("material",),
    "state": ("state", "age", "feeling", "heat", "food_state", "weather", "light", "surface"),
    "relation": ("place", "handling", "movement", "posture", "looking", "food_action"),
}


class Slot(NamedTuple):
    """Words that can be replaced, with their part of speech."""

    where: Range
    word: str
    pos: str
    subtype: str
    noun: str = ""  # what it is said of


def _objects(sentence: Sentence) -> list[Slot]:
    """A compound is one thing: what replaces a "bat" need not replace a "baseball bat"."""
    found = []
    for noun in things(sentence):
        where = whole(sentence, noun)
        before = "".join(f"{token.lower} " for token in sentence.tokens[where[0] : noun])
        found.append(Slot(where, before + sentence.lemma(noun), "NOUN", "obj"))
    return found


@lru_cache(1)  # several rules ask in turn
def _attributes(sentence: Sentence) -> list[Slot]:
    """Adjectives, materials ("brick wall") and numbers."""
    tokens = sentence.tokens
    found = [
        Slot((i, i + 1), sentence.lemma(i), "ADJ", "att", said_of(sentence, i))
        for i in attributes(sentence)
    ]
    for i, (token, after) in enumerate(pairwise(tokens)):
        if token.tag == "CD" and token.lower != "one" and after.tag in ("NNS", "JJ"):
            found.append(Slot((i, i + 1), token.lower, "NUM", "att"))
        elif token.tag == "NN" and after.tag in NOUNS and lexicon.meanings(token.lower, "ADJ"):
            found.append(Slot((i, i + 1), token.lower, "ADJ", "att", said_of(sentence, i)))
    return found


@lru_cache(1)
def _relations(sentence: Sentence) -> list[Slot]:
    found = []
    place = 0
    while place < len(sentence.tokens):
        slot = relation_slot(sentence, place)
        if slot is not None:
            found.append(slot)
        place = place + 1 if slot is None else slot.where[1]
    return found


def relation_slot(sentence: Sentence, place: int) -> Slot | None:
    """The relation that begins at a token: a preposition of the lexicon, or a verb."""
    token = sentence.tokens[place]
    if token.pos == "VERB":
        return _verb_slot(sentence, place)
    where = prepositions().at(sentence, place)
    if where is None or _fixed(sentence, where):
        return None
    if where[1] - where[0] == 1 and token.tag not in ("IN", "RP"):
        return None  # "an outside restaurant"
    word = " ".join(token.lower for token in sentence.tokens[where[0] : where[1]])
    return Slot(where, word, "ADP", "rel", object_of(sentence, where[1]))


def _verb_slot(sentence: Sentence, place: int) -> Slot | None:
    lemma = sentence.lemma(place)
    if place + 1 < len(sentence.tokens):
        phrase = f"{lemma} {sentence.tokens[place + 1].lower}"
        if lexicon.meanings(phrase, "VERB"):
            return Slot((place, place + 2), phrase, "VERB", "rel")
    return Slot((place, place + 1), lemma, "VERB", "rel", object_of(sentence, place + 1))


def _fixed(sentence: Sentence, where: Range) -> bool:
    """A preposition without an object, or one that belongs to the word before it: "made of"."""
    start, end = where
    before = sentence.tokens[start - 1] if start else None
    if end - start == 1 and before is not None and before.tag == "VBN":
        return sentence.tokens[start].lower in ("of", "by", "with", "in", "to", "for")
    return not is_place_for(sentence, end)


def _ways(sentence: Sentence, slots: Sequence[Slot], words: Vocabulary, rng: Random) -> Ways:
    choices = [(slot, others) for slot in slots if (others := _others(slot, words))]
    used = set(sentence.lemmas) if choices else set()
    for _ in range(_TRIES if choices else 0):
        slot, others = rng.choice(choices)
        other = rng.choice(others)
        if other in used or _clashes(sentence, slot, other):
            continue
        used.add(other)
        form = in_form_of(sentence.tokens[slot.where[0]], other, _tag(sentence, slot))
        if form:
            text = rewrite(sentence, (Put(*slot.where, form),))
            yield Draft(text, "replace", slot.subtype)


def _others(slot: Slot, words: Vocabulary) -> tuple[str, ...]:
    found = words.others(slot.word, slot.pos, slot.noun)
    if slot.pos != "ADP":
        return found
    return tuple(other for other in found if other in _SETTLED)


def _tag(sentence: Sentence, slot: Slot) -> str:
    """The form that the new words need: a noun's is that of the last word."""
    if slot.pos in ("ADP", "NUM"):
        return "IN"
    if slot.pos == "ADJ" and sentence.tokens[slot.where[0]].tag == "NN":
        return "JJ"
    return sentence.tokens[slot.where[1] - 1 if slot.pos == "NOUN" else slot.where[0]].tag


def _clashes(sentence: Sentence, slot: Slot, other: str) -> bool:
    """Whether a pronoun no longer fits: "a man with his dog", "a woman with his dog"."""
    if slot.subtype != "obj" or not any(t.lower in _GENDERED for t in sentence.tokens):
        return False
    return any("person" in meaning.kinds for meaning in lexicon.meanings(other, "NOUN"))


def _crepe(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    for find in (_objects, _attributes, _relations):
        yield _ways(sentence, find(sentence), words, rng)


def _svlc(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    slots = [*_attributes(sentence), *_relations(sentence)]
    found = [{m.field for m in lexicon.meanings(slot.word, slot.pos)} for slot in slots]
    for fields in _SVLC.values():
        typed = [slot for slot, of in zip(slots, found, strict=True) if not of.isdisjoint(fields)]
        yield _ways(sentence, typed, words, rng)


CREPE: Final = Rule(
    "crepe-replace",
    "negative",
    "1",
    "a thing, an attribute or a relation replaced by an opposite or a sibling",
    _crepe,
)
SVLC: Final = Rule(
    "svlc",
    "negative",
    "1",
    "a colour, size, material, state or relation replaced by another of its type",
    _svlc,
)
