"""Surface checks: format, articles, doubled words, lost spaces, whole words.

A text must look like its caption: case, spaces and marks must not reveal which is which. And it may
not have a slip that the caption does not have.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from counterpoint._util.english import fits
from counterpoint.cases import read_words, shared_ends
from counterpoint.generation.checks.change import TextChange
from counterpoint.generation.language import lexicon
from counterpoint.generation.language.words import is_known
from counterpoint.generation.pairs import Type

_LOST_BLANK: Final = re.compile(r"[,;:!?](?=[^\W\d_])|(?<=[^\W\d_.]{2})\.(?=[^\W\d_]{2})")
_SHARED: Final = 3  # letters that a broken word shares with the original
_BLANKS: Final = re.compile(r"\s+")
_STRAY: Final = re.compile(r"\s+(?=[.,;:!?](?:\s|$))")
_FINAL: Final = re.compile(r"[\s.,;:!?…]*$")
_MARKS: Final = ".!?…"
_END: Final = re.compile(rf"[{_MARKS}]*\s*$")


def uniform(text: str) -> str:
    """BiVLC's first step: a capital, single spaces, exactly one full stop; not all capitals.

    The authors' code looks at the last character before it strips spaces: ". " becomes "..".
    """
    text = _STRAY.sub("", _BLANKS.sub(" ", text).strip())
    text = _FINAL.sub("", text)
    if not text:
        return ""
    if _shouts(text):
        text = text.lower()
    return _with_capital(text) + "."


def like(caption: str, text: str) -> str:
    """The text in its caption's format: case of the first letter, spaces, final mark."""
    body = text.strip()
    if not re.search(r"\s\s|[^\S ]", caption.strip()):
        body = _BLANKS.sub(" ", body)
    if not _STRAY.search(caption.strip()):
        body = _STRAY.sub("", body)
    if _shouts(caption) != _shouts(body):
        body = body.upper() if _shouts(caption) else body.lower()
    if _starts_high(caption):
        body = _with_capital(body)
    elif _starts_high(body) and not _is_name(body):
        body = _without_capital(body)
    final, own = _END.search(caption), _END.search(body)
    assert final is not None and own is not None  # both may be empty and still match
    lead = caption[: len(caption) - len(caption.lstrip())]
    return lead + body[: own.start()] + final[0]


def looks_alike(change: TextChange) -> str:
    """Rejects another initial or end, or a space or capital that the caption would not have."""
    caption, text = _look(change.caption), _look(change.text)
    if caption != text:
        if caption.shouts != text.shouts:
            return "all capitals"
        if caption.high != text.high and not _named(change):
            return "initial capital"
        if caption.final != text.final:
            return "final mark"
        if caption.blanks != text.blanks:
            return "blanks"
    return "capital inside" if not text.shouts and _capital_inside(change) else ""


class _Look(NamedTuple):
    shouts: bool
    high: bool
    final: str
    blanks: tuple[bool, ...]


@lru_cache(maxsize=4096)
def _look(text: str) -> _Look:
    return _Look(_shouts(text), _starts_high(text), _final(text), _blanks(text))


def _named(change: TextChange) -> bool:
    """Whether a text starts with a number, or with a name that always has a capital."""
    first = change.new.raw[0] if change.new.raw else ""
    known = first[:1].isupper() and first in change.old.raw[1:]
    return known or not first[:1].isalpha() or _is_name(first)


def _capital_inside(change: TextChange) -> bool:
    """A capital that was carried along from the start of the caption, or left at a new start."""
    old, new = change.old, change.new
    high = [word for word in new.raw[1:] if word[0].isupper() and word != "I"]
    if not high:
        return False
    own = {word.casefold() for word in old.raw[1:] if word[0].isupper()}
    plain = {word for word in old.raw[1:] if word[0].islower()}
    plain.add(old.raw[0].casefold() if old.raw else "")
    return any(word.casefold() not in own and word.casefold() in plain for word in high)


def _blanks(text: str) -> tuple[bool, ...]:
    """Where a text has unusual spaces."""
    inner = text.strip()
    return (
        inner != text and text[:1].isspace(),
        inner != text and text[-1:].isspace(),
        "  " in inner,
        bool(_STRAY.search(inner)),
    )


def _final(text: str) -> str:
    """The marks at the end."""
    body = text.rstrip()
    return body[len(body.rstrip(_MARKS)) :]


def _first_letter(text: str) -> int:
    return next((i for i, c in enumerate(text) if c.isalnum()), len(text))


def _starts_high(text: str) -> bool:
    return text[_first_letter(text) :][:1].isupper()


def _is_name(text: str) -> bool:
    """A first word with its own capitals ("TV", "I", "McDonald's") says nothing about format."""
    word = text.split(maxsplit=1)[0] if text.split() else ""
    letters = "".join(c for c in word if c.isalpha())
    return letters == "I" or any(c.isupper() for c in letters[1:])


def _with_capital(text: str) -> str:
    place = _first_letter(text)
    return text[:place] + text[place : place + 1].upper() + text[place + 1 :]


def _without_capital(text: str) -> str:
    place = _first_letter(text)
    return text[:place] + text[place : place + 1].lower() + text[place + 1 :]


def _shouts(text: str) -> bool:
    """Whether all letters are capitals, and there are enough of them."""
    return text.isupper() and sum(c.isalpha() for c in text) > 4


def articles(change: TextChange, claimed: Type) -> str:
    """Rejects a wrong a/an, a doubled word or a lost space that the caption does not have.

    A shuffle is not expected to be grammatical, so it always passes.
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


def whole_words(change: TextChange) -> str:
    """Rejects a broken word: "covered" to "covecrimson", "wetsuit" to "dampsuit"."""
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
    """Whether a part of `was` was replaced by a related word."""
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
    return a != b and (lexicon.may_be_same(a, b) or lexicon.exclude(a, b))
