"""Replacements: one word is replaced by another, which makes the caption false.

`crepe-replace` takes an opposite or a sibling, for a thing, an attribute, a number and a relation
each. `svlc` goes by type (colour, size, material, state, relation) as SVLC's lists do, but never
from a word to one with the same meaning: in the authors' lists "big" is a negative of "large".

What may stand in a place is decided by `fitting`: the text must be false, and possible.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Final

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.phrases import (
    Range,
    attributes,
    is_place_for,
    noun_described,
    noun_phrase_after,
    object_of,
    prepositions,
    said_of,
    starts_phrase,
)
from counterpoint.generation.language.sentences import (
    NOUNS,
    Put,
    Sentence,
    in_form_of,
    rewrite,
)
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules import fitting
from counterpoint.generation.rules.siblings import Choice, Slot, name_of, siblings

_TRIES: Final = {"obj": 4, "att": 4, "count": 2, "rel": 4}  # drafts that are ranked
_SVLC: Final = {
    "colour": ("colour",),
    "size": ("size", "height", "length", "width", "depth", "thickness", "weight", "build"),
    "material": ("material",),
    "state": ("state", "age", "feeling", "heat", "food_state", "weather", "light", "surface"),
    "relation": ("place", "handling", "movement", "posture", "looking", "food_action"),
}
_NUMBERS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


_SLIDING: Final = ("ski", "snow", "sled", "slid")


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
    word = sentence.words(*where)
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


# --- attributes and numbers ----------------------------------------------------------------------


@lru_cache(1)  # several rules ask in turn
def _attributes(sentence: Sentence) -> list[Choice]:
    """Adjectives, and materials before a noun ("brick wall")."""
    tokens = sentence.tokens
    places = attributes(sentence)
    for i, (token, after) in enumerate(pairwise(tokens)):
        if token.tag == "NN" and after.tag in NOUNS and fitting.fields_of(token.lower, "ADJ"):
            places.append(i)
    found = []
    for i in places:
        noun = noun_described(sentence, i)
        name = name_of(sentence, noun) if noun >= 0 else said_of(sentence, i)
        slot = Slot((i, i + 1), sentence.lemma(i), "ADJ", "att", name)
        known = noun >= 0 or fitting.is_noun(name)
        if not name or not known or _is_name(sentence, slot):
            continue
        found += [
            (slot, other)
            for other in fitting.attributes_for(slot.word, name)
            if not _contradicts(sentence, i, other)
        ]
    return found


def _contradicts(sentence: Sentence, place: int, other: str) -> bool:
    """Whether the caption goes on to say otherwise: "an empty room filled with people"."""
    lemmas = sentence.lemmas
    near = [*lemmas[max(0, place - 2) : place], *lemmas[place + 1 : place + 5]]
    full = other in ("empty", "quiet", "deserted", "dry") and not WORDS.full.isdisjoint(near)
    return full or lexicon.exclude(other, lemmas[place - 1]) if place else full


def _is_name(sentence: Sentence, slot: Slot) -> bool:
    """ "hot dog", "flat screen": a part of a name."""
    after = sentence.lemma(slot.where[1]) if slot.where[1] < len(sentence.tokens) else ""
    if lexicon.is_listed(f"{slot.word} {after}") or lexicon.is_listed(f"{slot.word} {slot.noun}"):
        return True
    meanings = lexicon.meanings(slot.word, "ADJ")
    return all(after in meaning.not_with for meaning in meanings)


def _numbers(sentence: Sentence) -> list[Choice]:
    """ "two dogs": the next numbers, unless the caption goes on to speak of the number."""
    tokens = sentence.tokens
    found: list[Choice] = []
    if any(token.lower in WORDS.counted for token in tokens):
        return found
    for i, token in enumerate(tokens):
        noun = noun_described(sentence, i) if token.tag == "CD" else -1
        if token.lower in _NUMBERS and noun >= 0 and tokens[noun].tag == "NNS":
            place = _NUMBERS.index(token.lower)
            near = [*range(max(0, place - 2), place), *range(place + 1, place + 3)]
            slot = Slot((i, i + 1), token.lower, "NUM", "count", name_of(sentence, noun))
            found += [(slot, _NUMBERS[other]) for other in near if other < len(_NUMBERS)]
    return found


# --- relations -----------------------------------------------------------------------------------


@lru_cache(1)
def _relations(sentence: Sentence) -> list[Choice]:
    found: list[Choice] = []
    place = 0
    while place < len(sentence.tokens):
        slot = relation_slot(sentence, place)
        if slot is not None:
            others = _doings(sentence, slot) if slot.pos == "VERB" else _places(sentence, slot)
            found += [
                (slot, other)
                for other in dict.fromkeys(others)
                if not lexicon.may_be_same(slot.word, other) and fitting.is_usual(other)
            ]
        place = place + 1 if slot is None else slot.where[1]
    return found


def _places(sentence: Sentence, slot: Slot) -> Iterator[str]:
    tokens, (start, end) = sentence.tokens, slot.where
    phrase = noun_phrase_after(sentence, end)
    if phrase is None or start == 0 or tokens[phrase[1] - 1].tag == "NN" == tokens[end].tag:
        return  # "on bank", "in bed"
    if phrase[1] < len(tokens) and tokens[phrase[1]].lower in ("of", "'s"):
        return
    before = start - 1
    while before and tokens[before].tag in ("RB", "RP"):
        before -= 1
    verb = sentence.lemma(before) if tokens[before].pos == "VERB" else ""
    verbs = (sentence.lemma(i) for i, token in enumerate(tokens) if token.pos == "VERB")
    if not WORDS.staying.issuperset(verbs) and slot.word not in WORDS.paths:
        return  # "riding up a pool on a skateboard"
    subject = _subject(sentence, before + 1)
    if not verb and not fitting.is_thing(subject) and not fitting.is_any(subject, WORDS.animate):
        return  # "a trick on a skateboard"
    if slot.word == "down" and any(lemma.startswith(_SLIDING) for lemma in sentence.lemmas):
        return  # "snowboarding up a hill"
    name = name_of(sentence, phrase[1] - 1)
    several = tokens[phrase[1] - 1].tag == "NNS"  # on one tray, and next to another
    for other in fitting.places_for(slot.word, name, subject, verb):
        if not (several and other == "next to") and other not in sentence.text.lower():
            yield other


def _subject(sentence: Sentence, end: int) -> str:
    """Who does it: the closest person or animal before a token, else the closest noun."""
    tags = [token.tag for token in sentence.tokens]
    heads = (i for i in range(end - 1, -1, -1) if tags[i] in NOUNS)
    nouns = [i for i in heads if i + 1 == len(tags) or tags[i + 1] not in NOUNS]
    names = [name_of(sentence, i) for i in nouns]
    animate = (name for name in names if fitting.is_any(name, WORDS.animate))
    if names and sentence.tokens[end - 1].pos == "NOUN":
        return names[0]  # "a man with a cat on his lap"
    return next(animate, names[0] if names else "")


def _doings(sentence: Sentence, slot: Slot) -> Iterator[str]:
    tokens, start = sentence.tokens, slot.where[0]
    if tokens[start].tag == "VBN" or (tokens[start].tag == "VBG" and _inside(sentence, start)):
        return
    subject = _subject(sentence, start)
    verbs = {sentence.lemma(i) for i, token in enumerate(tokens) if token.pos == "VERB"}
    rest = verbs - {slot.word.partition(" ")[0]}
    for other in _done(sentence, slot, subject):
        # "lying on a beach trying to catch": with what else is done, one can sit or stand
        if (
            not rest
            or (other in ("sit", "stand") and rest <= WORDS.calm)
            or other not in WORDS.replaced_postures
        ):
            yield other


def _done(sentence: Sentence, slot: Slot, subject: str) -> Iterator[str]:
    tokens, end = sentence.tokens, slot.where[1]
    after = tokens[end] if end < len(tokens) else None
    if after is None or after.lower in ("and", ",", ".", "while"):
        yield from fitting.doings_for(slot.word, subject, "", "")
    elif starts_phrase(sentence, end):
        phrase = noun_phrase_after(sentence, end)
        end = phrase[1] if phrase is not None else len(tokens)
        rest = tokens[end] if end < len(tokens) else None
        said = rest is not None and (  # "a pizza being served", "a board down a ramp"
            rest.tag in ("VBG", "VBN") or rest.lower in WORDS.paths | {"from", "to"}
        )
        if phrase is not None and not said and not starts_phrase(sentence, end):
            yield from fitting.verbs_for(slot.word, name_of(sentence, phrase[1] - 1), subject)
    elif after.tag == "IN" and after.lower not in WORDS.particles - {
        "around",
        "over",
        "down",
        "up",
    }:
        where = prepositions().at(sentence, end)
        if where is not None and starts_phrase(sentence, where[1]):
            place = object_of(sentence, where[1])
            if place in WORDS.abstract | WORDS.states:
                return  # "jumping in the air"
            yield from fitting.doings_for(slot.word, subject, after.lower, place)


def _inside(sentence: Sentence, verb: int) -> bool:
    """ "a walking man"."""
    return verb > 0 and sentence.tokens[verb - 1].tag in ("DT", "JJ", "IN", "PRP$", "CD")


# --- drafts --------------------------------------------------------------------------------------


def _ways(sentence: Sentence, choices: Sequence[Choice], rng: Random) -> Ways:
    left = [choice for choice in choices if choice[1] not in sentence.lemmas]
    count = min(_TRIES[choices[0][0].subtype], len(left))
    for slot, other in rng.sample(left, count):
        token = sentence.tokens[slot.where[0]]
        form = (
            other if other in WORDS.plural_nouns else in_form_of(token, other, _tag(sentence, slot))
        )
        if form:
            yield Draft(rewrite(sentence, (Put(*slot.where, form),)), "replace", slot.subtype)


def _tag(sentence: Sentence, slot: Slot) -> str:
    """The form that the new words need: a noun's is that of the last word."""
    if slot.pos in ("ADP", "NUM"):
        return "IN"
    if slot.pos == "ADJ" and sentence.tokens[slot.where[0]].tag == "NN":
        return "JJ"
    return sentence.tokens[slot.where[1] - 1 if slot.pos == "NOUN" else slot.where[0]].tag


def _crepe(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    for choices in (
        siblings(sentence),
        _attributes(sentence),
        _numbers(sentence),
        _relations(sentence),
    ):
        if choices:
            yield _ways(sentence, choices, rng)


def _svlc(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    choices = [*_attributes(sentence), *_relations(sentence)]
    found = [fitting.fields_of(slot.word, slot.pos) for slot, _ in choices]
    for fields in _SVLC.values() if choices else ():
        typed = [one for one, of in zip(choices, found, strict=True) if not of.isdisjoint(fields)]
        if typed:
            yield _ways(sentence, typed, rng)


CREPE: Final = Rule(
    "crepe-replace",
    "negative",
    "4",
    "a thing, an attribute, a number or a relation replaced by an opposite or a sibling",
    _crepe,
)
SVLC: Final = Rule(
    "svlc",
    "negative",
    "4",
    "a colour, size, material, state or relation replaced by another of its type",
    _svlc,
)
