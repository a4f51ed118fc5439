"""What differs between a caption and a text, found from the two texts alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

from counterpoint.caption_words import read_words


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


class Change:
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
        """Whether both have the same words as often."""
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
        """The two ranges of words that have changed places, if that is all that happened."""
        if not self.same_bag:
            return None
        return find_exchange(self.before, self.removed, self.inserted, self.after, self.old.gaps)


def shared_ends(old: Sequence[str], new: Sequence[str]) -> tuple[int, int]:
    """How many items two sequences share at the start, and of the rest at the end."""
    shorter = min(len(old), len(new))
    start = 0
    while start < shorter and old[start] == new[start]:
        start += 1
    tail, rest = 0, shorter - start
    while tail < rest and old[-1 - tail] == new[-1 - tail]:
        tail += 1
    return start, tail


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
    """The fewest words to insert, delete or replace; of more than `limit`, any number above it."""
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
    """Whether one sequence is what remains of the other when some items are left out."""
    rest = iter(long)
    return all(word in rest for word in short)
