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
from typing import Final, NamedTuple

from counterpoint.generation.language import lexicon, plausibility
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    NOUNS,
    Put,
    Range,
    Sentence,
    Token,
    prepositions,
)
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules import fitting

_TRIES: Final = {"obj": 4, "att": 4, "count": 2, "rel": 4}  # drafts that are ranked
_SVLC: Final[dict[str, list[str]]] = TABLES["svlc"]
_NUMBERS: Final = ("two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


_SLIDING: Final = ("ski", "snow", "sled", "slid")


# --- things ---------------------------------------------------------------------------------------


_LIKELIEST: Final = 12  # nouns that are tried in the place of one


class Slot(NamedTuple):
    """Words that can be replaced, with their part of speech."""

    where: Range
    word: str
    pos: str
    subtype: str
    noun: str = ""  # what it is said of


Choice = tuple[Slot, str]  # a slot and a dictionary form that can take its place


def siblings(sentence: Sentence) -> list[Choice]:
    """A compound is one thing: what replaces a "bat" need not replace a "baseball bat"."""
    found = []
    tokens, lemmas = sentence.tokens, sentence.lemmas
    heads = sentence.things()
    for noun in heads:
        where = sentence.whole(noun)
        before = "".join(f"{token.lower} " for token in tokens[where[0] : noun])
        slot = Slot(where, before + lemmas[noun], "NOUN", "obj")
        of = sentence.word(noun + 1) == "of"  # "a cup of": a measure
        name = lexicon.is_listed(f"{sentence.word(noun - 1)} {lemmas[noun]}")  # "hot dog"
        odd = sentence.word(where[0] - 1) == "a" and tokens[noun].tag == "NNS"
        if of or name or odd or lemmas.count(lemmas[noun]) > 1 or not fitting.is_thing(slot.word):
            continue
        fits = _Surroundings.of(sentence, slot)
        bound = fits.listed or "its" in lemmas or fitting.is_any(slot.word, WORDS.grounds)
        if bound and not fitting.is_any(slot.word, WORDS.animate):
            continue  # "cars and a bus": a motorcycle may be there, too
        if fitting.is_held_by(slot.word, fits.before, (lemmas[i] for i in heads if i != noun)):
            continue
        company = _Company.of(sentence, where)
        found += [
            (slot, other)
            for other in lexicon.rivals(slot.word, "NOUN")[:_LIKELIEST]
            if lemmas[noun] not in other.split()
            and other not in slot.word
            and fits.let(other)
            and company.knows(other)
        ]
    return found


class _Company(NamedTuple):
    """The verb, or the preposition and what it belongs to, on both sides of a noun."""

    before: tuple[str, ...]
    after: tuple[str, ...]
    token: Token
    tag: str

    @classmethod
    def of(cls, sentence: Sentence, where: Range) -> _Company:
        tokens, (start, end) = sentence.tokens, where
        left = [token for token in tokens[:start] if _is_bone(token)][-2:]
        right = [token for token in tokens[end:] if _is_bone(token)][:2]
        if not (left and left[-1].tag in ("IN", "TO", "RP")):
            left = [token for token in left[-1:] if token.pos == "VERB"]
        if not (right and tokens[end] == right[0] and right[0].tag == "IN"):
            right = [token for token in right[:1] if token.pos == "VERB"]
        before, after = (tuple(token.lower for token in side) for side in (left, right))
        return cls(before, after, tokens[start], tokens[end - 1].tag)

    def knows(self, other: str) -> bool:
        """Whether captions have another noun in its place: no "train crosses a sidewalk".

        People do everything, so a person stands for a person anywhere, and so do cats and dogs.
        """
        if fitting.is_any(other, WORDS.do_all):
            return True
        form = self.token.form_of(other, self.tag).lower().split() or [other]
        return all(
            plausibility.shipped().count(*chain, chain="skeleton")
            for chain in ((*self.before, form[0]), (form[-1], *self.after))
        )


def _is_bone(token: Token) -> bool:
    """Whether a word is in the skeleton of its caption (plausibility.py)."""
    return token.tag.startswith(("NN", "VB", "IN", "RP", "TO", "CC")) and token.pos != "AUX"


class _Surroundings(NamedTuple):
    """The words that a noun has to go with."""

    noun: str
    countable: bool | None  # None: either
    adjectives: tuple[str, ...]
    before: str  # the preposition that governs it, or empty
    verb: str  # the verb whose object it is, or empty
    neutral: bool  # no person's pronoun
    listed: bool  # beside other things

    @classmethod
    def of(cls, sentence: Sentence, slot: Slot) -> _Surroundings:
        tokens, start = sentence.tokens, slot.where[0]
        while sentence.at(start - 1).tag in (*ADJECTIVES, "VBN", "RB", "HYPH", "CD"):
            start -= 1
        before_noun = sentence.at(start - 2).tag in ("DT", "CD", "PRP$")
        if sentence.at(start - 1).tag == "VBG" and before_noun:
            start -= 1  # "a rolling suitcase"
        described = tokens[start : slot.where[0]]
        determiner = sentence.at(start - 1)
        countable: bool | None = determiner.lower in ("a", "an") or None
        if tokens[slot.where[1] - 1].tag == "NNS":
            countable = True
        elif sentence.has(WORDS.articles):  # no headline
            bare = determiner.tag not in ("DT", "PRP$", "POS")
            countable = False if bare or determiner.lower == "some" else countable
        start -= determiner.tag in ("DT", "PRP$")
        governor = sentence.at(start - 1)
        return cls(
            slot.word,
            countable,
            tuple(token.lower for token in described if token.tag in (*ADJECTIVES, "VBG", "VBN")),
            _preposition(sentence, start - 1) if governor.tag == "IN" else "",
            sentence.lemmas[start - 1] if governor.pos == "VERB" else "",
            not sentence.has(WORDS.gendered),
            _is_listed(sentence, start, slot.where[1]),
        )

    def let(self, other: str) -> bool:
        """Whether another noun can stand here."""
        counted = fitting.is_countable(other)
        if counted is not None and self.countable not in (None, counted):
            return False
        if not self.neutral and fitting.is_any(other, WORDS.people):
            return False  # "a woman with his dog"
        return (
            fitting.is_usual(other)
            and fitting.can_replace(self.noun, other)
            and not (self.countable and other in WORDS.plural_nouns)
            and all(_fits(adjective, other) for adjective in self.adjectives)
            and (not self.before or fitting.follows(self.before, other))
            and fitting.can_take(self.verb, self.noun, other)
        )


def _is_listed(sentence: Sentence, start: int, end: int) -> bool:
    """Whether a phrase is one of several, or only said to be there: "a desk next to a printer"."""
    before = sentence.word(start - 1)
    if before == "to":
        before = sentence.word(start - 2)
    return before in WORDS.beside or before == "," or sentence.word(end) in ("and", "or", ",")


def _fits(adjective: str, noun: str) -> bool:
    """As the lexicon says, and for a participle, as captions do: no "rolling pitcher"."""
    if lexicon.meanings(adjective, "ADJ"):
        return fitting.is_said_of(adjective, noun)
    return fitting.is_in_captions(adjective, noun)


def _preposition(sentence: Sentence, place: int) -> str:
    """A preposition, "of" with the word before it: "cup of"."""
    word = sentence.tokens[place].lower
    return f"{sentence.tokens[place - 1].lower} of" if word == "of" and place else word


# --- relations and verbs --------------------------------------------------------------------------


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
    return Slot(where, word, "ADP", "rel", sentence.object_of(where[1]))


def _verb_slot(sentence: Sentence, place: int) -> Slot | None:
    lemma = sentence.lemmas[place]
    phrase = f"{lemma} {sentence.word(place + 1)}"
    if lexicon.meanings(phrase, "VERB"):
        return Slot((place, place + 2), phrase, "VERB", "rel")
    return Slot((place, place + 1), lemma, "VERB", "rel", sentence.object_of(place + 1))


def _fixed(sentence: Sentence, where: Range) -> bool:
    """A preposition without an object, or one that belongs to the word before it: "made of"."""
    start, end = where
    if end - start == 1 and sentence.at(start - 1).tag == "VBN":
        return sentence.tokens[start].lower in ("of", "by", "with", "in", "to", "for")
    return not sentence.is_place_for(end)


# --- attributes and numbers --------------------------------------------------------------------


@lru_cache(1)  # several rules ask in turn
def _attributes(sentence: Sentence) -> list[Choice]:
    """Adjectives, and materials before a noun ("brick wall")."""
    tokens = sentence.tokens
    places = sentence.attributes()
    for i, (token, after) in enumerate(pairwise(tokens)):
        if token.tag == "NN" and after.tag in NOUNS and fitting.fields_of(token.lower, "ADJ"):
            places.append(i)
    found = []
    for i in places:
        noun = sentence.noun_described(i)
        name = sentence.name_of(noun) if noun >= 0 else sentence.said_of(i)
        slot = Slot((i, i + 1), sentence.lemmas[i], "ADJ", "att", name)
        known = noun >= 0 or lexicon.meanings(name, "NOUN")
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
    after = "".join(sentence.lemmas[slot.where[1] : slot.where[1] + 1])
    if lexicon.is_listed(f"{slot.word} {after}") or lexicon.is_listed(f"{slot.word} {slot.noun}"):
        return True
    meanings = lexicon.meanings(slot.word, "ADJ")
    return all(after in meaning.not_with for meaning in meanings)


def _numbers(sentence: Sentence) -> list[Choice]:
    """ "two dogs": the next numbers, unless the caption goes on to speak of the number."""
    found: list[Choice] = []
    if sentence.has(WORDS.counted):
        return found
    for i, token in enumerate(sentence.tokens):
        noun = sentence.noun_described(i) if token.tag == "CD" else -1
        if token.lower in _NUMBERS and sentence.at(noun).tag == "NNS":
            place = _NUMBERS.index(token.lower)
            near = [*range(max(0, place - 2), place), *range(place + 1, place + 3)]
            slot = Slot((i, i + 1), token.lower, "NUM", "count", sentence.name_of(noun))
            found += [(slot, _NUMBERS[other]) for other in near if other < len(_NUMBERS)]
    return found


# --- relations ---------------------------------------------------------------------------------


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
    phrase = sentence.noun_phrase_after(end)
    if phrase is None or start == 0 or tokens[phrase[1] - 1].tag == "NN" == tokens[end].tag:
        return  # "on bank", "in bed"
    if sentence.word(phrase[1]) in ("of", "'s"):
        return
    before = start - 1
    while before and tokens[before].tag in ("RB", "RP"):
        before -= 1
    verb = sentence.lemmas[before] if tokens[before].pos == "VERB" else ""
    verbs = (sentence.lemmas[i] for i, token in enumerate(tokens) if token.pos == "VERB")
    if not WORDS.staying.issuperset(verbs) and slot.word not in WORDS.paths:
        return  # "riding up a pool on a skateboard"
    subject = _subject(sentence, before + 1)
    if not verb and not fitting.is_thing(subject) and not fitting.is_any(subject, WORDS.animate):
        return  # "a trick on a skateboard"
    if slot.word == "down" and any(lemma.startswith(_SLIDING) for lemma in sentence.lemmas):
        return  # "snowboarding up a hill"
    name = sentence.name_of(phrase[1] - 1)
    several = tokens[phrase[1] - 1].tag == "NNS"  # on one tray, and next to another
    for other in fitting.places_for(slot.word, name, subject, verb):
        if not (several and other == "next to") and other not in sentence.text.lower():
            yield other


def _subject(sentence: Sentence, end: int) -> str:
    """Who does it: the closest person or animal before a token, else the closest noun."""
    tags = [token.tag for token in sentence.tokens]
    heads = (i for i in range(end - 1, -1, -1) if tags[i] in NOUNS)
    nouns = [i for i in heads if i + 1 == len(tags) or tags[i + 1] not in NOUNS]
    names = [sentence.name_of(i) for i in nouns]
    animate = (name for name in names if fitting.is_any(name, WORDS.animate))
    if names and sentence.tokens[end - 1].pos == "NOUN":
        return names[0]  # "a man with a cat on his lap"
    return next(animate, names[0] if names else "")


def _doings(sentence: Sentence, slot: Slot) -> Iterator[str]:
    tokens, start = sentence.tokens, slot.where[0]
    inside = sentence.at(start - 1).tag in ("DT", "JJ", "IN", "PRP$", "CD")  # "a walking man"
    if tokens[start].tag == "VBN" or (tokens[start].tag == "VBG" and inside):
        return
    subject = _subject(sentence, start)
    verbs = {sentence.lemmas[i] for i, token in enumerate(tokens) if token.pos == "VERB"}
    rest = verbs - {slot.word.partition(" ")[0]}
    for other in _done(sentence, slot, subject):
        # "lying on a beach trying to catch": with what else is done, one can sit or stand
        calm = other in ("sit", "stand") and rest <= WORDS.calm
        if not rest or calm or other not in WORDS.replaced_postures:
            yield other


def _done(sentence: Sentence, slot: Slot, subject: str) -> Iterator[str]:
    end = slot.where[1]
    after = sentence.at(end)
    if after.lower in ("and", ",", ".", "while", ""):
        yield from fitting.doings_for(slot.word, subject, "", "")
    elif sentence.starts_phrase(end):
        phrase = sentence.noun_phrase_after(end)
        if phrase is None:
            return
        rest = sentence.at(phrase[1])
        # "a pizza being served", "a board down a ramp"
        said = rest.tag in ("VBG", "VBN") or rest.lower in WORDS.paths | {"from", "to"}
        if not said and not sentence.starts_phrase(phrase[1]):
            yield from fitting.verbs_for(slot.word, sentence.name_of(phrase[1] - 1), subject)
    elif after.tag == "IN" and after.lower not in WORDS.particles - _OF_PATHS:
        where = prepositions().at(sentence, end)
        if where is not None and sentence.starts_phrase(where[1]):
            place = sentence.object_of(where[1])
            if place in WORDS.abstract | WORDS.states:
                return  # "jumping in the air"
            yield from fitting.doings_for(slot.word, subject, after.lower, place)


_OF_PATHS: Final = frozenset({"around", "over", "down", "up"})


# --- drafts ------------------------------------------------------------------------------------


def _ways(sentence: Sentence, choices: Sequence[Choice], rng: Random) -> Ways:
    left = [choice for choice in choices if choice[1] not in sentence.lemmas]
    count = min(_TRIES[choices[0][0].subtype], len(left))
    for slot, other in rng.sample(left, count):
        token = sentence.tokens[slot.where[0]]
        form = other if other in WORDS.plural_nouns else token.form_of(other, _tag(sentence, slot))
        if form:
            yield Draft(sentence.rewrite((Put(*slot.where, form),)), "replace", slot.subtype)


def _tag(sentence: Sentence, slot: Slot) -> str:
    """The form that the new words need: a noun's is that of the last word."""
    if slot.pos in ("ADP", "NUM"):
        return "IN"
    if slot.pos == "ADJ" and sentence.tokens[slot.where[0]].tag == "NN":
        return "JJ"
    return sentence.tokens[slot.where[1] - 1 if slot.pos == "NOUN" else slot.where[0]].tag


@rule("crepe-replace", "negative", "4")
def crepe_replace(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a thing, an attribute, a number or a relation replaced by an opposite or a sibling"""
    for find in (siblings, _attributes, _numbers, _relations):
        if choices := find(sentence):
            yield _ways(sentence, choices, rng)


@rule("svlc", "negative", "4")
def svlc(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a colour, size, material, state or relation replaced by another of its type"""
    choices = [*_attributes(sentence), *_relations(sentence)]
    found = [fitting.fields_of(slot.word, slot.pos) for slot, _ in choices]
    for fields in _SVLC.values() if choices else ():
        typed = [one for one, of in zip(choices, found, strict=True) if not of.isdisjoint(fields)]
        if typed:
            yield _ways(sentence, typed, rng)
