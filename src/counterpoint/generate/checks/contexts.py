"""Two parts that a joint connects have changed places: does what stands around them let them?

Each judge answers with why the meaning may be the same, and whether that is sure; None is no.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from counterpoint.generate.checks.words import (
    AUXILIARIES,
    DETERMINERS,
    PICTURES,
    POSTURES,
    PREPOSITIONS,
    forms,
    genera,
    lemmas,
    lexicon,
    listed,
    role,
)

Part = tuple[str, ...]
_LINKS: Final = AUXILIARIES | {"that", "which", "who"}
# Nouns and verbs after which a scene is described: what follows is not their object.
_FRAMES: Final = listed(
    """of with has have showing shows features featuring contains containing includes including
    there is are this depicts"""
)


class Same(NamedTuple):
    """Why an exchange may leave the meaning as it is."""

    reason: str
    sure: bool


class Context(NamedTuple):
    """`left first middle second right`; `marks` are the gaps of the whole caption."""

    left: Part
    first: Part
    middle: Part
    second: Part
    right: Part
    marks: Part

    def right_gap(self) -> str:
        return self.marks[len(self.marks) - 1 - len(self.right)].strip()


def bare_end(words: Part) -> Part:
    """Without determiners at the end, which belong to what comes next."""
    while words and words[-1] in DETERMINERS:
        words = words[:-1]
    return words


def is_mark(gap: str) -> bool:
    return gap != " " and any(mark in gap for mark in ",&/+;")


def judge_conjuncts(context: Context) -> Same | None:
    start, end = _left_of_conjunct(context), _right_of_conjunct(context)
    if start is None or end is None:
        return None
    sure = start and end
    return Same("conjuncts" if sure else "perhaps conjuncts", sure)


def _left_of_conjunct(context: Context) -> bool | None:
    """Is the first part a whole conjunct at its left end? Yes, perhaps (False) or no (None)."""
    if _verbal(context.first) and _verbal(context.second):
        return True  # "a man wearing glasses and holding a bottle"
    place = len(context.left)
    left = context.left
    marked = place > 0 and any(is_mark(gap) for gap in context.marks[place : place + 1])
    bare = bare_end(left)
    if not bare or marked:
        return True
    kind = "verb" if bare[-1] in _FRAMES else role(bare[-1])
    if left != bare and _two_adjectives(context):
        return True  # "a bed with some pillows a blue and white quilt"
    if kind in ("noun", "adjective", "number") and not marked:
        # "a black dog and a cat": black moves. "a black dog and cat": perhaps both were black.
        return None if context.middle != bare_end(context.middle) or left != bare else False
    if {_lively(context.first), _lively(context.second)} == {True, False}:
        # "a boy on a skateboard and a girl": the girl is no part of what the boy is on.
        return True if bare[-1] in _FRAMES - {"of"} else None
    # "a bed with a quilt, and a border": the comma may close what the quilt is part of.
    gap = context.marks[len(left) + len(context.first)]
    return not (is_mark(gap) and context.middle[:1] == ("and",))


def _right_of_conjunct(context: Context) -> bool | None:
    """Is the second part a whole conjunct at its right end, with nothing of its own behind it?"""
    if not context.right or context.right_gap():
        return True
    word, verbal = context.right[0], _verbal(context.first) and _verbal(context.second)
    kind = role(word)
    if verbal:
        return None if kind in ("determiner", "noun", "adjective", "number") else False
    if _two_adjectives(context):
        return True  # "a blue and white stained glass clock"
    if word == "of":
        return None
    if word in ("with", "that", "which", "who", "whose", "is", "was", "has"):
        return False
    if word in PREPOSITIONS or kind in ("joint", "auxiliary", "adverb", "side"):
        return True
    if kind == "verb":
        return bool(lemmas(word) & POSTURES)
    if context.middle != bare_end(context.middle) or len(context.first) + len(context.second) > 2:
        return None  # "a dog and a cat bed"
    return False  # "a dog and cat bed"


def _two_adjectives(context: Context) -> bool:
    return (
        len(context.first) == len(context.second) == 1
        and context.middle == bare_end(context.middle)
        and role(context.first[0]) == role(context.second[0]) == "adjective"
    )


def judge_symmetric(context: Context) -> Same | None:
    left = bare_end(context.left)
    if left and left[-1] not in _FRAMES:
        return None  # "holding a kitten next to a fence": what is held would change
    if left[-1:] == ("of",) and left[-2:-1] and left[-2] not in PICTURES:
        return None  # "the side of a lake by a tree"
    sure = not left or left[-1] in ("is", "are", "of")
    if not _both_may(context):
        return None
    if role(context.first[0]) == "verb" or role(context.first[-1]) in ("preposition", "verb"):
        return None
    if context.right and not context.right_gap():
        if context.right[0] not in PREPOSITIONS - {"with", "of"}:
            return None
        sure = False
    sure = sure and bool(symmetric(bare_end(context.middle)))
    return Same("symmetric" if sure else "perhaps symmetric", sure)


def _both_may(context: Context) -> bool:
    """Whether each could do what the other does: a ball does not play with a girl."""
    core = _relation(bare_end(context.middle))
    lively = {_lively(context.first), _lively(context.second)}
    if symmetric(core):
        return True
    if role(core[0]) == "verb" and len(core) > 1 and lexicon().is_symmetric(" ".join(core[1:])):
        return lively != {True, False}
    return lively == {True}


def _relation(core: Part) -> Part:
    """Without what links it to a noun: "that is next to"."""
    while core and core[0] in _LINKS:
        core = core[1:]
    return core


@lru_cache(maxsize=1 << 12)
def symmetric(core: Part) -> bool | None:
    """Whether A and B may change sides: yes, perhaps (False), or no (None)."""
    core = _relation(core)
    readings = forms(core)
    if any(lexicon().is_symmetric(form) for form in readings):
        return True
    # "hugging" is mutual as a rule; "standing next to" is but for who stands.
    if any(lexicon().may_be_symmetric(form) for form in readings):
        return False
    standing = len(core) > 1 and bool(lemmas(core[0]) & POSTURES)
    return False if standing and lexicon().may_be_symmetric(" ".join(core[1:])) else None


def _verbal(part: Part) -> bool:
    return role(part[0]) == "verb"


@lru_cache(maxsize=1 << 12)
def _lively(part: Part) -> bool | None:
    """Whether a phrase is about a person or animal; None if that is not known."""
    readings = forms(part[-1:])
    if not any(lexicon().meanings(form, "NOUN") for form in readings):
        return None
    return not {"person", "animal"}.isdisjoint({*readings, *genera(readings)})
