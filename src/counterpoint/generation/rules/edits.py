"""Edits of one place in a caption, and how often common ones are made.

Without limits the edits of a few common words would be most texts of a method.
"""

from __future__ import annotations

from random import Random
from typing import Final, NamedTuple

from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.sentences import ADJECTIVES, NOUNS, Put, Sentence, rewrite
from counterpoint.generation.registry import Draft, Ways
from counterpoint.generation.rules.phrases import Range

SHARE: Final = 0.5  # of a hundred captions, those in which an edit is made
# In how many of a hundred captions of COCO and Flickr8k an edit could be made, where this is more
# than `SHARE` (studies/edit_shares.py --rates).
RATES: Final[dict[str, float]] = TABLES["rates"]


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
    return any(word in WORDS.colour_joints for word in around)


_NAMES: Final = NOUNS | ADJECTIVES
