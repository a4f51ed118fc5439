"""Small words that say the same: how many, and denials.

`determiners`: "two dogs", "2 dogs", "a pair of dogs"; "several", "a number of"; "each other", "one
another".

`denials`: "with no people", "without any people"; "is not", "isn't". The denial stays.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from random import Random
from typing import Final

from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import TABLES, WORDS
from counterpoint.generation.language.phrases import Phrases
from counterpoint.generation.language.sentences import (
    ADJECTIVES,
    NOUNS,
    Put,
    Sentence,
    rewrite,
)
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.clauses import is_alive, is_counted, phrase_at

_NUMBERS: Final[dict[str, str]] = TABLES["figures"]
_DIGITS: Final = {digit: word for word, digit in _NUMBERS.items()}
_AMOUNTS: Final[dict[str, list[str]]] = TABLES["amounts_before_plurals"]
_ANYWHERE: Final[dict[str, list[str]]] = TABLES["anywhere"]
# Of captions with these words, the share in which they are replaced.
_KEPT: Final = {"two": 0.2, "three": 0.5, "several": 0.5}
_STARTS: Final = frozenset({"DT", "PRP$", "CD", "PDT", "IN", "TO"})
_PHRASES: Final = (*_AMOUNTS, *_ANYWHERE, *_NUMBERS, *_DIGITS)
_KNOWN: Final = Phrases(_PHRASES)
_FIRST: Final = frozenset(phrase.split()[0] for phrase in _PHRASES) - {"a", "an"}
_SECOND: Final = frozenset(p.split()[1] for p in _PHRASES if p.startswith(("a ", "an ")))


def _determiners(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    puts: list[tuple[Put, float]] = []
    place = 0
    while place < len(sentence.tokens):
        where = _KNOWN.at(sentence, place) if _may_start(sentence, place) else None
        if where is not None:
            puts += _amounts(sentence, *where)
        place = place + 1 if where is None else where[1]
    rng.shuffle(puts)
    drafts = [(put, rng.random() > keep) for put, keep in puts]
    drafts.sort(key=lambda draft: draft[1])
    yield (
        Draft(rewrite(sentence, (put,)), "replace", "att", common=common) for put, common in drafts
    )


def _may_start(sentence: Sentence, place: int) -> bool:
    """Every caption has an "a": a look at the next word saves most of the search."""
    tokens = sentence.tokens
    word = tokens[place].lower
    if word in ("a", "an"):
        return place + 1 < len(tokens) and tokens[place + 1].lower in _SECOND
    return word in _FIRST


def _amounts(sentence: Sentence, start: int, end: int) -> Iterator[tuple[Put, float]]:
    tokens = sentence.tokens
    name = sentence.words(start, end)
    before = tokens[start - 1].tag if start else ""
    if start and tokens[start - 1].lower in ("so", "too", "how", "as", "very"):
        return  # "so many"
    if start == 0 and name in _DIGITS:
        return  # a figure does not say whether a sentence begins with a capital
    if name.endswith(" of") and name in _ANYWHERE and any(t.pos == "VERB" for t in tokens[:start]):
        return  # "taking a picture of"
    others: Sequence[str]
    if name in _ANYWHERE:
        others = _ANYWHERE[name]
    elif end == len(tokens) or tokens[end].tag == "HYPH" or before in ("HYPH", "DT", "PRP$"):
        return
    else:
        others = _of_plural(sentence, name, end)
    after = tokens[end].tag if end < len(tokens) else ""
    if name == "all of the" and after not in (*NOUNS, *ADJECTIVES):
        return
    for other in others:
        text = other.upper() if sentence.text.isupper() else other
        yield Put(start, end, text), _KEPT.get(name, 1.0)


def _of_plural(sentence: Sentence, name: str, place: int) -> Sequence[str]:
    """What may replace an amount before this noun phrase."""
    phrase = phrase_at(sentence, place)
    if phrase is None or not is_counted(sentence, phrase.noun):
        return ()
    if sentence.tokens[place].tag in _STARTS:
        return ()
    alive = is_alive(sentence.lemma(phrase.noun))
    number = _NUMBERS.get(name, _DIGITS.get(name, ""))
    if sum(token.tag == "CD" for token in sentence.tokens) > 1:
        number = ""  # not "three cats and 2 dogs"
    after = sentence.word(phrase.end)
    pair = alive and after not in ("and", ",", "or")  # "two men and a woman"
    others = _AMOUNTS.get(name, ()) if name not in WORDS.pairs or pair else ()
    # A sentence does not begin with a figure.
    return (*others, number) if number and (place > 1 or name in _DIGITS) else others


DETERMINERS: Final = Rule(
    "determiners",
    "positive",
    "2",
    'other words for how many: "two dogs", "2 dogs", "a pair of dogs"',
    _determiners,
)


def _denials(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    if WORDS.denying.isdisjoint([token.lower for token in sentence.tokens]):
        return
    puts = [put for i in range(len(sentence.tokens) - 1) for put in _denied(sentence, i)]
    rng.shuffle(puts)
    yield [Draft(rewrite(sentence, (put,)), "paraphrase") for put in puts]


def _denied(sentence: Sentence, place: int) -> Iterator[Put]:
    tokens = sentence.tokens
    first, second = tokens[place], tokens[place + 1]
    both = f"{first.lower} {second.lower}"
    if first.text.isupper() and len(first.text) > 1:
        return
    if both == "with no" and _noun_at(sentence, place + 2):
        yield Put(place, place + 2, "without any")
    elif first.lower == "without":
        yield from _without(sentence, place)
    elif first.lower in WORDS.contracted and second.lower in ("not", "n't"):
        short = second.lower == "n't"
        yield Put(place, place + 2, f"{first.text} not" if short else f"{first.text}n't")
    elif both in ("are no", "is no") and place and tokens[place - 1].lower == "there":
        if _noun_at(sentence, place + 2) == "many":
            yield Put(place, place + 2, f"{first.text}n't any")
    elif both == "no one":
        yield Put(place, place + 2, "nobody")


def _without(sentence: Sentence, place: int) -> Iterator[Put]:
    after = sentence.tokens[place + 1]
    if (after.lower == "any" and _noun_at(sentence, place + 2)) or (
        after.lower in ("a", "an") and phrase_at(sentence, place + 1) is not None
    ):
        yield Put(place, place + 2, "with no")
    elif _noun_at(sentence, place + 1) == "many":
        yield Put(place, place + 1, "with no")


def _noun_at(sentence: Sentence, place: int) -> str:
    """Whether a noun phrase without an article begins here: "many", "mass", or none."""
    tokens = sentence.tokens
    if place >= len(tokens) or tokens[place].tag in _STARTS or tokens[place].lower in WORDS.much:
        return ""
    phrase = phrase_at(sentence, place)
    if phrase is None:
        return ""
    if sentence.tokens[phrase.noun].tag == "NNS":
        return "many"
    return "mass" if sentence.lemma(phrase.noun) in WORDS.denied_mass else ""


DENIALS: Final = Rule(
    "denials",
    "positive",
    "1",
    'a denial in other words: "with no people", "without any people"',
    _denials,
)
