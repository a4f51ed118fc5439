"""Put other words into a caption, and keep spaces, capitals, articles and word forms correct."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final, NamedTuple

from counterpoint.generation.language.tagging import Sentence, Token, inflected, is_english

_VOWEL: Final = re.compile(r"[aeiou]|8|11(?!\d)|18(?!\d)|hour|honest|honou?r|heir", re.IGNORECASE)
_CONSONANT: Final = re.compile(
    r"(uni(?!n|m[pa])|us[eua]|util|ute|uk|eu|ew|one(?!i)|once|ouija)", re.IGNORECASE
)


_SHORT: Final = frozenset({"TV", "TVS", "DVD", "CD", "PC", "SUV", "RV", "BBQ", "UFO"})


class Put(NamedTuple):
    """`text` replaces the tokens from `start` to `end`; with an empty range it is inserted."""

    start: int
    end: int
    text: str


def rewrite(sentence: Sentence, puts: Sequence[Put]) -> str:
    """The caption with other words in some places.

    The first letter is a capital if the caption's was. `a` and `an` fit the next word.
    """
    pieces = _pieces(sentence, puts)
    _set_articles(pieces)
    text = "".join(word + blank for word, blank, _ in pieces)
    text = sentence.text[: sentence.tokens[0].start] + text
    if sentence.text.isupper():
        return text.upper()
    return _capitalised(text) if _starts_high(sentence) else text


def _pieces(sentence: Sentence, puts: Sequence[Put]) -> list[tuple[str, str, bool]]:
    """Words, the space after each, and whether it is new."""
    pieces: list[tuple[str, str, bool]] = []
    place = 0
    for start, end, text in sorted(puts, key=lambda put: (put.start, put.end)):
        pieces += [_piece(sentence, i) for i in range(place, start)]
        pieces.append((text, _blank(sentence, end - 1) if start < end else " ", True))
        place = end
    return pieces + [_piece(sentence, i) for i in range(place, len(sentence.tokens))]


def _piece(sentence: Sentence, number: int) -> tuple[str, str, bool]:
    text = plain(sentence, number) if number == 0 else sentence.tokens[number].text
    return text, _blank(sentence, number), False


def _blank(sentence: Sentence, number: int) -> str:
    end = sentence.tokens[number].end
    after = sentence.tokens[number + 1].start if number + 1 < len(sentence.tokens) else None
    return sentence.text[end:after]


def plain(sentence: Sentence, number: int) -> str:
    """A token as it is written inside a sentence: the first without its capital."""
    text = sentence.tokens[number].text
    if number or text == "I" or text[1:] != text[1:].lower():
        return text
    lower = text[:1].lower() + text[1:]
    return lower if is_english(lower) else text  # a name keeps its capital


def span_text(sentence: Sentence, start: int, end: int) -> str:
    """A range of tokens as it is written inside a sentence."""
    first = sentence.tokens[start]
    return plain(sentence, start) + sentence.text[first.end : sentence.tokens[end - 1].end]


def swap(sentence: Sentence, first: tuple[int, int], second: tuple[int, int]) -> str:
    """The caption with two ranges of tokens exchanged; `first` ends before `second` starts."""
    return rewrite(
        sentence,
        (Put(*first, span_text(sentence, *second)), Put(*second, span_text(sentence, *first))),
    )


def _starts_high(sentence: Sentence) -> bool:
    return sentence.tokens[0].text[:1].isupper()


def _capitalised(text: str) -> str:
    place = len(text) - len(text.lstrip())
    return text[:place] + text[place : place + 1].upper() + text[place + 1 :]


def _set_articles(pieces: list[tuple[str, str, bool]]) -> None:
    for i, (piece, blank, new) in enumerate(pieces):
        before, _, word = piece.rpartition(" ")
        if word.lower() not in ("a", "an") or i + 1 == len(pieces):
            continue
        following = pieces[i + 1]
        if new or following[2]:  # mistakes of the caption itself are kept
            fitting = article(following[0])
            fitting = fitting.upper() if word.isupper() and len(word) > 1 else fitting
            fitting = fitting.capitalize() if word[0].isupper() else fitting
            pieces[i] = (f"{before} {fitting}".strip(), blank, new)


def article(following: str) -> str:
    """`a` or `an`, by the sound that the next word is likely to start with."""
    if _CONSONANT.match(following):
        return "a"
    return "an" if _VOWEL.match(following) else "a"


def in_form_of(token: Token, words: str, tag: str | None = None) -> str:
    """A dictionary form (of several words: the first of a verb, else the last) in a token's form.

    Empty if English has no such form. In capitals if the token is.
    """
    tag = tag or token.tag
    if tag.startswith("V"):
        head, blank, rest = words.partition(" ")
        found = inflected(head, tag)
        text = found and found + blank + rest
    else:
        rest, blank, head = words.rpartition(" ")
        found = inflected(head, tag)
        text = found and rest + blank + found
    loud = len(token.text) > 1 and token.text.isupper() and token.text not in _SHORT
    return text.upper() if loud else text
