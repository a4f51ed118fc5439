"""Is the text good English where the caption was? Articles, doubled words, blanks, whole words."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from functools import lru_cache
from itertools import pairwise
from typing import Final, NamedTuple

from counterpoint.cases import read_words
from counterpoint.generation.checks.change import TextChange, shared_ends
from counterpoint.generation.checks.words import is_known, lexicon
from counterpoint.generation.pairs import Type

# --- Do caption and text look alike? Case, blanks and marks must give nothing away --------------


_BLANKS: Final = re.compile(r"\s+")
_STRAY: Final = re.compile(r"\s+(?=[.,;:!?](?:\s|$))")
_FINAL: Final = re.compile(r"[\s.,;:!?…]*$")
_END: Final = re.compile(r"[.!?…]*\s*$")


def uniform(text: str) -> str:
    """BiVLC's first step: a capital, single blanks, exactly one full stop; never shouting.

    The authors' code looks at the last character before it strips blanks, and so ends ". " in "..".
    """
    text = _STRAY.sub("", _BLANKS.sub(" ", text).strip())
    text = _FINAL.sub("", text)
    if not text:
        return ""
    if _shouts(text):
        text = text.lower()
    return _with_capital(text) + "."


def like(caption: str, text: str) -> str:
    """The text in its caption's own format: case of the first letter, blanks, final mark."""
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
    """The same initial, the same end, no blank or capital that the caption would not have."""
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
    """Whether a text starts with a number, or a name that has its capital anywhere."""
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
    """Where a text has blanks that good typing has not."""
    inner = text.strip()
    return (
        inner != text and text[:1].isspace(),
        inner != text and text[-1:].isspace(),
        "  " in inner,
        bool(_STRAY.search(inner)),
    )


def _final(text: str) -> str:
    found = _END.search(text)
    return found[0].strip() if found else ""


def _first_letter(text: str) -> int:
    return next((i for i, c in enumerate(text) if c.isalnum()), len(text))


def _starts_high(text: str) -> bool:
    return text[_first_letter(text) :][:1].isupper()


def _is_name(text: str) -> bool:
    """A first word with capitals of its own ("TV", "I", "McDonald's") says nothing of format."""
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
    """Whether all letters are capitals, and there are enough of them to tell."""
    return text.isupper() and sum(c.isalpha() for c in text) > 4


# Words that do not start with the sound of their first letter. Numbers are read aloud.
_SILENT: Final = re.compile(r"(hour|honest|hono[u]?r|heir|herb)|8|11(?!\d)|18(?!\d)")
_LIKE_YOU: Final = re.compile(
    r"(uni(?!n|m[pa])|us[eau]|util|uten|ukulele|ufo|urin|u-|eu|ewe|one(?:$|s$|-|'s)|once|ouija)"
)
_SPELT: Final = frozenset("aefhilmnorsx8")  # letters whose names start with a vowel
_LOST_BLANK: Final = re.compile(r"[,;:!?](?=[^\W\d_])|(?<=[^\W\d_.]{2})\.(?=[^\W\d_]{2})")
_SHARED: Final = 3  # letters that a damaged word has from the word it was


def articles(change: TextChange, claimed: Type) -> str:
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


def whole_words(change: TextChange) -> str:
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
