"""Hard negatives and positives of the world, each with the scene in which the negative is true.

An edit starts from a scene and a caption that is true of it (the original) and holds

- the negative: one word replaced, or two swapped, so that the caption becomes false;
- the positive: the same place reworded (a synonym) or the conjuncts reversed, still true;
- the negative's scene: the least change of the scene that makes the negative true and the original
  false, for two-image benchmarks.

Edits that fail any of these conditions are drawn again, so every edit is correct.

There are four kinds of edit, defined once and for many scenes at once. What they leave open (which
word, which relation, which phrase first) is drawn in two ways:

- for benchmarks one edit after another, by one NumPy generator (`replacements`, `swaps`);
- for training many at once (`draw_edits`). Each sample has its own random stream, so it does not
  depend on the batch, the rank or other samples. No seed of training gives a stream of the
  benchmarks.

In the benchmarks neither a rare word nor the order of a text shows whether it is true. Of a
replaced word, original and negative use the common or the rare name equally often, and the positive
uses the name that the original does not use. Of two phrases, the original names either one first,
and the negative has the attributes or the nouns swapped.

In training originals are like captions of people: seldom a rare name (`synonym`), the object
further left first (LEFT_FIRST). Negatives are made by a rule without such habits. So a model that
learns from originals and negatives alone may take an unusual wording for a false one. This is the
oversensitivity that the hard-positives paper found. Positives, which are worded unusually and true,
remove it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, Literal

import numpy as np

from counterpoint._util.random_numbers import fold, key, uniforms
from counterpoint.world.arrays import (
    CELLS,
    COUNTS,
    RELATION,
    SCENE_DRAWS,
    SHAPE,
    ArrayTable,
    Scenes,
    along,
    below,
    draw_scenes,
    holds_each,
    leads,
    place,
    reworded,
    statement_words,
    statements,
    texts,
)
from counterpoint.world.grammar import LEFT_FIRST
from counterpoint.world.scenes import (
    CONVERSE,
    GRID,
    KINDS,
    RELATION_MARGIN,
    RELATIONS,
    Scene,
    free_places,
    sample_scene,
)

_CONVERSE: Final = np.array([RELATIONS.index(CONVERSE[r]) for r in RELATIONS])
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Edits(ArrayTable):
    """n edits. `word` is the place (0 to 8) in the statements of the word that was replaced, -1 if
    none was; `rare` (n, 3) says which of original, positive and negative say its rare name.
    """

    scenes: Scenes
    originals: np.ndarray
    positives: np.ndarray
    negatives: np.ndarray
    word: np.ndarray
    rare: np.ndarray
    negative_scenes: Scenes

    def words(self) -> np.ndarray:
        """Originals, positives and negatives as numbers of words (3, n, 11)."""
        said = np.concatenate([self.originals, self.positives, self.negatives])
        rare = reworded(np.where(self.rare.T, self.word, _NONE).ravel())
        return statement_words(said, rare).reshape(3, len(self.word), -1)


@dataclass(frozen=True, slots=True)
class Edit:
    """One hard negative and hard positive of one scene.

    `usual` says whether the original is like most captions (the common name; the object further
    left first).
    """

    scene: Scene
    original: str
    positive: str
    negative: str
    negative_scene: Scene
    group: str
    usual: bool | None = None  # None where no order or name is more usual


# --- the four kinds of edit: the first two objects of each scene, the choices as arrays ----------
#
# Kinds of attributes are columns of `Scenes.things`: 1 size, 2 colour, 3 texture, and 0 for none.


def _replace_attribute(
    scenes: Scenes,
    kind: int,
    new: np.ndarray,
    other: np.ndarray,
    relation: np.ndarray,
    forward: np.ndarray,
    rare: np.ndarray,
) -> Edits:
    """Of "a red circle above a heart": "a sapphire circle ..." (false), "a crimson circle ...".

    `other` is the kind of attribute that the second object has; `forward`: the first comes first.
    """
    first = _phrases(scenes.things[:, 0], np.full_like(other, kind))
    second = _phrases(scenes.things[:, 1], other)
    changed, things = first.copy(), scenes.things.copy()
    changed[:, kind], things[:, 0, kind] = new, new

    def state(phrase: np.ndarray) -> np.ndarray:
        ahead, behind = statements(phrase, second, relation), statements(second, phrase, relation)
        return np.where(forward[:, None], ahead, behind)

    original, word = state(first), np.where(forward, kind, 4 + kind)
    changed_scenes = replace(scenes, things=things)
    return Edits(scenes, original, original, state(changed), word, rare, changed_scenes)


def _repeats(scenes: Scenes, kind: int, new: np.ndarray, other: np.ndarray) -> np.ndarray:
    """Whether the second phrase has the replaced or the new word, too: no edit then.

    With the old word twice, the positive would reword both places; with the new one twice, a
    repeated word would give the negative away to a model that sees no image.
    """
    a, b = scenes.things[:, 0, kind], scenes.things[:, 1, kind]
    return (other == kind) & ((b == a) | (b == new))


def _replace_relation(
    scenes: Scenes,
    kinds: Sequence[np.ndarray],
    relations: Sequence[np.ndarray],
    goals: np.ndarray,
    rare: np.ndarray,
) -> Edits:
    """Of "a circle left of a heart": "... above ..." (false), "... to the left of ...".

    `relations` are the old and the new one; `goals` (n, 2) is where the first object goes.
    """
    original, negative = _relations_said(scenes, kinds, relations)
    word = np.full(len(original), RELATION)
    return Edits(scenes, original, original, negative, word, rare, _moved(scenes, goals))


def _relations_said(
    scenes: Scenes, kinds: Sequence[np.ndarray], relations: Sequence[np.ndarray]
) -> list[np.ndarray]:
    first, second = (_phrases(scenes.things[:, i], kinds[i]) for i in (0, 1))
    return [statements(first, second, relation) for relation in relations]


def _swap_attributes(
    scenes: Scenes, one: np.ndarray, two: np.ndarray, forward: np.ndarray, adjectives: np.ndarray
) -> Edits:
    """Of "the red circle and the striped square": "the striped circle and the red square".

    Or with the nouns swapped, which says the same: "the red square and the striped circle".
    `one` and `two` are the kinds of attribute; where not `adjectives`, the nouns change places.
    """
    rows, (a, b) = np.arange(len(one)), (scenes.things[:, 0], scenes.things[:, 1])
    first, second = _phrases(a, one), _phrases(b, two)
    taken, given = (np.full_like(first, _NONE) for _ in range(2))
    taken[:, SHAPE], given[:, SHAPE] = a[:, SHAPE], b[:, SHAPE]
    taken[rows, two], given[rows, one] = second[rows, two], first[rows, one]
    things, none = scenes.things.copy(), np.full(len(one), _NONE)
    for kind in (one, two):  # of the same kind twice is right, too: both read the old scene
        things[rows, 0, kind], things[rows, 1, kind] = b[rows, kind], a[rows, kind]

    def either(choice: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(choice[:, None], statements(x, y, none), statements(y, x, none))

    said = either(forward, first, second), either(~forward, first, second)
    swapped = either(forward == adjectives, taken, given)
    return Edits(scenes, *said, swapped, none, _no_word(none), replace(scenes, things=things))


def _swap_relation(scenes: Scenes, kinds: np.ndarray, relation: np.ndarray) -> Edits:
    """Of "a circle above a heart": "a heart above a circle" (false), "a heart below a circle"."""
    first, second = (_phrases(scenes.things[:, i], kinds) for i in (0, 1))
    said = statements(first, second, relation), statements(second, first, _CONVERSE[relation])
    swapped, none = statements(second, first, relation), np.full(len(relation), _NONE)
    places = scenes.places.copy()
    places[:, 0], places[:, 1] = scenes.places[:, 1], scenes.places[:, 0]
    return Edits(scenes, *said, swapped, none, _no_word(none), replace(scenes, places=places))


def _phrases(things: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Shapes, each with one attribute or with none."""
    said = np.where(np.arange(4) == kinds[:, None], things, _NONE)
    said[:, SHAPE] = things[:, SHAPE]
    return said


def _no_word(like: np.ndarray) -> np.ndarray:
    return np.zeros((len(like), 3), dtype=bool)


def _moved(scenes: Scenes, goals: np.ndarray) -> Scenes:
    places = scenes.places.copy()
    places[:, 0] = goals
    return replace(scenes, places=places)


def _valid(edits: Edits, valid: np.ndarray) -> np.ndarray:
    """Which edits are right, of those that are `valid` so far."""
    shapes = edits.scenes.things[..., SHAPE]
    # Captions are about the first two, which must have different nouns.
    valid = valid & (shapes[:, 0] != shapes[:, 1])
    for said, of, truth in (
        ("originals", "scenes", True),
        ("negatives", "scenes", False),
        ("negatives", "negative_scenes", True),
        ("originals", "negative_scenes", False),
    ):
        left = np.flatnonzero(valid)  # each test costs only those that passed the ones before
        if not len(left):
            break
        valid[left] = holds_each(getattr(edits, said)[left], getattr(edits, of)[left]) == truth
    return valid


# --- benchmarks: one after another ---------------------------------------------------------------

_Maker = Callable[[Scenes, np.random.Generator], Edits | None]


def replacements(seed: int) -> Iterator[Edit]:
    """Edits that replace one word: a size, a colour, a texture or a relation, in turn."""
    return _one_by_one([*(partial(_any_attribute, k) for k in (1, 2, 3)), _any_relation], (seed, 0))


def swaps(seed: int) -> Iterator[Edit]:
    """Edits that swap two words: attributes of the same or of two kinds, or the related objects."""
    return _one_by_one([_any_same, _any_mixed, _any_same, _any_order], (seed, 1))


def _one_by_one(makers: Sequence[_Maker], seed: tuple[int, int]) -> Iterator[Edit]:
    rng = np.random.default_rng(seed)
    while True:
        for make in makers:
            yield _first_valid(make, rng)


def _first_valid(make: _Maker, rng: np.random.Generator) -> Edit:
    while True:
        scene = sample_scene(rng)
        if scene.things[0].shape == scene.things[1].shape:
            continue
        edits = make(Scenes.of([scene]), rng)
        if edits is not None and _valid(edits, np.ones(1, dtype=bool)):
            return _edit(edits, scene)


def _edit(edits: Edits, scene: Scene) -> Edit:
    """The only one of them as an object."""
    original, positive, negative = texts(edits.words()[:, 0])
    said, word = edits.originals[0].tolist(), int(edits.word[0])
    usual = None if word == _NONE else not edits.rare[0, 0]
    if word == _NONE and said[RELATION] == _NONE:
        usual = bool(leads(edits.scenes.places[:, :2]))
    changed = edits.negative_scenes.scene(0)
    return Edit(scene, original, positive, negative, changed, _group(said, word), usual)


def _group(said: list[int], word: int) -> str:
    if said[RELATION] != _NONE and word in (_NONE, RELATION):
        return "relations/horizontal" if said[RELATION] < 2 else "relations/vertical"
    places = [word] if word != _NONE else [p for p in range(RELATION) if said[p] != _NONE]
    kinds = {p % 4 for p in places} - {SHAPE}
    return f"attributes/{KINDS[kinds.pop() - 1] if len(kinds) == 1 else 'mixed'}"


# The order of these draws must not change: it makes the benchmarks what they are.


def _any_attribute(kind: int, scenes: Scenes, rng: np.random.Generator) -> Edits | None:
    relation = np.array([_NONE]) if _coin(rng) else rng.integers(len(RELATIONS), size=1)
    other = 1 + rng.integers(3, size=1) if _coin(rng) else np.zeros(1, dtype=np.int64)
    new = rng.integers(COUNTS[kind] - 1, size=1)
    new += new >= scenes.things[:, 0, kind]
    if _repeats(scenes, kind, new, other):
        return None
    return _replace_attribute(scenes, kind, new, other, relation, _coin(rng), _any_names(rng))


def _any_relation(scenes: Scenes, rng: np.random.Generator) -> Edits | None:
    kinds = [_any_kind(rng), _any_kind(rng)]
    relations = list(rng.permutation(len(RELATIONS))[:2, None])
    scene = scenes.scene(0)
    goals = np.array(free_places(scene.replaced(0, scene.things[1]), rng))
    tried = _moved(scenes[np.zeros(len(goals), dtype=np.int64)], goals)
    original, negative = _relations_said(scenes, kinds, relations)
    fitting = goals[holds_each(negative, tried) & ~holds_each(original, tried)]
    if not len(fitting):
        return None
    return _replace_relation(scenes, kinds, relations, fitting[:1], _any_names(rng))


def _any_same(scenes: Scenes, rng: np.random.Generator) -> Edits:
    kind = 1 + rng.integers(3, size=1)
    return _swap_attributes(scenes, kind, kind, np.ones(1, dtype=bool), _coin(rng))


def _any_mixed(scenes: Scenes, rng: np.random.Generator) -> Edits:
    one, two = 1 + rng.permutation(3)[:2, None]
    return _swap_attributes(scenes, one, two, np.ones(1, dtype=bool), _coin(rng))


def _any_order(scenes: Scenes, rng: np.random.Generator) -> Edits:
    return _swap_relation(scenes, _any_kind(rng), rng.integers(len(RELATIONS), size=1))


def _any_kind(rng: np.random.Generator) -> np.ndarray:
    return np.zeros(1, dtype=np.int64) if _coin(rng) else 1 + rng.integers(3, size=1)


def _any_names(rng: np.random.Generator) -> np.ndarray:
    usual = _coin(rng)
    return np.stack([~usual, usual, _coin(rng)], axis=1)


def _coin(rng: np.random.Generator) -> np.ndarray:
    return rng.random(1) < 0.5


# --- training: many at once, each with a random stream of its own --------------------------------

_STREAM: Final = 0x7261_696E  # keeps these draws apart from any others of the seed
_EDIT_DRAWS: Final = 10 + CELLS + 2
_HABIT, _RULE = -2, -1  # of these draws: how the original is worded, how the negative
_Draft = tuple[Edits, np.ndarray]  # and which of them are possible


def draw_edits(
    seed: int, samples: np.ndarray, only: Literal["replace", "swap"] | None, synonym: float
) -> Edits:
    """The edits of these samples (numbers from 0): all replace, all swap, or in turn.

    A sample is the first valid one of its attempts. `synonym` is how often an original says the
    rare name of the word that will be replaced.
    """
    stream = fold(key(_STREAM, seed), samples)
    turn = samples if only else samples // 2
    swapped = np.full(len(samples), only == "swap") if only else samples % 2 == 1
    drafter = turn % 4 + 4 * swapped
    waiting, attempt = np.arange(len(samples)), 0
    parts, rows = [], []
    while len(waiting):
        # Several attempts at once keep the arrays long: most of the last few fail.
        tries = max(1, min(64, len(samples) // len(waiting)))
        address = fold(stream[waiting][:, None], np.arange(attempt, attempt + tries)).ravel()
        edits, valid = _draft(
            uniforms(address, SCENE_DRAWS + _EDIT_DRAWS), drafter[waiting].repeat(tries), synonym
        )
        first = valid.reshape(-1, tries).argmax(axis=1) + np.arange(len(waiting)) * tries
        found = valid[first]
        parts.append(edits[first[found]])
        rows.append(waiting[found])
        waiting, attempt = waiting[~found], attempt + tries
    return Edits.joined(parts)[np.argsort(np.concatenate(rows))]


def _draft(draws: np.ndarray, drafter: np.ndarray, synonym: float) -> _Draft:
    """One attempt per row, and which are valid; rows are made by kind and put back in order."""
    scenes = draw_scenes(draws[:, :SCENE_DRAWS])
    parts, rows, possible = [], [], []
    for number, draft in enumerate(_DRAFTERS):
        chosen = np.flatnonzero(drafter == number)
        if len(chosen):
            edits, may = draft(scenes[chosen], draws[chosen, SCENE_DRAWS:], synonym)
            parts.append(edits)
            rows.append(chosen)
            possible.append(may)
    back = np.argsort(np.concatenate(rows))
    edits = Edits.joined(parts)[back]
    return edits, _valid(edits, np.concatenate(possible)[back])


def _draft_attribute(kind: int, scenes: Scenes, draws: np.ndarray, synonym: float) -> _Draft:
    relation = np.where(draws[:, 0] < 0.5, _NONE, below(draws[:, 1], len(RELATIONS)))
    other = _some_kinds(draws[:, 2], draws[:, 3])
    new = _other(scenes.things[:, 0, kind], draws[:, 4], COUNTS[kind])
    by_habit = leads(scenes.places[:, :2]) == (draws[:, 5] < LEFT_FIRST)
    forward = np.where(relation == _NONE, by_habit, draws[:, 5] < 0.5)
    edits = _replace_attribute(scenes, kind, new, other, relation, forward, _rare(draws, synonym))
    return edits, ~_repeats(scenes, kind, new, other)


def _draft_relation(scenes: Scenes, draws: np.ndarray, synonym: float) -> _Draft:
    kinds = [_some_kinds(draws[:, i], draws[:, i + 1]) for i in (0, 2)]
    old = below(draws[:, 4], len(RELATIONS))
    new = _other(old, draws[:, 5], len(RELATIONS))
    # The first object goes to a random free cell where the new relation holds and the old does not.
    goals = place(
        np.arange(CELLS)[None, :], np.broadcast_to(draws[:, None, 6:8], (len(draws), CELLS, 2))
    )
    fitting = _related(goals, scenes, new) & ~_related(goals, scenes, old) & ~_taken(scenes)
    cell = np.argmax(np.where(fitting, draws[:, 8 : 8 + CELLS], -1.0), axis=1)
    goal = goals[np.arange(len(draws)), cell]
    edits = _replace_relation(scenes, kinds, (old, new), goal, _rare(draws, synonym))
    return edits, fitting.any(axis=1)


def _draft_same(scenes: Scenes, draws: np.ndarray, _: float) -> _Draft:
    kind = 1 + below(draws[:, 0], 3)
    return _draft_swap(scenes, kind, kind, draws)


def _draft_mixed(scenes: Scenes, draws: np.ndarray, _: float) -> _Draft:
    one = below(draws[:, 0], 3)
    return _draft_swap(scenes, 1 + one, 1 + _other(one, draws[:, 1], 3), draws)


def _draft_swap(scenes: Scenes, one: np.ndarray, two: np.ndarray, draws: np.ndarray) -> _Draft:
    forward = leads(scenes.places[:, :2]) == (draws[:, _HABIT] < LEFT_FIRST)
    edits = _swap_attributes(scenes, one, two, forward, draws[:, _RULE] < 0.5)
    return edits, np.ones(len(one), dtype=bool)


def _draft_order(scenes: Scenes, draws: np.ndarray, _: float) -> _Draft:
    kinds = _some_kinds(draws[:, 0], draws[:, 1])
    edits = _swap_relation(scenes, kinds, below(draws[:, 2], len(RELATIONS)))
    return edits, np.ones(len(draws), dtype=bool)


_DRAFTERS: Final[tuple[Callable[[Scenes, np.ndarray, float], _Draft], ...]] = (
    *(partial(_draft_attribute, kind) for kind in (1, 2, 3)),
    _draft_relation,
    _draft_same,
    _draft_mixed,
    _draft_same,
    _draft_order,
)


def _rare(draws: np.ndarray, synonym: float) -> np.ndarray:
    """Which texts use the rare name: the original by habit, the positive otherwise, the negative by
    rule.
    """
    original = draws[:, _HABIT] < synonym
    return np.stack([original, ~original, draws[:, _RULE] < 0.5], axis=1)


def _some_kinds(half: np.ndarray, which: np.ndarray) -> np.ndarray:
    return np.where(half < 0.5, 0, 1 + below(which, 3))


def _other(old: np.ndarray, draws: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """A value other than the old one, all of them equally likely."""
    return (old + 1 + below(draws, count - 1)) % count


def _related(goals: np.ndarray, scenes: Scenes, relation: np.ndarray) -> np.ndarray:
    """(n, cells): whether the first object at each goal would stand so to the second."""
    second = along(scenes.places[:, None, 1], relation[:, None])
    return second - along(goals, relation[:, None]) >= RELATION_MARGIN


def _taken(scenes: Scenes) -> np.ndarray:
    """(n, cells): where the objects other than the first stand."""
    spots = np.nan_to_num(scenes.places[:, 1:], nan=-1.0)
    cells = (spots[..., 0] * GRID).astype(np.int64) + GRID * (spots[..., 1] * GRID).astype(np.int64)
    return (np.arange(CELLS) == cells[..., None]).any(axis=1)
