"""A clause in another order, which keeps the meaning: active and passive, and the place first.

`passive`: "A man riding a horse", "a horse being ridden by a man": both ways, for verbs that take
an object which can be spoken of first. What follows the object stays at the end, and may only be
the place of it all: "holding a sign on a pole" is left alone.

`fronted`: "A man is cooking in a kitchen", "In a kitchen, a man is cooking"; "A dog sits on a
bench", "On a bench sits a dog"; "A dog sitting on a bench", "Sitting on a bench is a dog".
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language.lexicon import Vocabulary
from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.phrases import Range, is_worn, prepositions
from counterpoint.generation.language.sentences import (
    Put,
    Sentence,
    inflected,
    rewrite,
    span_text,
)
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.clauses import (
    Clause,
    NounPhrase,
    clause,
    exist_plural,
    has_article,
    is_alive,
    is_scene,
    last_place,
    phrase_at,
)

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
    word = sentence.words(place, place + 1)
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
        or sentence.words(*where) not in WORDS.passive_places
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


_BOUND: Final = frozenset({"PRP", "PRP$", "WDT", "WP", "EX"})


def _fronted(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words
    found = clause(sentence)
    if found is None or found.there or any(t.tag in _BOUND for t in sentence.tokens):
        return
    if not has_article(sentence, found.subject):
        return
    ways = [*_inverted(sentence, found), *_place_first(sentence, found)]
    rng.shuffle(ways)
    yield ways


def _inverted(sentence: Sentence, said: Clause) -> Iterator[Draft]:
    """What is said, then the subject."""
    tokens, subject = sentence.tokens, said.subject
    where = last_place(sentence, said)
    if where is None or tokens[subject.start].lower in ("the", "this", "these"):
        return
    be = "are" if subject.joined or exist_plural(sentence, subject) else "is"
    be = tokens[said.copula].lower if said.copula >= 0 else be
    who = span_text(sentence, subject.start, subject.end)
    if said.said == "place" and where[0] == said.head:
        yield _moved(sentence, said, (said.head, said.end), be, who)
    elif where[0] == said.head + 1 and sentence.lemma(said.head) in WORDS.resting:
        if said.said == "does":
            yield _moved(sentence, said, (where[0], said.end), tokens[said.head].lower, who)
        elif said.said in ("doing", "done"):
            yield _moved(sentence, said, (said.head, said.end), be, who)


def _moved(sentence: Sentence, said: Clause, first: Range, verb: str, who: str) -> Draft:
    text = f"{span_text(sentence, *first)} {verb} {who}"
    same = said.copula >= 0 or said.said == "does"  # no word is new
    return Draft(rewrite(sentence, (Put(0, said.end, text),)), "swap" if same else "paraphrase")


def _place_first(sentence: Sentence, said: Clause) -> Iterator[Draft]:
    """The place, a comma, and all else: only a place of all that is spoken of."""
    tokens = sentence.tokens
    where = last_place(sentence, said)
    if said.said not in ("doing", "does", "done") or where is None:
        return
    noun = phrase_at(sentence, where[1])
    if noun is None or not is_scene(sentence.lemma(noun.noun)):
        return
    if sentence.words(*where) not in WORDS.settings or not _is_whole(sentence, said, where[0]):
        return
    verb = tokens[said.head].text
    if said.copula < 0 and said.said != "does":
        verb = f"{'are' if said.subject.plural else 'is'} {verb}"
    elif said.copula >= 0:
        verb = f"{tokens[said.copula].text} {verb}"
    middle = f" {span_text(sentence, said.head + 1, where[0])}" if said.head + 1 < where[0] else ""
    who = span_text(sentence, said.subject.start, said.subject.end)
    text = f"{span_text(sentence, where[0], said.end)}, {who} {verb}{middle}"
    same = said.copula >= 0 or said.said == "does"
    yield Draft(rewrite(sentence, (Put(0, said.end, text),)), "swap" if same else "paraphrase")


def _is_whole(sentence: Sentence, said: Clause, place: int) -> bool:
    """Whether subject and verb stand without the place: "grazing", "riding a horse"."""
    if place == said.head + 1:
        lemma = sentence.lemma(said.head)
        return lemma not in WORDS.resting | WORDS.copulas | WORDS.shown
    if sentence.lemma(said.head) not in WORDS.contact:
        return False
    object_ = phrase_at(sentence, said.head + 1)
    if sentence.lemma(said.end - 1) in WORDS.skies:
        return False
    return object_ is not None and object_.end == place


FRONTED: Final = Rule(
    "fronted",
    "positive",
    "1",
    'the place first: "in a kitchen, a man is cooking", "on a bench sits a dog"',
    _fronted,
)
