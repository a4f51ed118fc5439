"""Parts of captions: noun phrases, words that two captions exchange, what a text replaces."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from counterpoint.generation.language.phrases import noun_phrases
from counterpoint.generation.language.sentences import Put, Sentence, plain, rewrite, tagged
from counterpoint.generation.language.words import role
from counterpoint.generation.pairs import changed_span

# Kinds of words that CLIC exchanges (Peleg et al. 2025); it leaves out articles, joints and signs.
_EXCHANGED: Final = ("NOUN", "ADJ", "VERB", "ADP", "ADV", "NUM", "PRON", "PROPN")
_UNSAID: Final = ("determiner", "auxiliary", "joint", "pronoun", "negation")  # of a replacement
_REPLACED: Final = {"NOUN": "obj", "PROPN": "obj", "ADJ": "att", "ADV": "att", "NUM": "count"}
_Item = TypeVar("_Item")


def phrases_of(captions: Iterable[str]) -> Iterator[list[str]]:
    """The noun phrases of each caption, from left to right, each once; none is the caption."""
    for sentence in tagged(captions):
        found = [sentence.part(*place) for place in noun_phrases(sentence)]
        yield [phrase for phrase in dict.fromkeys(found) if phrase != sentence.text]


def exchanged(
    pairs: Sequence[tuple[str, str]], draws: Sequence[Sequence[float]]
) -> list[tuple[str, str] | None]:
    """Pairs of captions with a word of one exchanged for a word of the other, of the same kind.

    `draws`: three numbers from [0, 1) for each pair choose the kind and the words. A word that both
    captions have is not exchanged; None where nothing can be.
    """
    sentences = tagged(caption for pair in pairs for caption in pair)
    both = zip(sentences, sentences, strict=True)
    return [_exchanged(*two, drawn) for two, drawn in zip(both, draws, strict=True)]


def _exchanged(one: Sentence, two: Sentence, draws: Sequence[float]) -> tuple[str, str] | None:
    kinds = [
        (mine, theirs)
        for kind in _EXCHANGED
        if (mine := _words(one, two, kind)) and (theirs := _words(two, one, kind))
    ]
    if not kinds:
        return None
    mine, theirs = _drawn(kinds, draws[0])
    first, second = _drawn(mine, draws[1]), _drawn(theirs, draws[2])
    texts = plain(one, first), plain(two, second)
    found = (
        rewrite(one, [Put(first, first + 1, texts[1])]),
        rewrite(two, [Put(second, second + 1, texts[0])]),
    )
    # Captions that differ in one word have become each other, and say what they said.
    return None if found == (two.text, one.text) else found


def _words(sentence: Sentence, other: Sentence, kind: str) -> list[int]:
    """Places of words of a kind that the other sentence has not."""
    known = {token.lower for token in other.tokens}
    return [
        place
        for place, token in enumerate(sentence.tokens)
        if token.pos == kind and token.lower not in known
    ]


def _drawn(among: Sequence[_Item], draw: float) -> _Item:
    return among[min(int(draw * len(among)), len(among) - 1)]


def replaced(caption: str, text: str) -> str:
    """The subtype of a replacement: what the words are that the text has lost.

    Nouns are obj, adjectives and participles before a noun att, verbs and prepositions rel. Empty
    where words of several kinds were replaced, or none.
    """
    [sentence, other] = tagged((caption, text))
    kept = {token.lower for token in other.tokens}
    start, end = changed_span(text, caption)
    lost = [
        place
        for place, token in enumerate(sentence.tokens)
        if start < token.end and token.start < end and token.lower not in kept
    ]
    found = {_replaced(sentence, place) for place in lost} - {""}
    return found.pop() if len(found) == 1 else ""


def _replaced(sentence: Sentence, place: int) -> str:
    token, following = sentence.tokens[place], sentence.tokens[place + 1 : place + 2]
    known = role(token.lower)
    if known in _UNSAID:
        return ""
    if known in ("preposition", "side"):
        return "rel"  # "next to", "on top of"
    if token.pos == "VERB":
        before_noun = following and following[0].pos in ("NOUN", "ADJ")
        return "att" if token.tag == "VBN" and before_noun else "rel"
    return _REPLACED.get(token.pos, "")
