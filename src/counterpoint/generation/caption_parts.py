"""Parts of captions that training reads: noun phrases, and words that two captions exchange."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, TypeVar

from counterpoint.generation.language.sentences import Put, Sentence, plain, rewrite, tagged
from counterpoint.generation.rules.phrases import noun_phrases

# Kinds of words that CLIC exchanges (Peleg et al. 2025); it leaves out articles, joints and signs.
_EXCHANGED: Final = ("NOUN", "ADJ", "VERB", "ADP", "ADV", "NUM", "PRON", "PROPN")
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
