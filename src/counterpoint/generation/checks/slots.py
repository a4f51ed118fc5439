"""One run of words replaces another: may both be true of the same thing?"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import product
from typing import Final, NamedTuple, Protocol

from counterpoint.generation.checks.change import TextChange
from counterpoint.generation.checks.words import (
    AUXILIARIES,
    DETERMINERS,
    forms,
    genera,
    lemmas,
    lexicon,
    numbers,
    role,
    spelling,
)

Part = tuple[str, ...]
_FORMS: Final = 24  # readings of a phrase that are looked up


class Thesaurus(Protocol):
    """Another source of synonyms, such as WordNet."""

    def may_be_same(self, a: str, b: str) -> bool:
        """Whether two lemmas may name the same thing."""


def same_slot(change: TextChange, thesaurus: Thesaurus | None = None) -> str:
    """Why the inserted words may mean the same as the removed ones; empty if they do not."""
    old, new = _plain(change.removed), _plain(change.inserted)
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
    exclude = lexicon().exclude
    return any(exclude(a, b) for a, b in product(old, new)) and not any_same(old, new, None)


def unrelated_slot(change: TextChange) -> bool:
    """Whether the lexicon has both and no link between them."""
    old, new = readings(change.removed, change), readings(change.inserted, change)
    return unrelated(old, new)


def unrelated(old: Part, new: Part) -> bool:
    """The same of the readings of two words or phrases."""
    listed = _listed().known
    return (
        any(word in listed for word in old)
        and any(word in listed for word in new)
        and not any_same(old, new, None)
    )


def narrower_slot(change: TextChange) -> bool:
    """Whether a narrower word replaces a wider one: a dog need not be a puppy."""
    old, new = forms(_bare(change.removed)), forms(_bare(change.inserted))
    return bool(genera(new) & set(old)) and not genera(old) & set(new)


def near_slot(change: TextChange) -> bool:
    """Whether the inserted words are near to the removed ones, but neither a synonym nor wider."""
    old, new = readings(change.removed, change), readings(change.inserted, change)
    if not any_same(old, new, None) or set(old) & set(new) or genera(old) & set(new):
        return False
    return not _share(old, new)


def doubt(change: TextChange) -> str:
    """Why the inserted words may be false where the removed ones are true."""
    whole = _doubt(readings(change.removed, change), readings(change.inserted, change))
    if whole is not None:
        return whole
    pairs = product(change.lost, change.gained)  # a text reworded in several places
    return next(filter(None, (_doubt(forms((a,)), forms((b,))) for a, b in pairs)), "")


def _doubt(old: Part, new: Part) -> str | None:
    """Of all readings the least doubtful; None if the lexicon has no meaning of both."""
    found = {lexicon().doubt(a, b) for a, b in product(old, new)} - {None}
    return min(found, default=None)


def say_the_same(a: str, b: str) -> bool:
    """Whether two words are forms of one word, or of synonyms."""
    return bool(lemmas(a) & lemmas(b)) or _share(forms((a,)), forms((b,)))


def _share(old: Part, new: Part) -> bool:
    """Whether one is a word for a meaning that the other has, or may have.

    "In" (a shirt) may be wearing; but what may be having is not therefore wearing.
    """
    offered, known = _listed()
    a, b = _numbers(old, offered), _numbers(new, offered)
    return bool(a & _numbers(new, known) or b & _numbers(old, known))


def _numbers(words: Part, index: dict[str, set[int]]) -> set[int]:
    return {number for word in words for number in index.get(word, ())}


class _Listed(NamedTuple):
    offered: dict[str, set[int]]
    known: dict[str, set[int]]


@cache
def _listed() -> _Listed:
    """The numbers of the meanings that a word stands for, and of those it may have."""
    found = _Listed({}, {})
    meanings = (m for field in lexicon().fields().values() for m in field)
    for number, meaning in enumerate(meanings):
        for word in meaning.offered():
            found.offered.setdefault(word, set()).add(number)
        for word in (*meaning.offered(), *meaning.also):
            found.known.setdefault(word, set()).add(number)
    return found


def any_same(old: Part, new: Part, thesaurus: Thesaurus | None) -> bool:
    same = lexicon().may_be_same
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
        w for relation in lexicon().relations() if " " in relation for w in relation.split()
    )


@lru_cache(maxsize=1 << 14)
def _is_relation(phrase: Part) -> bool:
    return phrase[0] not in DETERMINERS and any(
        m.subtype == "rel" for form in forms(phrase) for m in lexicon().meanings(form)
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


def _plain(part: Part) -> Part:
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
