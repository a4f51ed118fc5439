"""ADD negatives, SugarCrepe's third kind: a thing or an attribute that no caption mentions.

No text can show that what was added is not in the image. Three things make it improbable:

- What is added is salient: people who describe an image with a dog or a piano mention it.
- It is rare of that noun or in that scene: "a pink bus", not "a white bus".
- Neither the caption nor the image's other captions (if the input has them) mention it, or a word
  that may be true of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import islice
from random import Random
from typing import Final, NamedTuple

from counterpoint.cases import normal
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import TABLES, WORDS, rows
from counterpoint.generation.language.sentences import FINITE, NOUNS, Put, Range, Sentence
from counterpoint.generation.language.words import lemma
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules import fitting

_TRIES: Final = 3  # of many, the most plausible is always the same
_START: Final = 4  # letters that words of one thing share
_TRIED: Final = 8  # additions of which these are the first that no caption mentions
Option = tuple[Put, str]  # what is put, and the thing or attribute that it adds


def _phrases(rows: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Rows of `PHRASES: THINGS` as pairs of a phrase and the thing that it adds."""
    found = []
    for row in rows:
        words, _, nouns = row.partition(": ")
        for before in words.split(", "):
            found += [(f"{before} {noun}", noun) for noun in nouns.split(", ")]
    return tuple(found)


class _Scene(NamedTuple):
    """Words that show where a photograph was taken, and what can be added there."""

    words: frozenset[str]
    phrases: tuple[tuple[str, str], ...]
    open: bool
    water: bool


_ADDITIONS: Final = TABLES["additions"]
_WITH_PEOPLE: Final = _phrases(_ADDITIONS["people"])
_WITH_ANIMALS: Final = _phrases(_ADDITIONS["animals"])
_SCENES: Final = [
    _Scene(
        WORDS.words(scene["words"]),
        _phrases(scene["things"]),
        scene.get("open", False),
        scene.get("water", False),
    )
    for scene in _ADDITIONS["scenes"]
]
_ATTRIBUTES: Final = rows("added_attributes")
_LIKELY: Final = rows("likely")


@rule("add", "negative", "2")
def add(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """a thing or an attribute added that no caption of the image mentions"""
    said = _said(sentence, words.true)
    for subtype, found in (("obj", _objects), ("att", _attributes)):
        options = list(found(sentence))
        some = rng.sample(options, min(_TRIED, len(options)))
        new = (put for put, thing in some if is_new(thing, said))
        yield [Draft(sentence.rewrite((put,)), "add", subtype) for put in islice(new, _TRIES)]


class Said(NamedTuple):
    """The words of the image's captions that may speak of a thing, also in the singular."""

    words: frozenset[str]
    starts: frozenset[str]  # of these words: "mud", "muddy"
    listed: frozenset[str]  # the words that the lexicon has


def _said(sentence: Sentence, others: Sequence[str]) -> Said:
    words = {token.lower for token in sentence.tokens}.union(*map(normal, others))
    found = frozenset[str]().union(*map(_content, words))
    starts = frozenset(word[:_START] for word in found)
    return Said(found, starts, frozenset(filter(lexicon.is_listed, found)))


_PLURAL_ENDINGS: Final = ("s", "men", "ren", "ice", "ese", "eet", "ople")


@lru_cache(1 << 15)
def _content(word: str) -> frozenset[str]:
    """A word and its singular; nothing for "next", "with" and other words of grammar."""
    # Other words are no plurals, and to look them up is slow.
    forms = {word, lemma(word, "NOUN")} if word.endswith(_PLURAL_ENDINGS) else {word}
    of_things = any(fitting.fields_of(form, pos) for form in forms for pos in ("NOUN", "ADJ"))
    known = of_things or not any(lexicon.is_listed(form) for form in forms)
    return frozenset(forms) if known and len(word) > 2 else frozenset()


def is_new(thing: str, said: Said) -> bool:
    """Whether no caption of the image mentions the thing or the like: "a bird cage", "a pet".

    Nor a word that makes it likely: "rain" for "flooded".
    """
    if not _LIKELY.get(thing, frozenset()).isdisjoint(said.words):
        return False
    words = thing.split()
    # "pink" by itself counts
    parts = [word for word in words if word not in WORDS.addition_frame] or words
    return not any(
        part[:_START] in said.starts or any(lexicon.may_be_same(word, part) for word in said.listed)
        for part in parts
    )


# --- things -------------------------------------------------------------------------------------


def _objects(sentence: Sentence) -> Iterator[Option]:
    tokens = sentence.tokens
    first = sentence.noun_phrase_after(0)
    if first is not None and _can_be_followed(sentence, first):
        name = sentence.name_of(first[1] - 1)
        held = not WORDS.hands_busy.isdisjoint(sentence.lemmas)
        phrases: tuple[tuple[str, str], ...] = ()
        if fitting.is_any(name, WORDS.people):
            phrases = _WITH_PEOPLE
        elif fitting.is_any(name, WORDS.animate):
            phrases = _WITH_ANIMALS
        several = tokens[first[1] - 1].tag == "NNS"
        left_out: tuple[str, ...] = ("hold", "wear") if held or several else ()
        left_out += ("with",) if held else ()
        if not several and tokens[first[1]].tag in FINITE:
            left_out += ("and",)  # "a cow and a goat stands"
        for phrase, thing in phrases:
            if not phrase.startswith(left_out):
                yield Put(first[1], first[1], phrase), thing
    end = len(tokens) - (tokens[-1].text in (".", "!"))
    if end > 2 and tokens[end - 1].tag in NOUNS and _is_solid(sentence.lemmas[end - 1]):
        yield from _at_end(sentence, end)


def _is_solid(noun: str) -> bool:
    """Whether a thing can stand next to it: not "rain", "pollution", "background"."""
    meanings = lexicon.meanings(noun, "NOUN")
    vague = any(meaning.field in WORDS.unsolid_fields for meaning in meanings)
    return bool(meanings) and not vague and noun not in WORDS.abstract | WORDS.states


def _can_be_followed(sentence: Sentence, phrase: Range) -> bool:
    """Whether a phrase may come behind the first one: not in "a man and", "a group of"."""
    first, after = sentence.tokens[phrase[0]], sentence.at(phrase[1])
    if first.tag not in ("DT", "CD", "NN", "NNS", "JJ") or "alone" in sentence.lemmas:
        return False
    return after.pos in ("VERB", "AUX") and after.tag != "VBN"


def _at_end(sentence: Sentence, end: int) -> Iterator[Option]:
    """ "... on a beach near a lighthouse": by the last place or thing that the caption names."""
    names = [kind for i in sentence.things() for kind in fitting.kinds_of(sentence.name_of(i))]
    scenes = [scene for scene in _SCENES if not scene.words.isdisjoint(names)]
    outside = {scene.open for scene in scenes}
    on_water = any(scene.water for scene in scenes[1:])
    if "inside" in sentence.lemmas or len(outside) > 1 or on_water:
        return  # bananas among branches: neither what is on a table nor what is in a street
    phrases = scenes[0].phrases if scenes else ()
    frames = ("and", "with", "near", "next", "under")
    taken = {token.lower for token in sentence.tokens}.intersection(frames)
    last = fitting.kinds_of(sentence.name_of(end - 1))
    for phrase, thing in phrases:
        start = phrase.partition(" ")[0]
        if start not in taken and not (start == "and" and "people" in last):
            # before the full stop
            yield Put(end - 1, end, f"{sentence.tokens[end - 1].text} {phrase}"), thing


# --- attributes ---------------------------------------------------------------------------------


def _attributes(sentence: Sentence) -> Iterator[Option]:
    for noun in sentence.things():
        start = sentence.whole(noun)[0]
        if sentence.at(start - 1).tag not in ("DT", "CD", "PRP$"):
            continue  # it has an adjective, or no article to carry one
        if not WORDS.abstract.isdisjoint(sentence.lemmas[start:noun]):
            continue  # "an orange couple shelves"
        name = sentence.name_of(noun)
        row = fitting.row_of(_ATTRIBUTES, name) or frozenset()
        for adjective in sorted(row):
            if lexicon.may_describe(adjective, name):
                yield Put(start, start, adjective), adjective
