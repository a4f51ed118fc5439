"""What two texts state, read from the words: relations and attributes, and what a slot may mean.

First: who stands in which relation to whom, and which noun has which attribute. A rough reading,
and the same for both texts: what it misses in one it misses in the other. Then: one run of words
(a slot) replaces another; may both be true of the same thing?
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache, lru_cache
from itertools import product
from typing import Final, NamedTuple, Protocol

from counterpoint.generation.checks.change import TextChange
from counterpoint.generation.checks.words import (
    AUXILIARIES,
    DETERMINERS,
    PICTURES,
    forms,
    genera,
    lemmas,
    numbers,
    role,
    spelling,
)
from counterpoint.generation.language import lexicon

Part = tuple[str, ...]
_Place = tuple[int, int, str]
_Stated = Sequence[tuple[Part, str, Part]]
_FORMS: Final = 24  # readings of a phrase that are looked up


class Triple(NamedTuple):
    """The nouns before and after a relation."""

    first: str
    relation: str
    second: str


@lru_cache(maxsize=1)
def _known() -> dict[str, list[Part]]:
    """The lexicon's relations by their first word, the longest first."""
    found: dict[str, list[Part]] = {}
    for relation in sorted(lexicon.relations(), key=lambda r: (-r.count(" "), r)):
        words = tuple(relation.split(" "))
        found.setdefault(words[0], []).append(words)
    return found


@lru_cache(maxsize=4096)
def _places(words: Part) -> tuple[_Place, ...]:
    """Every relation of the lexicon in a text: where it starts, where it ends, how it is listed."""
    found, place = [], 1
    while place < len(words) - 1:
        relation, size = _relation_at(words, place)
        if size:
            found.append((place, place + size, relation))
        place += max(size, 1)
    return tuple(found)


@lru_cache(maxsize=4096)
def triples(words: Part) -> tuple[Triple, ...]:
    """Every relation between two nouns, in order."""
    found = (
        Triple(_noun_before(words, start), relation, _noun_after(words, end))
        for start, end, relation in _places(words)
    )
    return tuple(triple for triple in found if triple.first and triple.second)


def _relation_at(words: Part, place: int) -> tuple[str, int]:
    """The longest relation that starts here, as the lexicon has it, and its number of words."""
    found: Part = ()
    for relation in _starting(words[place]):
        size = len(relation)
        if size > len(found) and words[place + 1 : place + size] == relation[1:]:
            found = relation
    return " ".join(found), len(found)


@lru_cache(maxsize=1 << 14)
def _starting(word: str) -> tuple[Part, ...]:
    """Relations that start with the word or a form of it; of equally long ones the word's own."""
    own = _known().get(word, [])
    return (*own, *(r for lemma in sorted(lemmas(word) - {word}) for r in _known().get(lemma, ())))


def _noun_before(words: Part, place: int) -> str:
    for word in reversed(words[max(0, place - 3) : place]):
        kind = role(word)
        if kind == "noun":
            return word
        if kind in ("joint", "preposition"):
            return ""
    return ""


def _noun_after(words: Part, place: int) -> str:
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
            noun = _noun_after(words, place + 1)
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
    nouns = [((t.first,), t.relation, (t.second,)) for t in triples(old)]
    other_nouns = [((t.first,), t.relation, (t.second,)) for t in triples(new)]
    return _turned(_splits(old, _places(old)), _splits(new, _places(new))) or _turned(
        nouns, other_nouns
    )


def _turned(before: _Stated, after: _Stated) -> str:
    said = {(first, second): relation for first, relation, second in after}
    own = {(first, second) for first, _, second in before}
    for first, relation, second in before:
        if (second, first) in own:  # the caption itself says both: nothing can be told
            continue
        back, straight = said.get((second, first)), said.get((first, second))
        if back and _alike(back, relation) and not lexicon.is_symmetric(relation):
            return "arguments swapped"
        other = lexicon.converse(relation)
        if straight and other and _alike(straight, other):
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
    mine = [p for p in _places(old) if p[0] < end and p[1] > start and turns(p[2])]
    if not mine:
        return False
    skip = _frame(change.before)
    other = [p for p in _places(new) if any(_turns_into(m[2], p[2]) for m in mine)]
    return any(
        (first, second) == (other_second, other_first) and _turns_into(relation, back)
        for first, relation, second in _splits(old, mine, skip)
        for other_first, back, other_second in _splits(new, other, skip)
    )


def _frame(shared: Part) -> int:
    """How many words both start with that only introduce what is seen: "there is", "a photo of"."""
    found = 0
    for place, word in enumerate(shared):
        if word in ("is", "are") or (word == "of" and place and shared[place - 1] in PICTURES):
            found = place + 1
    return found


def _splits(words: Part, places: Iterable[_Place], skip: int = 0) -> _Stated:
    """The text from some word on, cut at relations, articles aside."""
    return [
        (_plain(words[skip:start]), relation, _plain(words[end:]))
        for start, end, relation in places
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
    return bool(back) and _alike(back, other)


@lru_cache(maxsize=1 << 12)
def _alike(relation: str, other: str) -> bool:
    return relation == other or lexicon.may_be_same(relation, other)


def _plain(words: Part) -> Part:
    """Without articles, and without the verb that links a noun to its relation."""
    while words and words[-1] in ("is", "are", "that", "which"):
        words = words[:-1]
    return tuple(word for word in words if word not in DETERMINERS)


class Thesaurus(Protocol):
    """Another source of synonyms, such as WordNet."""

    def may_be_same(self, a: str, b: str) -> bool:
        """Whether two lemmas may name the same thing."""


def same_slot(change: TextChange, thesaurus: Thesaurus | None = None) -> str:
    """Why the inserted words may mean the same as the removed ones; empty if they do not."""
    old, new = _content(change.removed), _content(change.inserted)
    if not old and not new:
        return "article"
    if _only_numbers(old) and _only_numbers(new) and numbers(old) == numbers(new):
        return "same number"
    if [spelling(w) for w in old] == [spelling(w) for w in new]:
        return "spelling"
    if "".join(map(spelling, old)) == "".join(map(spelling, new)):
        return "spelling"
    if len(old) == len(new) and all(lemmas(a) & lemmas(b) for a, b in zip(old, new, strict=True)):
        return "same word"
    first, second = readings(change.removed, change), readings(change.inserted, change)
    if any_same(first, second, thesaurus):
        if genera(first) & set(second) or genera(second) & set(first):
            return "kind"
        return "near" if near_slot(change) else "synonym"
    if len(old) == len(new) > 1 and all(
        bool(lemmas(a) & lemmas(b)) or any_same(forms((a,)), forms((b,)), thesaurus)
        for a, b in zip(old, new, strict=True)
    ):
        return "synonym"
    return ""


def excluded_slot(change: TextChange) -> bool:
    """Whether the inserted words contradict the removed ones."""
    old, new = readings(change.removed, change), readings(change.inserted, change)
    return any(lexicon.exclude(a, b) for a, b in product(old, new)) and not any_same(old, new, None)


def unrelated_slot(change: TextChange) -> bool:
    """Whether the lexicon has both and no link between them."""
    return unrelated(readings(change.removed, change), readings(change.inserted, change))


def unrelated(old: Part, new: Part) -> bool:
    """The same of the readings of two words or phrases."""
    both = any(map(lexicon.is_listed, old)) and any(map(lexicon.is_listed, new))
    return both and not any_same(old, new, None)


def narrower_slot(change: TextChange) -> bool:
    """Whether a narrower word replaces a wider one: a dog need not be a puppy."""
    old, new = forms(_bare(change.removed)), forms(_bare(change.inserted))
    return bool(genera(new) & set(old)) and not genera(old) & set(new)


def near_slot(change: TextChange) -> bool:
    """Whether the inserted words are near to the removed ones, but neither a synonym nor wider."""
    old, new = readings(change.removed, change), readings(change.inserted, change)
    if not any_same(old, new, None) or set(old) & set(new) or genera(old) & set(new):
        return False
    return not lexicon.share_meaning(old, new)


def doubt(change: TextChange) -> str:
    """Why the inserted words may be false where the removed ones are true."""
    whole = _doubt(readings(change.removed, change), readings(change.inserted, change))
    if whole is not None:
        return whole
    pairs = product(change.lost, change.gained)  # a text reworded in several places
    return next(filter(None, (_doubt(forms((a,)), forms((b,))) for a, b in pairs)), "")


def _doubt(old: Part, new: Part) -> str | None:
    """Of all readings the least doubtful; None if the lexicon has no meaning of both."""
    found = (lexicon.doubt(a, b) for a, b in product(old, new))
    return min((one for one in found if one is not None), default=None)


def say_the_same(a: str, b: str) -> bool:
    """Whether two words are forms of one word, or of synonyms."""
    return bool(lemmas(a) & lemmas(b)) or lexicon.share_meaning(forms((a,)), forms((b,)))


def any_same(old: Part, new: Part, thesaurus: Thesaurus | None) -> bool:
    same = lexicon.may_be_same
    return any(same(a, b) for a, b in product(old, new)) or (
        thesaurus is not None and any(thesaurus.may_be_same(a, b) for a, b in product(old, new))
    )


def readings(part: Part, change: TextChange) -> Part:
    """What a slot may be looked up as: alone, and with the shared words of its relation.

    Of "on [top] of" and "in [front] of" the shared words belong to both.
    """
    return _readings(part, change.before[-2:], change.after[:2])


@lru_cache(maxsize=1 << 12)
def _readings(part: Part, before: Part, after: Part) -> Part:
    found = dict.fromkeys(forms(_bare(part)))
    found |= dict.fromkeys(forms(part))
    if all(_in_relation(word) for word in part):
        for left in range(len(before) + 1):
            for right in range(len(after) + 1):
                around = before[len(before) - left :], after[:right]
                if (left or right) and all(_in_relation(w) for words in around for w in words):
                    phrase = around[0] + part + around[1]
                    if _is_relation(phrase):
                        found |= dict.fromkeys(forms(phrase))
    return tuple(found)[:_FORMS]


@lru_cache(maxsize=1 << 14)
def _in_relation(word: str) -> bool:
    """Whether some relation of several words has this one in it."""
    return not lemmas(word).isdisjoint(_relation_words())


@cache
def _relation_words() -> frozenset[str]:
    return frozenset(
        w for relation in lexicon.relations() if " " in relation for w in relation.split()
    )


@lru_cache(maxsize=1 << 14)
def _is_relation(phrase: Part) -> bool:
    return phrase[0] not in DETERMINERS and any(
        m.subtype == "rel" for form in forms(phrase) for m in lexicon.meanings(form)
    )


def other_number(change: TextChange) -> bool:
    """Whether one noun was made plural or singular, and nothing else."""
    old, new = _bare(change.removed), _bare(change.inserted)
    return (
        len(old) == len(new) == 1
        and old != new
        and role(old[0]) == role(new[0]) == "noun"
        and spelling(old[0]) != spelling(new[0])
        and bool(lemmas(old[0]) & lemmas(new[0]))
    )


def _only_numbers(part: Part) -> bool:
    return bool(part) and all(role(w) == "number" or w == "of" for w in part)


def _content(part: Part) -> Part:
    """Without articles and auxiliaries at its start: "is sleeping" says what "sleeps" says."""
    while part and (part[0] in DETERMINERS or part[0] in AUXILIARIES):
        part = part[1:]
    return part


def _bare(part: Part) -> Part:
    """Without the determiners at its ends."""
    while part and part[0] in DETERMINERS:
        part = part[1:]
    while part and part[-1] in DETERMINERS:
        part = part[:-1]
    return part
