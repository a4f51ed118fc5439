"""Scenes and statements of the world as arrays, many at once.

`counterpoint.world` makes a thousand edits a second on a core, a GPU learns from tens of thousands.
So its sampling and its truth are written here again for arrays; the tests read the texts back with
`world.grammar` and judge them against the scenes.

Words are numbers: a shape's place in SHAPES, a colour's in COLOURS, and so on; -1 is "not said".
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np

from counterpoint.world.grammar import Phrase, Statement
from counterpoint.world.lexicon import COLOURS, RELATIONS, SHAPES, SIZES, TEXTURES
from counterpoint.world.scene import GRID, JITTER, RELATION_MARGIN, Scene, Thing

MOST: Final = 4  # objects of a scene
FEATURES: Final = (SHAPES, tuple(SIZES), tuple(COLOURS), TEXTURES)  # the columns of `Scenes.things`
COUNTS: Final = np.array([len(words) for words in FEATURES])
SHAPE: Final = 0
CELLS: Final = GRID**2
SCENE_DRAWS: Final = CELLS + 1 + 4 * MOST + 2 * MOST + 1
_DIFFERENT: Final = ~np.eye(MOST, dtype=bool)
_RADII: Final = np.array(list(SIZES.values()), dtype=np.float32)
_UNSAID: Final[Any] = None
_GROUNDS: Final = (0.42, 0.62)  # as `world.scene` draws them


@dataclass(frozen=True, slots=True)
class Scenes:
    """n scenes: `things` (n, 4, 4) words, `places` (n, 4, 2), `grounds` (n,), `counts` (n,).

    Objects beyond a scene's count have the words -1 and stand nowhere (NaN).
    """

    things: np.ndarray
    places: np.ndarray
    grounds: np.ndarray
    counts: np.ndarray

    def __getitem__(self, rows: np.ndarray | slice) -> Scenes:
        return Scenes(self.things[rows], self.places[rows], self.grounds[rows], self.counts[rows])

    def with_things(self, things: np.ndarray) -> Scenes:
        return replace(self, things=things)

    def with_places(self, places: np.ndarray) -> Scenes:
        return replace(self, places=places)

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """As `world.draw.paint` takes them."""
        number, slot = np.nonzero(np.arange(MOST) < self.counts[:, None])
        things, places = self.things[number, slot], self.places[number, slot]
        columns = (number, things[:, 0], _RADII[things[:, 1]], things[:, 2], things[:, 3])
        rows = np.column_stack([*columns, places[:, 0], places[:, 1]]).astype(np.float32)
        return rows, self.grounds.astype(np.float32)

    def scene(self, row: int) -> Scene:
        """One of them as an object."""
        things = [
            Thing(
                *(words[i] for words, i in zip(FEATURES, self.things[row, slot], strict=True)),
                *self.places[row, slot].tolist(),
            )
            for slot in range(self.counts[row])
        ]
        return Scene(tuple(things), float(self.grounds[row]))


def joined(parts: list[Scenes]) -> Scenes:
    fields = zip(*((p.things, p.places, p.grounds, p.counts) for p in parts), strict=True)
    return Scenes(*(np.concatenate(field) for field in fields))


def draw_scenes(draws: np.ndarray) -> Scenes:
    """Scenes from uniform numbers (n, SCENE_DRAWS): two to four objects, all independent."""
    cuts = np.cumsum([CELLS, 1, 4 * MOST, 2 * MOST])
    cell_draws, count_draws, word_draws, place_draws, ground_draws = np.split(draws, cuts, axis=1)
    n = len(draws)
    counts = 2 + below(count_draws[:, 0], MOST - 1)
    things = below(word_draws.reshape(n, MOST, 4), COUNTS)
    cells = np.argsort(cell_draws, axis=1, kind="stable")[:, :MOST]
    places = place(cells, place_draws.reshape(n, MOST, 2))
    absent = np.arange(MOST) >= counts[:, None]
    things[absent], places[absent] = -1, np.nan
    low, high = _GROUNDS
    grounds = np.round(low + (high - low) * ground_draws[:, 0], 3)
    return Scenes(things, places, grounds, counts)


def below(draws: np.ndarray, count: np.ndarray | int) -> np.ndarray:
    """Whole numbers from 0 to count - 1."""
    return (draws * count).astype(np.int64)


def place(cells: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Jittered places in cells; `draws` has x and y along its last axis."""
    corner = np.stack([cells % GRID, cells // GRID], axis=-1)
    return np.round((corner + 0.5) / GRID + (2 * draws - 1) * JITTER, 3)


def leads(spots: np.ndarray) -> np.ndarray:
    """Of two places (n, 2, 2), whether the first is mostly named first: `world.captions.leads`."""
    column, height = (spots[..., 0] * GRID).astype(np.int64), spots[..., 1]
    same = column[:, 0] == column[:, 1]
    return np.where(same, height[:, 0] < height[:, 1], column[:, 0] < column[:, 1])


# A statement is nine numbers: the words of two phrases (shape, size, colour, texture) and the
# relation between them, each -1 if it is not said. Relations are places in RELATIONS.
FIRST: Final = slice(0, 4)
SECOND: Final = slice(4, 8)
RELATION: Final = 8


def statements(first: np.ndarray, second: np.ndarray, relation: np.ndarray) -> np.ndarray:
    return np.concatenate([first, second, relation[:, None]], axis=1)


def along(places: np.ndarray, relation: np.ndarray) -> np.ndarray:
    """How far places (..., 2) lie in the direction that a relation speaks of."""
    distance = np.where(relation < 2, places[..., 0], places[..., 1])
    return np.where(relation % 2 == 0, distance, -distance)  # left of, right of, above, below


def holds(said: np.ndarray, scenes: Scenes) -> np.ndarray:
    """Whether two different objects of each scene make its statement true."""
    relation = said[:, RELATION, None]
    place = along(scenes.places, relation)
    gaps = place[:, None, :] - place[:, :, None]  # from the first to the second
    # Nowhere is in no relation: a NaN compares as false.
    possible = (gaps >= RELATION_MARGIN) | ((relation < 0)[..., None] & _DIFFERENT)
    first, second = (_fits(said[:, words], scenes) for words in (FIRST, SECOND))
    return (possible & first[:, :, None] & second[:, None, :]).any(axis=(1, 2))


def _fits(phrase: np.ndarray, scenes: Scenes) -> np.ndarray:
    """(n, 4): which objects a phrase is true of: no absent one, for phrases say the shape."""
    fits = scenes.things[..., SHAPE] == phrase[:, SHAPE, None]
    for feature in (1, 2, 3):
        word = phrase[:, feature, None]
        fits &= (word < 0) | (scenes.things[..., feature] == word)
    return fits


def statement(said: np.ndarray) -> Statement:
    """One of them as an object."""
    first, second = (
        Phrase(*[words[w] if w >= 0 else _UNSAID for words, w in zip(FEATURES, part, strict=True)])
        for part in (said[FIRST].tolist(), said[SECOND].tolist())
    )
    return Statement(first, second, None if said[RELATION] < 0 else RELATIONS[said[RELATION]])
