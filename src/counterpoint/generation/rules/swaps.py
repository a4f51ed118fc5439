"""Swaps and shuffles: the words of a caption change places; none is added or removed.

`negclip` is the generator of ARO's authors: two spans of one group, at most one text per group and
five in all. `crepe-swap` exchanges two atoms of the same role. `bind` exchanges the attributes or
the numbers of two things, where both exclude each other and fit both nouns, so that the text is
false, and possible. `shuffle` makes ARO's four shuffles as normal sentences: the benchmark's own
(benchmarks/word_order.py) keep the authors' tokens, and spaces that reveal a shuffle ("man ' s").
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from itertools import combinations
from random import Random
from typing import Final, NamedTuple

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import ADJECTIVES, NOUNS, Range, Sentence, Token
from counterpoint.generation.pairs import Draft
from counterpoint.generation.registry import Ways, rule
from counterpoint.generation.rules.swappable import (
    fits,
    has_one_colour,
    unlike_adjectives,
    unlike_adverbs,
    unlike_nouns,
    unlike_verbs,
)

_MOST: Final = 5
_TRIES: Final = 6  # pairs of spans that are tried per text
_BLANK: Final = re.compile(r"\s+")
_SHUFFLES_TRIED: Final = 3  # a shuffle of a short caption is often the caption itself
_NAMES: Final = frozenset({*NOUNS, "NNP", "NNPS"})
_LETTERS: Final = {"VERB": "v", "ADV": "d", "AUX": "x"}
_VERB_PHRASE: Final = re.compile("v?d*x*v+")


def _chunks(sentence: Sentence) -> list[Range]:
    return [(start, end) for start, end in sentence.noun_phrases() if end - start > 2]


def _single(fits: Callable[[Token], bool]) -> Callable[[Sentence], list[Range]]:
    """Words of one kind, but not parts of a hyphenated one."""

    def found(sentence: Sentence) -> list[Range]:
        return [
            (i, i + 1)
            for i, token in enumerate(sentence.tokens)
            if fits(token) and not sentence.in_hyphens(i)
        ]

    return found


def verb_phrases(sentence: Sentence) -> list[Range]:
    """Longest runs of the form VERB? ADV* AUX* VERB+."""
    kinds = "".join(_LETTERS.get(token.pos, "-") for token in sentence.tokens)
    return [match.span() for match in _VERB_PHRASE.finditer(kinds)]


Spans = Callable[[Sentence], list[Range]]
Unlike = Callable[[Sentence, Range, Range], str]  # why two spans cannot change places
_GROUPS: Final[tuple[tuple[str, Spans, Unlike], ...]] = (
    ("obj", _chunks, unlike_nouns),
    ("obj", _single(lambda token: token.tag == "NN"), unlike_nouns),
    ("obj", _single(lambda token: token.tag == "NNS"), unlike_nouns),
    ("att", _single(lambda token: token.pos == "ADJ"), unlike_adjectives),
    ("att", _single(lambda token: token.pos == "ADV"), unlike_adverbs),
    ("rel", verb_phrases, unlike_verbs),
)


@rule("negclip", "negative", "3")
def negclip(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """two nouns, noun phrases, adjectives, adverbs or verbs swapped"""
    groups = [
        (subtype, spans, unlike)
        for subtype, find, unlike in _GROUPS
        if len(spans := find(sentence)) > 1
    ]
    for subtype, spans, unlike in groups[:_MOST]:
        yield _swapped(sentence, list(combinations(spans, 2)), subtype, unlike, rng)


def _swapped(
    sentence: Sentence, pairs: list[tuple[Range, Range]], subtype: str, unlike: Unlike, rng: Random
) -> Ways:
    """Texts with two spans exchanged; those of unlike spans come last."""
    rng.shuffle(pairs)
    different = [
        (unlike(sentence, *pair), pair)
        for pair in pairs
        if sentence.part(*pair[0]).lower() != sentence.part(*pair[1]).lower()
    ]
    different.sort(key=lambda found: bool(found[0]))  # stable
    return (
        Draft(sentence.swap(*pair), "swap", subtype, odd=odd) for odd, pair in different[:_TRIES]
    )


@rule("crepe-swap", "negative", "3")
def crepe_swap(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """two things, or the attributes of two things, swapped"""
    tags = [token.tag for token in sentence.tokens]
    nouns = sentence.things()
    objects = [
        (sentence.whole(a), sentence.whole(b))
        for a, b in combinations(nouns, 2)
        if tags[a] == tags[b]
    ]
    yield _swapped(sentence, objects, "obj", unlike_nouns, rng)
    owners = [(i, sentence.noun_described(i)) for i in sentence.attributes()]
    different = [
        ((a, a + 1), (b, b + 1))
        for (a, one), (b, two) in combinations(owners, 2)
        if one != two and -1 not in (one, two) and tags[a] == tags[b]
    ]
    yield _swapped(sentence, different, "att", unlike_adjectives, rng)


_MOST_BOUND: Final = 6
_LISTS: Final = frozenset([",", ":", ";", "-", "--", "including", "containing"])


class _Bound(NamedTuple):
    """An attribute, and what it is said of."""

    place: int
    word: str
    noun: int
    name: str
    pos: str


@rule("bind", "negative", "2")
def bind(sentence: Sentence, _words: Vocabulary, rng: Random) -> Iterator[Ways]:
    """the attributes or the numbers of two things exchanged"""
    found = [
        sentence.swap((a.place, a.place + 1), (b.place, b.place + 1))
        for a, b in combinations(sorted(_bound(sentence)), 2)
        if _can_exchange(sentence, a, b)
    ]
    some = rng.sample(found, min(_MOST_BOUND, len(found)))
    yield [Draft(text, "swap", "bind") for text in some]


def _bound(sentence: Sentence) -> Iterator[_Bound]:
    tokens = sentence.tokens
    numbers = [i for i, token in enumerate(tokens) if token.tag == "CD"]
    # "an orange bus": nouns that are attributes
    nouns = [
        i
        for i, token in enumerate(tokens[:-1])
        if token.tag == "NN" and tokens[i + 1].tag in NOUNS and lexicon.meanings(token.lower, "ADJ")
    ]
    for pos, places in (("NUM", numbers), ("ADJ", [*sentence.attributes(), *nouns])):
        for place in places:
            noun = sentence.noun_described(place)
            if noun >= 0 and not _is_joined(sentence, place):
                yield _Bound(place, sentence.lemmas[place], noun, sentence.name_of(noun), pos)


def _is_joined(sentence: Sentence, place: int) -> bool:
    """A part of "black and white", "dark blue" or "blue-green"."""
    for step in (-1, 1):
        near, other = sentence.word(place + step), sentence.at(place + 2 * step)
        if near == "-" or near in WORDS.shades:
            return True
        if other.text and near in ("and", "or", ",", "&"):
            return other.tag in ADJECTIVES or bool(lexicon.meanings(other.lower, "ADJ"))
    return False


def _can_exchange(sentence: Sentence, a: _Bound, b: _Bound) -> bool:
    if a.noun == b.noun or a.name == b.name or a.pos != b.pos:
        return False  # "a black dog and a white dog"
    if not lexicon.exclude(a.word, b.word):
        return False
    if a.pos == "NUM":
        plural = all(sentence.tokens[each.noun].tag == "NNS" for each in (a, b))
        return plural and not _is_sum(sentence, a) and not _is_sum(sentence, b)
    if has_one_colour(sentence, a.noun) or has_one_colour(sentence, b.noun):
        return False
    return fits(sentence, a.word, b.noun) and fits(sentence, b.word, a.noun)


def _is_sum(sentence: Sentence, number: _Bound) -> bool:
    """Whether what was counted is listed behind it: "four animals, a leopard and three bears"."""
    return sentence.word(number.noun + 1) in _LISTS


Words = list[str]
Shuffle = Callable[[Words, Sequence[str], Random], Words]


def _permuted(words: Words, places: Sequence[int], rng: Random) -> Words:
    found = list(words)
    for place, other in zip(places, rng.sample(places, len(places)), strict=True):
        found[place] = words[other]
    return found


def nouns_and_adjectives(words: Words, tags: Sequence[str], rng: Random) -> Words:
    """Nouns change places with nouns, adjectives with adjectives."""
    for kind in (_NAMES, ADJECTIVES):
        words = _permuted(words, [i for i, tag in enumerate(tags) if tag in kind], rng)
    return words


def other_words(words: Words, tags: Sequence[str], rng: Random) -> Words:
    """Everything but nouns and adjectives changes places."""
    kept = _NAMES | ADJECTIVES
    return _permuted(words, [i for i, tag in enumerate(tags) if tag not in kept], rng)


def within_trigrams(words: Words, _tags: Sequence[str], rng: Random) -> Words:
    """Each three words in a row change places among themselves."""
    return [word for three in _threes(words) for word in rng.sample(three, len(three))]


def trigrams(words: Words, _tags: Sequence[str], rng: Random) -> Words:
    """Threes of words change places, and stay as they are inside."""
    threes = _threes(words)
    return [word for three in rng.sample(threes, len(threes)) for word in three]


def _threes(words: Words) -> list[Words]:
    return [words[start : start + 3] for start in range(0, len(words), 3)]


SHUFFLES: Final[tuple[Shuffle, ...]] = (
    nouns_and_adjectives,
    other_words,
    within_trigrams,
    trigrams,
)


@rule("shuffle", "negative", "1")
def shuffle(sentence: Sentence, _vocabulary: Vocabulary, rng: Random) -> Iterator[Ways]:
    """words in another order, in four ways"""
    words, tags, ending = _words(sentence)
    blanks = _BLANK.findall(sentence.text.strip())[: len(words) - 1]  # double spaces are kept
    high = sentence.tokens[0].text[:1].isupper()

    def ways(shuffle: Shuffle) -> Ways:
        for _ in range(_SHUFFLES_TRIED):
            pieces = zip(shuffle(words, tags, rng), (*blanks, ending), strict=True)
            text = "".join(word + after for word, after in pieces)
            yield Draft(text[:1].upper() + text[1:] if high else text, "shuffle")

    for shuffle in SHUFFLES if len(words) > 1 else ():
        yield ways(shuffle)


def _words(sentence: Sentence) -> tuple[Words, list[str], str]:
    """Words between spaces, so that marks stay with their words; one tag each; the final mark."""
    words: Words = []
    tags: list[str] = []
    end = -1
    for number, token in enumerate(sentence.tokens):
        text = sentence.plain(number)
        if token.start == end:
            words[-1] += text
        else:
            words.append(text)
            tags.append(token.tag)
        end = token.end
    last = words[-1].rstrip(".!?")
    ending = words[-1][len(last) :]
    if last:
        words[-1] = last
    else:
        words.pop()
        tags.pop()
        ending = " " + ending
    return words, tags, ending
