"""Swaps: two parts of a caption are exchanged; no word is added or removed.

`negclip` is the generator of ARO's authors: two spans of one group (noun chunks of three or more
tokens, singular nouns, plural nouns, adjectives, adverbs, verb phrases), at most one text per group
and five in all. `crepe-swap` exchanges two atoms of the same role: the things of two phrases, or
the attributes of two things.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Final

from counterpoint.generation.language.editing import swap
from counterpoint.generation.language.tagging import Sentence, Token
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import (
    Range,
    attributes,
    noun_described,
    noun_phrases,
    things,
    whole,
)

_MOST: Final = 5
_TRIES: Final = 6  # pairs of spans that are tried per text


def _chunks(sentence: Sentence) -> list[Range]:
    return [(start, end) for start, end in noun_phrases(sentence) if end - start > 2]


def _single(fits: Callable[[Token], bool]) -> Callable[[Sentence], list[Range]]:
    """Words of one kind, but not parts of a hyphenated one."""

    def found(sentence: Sentence) -> list[Range]:
        tokens = sentence.tokens
        return [
            (i, i + 1)
            for i, token in enumerate(tokens)
            if fits(token)
            and not (i and tokens[i - 1].tag == "HYPH")
            and not (i + 1 < len(tokens) and tokens[i + 1].tag == "HYPH")
        ]

    return found


def verb_phrases(sentence: Sentence) -> list[Range]:
    """Longest runs of the form VERB? ADV* AUX* VERB+."""
    pos = [token.pos for token in sentence.tokens]
    found, place = [], 0
    while place < len(pos):
        end = _verb_phrase_end(pos, place)
        if end > place:
            found.append((place, end))
        place = max(end, place + 1)
    return found


def _verb_phrase_end(pos: Sequence[str], start: int) -> int:
    """Where the longest phrase that begins here ends; `start` if none does."""
    longest = start
    for first in (1, 0):  # with the optional verb, and without
        place = start + first
        if first and (start >= len(pos) or pos[start] != "VERB"):
            continue
        while place < len(pos) and pos[place] == "ADV":
            place += 1
        while place < len(pos) and pos[place] == "AUX":
            place += 1
        verbs = place
        while place < len(pos) and pos[place] == "VERB":
            place += 1
        if place > verbs:
            longest = max(longest, place)
    return longest


_GROUPS: Final[tuple[tuple[str, Callable[[Sentence], list[Range]]], ...]] = (
    ("obj", _chunks),
    ("obj", _single(lambda token: token.tag == "NN")),
    ("obj", _single(lambda token: token.tag == "NNS")),
    ("att", _single(lambda token: token.pos == "ADJ")),
    ("att", _single(lambda token: token.pos == "ADV")),
    ("rel", verb_phrases),
)


def _negclip(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    groups = [(subtype, spans) for subtype, find in _GROUPS if len(spans := find(sentence)) > 1]
    for subtype, spans in groups[:_MOST]:
        yield _swapped(sentence, list(combinations(spans, 2)), subtype, rng)


def _swapped(
    sentence: Sentence, pairs: list[tuple[Range, Range]], subtype: str, rng: Random
) -> Ways:
    rng.shuffle(pairs)
    different = [
        pair for pair in pairs if sentence.part(*pair[0]).lower() != sentence.part(*pair[1]).lower()
    ]
    return (Draft(swap(sentence, *pair), "swap", subtype) for pair in different[:_TRIES])


def _crepe(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    tags = [token.tag for token in sentence.tokens]
    nouns = things(sentence)
    objects = [
        (whole(sentence, a), whole(sentence, b))
        for a, b in combinations(nouns, 2)
        if tags[a] == tags[b]
    ]
    yield _swapped(sentence, objects, "obj", rng)
    owners = [(i, noun_described(sentence, i)) for i in attributes(sentence)]
    different = [
        ((a, a + 1), (b, b + 1))
        for (a, one), (b, two) in combinations(owners, 2)
        if one != two and -1 not in (one, two) and tags[a] == tags[b]
    ]
    yield _swapped(sentence, different, "att", rng)


NEGCLIP: Final = Rule(
    "negclip",
    "negative",
    "1",
    "two nouns, noun phrases, adjectives, adverbs or verbs swapped",
    _negclip,
)
CREPE: Final = Rule(
    "crepe-swap", "negative", "1", "two things, or the attributes of two things, swapped", _crepe
)
