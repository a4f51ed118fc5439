"""Captions of the world: statements that are written, read back and judged against a scene.

    the red circle and the striped square        two phrases joined by "and": both are in the scene
    a large ivory star above a small heart       two phrases and a relation between them

`write` and `read` are independent of each other (one assembles words, the other parses text), so
judging the text of a caption also checks the generator that wrote it.

`sample_caption` draws captions. Where a sentence leaves the order free, the object further left
mostly comes first. A caption that says where things are says less about what they are.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any, Final

import numpy as np

from counterpoint._util.english import article as indefinite
from counterpoint._util.errors import CounterpointError
from counterpoint.world.scenes import (
    ATTRIBUTES,
    CANONICAL,
    GRID,
    KINDS,
    RELATIONS,
    SHAPES,
    SYNONYMS,
    Attribute,
    Scene,
    Thing,
    related,
)

LEFT_FIRST: Final = 0.9  # how often the object further left is named first, if the order is free
DETAIL: Final = {"and": 0.5, "related": 0.2}  # the probability that a sentence has an attribute
# The longest first, so that "to the left of" is not read as "left of" after "to the".
_JOINTS: Final = sorted((*RELATIONS, *(SYNONYMS[r] for r in RELATIONS), "and"), key=len)[::-1]
_SENTENCE: Final = re.compile(rf"(?P<first>.+?) (?P<joint>{'|'.join(_JOINTS)}) (?P<second>.+)")
_KIND: Final = {word: kind for kind, words in ATTRIBUTES.items() for word in words}


class GrammarError(CounterpointError):
    """A text is not a caption of the world."""


@dataclass(frozen=True, slots=True)
class Phrase:
    """A noun phrase: a shape with some of its attributes, all in canonical words."""

    shape: str
    size: str | None = None
    colour: str | None = None
    texture: str | None = None

    def value(self, attribute: Attribute) -> str | None:
        value: str | None = getattr(self, attribute)
        return value

    def with_value(self, attribute: Attribute, value: str | None) -> Phrase:
        said: dict[str, Any] = {attribute: value}
        return replace(self, **said)

    def fits(self, thing: Thing) -> bool:
        return self.shape == thing.shape and all(
            self.value(a) in (None, thing.value(a)) for a in KINDS
        )


@dataclass(frozen=True, slots=True)
class Statement:
    """Both objects are in the scene and, if `relation` is given, it holds between them."""

    first: Phrase
    second: Phrase
    relation: str | None = None


def holds(statement: Statement, scene: Scene) -> bool:
    """Whether two different objects of the scene make the statement true."""
    return any(
        statement.first.fits(a)
        and statement.second.fits(b)
        and (statement.relation is None or related(a, statement.relation, b))
        for a, b in permutations(scene.things, 2)
    )


def write(statement: Statement, synonyms: Mapping[str, str] | None = None) -> str:
    """The caption of a statement; words in `synonyms` are replaced."""
    say, joint = synonyms or {}, statement.relation or "and"
    article = "a" if statement.relation else "the"
    first, second = (_noun_phrase(p, article, say) for p in (statement.first, statement.second))
    return f"{first} {say.get(joint, joint)} {second}"


def _noun_phrase(phrase: Phrase, article: str, say: Mapping[str, str]) -> str:
    values = [v for a in KINDS if (v := phrase.value(a)) is not None]
    words = [say.get(word, word) for word in (*values, phrase.shape)]
    article = indefinite(words[0]) if article == "a" else article
    return " ".join((article, *words))


def read(text: str) -> Statement:
    """Parse a caption; synonyms become the words they stand for."""
    match = _SENTENCE.fullmatch(text)
    if match is None:
        raise _fault(text, "no 'and' and no relation")
    joint = match["joint"]
    article = "the" if joint == "and" else "a"
    first, second = (_read_phrase(match[part], article, text) for part in ("first", "second"))
    return Statement(first, second, None if joint == "and" else CANONICAL[joint])


def _read_phrase(text: str, article: str, caption: str) -> Phrase:
    found_article, *words = text.split(" ")
    noun = CANONICAL.get(words[-1]) if words else None
    if noun not in SHAPES:
        raise _fault(caption, f"{text!r} names no shape")
    article = indefinite(words[0]) if article == "a" else article
    if found_article != article:
        raise _fault(caption, f"expected {article!r}")
    values: dict[str, str] = {}
    for word in words[:-1]:
        kind = _KIND.get(CANONICAL.get(word, ""))
        if kind is None or kind in values:
            raise _fault(caption, f"{word!r} is misplaced")
        values[kind] = CANONICAL[word]
    return Phrase(noun, **values)


def _fault(caption: str, why: str) -> GrammarError:
    return GrammarError("E-CAPTION-NOT-WORLD", f"{caption!r} is not a caption of the world: {why}.")


def sample_caption(scene: Scene, rng: np.random.Generator, synonym: float = 0.0) -> str:
    """A true caption of the scene; words are replaced by their rarer synonyms as often as said."""
    synonyms = {word: rare for word, rare in SYNONYMS.items() if rng.random() < synonym}
    rng.random()  # one draw more, as when the benchmarks were made: or they would be others
    return write(_statement(scene, rng), synonyms)


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
    """Whether `a` is usually named first: it is further left or, in one column, higher."""
    return (int(a.x * GRID), a.y) < (int(b.x * GRID), b.y)


def _phrase(thing: Thing, detail: float, rng: np.random.Generator) -> Phrase:
    phrase = Phrase(thing.shape)
    for kind in KINDS:
        if rng.random() < detail:
            phrase = phrase.with_value(kind, thing.value(kind))
    return phrase
