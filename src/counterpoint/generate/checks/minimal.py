"""Is the text a small edit of its caption, of the sort that it claims to be?"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from counterpoint.caption_words import normal
from counterpoint.generate.checks.change import Change, distance, is_within
from counterpoint.generate.checks.words import (
    AUXILIARIES,
    DETERMINERS,
    NEGATIONS,
    lemmas,
    listed,
)
from counterpoint.generate.pairs import Type

Part = tuple[str, ...]

SLOT: Final = 4  # words on either side of a replacement
ADDED: Final = 8  # words of an addition
REWORDED: Final = 0.5  # of the longer text's words may be edited in a paraphrase
_LONGEST: Final = 400  # words whose edit distance is computed; beyond, only their number counts

# What English needs beside "not" and "no": "does not ride", "there is no", "without any".
_SUPPORT: Final = (
    DETERMINERS | AUXILIARIES | NEGATIONS | listed("there any with that which who")
) - listed("his her its their my your our")


def changed(change: Change) -> str:
    """Not the caption again, apart from case, blanks, marks and a/an."""
    if not change.new.words:
        return "no words"
    return "the caption itself" if normal(change.caption) == normal(change.text) else ""


def duplicate(change: Change, seen: Collection[Part]) -> str:
    """Not one of the texts that this caption already has, as `normal` gives them."""
    return "made before" if seen and normal(change.text) in seen else ""


def minimal(change: Change, claimed: Type) -> str:
    """No more is changed than a text of its type may change."""
    return _RULES[claimed](change)


def _reordered(change: Change) -> str:
    return "" if change.same_bag else "bag changed"


def _replaced(change: Change) -> str:
    if max(len(change.removed), len(change.inserted)) > SLOT:
        return "slot too long"
    if change.same_bag:
        return "words moved"
    # "to the left of" -> "on the right of" is one slot; "cat on mat" -> "dog on rug" is two.
    inner_old, inner_new = change.removed[1:-1], change.inserted[1:-1]
    shared = {word for word in inner_old if word in inner_new}
    return "two slots" if shared - {"the"} else ""


def _added(change: Change) -> str:
    if not is_within(change.removed, change.inserted):
        return "words lost"
    new = sum(count for word, count in change.gained.items() if word not in _SUPPORT)
    if not change.gained:
        return "nothing added"
    return "addition too long" if new > ADDED else ""


def _negated(change: Change) -> str:
    old, new = _split(change.removed), _split(change.inserted)
    if sum(w in NEGATIONS for w in old) == sum(w in NEGATIONS for w in new):
        return "no negation"
    old, new = [w for w in old if w not in _SUPPORT], [w for w in new if w not in _SUPPORT]
    same = len(old) == len(new) and all(
        lemmas(a) & lemmas(b) for a, b in zip(old, new, strict=True)
    )
    return "" if same else "more than a negation"


def _split(words: Part) -> list[str]:
    """With "isn't" as "is", "not"."""
    parts = []
    for word in words:
        stem = word.removesuffix("n't")
        parts += [stem, "not"] if stem != word else [word]
    return parts


def _paraphrased(change: Change) -> str:
    limit = int(REWORDED * max(len(change.old.words), len(change.new.words)))
    if max(len(change.removed), len(change.inserted)) > _LONGEST:
        return "too much reworded"
    edited = distance(change.removed, change.inserted, limit)
    if edited > limit:
        old, new = _turned_back(change.removed, change.inserted)
        edited = 1 + distance(old, new, limit)
    return "too much reworded" if edited > limit else ""


def _turned_back(old: Part, new: Part) -> tuple[Part, Part]:
    """What differs beside two parts that have changed places ("A left of B", "B right of A")."""
    most = min(len(old), len(new))
    first = next((n for n in range(most, 0, -1) if old[:n] == new[len(new) - n :]), 0)
    rest = most - first
    second = next((n for n in range(rest, 0, -1) if new[:n] == old[len(old) - n :]), 0)
    return old[first : len(old) - second], new[second : len(new) - first]


_RULES: Final[dict[Type, Callable[[Change], str]]] = {
    "swap": _reordered,
    "shuffle": _reordered,
    "replace": _replaced,
    "add": _added,
    "negate": _negated,
    "paraphrase": _paraphrased,
}
