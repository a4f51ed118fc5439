"""Do caption and text look alike? Case, blanks and marks must give nothing away."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final, NamedTuple

from counterpoint.generate.checks.change import Change

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


def looks_alike(change: Change) -> str:
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


def _named(change: Change) -> bool:
    """Whether a text starts with a number, or a name that has its capital anywhere."""
    first = change.new.raw[0] if change.new.raw else ""
    known = first[:1].isupper() and first in change.old.raw[1:]
    return known or not first[:1].isalpha() or _is_name(first)


def _capital_inside(change: Change) -> bool:
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
