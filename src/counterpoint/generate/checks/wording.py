"""Is the text good English where the caption was? Articles, doubled words, blanks, whole words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final

from counterpoint.caption_words import read_words
from counterpoint.generate.checks.change import Change, shared_ends
from counterpoint.generate.checks.words import is_known, lexicon
from counterpoint.generate.pairs import Type

# Words that do not start with the sound of their first letter. Numbers are read aloud.
_SILENT: Final = re.compile(r"(hour|honest|hono[u]?r|heir|herb)|8|11(?!\d)|18(?!\d)")
_LIKE_YOU: Final = re.compile(
    r"(uni(?!n|m[pa])|us[eau]|util|uten|ukulele|ufo|urin|u-|eu|ewe|one(?:$|s$|-|'s)|once|ouija)"
)
_SPELT: Final = frozenset("aefhilmnorsx8")  # letters whose names start with a vowel
_LOST_BLANK: Final = re.compile(r"[,;:!?](?=[^\W\d_])|(?<=[^\W\d_.]{2})\.(?=[^\W\d_]{2})")
_SHARED: Final = 3  # letters that a damaged word has from the word it was


def articles(change: Change, claimed: Type) -> str:
    """No wrong a/an, doubled word or lost blank that the caption had not.

    A shuffle claims no grammar, so nothing is asked of it.
    """
    if claimed == "shuffle":
        return ""
    for fault, find in _SLIPS:
        found = find(change.text)
        if found and Counter(found) - Counter(find(change.caption)):
            return fault
    return ""


@lru_cache(maxsize=4096)
def _wrong_articles(text: str) -> tuple[str, ...]:
    """Each a or an that does not fit the word after it."""
    words, raw, gaps = read_words(text)
    shouts = text.isupper()
    return tuple(
        f"{raw[i]} {raw[i + 1]}".lower()
        for i, word in enumerate(words[:-1])
        if word == "a"
        and gaps[i + 1].isspace()
        and not fits(raw[i], raw[i + 1].lower() if shouts else raw[i + 1])
    )


@lru_cache(maxsize=4096)
def _doubled(text: str) -> tuple[str, ...]:
    """Each word that follows itself."""
    words, _, gaps = read_words(text)
    if len(set(words)) == len(words):
        return ()
    pairs = zip(pairwise(words), gaps[1:-1], strict=True)
    return tuple(first for (first, second), gap in pairs if first == second and not gap.strip())


@lru_cache(maxsize=4096)
def _lost_blanks(text: str) -> tuple[str, ...]:
    return tuple(_LOST_BLANK.findall(text))


_SLIPS: Final[tuple[tuple[str, Callable[[str], tuple[str, ...]]], ...]] = (
    ("a or an", _wrong_articles),
    ("doubled word", _doubled),
    ("lost blank", _lost_blanks),
)


@lru_cache(maxsize=1 << 14)
def fits(article: str, word: str) -> bool:
    """Whether an article fits the sound that the next word starts with; true where it may."""
    lower = word.lower()
    if lower == "a":  # a letter, or a slip of another kind
        return True
    if word.isupper() and len(word) <= 5:
        # Spelt out or read as a word ("an MRI", "a NATO"): either may be right.
        spelt = "an" if lower[0] in _SPELT else "a"
        return article.lower() in (spelt, _article(lower))
    return article.lower() == _article(lower)


@lru_cache(maxsize=1 << 14)
def _article(word: str) -> str:
    if _LIKE_YOU.match(word):
        return "a"
    return "an" if word[0] in "aeiou" or _SILENT.match(word) else "a"


def whole_words(change: Change) -> str:
    """No word was cut into: "covered" did not become "covecrimson", nor "wetsuit" "dampsuit"."""
    if change.same_bag:
        return ""
    # Parts of "four-wheelers" are words of their own: "two-wheelers" is whole.
    old = {part for word in change.old.words for part in word.split("-")}
    new = {part for word in change.inserted for part in word.split("-")} - old
    for word in new:
        if len(word) > _SHARED and not is_known(word) and any(_damaged(w, word) for w in old):
            return "a word is broken"
    return ""


def _damaged(was: str, word: str) -> bool:
    """Whether a part of `was` was replaced by a related word, or left something unknown behind."""
    head, tail = shared_ends(was, word)
    if head + tail < _SHARED:
        return False
    for start in range(head + 1):
        for end in range(tail + 1):
            old, new = was[start : len(was) - end], word[start : len(word) - end]
            if min(len(old), len(new)) >= _SHARED and _related(old, new):
                return True
    return False


def _related(a: str, b: str) -> bool:
    return a != b and bool(lexicon().may_be_same(a, b) or lexicon().exclude(a, b))
