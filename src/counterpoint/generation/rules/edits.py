"""Edits of one place in a caption, and how often common ones are made.

Without limits the edits of a few common words would be most texts of a method.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from counterpoint.generation.language.sentences import ADJECTIVES, NOUNS, Put, Sentence, rewrite
from counterpoint.generation.registry import Draft, Ways
from counterpoint.generation.rules.phrases import Range

SHARE: Final = 0.5  # of a hundred captions, those in which an edit is made
# In how many of a hundred captions of COCO and Flickr8k an edit could be made, where this is more
# than `SHARE` (scripts/edit_shares.py --rates).
RATES: Final[dict[str, float]] = {
    "man > guy": 16.2,
    "woman > lady": 8.0,
    "child > kid": 6.3,
    "in > wear": 6.2,
    "next to > near": 6.2,
    "large > big": 5.7,
    "next to > beside": 5.3,
    "sit > seated": 5.1,
    "on > atop": 5.0,
    "on > on top of": 5.0,
    "in > inside": 4.8,
    "little > young": 3.9,
    "wear > in": 3.5,
    "small > little": 2.9,
    "near > close to": 2.7,
    "under > beneath": 2.0,
    "car > automobile": 1.6,
    "jump > leap": 1.6,
    "down > along": 1.5,
    "lay > lie": 1.4,
    "motorcycle > motorbike": 1.4,
    "wooden > wood": 1.4,
    "big > large": 1.3,
    "by > near": 1.2,
    "do > perform": 1.2,
    "kid > child": 1.2,
    "snowy > snow-covered": 1.2,
    "in > within": 1.0,
    "bicycle > bike": 0.9,
    "ocean > sea": 0.9,
    "cell phone > cellphone": 0.8,
    "cell phone > mobile phone": 0.8,
    "couch > sofa": 0.8,
    "filled with > full of": 0.8,
    "on top of > on": 0.8,
    "under > underneath": 0.8,
    "vegetable > veggie": 0.8,
    "airplane > aircraft": 0.7,
    "airplane > plane": 0.7,
    "next to each other > side by side": 0.7,
    "beside > near": 0.6,
    "beside > next to": 0.6,
    "full of > filled with": 0.6,
    "leap > jump": 0.6,
    "path > pathway": 0.6,
    "plane > aircraft": 0.6,
    "plane > airplane": 0.6,
    "traffic light > stoplight": 0.6,
}


class Rewording(NamedTuple):
    """What is replaced, the words before and after, and why the new text may be false."""

    put: Put
    old: str
    new: str
    doubt: str = ""

    @property
    def name(self) -> str:
        return f"{self.old} > {self.new}"


def drafts(
    sentence: Sentence, edits: list[Rewording], subtype: str, rng: Random, spare: float
) -> Ways:
    """The drafts of these edits, rare ones first, and common ones marked or left out.

    An edit is made with the probability that gives it a small share of all captions, and marked as
    common in others up to `spare` of a hundred. It depends on the caption alone, so pieces can be
    made in any order.
    """
    rng.shuffle(edits)
    found = [(edit, rng.random() * RATES.get(edit.name, 0)) for edit in edits]
    if any(rate > SHARE for edit, rate in found if not edit.doubt):
        found = [(edit, rate) for edit, rate in found if not edit.doubt]  # doubts are no way out
    found = [(edit, rate) for edit, rate in found if rate <= spare]
    found.sort(key=lambda one: (bool(one[0].doubt), one[1] > SHARE))  # stable
    return (
        Draft(rewrite(sentence, (edit.put,)), "replace", subtype, edit.doubt, common=rate > SHARE)
        for edit, rate in found  # written when they are asked for: most are not
    )


def is_repeated(sentence: Sentence, where: Range, word: str, synonym: str) -> bool:
    """Whether the caption would name one thing by two words: "a hot dog and a hotdog"."""
    others = [t.lower for t in (*sentence.tokens[: where[0]], *sentence.tokens[where[1] :])]
    rest = f" {' '.join(others)} "
    if f" {synonym} " in rest or f" {synonym}s " in rest:
        return True
    named = sentence.tokens[where[0]].tag in _NAMES
    return named and (f" {word} " in rest or f" {word}s " in rest)


def is_joined(sentence: Sentence, place: int) -> bool:
    """A part of "black and white", of "dark blue" or of "blue-green"."""
    tokens = sentence.tokens
    around = [tokens[i].lower for i in (place - 1, place + 1) if 0 <= i < len(tokens)]
    return any(word in _SHADES for word in around)


_NAMES: Final = NOUNS | ADJECTIVES
_SHADES: Final = frozenset({"and", "-", "dark", "light", "bright", "pale", "&", "or"})
