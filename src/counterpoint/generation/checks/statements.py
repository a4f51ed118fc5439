"""What two texts state, read from the words: who does what to whom, which noun has which attribute.

A rough reading, and the same for both texts: what it misses in one it misses in the other.

And whether the other captions of the image say what a negative says:

    a dog on a couch   a cat on a couch   "a cat and a dog on a sofa" says cat
    a red car          a blue car         "a blue vehicle" says it of the car; "a blue sky" does not

A noun counts wherever it stands. An attribute or a number counts with the same noun, a verb or a
relation with the same object. What a caption says is read once and remembered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import cache, cached_property, lru_cache
from itertools import pairwise
from typing import Final

from counterpoint.generation.checks.change import Part, TextChange
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import forms, lemmas, numbers, role

_Place = tuple[int, int, str]
_Stated = Sequence[tuple[Part, str, Part]]


@cache
def _known() -> dict[str, list[Part]]:
    """The lexicon's relations by their first word, the longest first."""
    found: dict[str, list[Part]] = {}
    for words in sorted(map(str.split, sorted(lexicon.relations())), key=len, reverse=True):
        found.setdefault(words[0], []).append(tuple(words))
    return found


@lru_cache(maxsize=4096)
def places(words: Part) -> tuple[_Place, ...]:
    """Every relation of the lexicon in a text: where it starts, where it ends, how it is listed.

    Of those that start at one word it is the longest.
    """
    found, place = [], 1
    while place < len(words) - 1:
        rest = words[place + 1 :]
        fitting = (r for r in _starting(words[place]) if rest[: len(r) - 1] == r[1:])
        if longest := max(fitting, key=len, default=()):
            found.append((place, place + len(longest), " ".join(longest)))
        place += max(len(longest), 1)
    return tuple(found)


@lru_cache(maxsize=4096)
def _relations_of_nouns(words: Part) -> _Stated:
    """Every relation between two nouns, in order."""
    return [
        ((first,), relation, (second,))
        for start, end, relation in places(words)
        if (first := noun_before(words, start)) and (second := noun_after(words, end))
    ]


@lru_cache(maxsize=1 << 14)
def _starting(word: str) -> tuple[Part, ...]:
    """Relations that start with the word or a form of it; of equally long ones the word's own."""
    own = _known().get(word, [])
    return (*own, *(r for lemma in sorted(lemmas(word) - {word}) for r in _known().get(lemma, ())))


def noun_before(words: Part, place: int) -> str:
    for word in reversed(words[max(0, place - 3) : place]):
        kind = role(word)
        if kind == "noun":
            return word
        if kind in ("joint", "preposition"):
            return ""
    return ""


def noun_after(words: Part, place: int) -> str:
    """The last noun of the phrase that starts here."""
    noun = ""
    for word in words[place : place + 5]:
        kind = role(word)
        if kind == "noun":
            noun = word
        elif noun or kind not in ("determiner", "number", "adjective"):
            break
    return noun


@lru_cache(maxsize=4096)
def bindings(words: Part) -> frozenset[tuple[str, str]]:
    """Each adjective with the noun behind it."""
    found = set()
    for place, word in enumerate(words):
        if role(word) == "adjective":
            noun = noun_after(words, place + 1)
            if noun:
                found.add((word, noun))
    return frozenset(found)


def moved_attribute(change: TextChange) -> bool:
    """Whether an adjective now describes another of the caption's nouns.

    Words that a text has twice are left out: which of them is meant cannot be told.
    """
    old, new = change.old.words, change.new.words
    before, after = dict(bindings(old)), dict(bindings(new))
    return any(
        noun != after[word]
        and old.count(word) == new.count(word) == 1
        and noun in new
        and after[word] in old
        for word, noun in before.items()
        if word in after
    )


def turned(change: TextChange) -> str:
    """Whether a relation has changed its arguments, or become its converse, without the other."""
    old, new = change.old.words, change.new.words
    return _turned(_stated(old), _stated(new)) or _turned(
        _relations_of_nouns(old), _relations_of_nouns(new)
    )


@lru_cache(maxsize=4096)
def _stated(words: Part) -> _Stated:
    return _splits(words, places(words))


def _turned(before: _Stated, after: _Stated) -> str:
    said = {(first, second): relation for first, relation, second in after}
    own = {(first, second) for first, _, second in before}
    for first, relation, second in before:
        if (second, first) in own:  # the caption itself says both: nothing can be told
            continue
        back, straight = said.get((second, first)), said.get((first, second))
        if back and lexicon.may_be_same(back, relation) and not lexicon.is_symmetric(relation):
            return "arguments swapped"
        other = lexicon.converse(relation)
        if straight and other and lexicon.may_be_same(straight, other):
            return "converse"
    return ""


def converse_exchange(change: TextChange) -> bool:
    """Whether all before a relation and all behind it have changed places, and the relation fits.

    "a cat left of a dog" and "a dog to the right of a cat" say the same; so do "a cat near a dog"
    and "a dog next to a cat", where the relation is symmetric.
    """
    old, new = change.old.words, change.new.words
    start, end = change.start, len(old) - change.tail
    # With the same words only a symmetric relation can stay as it is.
    turns = lexicon.is_symmetric if change.same_bag else _has_turn
    mine = [p for p in places(old) if p[0] < end and p[1] > start and turns(p[2])]
    if not mine:
        return False
    skip = _frame(change.before)
    other = [p for p in places(new) if any(_turns_into(m[2], p[2]) for m in mine)]
    if not other:
        return False
    turned_round = _splits(new, other, skip)
    return any(
        (first, second) == (other_second, other_first) and _turns_into(relation, back)
        for first, relation, second in _splits(old, mine, skip)
        for other_first, back, other_second in turned_round
    )


def _frame(shared: Part) -> int:
    """How many words both start with that only introduce what is seen: "there is", "a photo of"."""
    found = 0
    for place, (before, word) in enumerate(pairwise(("", *shared)), 1):
        if word in ("is", "are") or (word == "of" and before in WORDS.pictures):
            found = place
    return found


def _splits(words: Part, cuts: Iterable[_Place], skip: int = 0) -> _Stated:
    """The text from some word on, cut at relations, articles aside."""
    return [
        (_plain(words[skip:start]), relation, _plain(words[end:]))
        for start, end, relation in cuts
        if start > skip
    ]


@lru_cache(maxsize=1 << 12)
def _has_turn(relation: str) -> bool:
    return bool(lexicon.converse(relation)) or lexicon.is_symmetric(relation)


@lru_cache(maxsize=1 << 14)
def _turns_into(relation: str, other: str) -> bool:
    back = lexicon.converse(relation)
    if not back and lexicon.is_symmetric(relation):
        back = relation
    return bool(back) and lexicon.may_be_same(back, other)


def _plain(words: Part, links: Collection[str] = ("is", "are", "that", "which")) -> Part:
    """Without articles, and without the verb that links a noun to its relation."""
    while words and words[-1] in links:
        words = words[:-1]
    return tuple(word for word in words if word not in WORDS.determiners)


def passive(change: TextChange) -> str:
    """How a change of voice treats the two nouns: "same", "turned", or "" if there is none.

    "a man riding a horse" and "a horse being ridden by a man" are the same; "a man being ridden by
    a horse" is turned.
    """
    old, new = change.old.words, change.new.words
    if ("by" in old) == ("by" in new):
        return ""
    passively, actively = (old, new) if "by" in old else (new, old)
    place = passively.index("by")
    if place < 2:
        return ""
    patient = _plain(passively[: place - 1], WORDS.links)
    agent = _plain(passively[place + 1 :])
    verb = lemmas(passively[place - 1])
    for here, word in enumerate(actively):
        if here and not verb.isdisjoint(lemmas(word)):
            subject, rest = _plain(actively[:here], WORDS.links), _plain(actively[here + 1 :])
            if (subject, rest) == (patient, agent):
                return "turned"
            size, length = len(subject), len(patient)
            if (agent[:size], rest[:length]) == (subject, patient) and (
                agent[size:] == rest[length:]  # what follows both: "on a beach"
            ):
                return "same"
    return ""


# --- what the other captions of an image say -----------------------------------------------------

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


statements = lru_cache(maxsize=4096)(Statements)  # of a caption as `normal` gives it


def said_by_another(change: TextChange, others: Collection[Part]) -> bool:
    """Whether all that a text says anew is said by the image's other captions."""
    new, start = change.new.words, change.start
    end = len(new) - change.tail
    told = [place for place in range(start, end) if role(new[place]) in _TELLING]
    said = list(map(statements, others))
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
                found.update(meaning.offered, meaning.also)
    return frozenset(name for name in found if role(name) != "preposition") - _generic()


@cache
def _generic() -> frozenset[str]:
    """Words that say nothing of a thing: "object", "piece", "area"."""
    kinds = (m for head in ("thing", "people", "place") for m in lexicon.meanings(head, "NOUN"))
    return frozenset(name for m in kinds for name in (*m.offered, *m.also))


@lru_cache(maxsize=1 << 14)
def _same_value(word: str, other: str) -> bool:
    if numbers((word,)):
        return numbers((word,)) == numbers((other,))
    return not _names(word).isdisjoint(lemmas(other))


@lru_cache(maxsize=1 << 14)
def _same_relation(relation: str, other: str) -> bool:
    return relation == other or any(relation in m.offered for m in lexicon.meanings(other))


@lru_cache(maxsize=1 << 14)
def _one_thing(noun: str, other: str) -> bool:
    """Whether two nouns may name the same thing."""
    first, second = ([f for f in forms(n) if f not in _generic()] for n in (noun, other))
    return any(lexicon.may_be_same(a, b) for a in first for b in second)
