"""Hard negatives and positives of the world, each with the scene in which the negative is true.

An `Edit` starts from a scene and a caption that is true of it (the original) and holds

- the negative: one word replaced, or two swapped, so that the caption becomes false;
- the positive: the same place reworded (a synonym) or the conjuncts reversed, still true;
- the negative's scene: the least change of the scene that makes the negative true and the original
  false, for two-image benchmarks.

Edits that fail any of these conditions are drawn again, so every returned edit is correct.

Neither a rare word nor the order of a text shows whether it is true. Of a replaced word, original
and negative use the common or the rare name equally often, and the positive uses the name that the
original does not use. Of two phrases, the original names either one first, and the negative has the
attributes or the nouns swapped. `usual` says whether the original is like most captions (the common
name; the object further left first).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np

from counterpoint.world.grammar import Phrase, Statement, holds, leads, write
from counterpoint.world.scenes import (
    ATTRIBUTES,
    CONVERSE,
    KINDS,
    RELATIONS,
    SYNONYMS,
    Attribute,
    Scene,
    Thing,
    free_places,
    sample_scene,
)

HORIZONTAL: Final = ("left of", "right of")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Edit:
    """One hard negative and hard positive of one scene."""

    scene: Scene
    original: str
    positive: str
    negative: str
    negative_scene: Scene
    group: str
    usual: bool | None = None  # None where no order or name is more usual


@dataclass(frozen=True, slots=True)
class _EditDraft:
    original: Statement
    negative: Statement
    texts: tuple[str, str, str]  # original, positive, negative
    negative_scene: Scene
    group: str
    usual: bool | None = None


_Maker = Callable[[Scene, np.random.Generator], _EditDraft | None]


def replacements(seed: int) -> Iterator[Edit]:
    """Edits that replace one word: a size, a colour, a texture or a relation, in turn."""
    makers = [_replace_size, _replace_colour, _replace_texture, _replace_relation]
    return _edits(makers, (seed, 0))


def swaps(seed: int) -> Iterator[Edit]:
    """Edits that swap two words: attributes of the same or of two kinds, or the related objects."""
    makers = [_swap_same, _swap_mixed, _swap_same, _swap_relation]
    return _edits(makers, (seed, 1))


def _edits(makers: Sequence[_Maker], seed: tuple[int, int]) -> Iterator[Edit]:
    rng = np.random.default_rng(seed)
    while True:
        for make in makers:
            yield _first_valid(make, rng)


def _first_valid(make: _Maker, rng: np.random.Generator) -> Edit:
    while True:
        scene = sample_scene(rng)
        if scene.things[0].shape == scene.things[1].shape:
            continue  # captions are about the first two, which must have different nouns
        draft = make(scene, rng)
        if draft is not None and _valid(scene, draft):
            return Edit(scene, *draft.texts, draft.negative_scene, draft.group, draft.usual)


def _valid(scene: Scene, draft: _EditDraft) -> bool:
    return (
        holds(draft.original, scene)
        and not holds(draft.negative, scene)
        and holds(draft.negative, draft.negative_scene)
        and not holds(draft.original, draft.negative_scene)
    )


def _replace_size(scene: Scene, rng: np.random.Generator) -> _EditDraft | None:
    return _replace_attribute(scene, "size", rng)


def _replace_colour(scene: Scene, rng: np.random.Generator) -> _EditDraft | None:
    return _replace_attribute(scene, "colour", rng)


def _replace_texture(scene: Scene, rng: np.random.Generator) -> _EditDraft | None:
    return _replace_attribute(scene, "texture", rng)


def _replace_attribute(
    scene: Scene, attribute: Attribute, rng: np.random.Generator
) -> _EditDraft | None:
    """Of "a red circle above a heart": "a sapphire circle ..." (false), "a crimson circle ..."."""
    relation = None if rng.random() < 0.5 else _choose(RELATIONS, rng)
    first, second = _phrase(scene.things[0], (attribute,)), _phrase(scene.things[1], ())
    if rng.random() < 0.5:  # a second attribute, of the other object
        second = _phrase(scene.things[1], (_choose(KINDS, rng),))
    old = scene.things[0].value(attribute)
    new = _choose([value for value in ATTRIBUTES[attribute] if value != old], rng)
    if second.value(attribute) in (old, new):
        # With the old word twice, the positive would reword both places; with the new one twice,
        # a repeated word would give the negative away to a model that sees no image.
        return None
    changed = first.with_value(attribute, new)
    forward = rng.random() < 0.5  # so that the edited phrase is not always the first

    def state(phrase: Phrase) -> Statement:
        pair = (phrase, second) if forward else (second, phrase)
        return Statement(*pair, relation=relation)

    original, negative = state(first), state(changed)
    texts, usual = _texts(original, negative, (old, new), rng)
    moved = scene.replaced(0, scene.things[0].with_value(attribute, new))
    return _EditDraft(original, negative, texts, moved, f"attributes/{attribute}", usual)


def _replace_relation(scene: Scene, rng: np.random.Generator) -> _EditDraft | None:
    """Of "a circle left of a heart": "... above ..." (false), "... to the left of ..."."""
    first, second = (_phrase(t, _some_kinds(rng)) for t in scene.things[:2])
    relation, new = rng.permutation(RELATIONS)[:2].tolist()
    original, negative = Statement(first, second, relation), Statement(first, second, new)
    moves = (
        scene.replaced(0, scene.things[0].at(place))
        for place in free_places(scene.replaced(0, scene.things[1]), rng)
    )
    moved = next((s for s in moves if holds(negative, s) and not holds(original, s)), None)
    if moved is None:
        return None
    texts, usual = _texts(original, negative, (relation, new), rng)
    return _EditDraft(original, negative, texts, moved, _relation_group(relation), usual)


def _texts(
    original: Statement, negative: Statement, words: tuple[str, str], rng: np.random.Generator
) -> tuple[tuple[str, str, str], bool]:
    """Original, positive and negative, each with the common or the rare name of its word."""
    old, new = ({word: SYNONYMS[word]} for word in words)
    common, rare = write(original), write(original, old)
    usual = bool(rng.random() < 0.5)
    false = write(negative, new if rng.random() < 0.5 else None)
    return (common, rare, false) if usual else (rare, common, false), usual


def _swap_same(scene: Scene, rng: np.random.Generator) -> _EditDraft:
    kind = _choose(KINDS, rng)
    return _swap_attributes(scene, (kind, kind), f"attributes/{kind}", rng)


def _swap_mixed(scene: Scene, rng: np.random.Generator) -> _EditDraft:
    first, second = rng.permutation(KINDS)[:2].tolist()
    return _swap_attributes(scene, (first, second), "attributes/mixed", rng)


def _swap_attributes(
    scene: Scene, kinds: tuple[Attribute, Attribute], group: str, rng: np.random.Generator
) -> _EditDraft:
    """Of "the red circle and the striped square": "the striped circle and the red square".

    Or with the nouns swapped, which says the same: "the red square and the striped circle".
    """
    (a, b), (one, two) = scene.things[:2], kinds  # drawn in no order, so either is named first
    first, second = _phrase(a, (one,)), _phrase(b, (two,))
    taken = Phrase(a.shape).with_value(two, second.value(two))
    given = Phrase(b.shape).with_value(one, first.value(one))
    original, positive = Statement(first, second), Statement(second, first)
    swapped = Statement(taken, given) if rng.random() < 0.5 else Statement(given, taken)
    a_changed, b_changed = a, b
    for kind in {one, two}:
        a_changed, b_changed = (
            a_changed.with_value(kind, b.value(kind)),
            b_changed.with_value(kind, a.value(kind)),
        )
    texts = (write(original), write(positive), write(swapped))
    changed = scene.replaced(0, a_changed).replaced(1, b_changed)
    return _EditDraft(original, swapped, texts, changed, group, leads(a, b))


def _swap_relation(scene: Scene, rng: np.random.Generator) -> _EditDraft:
    """Of "a circle above a heart": "a heart above a circle" (false), "a heart below a circle"."""
    a, b = scene.things[:2]
    kinds = _some_kinds(rng)
    first, second = _phrase(a, kinds), _phrase(b, kinds)
    relation = _choose(RELATIONS, rng)
    original, negative = Statement(first, second, relation), Statement(second, first, relation)
    positive = Statement(second, first, CONVERSE[relation])
    texts = (write(original), write(positive), write(negative))
    moved = scene.replaced(0, a.at((b.x, b.y))).replaced(1, b.at((a.x, a.y)))
    return _EditDraft(original, negative, texts, moved, _relation_group(relation))


def _relation_group(relation: str) -> str:
    return "relations/horizontal" if relation in HORIZONTAL else "relations/vertical"


def _phrase(thing: Thing, kinds: tuple[Attribute, ...]) -> Phrase:
    phrase = Phrase(thing.shape)
    for kind in kinds:
        phrase = phrase.with_value(kind, thing.value(kind))
    return phrase


def _some_kinds(rng: np.random.Generator) -> tuple[Attribute, ...]:
    return () if rng.random() < 0.5 else (_choose(KINDS, rng),)


def _choose(values: Sequence[T], rng: np.random.Generator) -> T:
    return values[int(rng.integers(len(values)))]
