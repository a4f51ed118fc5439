"""Do other captions of the image say what a negative says?

    a dog on a couch   a cat on a couch   "a cat and a dog on a sofa" says cat
    a red car          a blue car         "a blue vehicle" says it of the car; "a blue sky" does not

A noun counts wherever it stands. An attribute or a number counts with the same noun, a verb or a
relation with the same object. What a caption says is read once and remembered.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Final

from counterpoint.generation.checks.change import TextChange
from counterpoint.generation.checks.statements import noun_after, noun_before, places
from counterpoint.generation.checks.words import forms, lemmas, numbers, role
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS

Part = tuple[str, ...]
_BOUND: Final = frozenset({"adjective", "number"})
_TELLING: Final = _BOUND | {"noun", "verb"}


class Statements:
    """What a caption says, in lemmas; each part is read when it is first asked for."""

    def __init__(self, caption: Part) -> None:
        self.caption = caption

    @cached_property
    def words(self) -> frozenset[str]:
        return frozenset[str]().union(*map(_stems, self.caption))

    @cached_property
    def kinds(self) -> frozenset[str]:
        """What its words are kinds of: puppy says dog."""
        return frozenset[str]().union(*map(_kinds, self.caption))

    @cached_property
    def phrases(self) -> frozenset[str]:
        """Every two words in a row."""
        rows = pairwise(self.caption)
        return frozenset(f"{first} {lemma}" for first, second in rows for lemma in lemmas(second))

    @cached_property
    def bound(self) -> list[tuple[str, str]]:
        """Attributes and numbers, each with its noun."""
        caption = self.caption
        return [(w, _described(caption, i)) for i, w in enumerate(caption) if role(w) in _BOUND]

    @cached_property
    def doings(self) -> list[tuple[frozenset[str], str]]:
        """Words that may tell an action, with its object."""
        caption = self.caption
        return [
            (_stems(word), noun_after(caption, place + 1) if role(word) == "verb" else "")
            for place, word in enumerate(caption)
            if role(word) in _TELLING
        ]

    @cached_property
    def relations(self) -> list[tuple[str, str]]:
        """Relations with their objects."""
        caption = self.caption
        return [(relation, noun_after(caption, end)) for _, end, relation in places(caption)]


@lru_cache(maxsize=4096)
def statements(caption: Part) -> Statements:
    """What a caption says, as `normal` gives it."""
    return Statements(caption)


def said_by_another(change: TextChange, others: Collection[Part]) -> bool:
    """Whether all that a text says anew is said by the image's other captions."""
    new, start = change.new.words, change.start
    end = len(new) - change.tail
    told = [place for place in range(start, end) if role(new[place]) in _TELLING]
    said = [statements(caption) for caption in others]
    if told:
        phrase = " ".join(new[place] for place in told)
        if " " in phrase and lexicon.is_listed(phrase):  # "hot dog" is not said by "a dog"
            return any(phrase in one.phrases for one in said)
        return all(any(_says(one, new, place) for one in said) for place in told)
    return any(
        _same_relation(relation, other) and _one_thing(noun_after(new, last), noun)
        for first, last, relation in places(new)
        if first < end and last > start
        for one in said
        for other, noun in one.relations
    )


def _says(one: Statements, new: Part, place: int) -> bool:
    word, kind = new[place], role(new[place])
    if kind in _BOUND:
        noun = _described(new, place)
        return any(_same_value(word, value) and _one_thing(noun, n) for value, n in one.bound)
    names = _names(word)
    if kind == "noun":
        return not names.isdisjoint(one.words) or not names.isdisjoint(one.kinds)
    noun = noun_after(new, place + 1)  # "wearing a bat" is not said by "wearing a hat"
    return any(
        not names.isdisjoint(doing) and (not noun or not n or _one_thing(noun, n))
        for doing, n in one.doings
    )


def _described(words: Part, place: int) -> str:
    """The noun of an attribute: "a black and white dog", "the dog is black"."""
    after = place + 1
    while after + 1 < len(words) and words[after] in WORDS.coordinators:
        after += 2
    return noun_after(words, after) or noun_before(words, place)


@lru_cache(maxsize=1 << 14)
def _stems(word: str) -> frozenset[str]:
    """The lemmas of a word, and what is done by the one it names: a surfer is surfing."""
    found = set(lemmas(word))
    if word.endswith(("er", "ers")):
        stem = word.removesuffix("s")[:-2]
        found |= {stem, stem + "e", stem[:-1]}
    return frozenset(found)


@lru_cache(maxsize=1 << 14)
def _kinds(word: str) -> frozenset[str]:
    sure = (m.head for lemma in lemmas(word) for m in lexicon.meanings(lemma) if lemma in m.words)
    return frozenset(kind for head in sure for kind in lexicon.wider(head)) - _generic()


@lru_cache(maxsize=1 << 14)
def _names(word: str) -> frozenset[str]:
    """The word and its synonyms, in lemmas."""
    found = set(lemmas(word))
    for lemma in lemmas(word):
        for meaning in lexicon.meanings(lemma):
            if lemma in meaning.words:
                found.update(meaning.offered(), meaning.also)
    return frozenset(name for name in found if role(name) != "preposition") - _generic()


@cache
def _generic() -> frozenset[str]:
    """Words that say nothing of a thing: "object", "piece", "area"."""
    kinds = (m for head in ("thing", "people", "place") for m in lexicon.meanings(head, "NOUN"))
    return frozenset(name for m in kinds for name in (*m.offered(), *m.also))


@lru_cache(maxsize=1 << 14)
def _same_value(word: str, other: str) -> bool:
    if numbers((word,)):
        return numbers((word,)) == numbers((other,))
    return not _names(word).isdisjoint(lemmas(other))


@lru_cache(maxsize=1 << 14)
def _same_relation(relation: str, other: str) -> bool:
    return relation == other or any(relation in m.offered() for m in lexicon.meanings(other))


@lru_cache(maxsize=1 << 14)
def _one_thing(noun: str, other: str) -> bool:
    """Whether two nouns may name the same thing."""
    first, second = ([f for f in forms((n,)) if f not in _generic()] for n in (noun, other))
    return any(lexicon.may_be_same(a, b) for a in first for b in second)
