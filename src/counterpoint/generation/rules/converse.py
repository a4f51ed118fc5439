"""Converse relations: "a cup left of a plate", "a plate right of a cup"; and the symmetric ones,
whose two sides change places as they are: "a dog next to a cat", "a cat next to a dog"."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Final

from counterpoint.generation.language import lexicon
from counterpoint.generation.language.editing import Put, rewrite, span_text
from counterpoint.generation.language.tagging import Sentence
from counterpoint.generation.language.wordnet import Vocabulary
from counterpoint.generation.registry import Draft, Rule, Ways
from counterpoint.generation.rules.phrases import (
    Range,
    noun_phrase_after,
    noun_phrase_before,
    prepositions,
)

_COPULAS: Final = frozenset({"is", "are", "was", "were"})
_NUMBER: Final = {"is": "are", "are": "is", "was": "were", "were": "was"}


def _converse(sentence: Sentence, words: Vocabulary, rng: Random) -> Iterator[Ways]:
    del words, rng
    for place in range(1, len(sentence.tokens) - 1):
        where = prepositions().at(sentence, place)
        if where is not None:
            draft = _turned(sentence, where)
            if draft:
                yield [draft]
            return  # with two relations it is not sure what stands in them


def _turned(sentence: Sentence, relation: Range) -> Draft | None:
    """Only of a caption that is nothing but the two things and the relation: of more, the rest
    might belong to one of them."""
    tokens = sentence.tokens
    name = " ".join(token.lower for token in tokens[relation[0] : relation[1]])
    symmetric = lexicon.is_symmetric(name)
    other = name if symmetric else lexicon.converse(name)
    copula = relation[0] - 1 if tokens[relation[0] - 1].lower in _COPULAS else None
    left = noun_phrase_before(sentence, relation[0] if copula is None else copula)
    right = noun_phrase_after(sentence, relation[1])
    end = len(tokens) - (tokens[-1].tag == ".")
    if not other or left is None or right is None or left[0] != 0 or right[1] != end:
        return None
    if any(token.tag == "PRP$" for token in tokens[right[0] : right[1]]):
        return None  # "a man next to his dog"
    loud = tokens[relation[0]].text.isupper() and len(tokens[relation[0]].text) > 1
    puts = [
        Put(*left, span_text(sentence, *right)),
        Put(*relation, other.upper() if loud else other),
        Put(*right, span_text(sentence, *left)),
    ]
    plural = [tokens[where[1] - 1].tag == "NNS" for where in (left, right)]
    if copula is not None and plural[0] != plural[1]:
        puts.append(Put(copula, copula + 1, _NUMBER[tokens[copula].lower]))
    return Draft(rewrite(sentence, puts), "swap" if symmetric else "paraphrase", "rel")


CONVERSE: Final = Rule(
    "converse",
    "positive",
    "1",
    "the two sides of a relation turned around, with its converse",
    _converse,
)
