"""The place first, which keeps the meaning.

"A man is cooking in a kitchen", "In a kitchen, a man is cooking"; "A dog sits on a bench", "On a
bench sits a dog"; "A dog sitting on a bench", "Sitting on a bench is a dog".
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language.lists import WORDS
from counterpoint.generation.language.sentences import Put, Sentence, rewrite, span_text
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.clauses import (
    Clause,
    clause,
    exist_plural,
    has_article,
    is_scene,
    last_place,
    phrase_at,
    words as words_of,
)
from counterpoint.generation.rules.phrases import Range

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
    if words_of(sentence, where) not in WORDS.settings or not _is_whole(sentence, said, where[0]):
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
