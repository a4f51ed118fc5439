"""Two parts that a joint connects have changed places: does what stands around them let them?

Each judge answers with why the meaning may be the same, and whether that is sure; None is no.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from counterpoint.generate.checks.borders import (
    FRAMES,
    Context,
    Part,
    bare_end,
    bare_start,
    is_mark,
    is_verbal,
    lively,
    stand_alone,
    two_adjectives,
)
from counterpoint.generate.checks.words import (
    AUXILIARIES,
    PICTURES,
    POSTURES,
    PREPOSITIONS,
    forms,
    lemmas,
    lexicon,
    role,
)

_LINKS: Final = AUXILIARIES | {"that", "which", "who"}


class Same(NamedTuple):
    """Why an exchange may leave the meaning as it is."""

    reason: str
    sure: bool


def judge_conjuncts(context: Context) -> Same | None:
    if not (_may_start(context) and _may_end(context)):
        return None
    return CONJUNCTS if stand_alone(context) else PERHAPS_CONJUNCTS


CONJUNCTS: Final = Same("conjuncts", True)
PERHAPS_CONJUNCTS: Final = Same("perhaps conjuncts", False)


def _may_start(context: Context) -> bool:
    """May the first part be a whole conjunct at its left end?"""
    if is_verbal(context.first) and is_verbal(context.second):
        return True  # "a man wearing glasses and holding a bottle"
    left, bare = context.left, bare_end(context.left)
    if not bare or is_mark(context.marks[len(left)]):
        return True
    if left != bare and two_adjectives(context):
        return True  # "a bed with some pillows a blue and white quilt"
    kind = "verb" if bare[-1] in FRAMES else role(bare[-1])
    if kind in ("noun", "adjective", "number"):
        # "a black dog and a cat": black moves. "a black dog and cat": perhaps both were black.
        return context.middle == bare_end(context.middle) and left == bare
    mixed = {lively(context.first), lively(context.second)} == {True, False}
    # "a boy on a skateboard and a girl": the girl is no part of what the boy is on.
    return not mixed or bare[-1] in FRAMES - {"of"}


def _may_end(context: Context) -> bool:
    """May the second part be a whole conjunct at its right end, with nothing of its own behind?"""
    if not context.right or context.right_gap():
        return True
    word = context.right[0]
    kind = role(word)
    if is_verbal(context.first) and is_verbal(context.second):
        return kind not in ("determiner", "noun", "adjective", "number")
    if two_adjectives(context):
        return True  # "a blue and white stained glass clock"
    if word in PREPOSITIONS or kind in ("joint", "auxiliary", "adverb", "side", "pronoun", "verb"):
        return word != "of"
    # "a dog and cat bed"; "a man and a child hold hands", where "hold" looks like a noun
    own = context.middle != bare_end(context.middle)
    return not own and len(bare_start(context.first)) == len(bare_start(context.second)) == 1


def judge_symmetric(context: Context) -> Same | None:
    left = bare_end(context.left)
    if left and left[-1] not in FRAMES:
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
    alive = {lively(context.first), lively(context.second)}
    if symmetric(core):
        return True
    if role(core[0]) == "verb" and len(core) > 1 and lexicon().is_symmetric(" ".join(core[1:])):
        return alive != {True, False}
    return alive == {True}


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
