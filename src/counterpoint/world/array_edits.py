"""The edits of `edits` for arrays, to train on: each sample has its own random stream.

Sample s of a seed is the first valid one of its attempts. It does not depend on the batch, the rank
or other samples. No seed of training gives a stream of the evaluation benchmarks: those are drawn
by another generator.

One thing differs from the benchmarks. There, both wordings of an original are equally frequent.
Here originals are like captions of people: seldom a rare name (`synonym`), the object further left
first (LEFT_FIRST). Negatives are made by a rule without such habits. So a model that learns from
originals and negatives alone may take an unusual wording for a false one. This is the
oversensitivity that the hard-positives paper found. Positives, which are worded unusually and true,
remove it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, Literal

import numpy as np

from counterpoint._util.random_numbers import fold, key, uniforms
from counterpoint.world.arrays import (
    CELLS,
    COUNTS,
    RELATION,
    SCENE_DRAWS,
    SHAPE,
    Scenes,
    along,
    below,
    draw_scenes,
    holds_each,
    joined,
    leads,
    place,
    statements,
)
from counterpoint.world.grammar import LEFT_FIRST
from counterpoint.world.scenes import CONVERSE, GRID, RELATION_MARGIN, RELATIONS

_STREAM: Final = 0x7261_696E  # keeps these draws apart from any others of the seed
_EDIT_DRAWS: Final = 10 + CELLS + 2
_HABIT, _RULE = -2, -1  # of these draws: how the original is worded, how the negative
_CONVERSE: Final = np.array([RELATIONS.index(CONVERSE[r]) for r in RELATIONS])
_NONE: Final = -1


@dataclass(frozen=True, slots=True)
class Edits:
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

    def __getitem__(self, rows: np.ndarray) -> Edits:
        return Edits(*(getattr(self, field.name)[rows] for field in fields(self)))


def _join(parts: list[Edits]) -> Edits:
    def column(name: str) -> Any:
        values = [getattr(part, name) for part in parts]
        return joined(values) if isinstance(values[0], Scenes) else np.concatenate(values)

    return Edits(*(column(field.name) for field in fields(Edits)))


def draw_edits(
    seed: int, samples: np.ndarray, only: Literal["replace", "swap"] | None, synonym: float
) -> Edits:
    """The edits of these samples (numbers from 0): all replace, all swap, or in turn.

    `synonym` is how often an original says the rare name of the word that will be replaced.
    """
    stream = fold(key(_STREAM, seed), samples)
    turn = samples if only else samples // 2
    swapped = np.full(len(samples), only == "swap") if only else samples % 2 == 1
    maker = turn % 4 + 4 * swapped
    waiting, attempt = np.arange(len(samples)), 0
    parts, rows = [], []
    while len(waiting):
        # Several attempts at once keep the arrays long: most of the last few fail.
        tries = max(1, min(64, len(samples) // len(waiting)))
        address = fold(stream[waiting][:, None], np.arange(attempt, attempt + tries)).ravel()
        edits, valid = _draft(
            uniforms(address, SCENE_DRAWS + _EDIT_DRAWS), maker[waiting].repeat(tries), synonym
        )
        first = valid.reshape(-1, tries).argmax(axis=1) + np.arange(len(waiting)) * tries
        found = valid[first]
        parts.append(edits[first[found]])
        rows.append(waiting[found])
        waiting, attempt = waiting[~found], attempt + tries
    return _join(parts)[np.argsort(np.concatenate(rows))]


def _draft(draws: np.ndarray, maker: np.ndarray, synonym: float) -> tuple[Edits, np.ndarray]:
    """One attempt per row, and which are valid; rows are made by kind and put back in order."""
    scenes = draw_scenes(draws[:, :SCENE_DRAWS])
    parts, rows, possible = [], [], []
    for number, make in enumerate(_MAKERS):
        chosen = np.flatnonzero(maker == number)
        if len(chosen):
            edits, may = make(scenes[chosen], draws[chosen, SCENE_DRAWS:], synonym)
            parts.append(edits)
            rows.append(chosen)
            possible.append(may)
    back = np.argsort(np.concatenate(rows))
    edits, may = _join(parts)[back], np.concatenate(possible)[back]
    # Captions are about the first two, which must have different nouns.
    valid = may & (scenes.things[:, 0, SHAPE] != scenes.things[:, 1, SHAPE])
    for said, of, truth in (
        ("originals", "scenes", True),
        ("negatives", "scenes", False),
        ("negatives", "negative_scenes", True),
        ("originals", "negative_scenes", False),
    ):
        left = np.flatnonzero(valid)  # each test costs only those that passed the ones before
        valid[left] = holds_each(getattr(edits, said)[left], getattr(edits, of)[left]) == truth
    return edits, valid


_Made = tuple[Edits, np.ndarray]
_Maker = Callable[[Scenes, np.ndarray, float], _Made]


def _rare(draws: np.ndarray, synonym: float) -> np.ndarray:
    """Which texts use the rare name: the original by habit, the positive otherwise, the negative by
    rule.
    """
    original = draws[:, _HABIT] < synonym
    return np.stack([original, ~original, draws[:, _RULE] < 0.5], axis=1)


def _phrases(things: np.ndarray, kinds: np.ndarray) -> np.ndarray:
    """Shapes, each with one attribute (1 size, 2 colour, 3 texture) or with none (0)."""
    said = np.where(np.arange(4) == kinds[:, None], things, _NONE)
    said[:, SHAPE] = things[:, SHAPE]
    return said


def _some_kinds(half: np.ndarray, which: np.ndarray) -> np.ndarray:
    return np.where(half < 0.5, 0, 1 + below(which, 3))


def _other(old: np.ndarray, draws: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """A value other than the old one, all of them equally likely."""
    return (old + 1 + below(draws, count - 1)) % count


def _replace_attribute(kind: int) -> _Maker:
    def make(scenes: Scenes, draws: np.ndarray, synonym: float) -> _Made:
        n, (a, b) = len(draws), (scenes.things[:, 0], scenes.things[:, 1])
        relation = np.where(draws[:, 0] < 0.5, _NONE, below(draws[:, 1], len(RELATIONS)))
        first = _phrases(a, np.full(n, kind))
        second = _phrases(b, _some_kinds(draws[:, 2], draws[:, 3]))
        old = a[:, kind]
        new = _other(old, draws[:, 4], COUNTS[kind])
        # With the old word twice, the positive would reword both places; with the new one twice,
        # a repeated word would give the negative away to a model that sees no image.
        may = (second[:, kind] != old) & (second[:, kind] != new)
        changed, things = first.copy(), scenes.things.copy()
        changed[:, kind], things[:, 0, kind] = new, new
        by_habit = leads(scenes.places[:, :2]) == (draws[:, 5] < LEFT_FIRST)
        forward = np.where(relation == _NONE, by_habit, draws[:, 5] < 0.5)

        def state(phrase: np.ndarray) -> np.ndarray:
            ahead, behind = (
                statements(phrase, second, relation),
                statements(second, phrase, relation),
            )
            return np.where(forward[:, None], ahead, behind)

        original, word = state(first), np.where(forward, kind, 4 + kind)
        texts = (original, original, state(changed))
        rare, negative_scenes = _rare(draws, synonym), scenes.with_things(things)
        return Edits(scenes, *texts, word, rare, negative_scenes), may

    return make


def _replace_relation(scenes: Scenes, draws: np.ndarray, synonym: float) -> _Made:
    first = _phrases(scenes.things[:, 0], _some_kinds(draws[:, 0], draws[:, 1]))
    second = _phrases(scenes.things[:, 1], _some_kinds(draws[:, 2], draws[:, 3]))
    relation = below(draws[:, 4], len(RELATIONS))
    new = _other(relation, draws[:, 5], len(RELATIONS))
    original, negative = statements(first, second, relation), statements(first, second, new)
    # The first object goes to a random free cell where the new relation holds and the old does not.
    goals = place(
        np.arange(CELLS)[None, :], np.broadcast_to(draws[:, None, 6:8], (len(draws), CELLS, 2))
    )
    fitting = _related(goals, scenes, new) & ~_related(goals, scenes, relation) & ~_taken(scenes)
    cell = np.argmax(np.where(fitting, draws[:, 8 : 8 + CELLS], -1.0), axis=1)
    places = scenes.places.copy()
    places[:, 0] = goals[np.arange(len(draws)), cell]
    word, rare = np.full(len(draws), RELATION), _rare(draws, synonym)
    moved = scenes.with_places(places)
    return Edits(scenes, original, original, negative, word, rare, moved), fitting.any(axis=1)


def _related(goals: np.ndarray, scenes: Scenes, relation: np.ndarray) -> np.ndarray:
    """(n, cells): whether the first object at each goal would stand so to the second."""
    second = along(scenes.places[:, None, 1], relation[:, None])
    return second - along(goals, relation[:, None]) >= RELATION_MARGIN


def _taken(scenes: Scenes) -> np.ndarray:
    """(n, cells): where the objects other than the first stand."""
    spots = np.nan_to_num(scenes.places[:, 1:], nan=-1.0)
    cells = (spots[..., 0] * GRID).astype(np.int64) + GRID * (spots[..., 1] * GRID).astype(np.int64)
    return (np.arange(CELLS) == cells[..., None]).any(axis=1)


def _swap_same(scenes: Scenes, draws: np.ndarray, _: float) -> _Made:
    kind = 1 + below(draws[:, 0], 3)
    return _swap_attributes(scenes, kind, kind, draws)


def _swap_mixed(scenes: Scenes, draws: np.ndarray, _: float) -> _Made:
    one = below(draws[:, 0], 3)
    return _swap_attributes(scenes, 1 + one, 1 + _other(one, draws[:, 1], 3), draws)


def _swap_attributes(scenes: Scenes, one: np.ndarray, two: np.ndarray, draws: np.ndarray) -> _Made:
    rows, (a, b) = np.arange(len(one)), (scenes.things[:, 0], scenes.things[:, 1])
    first, second = _phrases(a, one), _phrases(b, two)
    taken, given = (np.full_like(first, _NONE) for _ in range(2))
    taken[:, SHAPE], given[:, SHAPE] = a[:, SHAPE], b[:, SHAPE]
    taken[rows, two], given[rows, one] = second[rows, two], first[rows, one]
    things, none = scenes.things.copy(), np.full(len(one), _NONE)
    for kind in (one, two):  # of the same kind twice is right, too: both read the old scene
        things[rows, 0, kind], things[rows, 1, kind] = b[rows, kind], a[rows, kind]
    forward = leads(scenes.places[:, :2]) == (draws[:, _HABIT] < LEFT_FIRST)
    ahead, behind = statements(first, second, none), statements(second, first, none)
    adjectives = draws[:, _RULE] < 0.5  # change places; else the nouns do
    edits = Edits(
        scenes,
        np.where(forward[:, None], ahead, behind),
        np.where(forward[:, None], behind, ahead),
        np.where(
            (forward == adjectives)[:, None],
            statements(taken, given, none),
            statements(given, taken, none),
        ),
        none,
        np.zeros((len(one), 3), dtype=bool),
        scenes.with_things(things),
    )
    return edits, np.ones(len(one), dtype=bool)


def _swap_relation(scenes: Scenes, draws: np.ndarray, _: float) -> _Made:
    kinds = _some_kinds(draws[:, 0], draws[:, 1])
    first, second = (_phrases(scenes.things[:, i], kinds) for i in (0, 1))
    relation = below(draws[:, 2], len(RELATIONS))
    places = scenes.places.copy()
    places[:, 0], places[:, 1] = scenes.places[:, 1], scenes.places[:, 0]
    edits = Edits(
        scenes,
        statements(first, second, relation),
        statements(second, first, _CONVERSE[relation]),
        statements(second, first, relation),
        np.full(len(draws), _NONE),
        np.zeros((len(draws), 3), dtype=bool),
        scenes.with_places(places),
    )
    return edits, np.ones(len(draws), dtype=bool)


_REPLACERS: Final[tuple[_Maker, ...]] = (
    *(_replace_attribute(kind) for kind in (1, 2, 3)),
    _replace_relation,
)
_SWAPPERS: Final[tuple[_Maker, ...]] = (_swap_same, _swap_mixed, _swap_same, _swap_relation)
_MAKERS: Final = (*_REPLACERS, *_SWAPPERS)
