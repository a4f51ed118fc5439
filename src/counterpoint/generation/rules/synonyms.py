"""Synonyms: one word is replaced by a synonym.

`hard-positives` uses the paper's own map: whole words only, in every tense (the published data was
made by replacing letters: "covecrimson"), and not where a word has another sense ("in a red shirt"
is not "within a red shirt"). `synonyms` uses the lexicon.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

from counterpoint.benchmarks import SYNONYMS
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.editing import Put, in_form_of, rewrite
from counterpoint.generation.language.tagging import NOUNS, Sentence
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import (
    attributes,
    is_place_for,
    said_of,
    starts_phrase,
    things,
)
from counterpoint.generation.rules.replacement import relation_slot

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
    for subtype, found in (("obj", _things), ("att", _adjectives), ("rel", _relations)):
        sure = list(found(sentence, replace(words, doubtful=False)))
        rest = [put for put in found(sentence, words) if put not in sure] if words.doubtful else []
        rng.shuffle(sure)
        rng.shuffle(rest)
        yield [Draft(rewrite(sentence, (put,)), "replace", subtype) for put in (*sure, *rest)]


def _things(sentence: Sentence, words: Vocabulary) -> Iterator[Put]:
    for i in things(sentence):
        if i and sentence.tokens[i - 1].tag in NOUNS:
            continue  # "fire truck" is not "fire lorry"
        lemma = sentence.lemma(i)
        for synonym in words.synonyms(lemma, "NOUN", ""):
            if lemma not in synonym.split():  # "a pair of pair of scissors"
                yield from _put(sentence, i, i + 1, synonym)


def _adjectives(sentence: Sentence, words: Vocabulary) -> Iterator[Put]:
    for i in attributes(sentence):
        described = said_of(sentence, i)
        if described and not _joined(sentence, i):
            for synonym in words.synonyms(sentence.lemma(i), "ADJ", described):
                yield from _put(sentence, i, i + 1, synonym)


def _relations(sentence: Sentence, words: Vocabulary) -> Iterator[Put]:
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
