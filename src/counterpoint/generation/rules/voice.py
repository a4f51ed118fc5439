"""Active and passive, which keep the meaning.

"A man riding a horse", "a horse being ridden by a man": both ways, for verbs that take an object
which can be spoken of first. What follows the object stays at the end, and may only be the place of
it all: "holding a sign on a pole" is left alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import (
    Put,
    Sentence,
    inflected,
    rewrite,
    span_text,
)
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.clauses import (
    Clause,
    NounPhrase,
    clause,
    exist_plural,
    has_article,
    is_alive,
    is_scene,
    phrase_at,
    words as words_of,
)
from counterpoint.generation.rules.phrases import is_worn, prepositions

_PARTICLES: Final = {"hold": ("up", "out"), "blow": ("out",), "lift": ("up",), "cut": ("up",)}
_PRONOUNS: Final = frozenset({"PRP", "PRP$", "WP", "WDT"})


def _passive(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words, rng
    found = clause(sentence)
    if found is None:
        return
    text = _turned(sentence, found)
    if text:
        yield [Draft(text, "paraphrase", "rel")]


def _turned(sentence: Sentence, said: Clause) -> str:
    if any(token.tag in _PRONOUNS for token in sentence.tokens):
        return ""  # "a man washing his car"
    if not has_article(sentence, said.subject):
        return ""
    if said.said in ("doing", "does") and sentence.tokens[said.head].lower != "being":
        return _to_passive(sentence, said)
    return _to_active(sentence, said) if said.said in ("doing", "done") else ""


def _to_passive(sentence: Sentence, said: Clause) -> str:
    lemma = sentence.lemma(said.head)
    place = said.head + 1
    particle = _particle(sentence, place, lemma)
    object_ = phrase_at(sentence, place + bool(particle)) if lemma in WORDS.passive_verbs else None
    if object_ is None or said.subject.joined or not _movable(sentence, object_, lemma):
        return ""
    doer = sentence.lemma(said.subject.noun)
    if lemma in WORDS.by_hand and not is_alive(doer) and doer != "hand":
        return ""  # "a plate holding a slice"
    wave = lemma == "ride" and sentence.lemma(object_.noun) == "wave"
    if not _only_place(sentence, object_.end, said.end, lemma, wave=wave):
        return ""
    participle = inflected(lemma, "VBN") + (f" {particle}" if particle else "")
    be = "are" if exist_plural(sentence, object_) else "is"
    being = "" if said.said == "does" or lemma in WORDS.lasting else "being "
    verb = f"{being}{participle} by"
    if said.copula >= 0 or said.said == "does":
        verb = f"{be} {verb}"
    return _exchanged(sentence, said, (said.subject.start, said.subject.end), object_, be, verb)


def _to_active(sentence: Sentence, said: Clause) -> str:
    tokens = sentence.tokens
    being = tokens[said.head].lower == "being"
    verb = said.head + being
    lemma = sentence.lemma(verb)
    place = verb + 1
    particle = _particle(sentence, place, lemma)
    place += bool(particle)
    if lemma not in WORDS.passive_verbs or place + 1 >= said.end or tokens[place].lower != "by":
        return ""
    doer = phrase_at(sentence, place + 1)
    if doer is None or not _movable(sentence, doer) or said.subject.joined:
        return ""
    if lemma not in WORDS.lasting and not is_alive(sentence.lemma(doer.noun)):
        return ""  # "a cake eaten by candlelight"
    if not _only_place(sentence, doer.end, said.end, lemma):
        return ""
    be = "are" if doer.plural else "is"
    form = inflected(lemma, "VBG")
    if said.copula >= 0 and not being and lemma not in WORDS.lasting:
        form = lemma if doer.plural else inflected(lemma, "VBZ")
    elif said.copula >= 0:
        form = f"{be} {form}"
    form += f" {particle}" if particle else ""
    return _exchanged(sentence, said, (said.subject.start, said.subject.end), doer, be, form)


def _particle(sentence: Sentence, place: int, verb: str) -> str:
    word = words_of(sentence, (place, place + 1))
    return word if word in _PARTICLES.get(verb, ()) else ""


def _exchanged(
    sentence: Sentence, said: Clause, first: tuple[int, int], second: NounPhrase, be: str, verb: str
) -> str:
    """Both sides exchanged around another form of the verb."""
    middle = (said.copula if said.copula >= 0 else said.head, second.start)
    puts = [
        Put(*first, span_text(sentence, second.start, second.end)),
        Put(*middle, verb),
        Put(second.start, second.end, span_text(sentence, *first)),
    ]
    if said.there:
        if sentence.tokens[second.start].lower in ("the", "this", "these"):
            return ""
        puts.append(Put(1, 2, be))
    return rewrite(sentence, puts)


def _movable(sentence: Sentence, phrase: NounPhrase, verb: str = "") -> bool:
    """Whether a phrase can be spoken of first: with an article, or several."""
    first = sentence.tokens[phrase.start]
    lemma = sentence.lemma(phrase.noun)
    if lemma in WORDS.abstract | WORDS.fixed_objects or (verb == "catch" and lemma == "wave"):
        return False
    if verb == "wear" and not is_worn(sentence, phrase.noun):
        return False
    return first.tag in ("DT", "CD") or phrase.plural


def _only_place(sentence: Sentence, start: int, end: int, verb: str, *, wave: bool = False) -> bool:
    """Whether nothing follows, or only the place of it all; on a wave, a surfboard is one."""
    if start == end:
        return True
    where = prepositions().at(sentence, start)
    if (
        verb not in WORDS.contact
        or where is None
        or words_of(sentence, where) not in WORDS.passive_places
    ):
        return False
    place = phrase_at(sentence, where[1]) if where[1] < end else None
    if place is None or place.end != end:
        return False
    lemma = sentence.lemma(place.noun)
    return (is_scene(lemma) and lemma not in WORDS.skies) or (
        wave and lemma in ("surfboard", "board")
    )


PASSIVE: Final = Rule(
    "passive",
    "positive",
    "2",
    'active and passive: "a man riding a horse", "a horse being ridden by a man"',
    _passive,
)
