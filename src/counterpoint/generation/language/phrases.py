"""Parts of a caption that rules move and replace, found by tags.

Many captions are noun phrases, on which a sentence parser fails; tags fail less often.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Final

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import ADJECTIVES, NOUNS, Sentence

Range = tuple[int, int]

_DETERMINERS: Final = frozenset({"DT", "PRP$", "CD", "PDT"})
_MODIFIERS: Final = frozenset({"JJ", "JJR", "JJS", "VBN", "VBG", "NN", "NNS", "NNP", "HYPH", "RB"})
_BEFORE: Final = _MODIFIERS - {"VBG", "RB", "NNS"}
_STARTS: Final = _DETERMINERS | ADJECTIVES | NOUNS | {"NNP", "PRP", "VBN"}
_NEXT: Final = ADJECTIVES | {"VBG", "VBN", "RB"}  # after a noun, they are not part of its phrase


def noun_phrase_after(sentence: Sentence, start: int) -> Range | None:
    """The noun phrase that begins at a token: "a black bow tie", "two dogs", "rice"."""
    tokens, place = sentence.tokens, start
    while place < len(tokens) and tokens[place].tag in _DETERMINERS:
        place += 1
    last = None
    while place < len(tokens) and tokens[place].tag in _MODIFIERS:
        if tokens[place].tag in NOUNS:
            last = place
        elif last is not None and tokens[place].tag in _NEXT:
            break  # "a man | holding"
        place += 1
    return None if last is None or _disagrees(sentence, start, last) else (start, last + 1)


def _disagrees(sentence: Sentence, start: int, last: int) -> bool:
    """ "a hydrant waits": the tagger takes the verb for a noun."""
    tokens = sentence.tokens
    return tokens[start].lower in ("a", "an") and tokens[last].tag == "NNS"


def noun_phrase_before(sentence: Sentence, end: int) -> Range | None:
    """The noun phrase that ends before a token."""
    tokens = sentence.tokens
    if end == 0 or tokens[end - 1].tag not in NOUNS:
        return None
    place = end - 1
    while place > 0 and tokens[place - 1].tag in _BEFORE:
        place -= 1  # not over a plural: "feeding giraffes grass"
    while place > 0 and tokens[place - 1].tag in _DETERMINERS:
        place -= 1
    # "sitting" in "a sitting cat" is inside, in "a man holding cats" it is not
    if place > 1 and tokens[place - 1].tag == "VBG" and tokens[place - 2].lower in WORDS.articles:
        place -= 2
    while place < end and tokens[place].tag == "HYPH":
        place += 1
    return None if _disagrees(sentence, place, end - 1) else (place, end)


def noun_phrases(sentence: Sentence) -> Iterator[Range]:
    """All of them, from left to right."""
    place = 0
    while place < len(sentence.tokens):
        starts = sentence.tokens[place].tag not in ("VBG", "VBN", "RB", "HYPH")
        phrase = noun_phrase_after(sentence, place) if starts else None
        if phrase is not None:
            yield phrase
        place = place + 1 if phrase is None else phrase[1]


def things(sentence: Sentence) -> list[int]:
    """Nouns that head a phrase and stand for a thing: not "front", not the "bow" of "bow tie"."""
    tokens = sentence.tokens
    return [
        i
        for i, token in enumerate(tokens)
        if token.tag in NOUNS
        and not (i + 1 < len(tokens) and tokens[i + 1].tag in NOUNS)
        and not (i + 1 < len(tokens) and tokens[i + 1].tag in ("HYPH", "POS"))
        and not (i > 0 and tokens[i - 1].tag == "HYPH")
        and sentence.lemma(i) not in WORDS.abstract
    ]


def whole(sentence: Sentence, noun: int) -> Range:
    """A noun with those that specify it: "computer room"."""
    start = noun
    while start > 0 and sentence.tokens[start - 1].tag in (*NOUNS, "NNP"):
        start -= 1
    return start, noun + 1


def attributes(sentence: Sentence) -> list[int]:
    """Adjectives before a noun, or said of one ("is red"); not of "other", "many" and the like."""
    tokens = sentence.tokens
    return [
        i
        for i, token in enumerate(tokens)
        if token.tag in ADJECTIVES
        and token.lower not in WORDS.vague_adjectives
        and not (i + 1 < len(tokens) and tokens[i + 1].tag == "HYPH")
        and not (i > 0 and tokens[i - 1].tag == "HYPH")
    ]


def noun_described(sentence: Sentence, number: int) -> int:
    """The noun whose adjective this is: the next with nothing but modifiers between, else -1."""
    tokens = sentence.tokens
    for place in range(number + 1, len(tokens)):
        if tokens[place].tag in NOUNS:
            last = place + 1 == len(tokens) or tokens[place + 1].tag not in NOUNS
            if last:
                return place
        elif tokens[place].tag not in _MODIFIERS and tokens[place].lower not in ("and", ","):
            break
    return -1


def said_of(sentence: Sentence, adjective: int) -> str:
    """The noun that an adjective is said of, before it or after "is", as a lemma; else empty."""
    noun = noun_described(sentence, adjective)
    if noun < 0 and is_predicate(sentence, adjective):
        before = range(adjective - 1, -1, -1)
        noun = next((i for i in before if sentence.tokens[i].tag in NOUNS), -1)
    return sentence.lemma(noun) if noun >= 0 else ""


def is_predicate(sentence: Sentence, adjective: int) -> bool:
    """ "the car is red", "is very red"."""
    place = adjective - 1
    while place > 0 and sentence.tokens[place].tag == "RB":
        place -= 1
    return place >= 0 and sentence.tokens[place].pos == "AUX"


def object_of(sentence: Sentence, place: int) -> str:
    """The noun of the phrase at a token: the object of what stands before; else empty."""
    phrase = noun_phrase_after(sentence, place) if place < len(sentence.tokens) else None
    return sentence.lemma(phrase[1] - 1) if phrase else ""


class Phrases:
    """Phrases of one or more words that are looked for in captions, by their first words."""

    def __init__(self, phrases: Iterable[str]) -> None:
        self._by_first: dict[str, list[tuple[str, ...]]] = {}
        for phrase in sorted(phrases, key=lambda phrase: -len(phrase.split())):
            words = tuple(phrase.split())
            self._by_first.setdefault(words[0], []).append(words)

    def at(self, sentence: Sentence, start: int) -> Range | None:
        """The longest phrase that begins at a token."""
        tokens = sentence.tokens
        for words in self._by_first.get(tokens[start].lower, ()):
            end = start + len(words)
            if len(words) == 1 or (
                end <= len(tokens)
                and all(tokens[start + i].lower == words[i] for i in range(1, len(words)))
            ):
                return start, end
        return None


@cache
def prepositions() -> Phrases:
    """Those of the lexicon."""
    return Phrases(name for name in lexicon.relations() if lexicon.meanings(name, "ADP"))


def starts_phrase(sentence: Sentence, place: int) -> bool:
    """Whether a noun phrase may begin at a token: else a preposition before it has no object."""
    tokens = sentence.tokens
    return place < len(tokens) and tokens[place].tag in _STARTS


def is_worn(sentence: Sentence, noun: int) -> bool:
    """Whether a noun is something that people wear."""
    return _is_clothes(sentence.lemma(noun))


@cache
def _is_clothes(noun: str) -> bool:
    return any("clothes" in meaning.kinds for meaning in lexicon.meanings(noun, "NOUN"))


def is_place_for(sentence: Sentence, place: int) -> bool:
    """Whether the noun phrase at a token is a place for things.

    Not in "in uniform", "on display", "in the background".
    """
    phrase = noun_phrase_after(sentence, place)
    if phrase is None:
        return starts_phrase(sentence, place) and sentence.tokens[place].tag == "PRP"
    head = phrase[1] - 1
    return sentence.lemma(head) not in WORDS.no_places and not is_worn(sentence, head)
