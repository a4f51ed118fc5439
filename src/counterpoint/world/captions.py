"""Captions to pretrain on: like web text, they seldom need word order and seldom use rare words.

People scan a picture from one side: where a sentence leaves the order free ("the red circle and the
striped square"), the object further left mostly comes first. A caption that says where things are
says less about what they are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from counterpoint.world.grammar import Phrase, Statement, write
from counterpoint.world.lexicon import RELATIONS, SYNONYMS
from counterpoint.world.scene import GRID, KINDS, Scene, Thing, related

LEFT_FIRST: Final = 0.9  # how often the object further left is named first, if the order is free
DETAIL: Final = {"and": 0.5, "related": 0.2}  # the chance that a sentence says an attribute


@dataclass(frozen=True, slots=True)
class CaptionStyle:
    """How captions are drawn.

    `grammar` is the share of grammatical captions, the rest are keywords in random order; `synonym`
    is the chance that a word is said in its rarer way.
    """

    grammar: float
    synonym: float


def sample_caption(scene: Scene, style: CaptionStyle, rng: np.random.Generator) -> str:
    """A true caption of the scene (keywords are true in that all of them are in the picture)."""
    synonyms = {word: rare for word, rare in SYNONYMS.items() if rng.random() < style.synonym}
    if rng.random() < style.grammar:
        return write(_statement(scene, rng), synonyms)
    words = [word for thing in scene.things for word in _words(thing, rng)]
    return " ".join(synonyms.get(words[i], words[i]) for i in rng.permutation(len(words)))


def _words(thing: Thing, rng: np.random.Generator) -> list[str]:
    return [*(thing.value(kind) for kind in KINDS if rng.random() < 0.5), thing.shape]


def _statement(scene: Scene, rng: np.random.Generator) -> Statement:
    """A statement about two objects, often "and", else one of the relations they stand in."""
    a, b = (scene.things[i] for i in rng.permutation(len(scene.things))[:2])
    true = [relation for relation in RELATIONS if related(a, relation, b)]
    relation = true[rng.integers(len(true))] if true and rng.random() < 0.5 else None
    if relation is None and leads(a, b) != (rng.random() < LEFT_FIRST):
        a, b = b, a
    detail = DETAIL["related" if relation else "and"]
    return Statement(_phrase(a, detail, rng), _phrase(b, detail, rng), relation)


def leads(a: Thing, b: Thing) -> bool:
    """Whether `a` is the one mostly named first: further left or, in one column, higher."""
    return (int(a.x * GRID), a.y) < (int(b.x * GRID), b.y)


def _phrase(thing: Thing, detail: float, rng: np.random.Generator) -> Phrase:
    phrase = Phrase(thing.shape)
    for kind in KINDS:
        if rng.random() < detail:
            phrase = phrase.with_value(kind, thing.value(kind))
    return phrase
