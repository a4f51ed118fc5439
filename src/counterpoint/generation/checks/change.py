"""What differs between a caption and a text, and whether it is a small edit of the claimed type.

Everything is found from the two texts alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from typing import Final, NamedTuple

from counterpoint.cases import normal, read_words, shared_ends
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.words import lemmas
from counterpoint.generation.pairs import Type


class Exchange(NamedTuple):
    """`caption = before first between second after`, `text = before second between first after`.

    All are ranges of the caption's words; `between` may be empty.
    """

    before: tuple[str, ...]
    first: tuple[str, ...]
    between: tuple[str, ...]
    second: tuple[str, ...]
    after: tuple[str, ...]
    marks: tuple[str, ...]  # the caption's gaps


class TextChange:
    """The difference of two texts: the words between what they share at both ends."""

    def __init__(self, caption: str, text: str) -> None:
        self.caption, self.text = caption, text
        self.old, self.new = read_words(caption), read_words(text)
        old, new = self.old.words, self.new.words
        self.start, self.tail = shared_ends(old, new)
        self.removed = old[self.start : len(old) - self.tail]
        self.inserted = new[self.start : len(new) - self.tail]

    @property
    def before(self) -> tuple[str, ...]:
        """The words that both start with."""
        return self.old.words[: self.start]

    @property
    def after(self) -> tuple[str, ...]:
        """The words that both end with."""
        return self.old.words[len(self.old.words) - self.tail :]

    @cached_property
    def same_bag(self) -> bool:
        """Whether both have the same words, each equally often."""
        return len(self.removed) == len(self.inserted) and (
            sorted(self.removed) == sorted(self.inserted)
        )

    @cached_property
    def lost(self) -> Counter[str]:
        """Words that the caption has and the text has not, or less often."""
        return Counter(self.removed) - Counter(self.inserted)

    @cached_property
    def gained(self) -> Counter[str]:
        """Words that the text has and the caption has not, or less often."""
        return Counter(self.inserted) - Counter(self.removed)

    @cached_property
    def exchange(self) -> Exchange | None:
        """The two ranges of words that were exchanged, if nothing else changed."""
        if not self.same_bag:
            return None
        return find_exchange(self.before, self.removed, self.inserted, self.after, self.old.gaps)


def find_exchange(
    before: tuple[str, ...],
    old: tuple[str, ...],
    new: tuple[str, ...],
    after: tuple[str, ...],
    marks: tuple[str, ...],
) -> Exchange | None:
    """The shortest ranges at both ends of `old` whose exchange makes `new`."""
    size = len(old)
    for last in range(1, size):
        if new[:last] != old[size - last :]:
            continue
        for first in range(1, size - last + 1):
            if old[:first] == new[size - first :] and (
                old[first : size - last] == new[last : size - first]
            ):
                between = old[first : size - last]
                return Exchange(before, old[:first], between, old[size - last :], after, marks)
    return None


def distance(old: Sequence[str], new: Sequence[str], limit: int) -> int:
    """The edit distance in words; any number above `limit` if it is larger than that."""
    start, tail = shared_ends(old, new)
    old, new = old[start : len(old) - tail], new[start : len(new) - tail]
    if abs(len(old) - len(new)) > limit:
        return limit + 1
    row = list(range(len(new) + 1))
    for i, word in enumerate(old, 1):
        diagonal, row[0] = row[0], i
        for j, other in enumerate(new, 1):
            here = diagonal if word == other else 1 + min(diagonal, row[j], row[j - 1])
            diagonal, row[j] = row[j], here
        if min(row) > limit:
            return limit + 1
    return row[-1]


def is_within(short: Sequence[str], long: Sequence[str]) -> bool:
    """Whether one sequence is a subsequence of the other."""
    rest = iter(long)
    return all(word in rest for word in short)


Part = tuple[str, ...]

SLOT: Final = 4  # words on either side of a replacement
ADDED: Final = 8  # words of an addition
REWORDED: Final = 0.5  # share of the longer text's words that a paraphrase may edit
TURNED: Final = 4  # edits of a short text told from the other side: "riding", "being ridden by"
_LONGEST: Final = 400  # words whose edit distance is computed; beyond, only their number counts


def changed(change: TextChange) -> str:
    """Rejects the caption itself, apart from case, spaces, marks and a/an."""
    if not change.new.words:
        return "no words"
    return "the caption itself" if normal(change.caption) == normal(change.text) else ""


def duplicate(change: TextChange, seen: Collection[Part]) -> str:
    """Rejects a text that this caption already has, as `normal` gives it."""
    return "made before" if seen and normal(change.text) in seen else ""


def minimal(change: TextChange, claimed: Type) -> str:
    """Rejects a larger change than a text of its type may make."""
    return _RULES[claimed](change)


def _reordered(change: TextChange) -> str:
    return "" if change.same_bag else "bag changed"


def _replaced(change: TextChange) -> str:
    if max(len(change.removed), len(change.inserted)) > SLOT:
        return "slot too long"
    if change.same_bag:
        return "words moved"
    # "to the left of" -> "on the right of" is one slot; "cat on mat" -> "dog on rug" is two.
    inner_old, inner_new = change.removed[1:-1], change.inserted[1:-1]
    shared = {word for word in inner_old if word in inner_new}
    return "two slots" if shared - {"the"} else ""


def _added(change: TextChange) -> str:
    if not is_within(change.removed, change.inserted):
        return "words lost"
    new = sum(count for word, count in change.gained.items() if word not in WORDS.negation_frame)
    if not change.gained:
        return "nothing added"
    return "addition too long" if new > ADDED else ""


def _negated(change: TextChange) -> str:
    old, new = _split(change.removed), _split(change.inserted)
    if sum(w in WORDS.negations for w in old) == sum(w in WORDS.negations for w in new):
        return "no negation"
    old, new = (
        [w for w in old if w not in WORDS.negation_frame],
        [w for w in new if w not in WORDS.negation_frame],
    )
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


def _paraphrased(change: TextChange) -> str:
    limit = int(REWORDED * max(len(change.old.words), len(change.new.words)))
    if max(len(change.removed), len(change.inserted)) > _LONGEST:
        return "too much reworded"
    edited = distance(change.removed, change.inserted, limit)
    if edited <= limit:
        return ""
    limit = max(limit, TURNED)
    sides = (change.removed, change.inserted), (change.old.words, change.new.words)
    edited = min(1 + distance(*_turned_back(*both), limit) for both in sides)
    return "too much reworded" if edited > limit else ""


def _turned_back(old: Part, new: Part) -> tuple[Part, Part]:
    """What differs apart from two exchanged parts ("A left of B", "B right of A")."""
    most = min(len(old), len(new))
    first = next((n for n in range(most, 0, -1) if old[:n] == new[len(new) - n :]), 0)
    rest = most - first
    second = next((n for n in range(rest, 0, -1) if new[:n] == old[len(old) - n :]), 0)
    return old[first : len(old) - second], new[second : len(new) - first]


_RULES: Final[dict[Type, Callable[[TextChange], str]]] = {
    "swap": _reordered,
    "shuffle": _reordered,
    "replace": _replaced,
    "add": _added,
    "negate": _negated,
    "paraphrase": _paraphrased,
}
