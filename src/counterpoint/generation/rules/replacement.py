"""Replacements: one word is replaced by another, which makes the caption false, or by a synonym.

`crepe-replace` takes an opposite or a sibling, for a thing, an attribute and a relation each.
`svlc` goes by type (colour, size, material, state, relation) as SVLC's lists do, but never from a
word to one with the same meaning: in the authors' lists "big" is a negative of "large".

`hard-positives` uses the synonyms of the paper: whole words only, in every tense (the published
data was made by replacing letters: "covecrimson"), and not where a word has another sense ("in a
red shirt" is not "within a red shirt"). `synonyms` uses the lexicon.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise
from random import Random
from typing import Final, NamedTuple

from counterpoint.benchmarks import SYNONYMS
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.sentences import (
    NOUNS,
    Put,
    Sentence,
    in_form_of,
    rewrite,
    word_set,
)
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import (
    Range,
    attributes,
    is_place_for,
    object_of,
    prepositions,
    said_of,
    starts_phrase,
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
# The verbs of the map, by their dictionary forms.
_VERBS: Final = {
    "hold": "grasp",
    "hang": "dangle",
    "walk": "stroll",
    "eat": "ingest",
    "look": "gaze",
    "ride on": "travel on",
    "ride": "travel on",
}
_BE: Final = {"VBZ": "is", "VBP": "are", "VBD": "was"}
_PREPOSITIONS: Final = (*("on top of", "next to", "behind", "near", "under", "above", "by", "in"),)
_ADJECTIVES: Final = {
    word: synonym
    for word, synonym in SYNONYMS["attributes"].items()
    if word not in ("eating", "hanging", "looking", "walking")  # verbs, also before a noun
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


def _paper(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    for subtype, found in (("att", _attribute_puts), ("rel", _relation_puts)):
        puts = list(found(sentence))
        rng.shuffle(puts)
        yield [Draft(rewrite(sentence, (put,)), "replace", subtype) for put in puts]


def _attribute_puts(sentence: Sentence) -> Iterator[Put]:
    for i, token in enumerate(sentence.tokens):
        synonym = _ADJECTIVES.get(token.lower)
        if synonym is None or _joined(sentence, i):
            continue
        noun = said_of(sentence, i)
        if noun and token.tag in ("JJ", "NN", "VBG", "VBN", "NNP") and _fits(token.lower, noun):
            yield Put(i, i + 1, in_form_of(token, synonym, "JJ"))


def _fits(word: str, noun: str) -> bool:
    """Whether the lexicon knows no reason why a word has another sense with this noun."""
    meanings = lexicon.meanings(word, "ADJ")
    return not meanings or any(lexicon.fits(meaning, noun) for meaning in meanings)


def _joined(sentence: Sentence, place: int) -> bool:
    """A part of "black and white", of "dark blue" or of "blue-green"."""
    tokens = sentence.tokens
    around = [tokens[i].lower for i in (place - 1, place + 1) if 0 <= i < len(tokens)]
    shades = {"and", "-", "dark", "light", "bright", "pale", "&", "or"}
    return any(word in shades for word in around)


def _relation_puts(sentence: Sentence) -> Iterator[Put]:
    for i, token in enumerate(sentence.tokens):
        if token.lower in ("wearing", "wears") and token.pos == "VERB":
            yield Put(i, i + 1, in_form_of(token, "in", "IN"))
        elif token.pos == "VERB" or token.lower in ("sitting", "riding", "holding"):
            yield from _verb_puts(sentence, i)
        else:
            yield from _preposition_puts(sentence, i)


def _verb_puts(sentence: Sentence, place: int) -> Iterator[Put]:
    token = sentence.tokens[place]
    lemma = sentence.lemma(place) if token.pos == "VERB" else token.lower.removesuffix("ing")
    after = sentence.tokens[place + 1].lower if place + 1 < len(sentence.tokens) else ""
    if lemma in ("sit", "sitt"):
        form = "seated" if token.tag == "VBG" or token.pos != "VERB" else ""
        form = f"{_BE[token.tag]} seated" if token.tag in _BE else form
        if form and after not in ("down", "up"):
            yield Put(place, place + 1, in_form_of(token, form, "IN"))
        return
    if lemma == "look" and (after in ("for", "like", "after", "as") or token.tag == "VB"):
        return
    if lemma in ("walk", "hang") and _has_object(sentence, place):
        return  # "walking a dog", "hanging a picture"
    phrase = f"{lemma} {after}"
    synonym, end = (
        (_VERBS[phrase], place + 2) if phrase in _VERBS else (_VERBS.get(lemma), place + 1)
    )
    if lemma == "ride" and end == place + 1 and not _has_object(sentence, place):
        return
    if synonym:
        yield Put(place, end, in_form_of(token, synonym))


def _has_object(sentence: Sentence, verb: int) -> bool:
    """ "a man riding a horse", but not "a walking man"."""
    tokens = sentence.tokens
    if verb + 1 == len(tokens) or tokens[verb + 1].tag == "IN":
        return False
    inside = verb == 0 or tokens[verb - 1].tag in ("DT", "JJ", "IN", "PRP$", "CD")
    return starts_phrase(sentence, verb + 1) and not (inside and tokens[verb + 1].tag in NOUNS)


def _preposition_puts(sentence: Sentence, place: int) -> Iterator[Put]:
    tokens = sentence.tokens
    for name in _PREPOSITIONS:
        parts = name.split()
        end = place + len(parts)
        if end < len(tokens) and [t.lower for t in tokens[place:end]] == parts:
            if not _other_sense(sentence, name, place, end):
                yield Put(place, end, in_form_of(tokens[place], SYNONYMS["relations"][name], "IN"))
            return


def _other_sense(sentence: Sentence, name: str, place: int, end: int) -> bool:
    before = sentence.tokens[place - 1] if place else None
    if not starts_phrase(sentence, end):
        return True  # "walking by", "parked in between"
    if name == "by":
        return before is None or before.tag == "VBN" or before.lower == "side"
    if name == "in":
        said = before is not None and before.tag in ("VBN", "VBD")  # "dressed in", "covered in"
        return said or not is_place_for(sentence, end)
    return before is not None and before.lower == "from" and name in ("above", "behind", "under")


def _lexicon(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    for subtype, found in (
        ("obj", _thing_synonyms),
        ("att", _adjective_synonyms),
        ("rel", _relation_synonyms),
    ):
        sure = list(found(sentence, replace(words, doubtful=False)))
        rest = [put for put in found(sentence, words) if put not in sure] if words.doubtful else []
        rng.shuffle(sure)
        rng.shuffle(rest)
        yield [Draft(rewrite(sentence, (put,)), "replace", subtype) for put in (*sure, *rest)]


def _thing_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Put]:
    for i in things(sentence):
        if i and sentence.tokens[i - 1].tag in NOUNS:
            continue  # "fire truck" is not "fire lorry"
        lemma = sentence.lemma(i)
        for synonym in words.synonyms(lemma, "NOUN", ""):
            if lemma not in synonym.split():  # "a pair of pair of scissors"
                yield from _put(sentence, i, i + 1, synonym)


def _adjective_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Put]:
    for i in attributes(sentence):
        described = said_of(sentence, i)
        if described and not _joined(sentence, i):
            for synonym in words.synonyms(sentence.lemma(i), "ADJ", described):
                yield from _put(sentence, i, i + 1, synonym)


def _relation_synonyms(sentence: Sentence, words: Vocabulary) -> Iterator[Put]:
    for i in range(len(sentence.tokens)):
        slot = relation_slot(sentence, i)
        if slot is not None:
            for synonym in words.synonyms(slot.word, slot.pos, slot.noun):
                tag = "IN" if slot.pos == "ADP" else None
                yield from _put(sentence, *slot.where, synonym, tag)


def _put(
    sentence: Sentence, start: int, end: int, synonym: str, tag: str | None = None
) -> Iterator[Put]:
    form = in_form_of(sentence.tokens[start], synonym, tag)
    if form and form.lower() != "lied":  # "laid": the forms of that other "to lie"
        yield Put(start, end, form)


PAPER: Final = Rule(
    "hard-positives", "positive", "1", "a synonym of the Hard Positives paper's map", _paper
)
LEXICON: Final = Rule("synonyms", "positive", "2", "a synonym of the lexicon", _lexicon)
