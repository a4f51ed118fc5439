"""Scenes, statements and texts of the world as arrays, many at once.

A GPU learns from tens of thousands of scenes per second, so the world's edits and pictures work on
arrays. `grammar` has the truth of single texts, written independently: the tests read the texts
back with it and judge them against the scenes.

Words are numbers: the index of a shape in SHAPES, of a colour in COLOURS, and so on; -1 means that
a phrase does not have the word.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final, Self

import numpy as np

from counterpoint._util.english import article as indefinite
from counterpoint._util.random_numbers import uniforms
from counterpoint.world.grammar import DETAIL, LEFT_FIRST
from counterpoint.world.scenes import (
    COLOURS,
    GRID,
    JITTER,
    RELATION_MARGIN,
    RELATIONS,
    SHAPES,
    SIZES,
    SYNONYMS,
    TEXTURES,
    Scene,
    Thing,
)

if TYPE_CHECKING:
    import torch

MOST: Final = 4  # objects of a scene that is drawn here
FEATURES: Final = (SHAPES, tuple(SIZES), tuple(COLOURS), TEXTURES)  # the columns of `Scenes.things`
_INDEX: Final = [{word: number for number, word in enumerate(words)} for words in FEATURES]
COUNTS: Final = np.array([len(words) for words in FEATURES])
SHAPE: Final = 0
CELLS: Final = GRID**2
SCENE_DRAWS: Final = CELLS + 1 + 4 * MOST + 2 * MOST + 1
OBJECT_DRAWS: Final = slice(CELLS, CELLS + 1 + 4 * MOST)  # of them: how many objects, and which
_RADII: Final = np.array(list(SIZES.values()), dtype=np.float32)
_GROUNDS: Final = (0.42, 0.62)  # as `scenes.sample_scene` draws them


class ArrayTable:
    """The base of a dataclass of arrays, of which row i of each belongs to item i."""

    __slots__ = ()

    def __getitem__(self, rows: np.ndarray | slice) -> Self:
        return type(self)(*(column[rows] for column in self._columns()))

    @classmethod
    def joined(cls, parts: Sequence[Self]) -> Self:
        columns: list[Any] = []
        for field in fields(cls):  # type: ignore[arg-type]
            column: Any = [*map(attrgetter(field.name), parts)]
            nested = isinstance(column[0], ArrayTable)
            columns.append(type(column[0]).joined(column) if nested else np.concatenate(column))
        return cls(*columns)

    def _columns(self) -> list[Any]:
        return [getattr(self, field.name) for field in fields(self)]  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class Scenes(ArrayTable):
    """n scenes: `things` (n, m, 4) words, `places` (n, m, 2), `grounds` (n,), `counts` (n,).

    Objects beyond a scene's count have the words -1 and stand nowhere (NaN).
    """

    things: np.ndarray
    places: np.ndarray
    grounds: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, scenes: Sequence[Scene]) -> Scenes:
        counts = np.array([len(scene.things) for scene in scenes], dtype=np.int64)
        shape = (len(scenes), max(counts, default=0))
        words, places = np.full((*shape, 4), -1), np.full((*shape, 2), np.nan)
        for row, scene in enumerate(scenes):
            for slot, t in enumerate(scene.things):
                said = (t.shape, t.size, t.colour, t.texture)
                words[row, slot] = [n[w] for n, w in zip(_INDEX, said, strict=True)]
                places[row, slot] = t.x, t.y
        return cls(words, places, np.array([scene.ground for scene in scenes]), counts)

    def table(self) -> tuple[np.ndarray, np.ndarray]:
        """As `drawing.paint` takes them: a row per object, a brightness per scene."""
        number, slot = np.nonzero(np.arange(self.things.shape[1]) < self.counts[:, None])
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
    """Of two places (n, 2, 2), whether the first is usually named first: `grammar.leads`."""
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
    """The coordinates of places (..., 2) along the direction of a relation."""
    distance = np.where(relation < 2, places[..., 0], places[..., 1])
    return np.where(relation % 2 == 0, distance, -distance)  # left of, right of, above, below


def holds_each(said: np.ndarray, scenes: Scenes) -> np.ndarray:
    """Whether two different objects of each scene make its statement true."""
    relation = said[:, RELATION, None]
    place = along(scenes.places, relation)
    gaps = place[:, None, :] - place[:, :, None]  # from the first to the second
    # An absent object is in no relation: a NaN compares as false.
    different = ~np.eye(place.shape[1], dtype=bool)
    possible = (gaps >= RELATION_MARGIN) | ((relation < 0)[..., None] & different)
    first, second = (_fits(said[:, words], scenes) for words in (FIRST, SECOND))
    return (possible & first[:, :, None] & second[:, None, :]).any(axis=(1, 2))


def _fits(phrase: np.ndarray, scenes: Scenes) -> np.ndarray:
    """(n, m): which objects a phrase is true of. Absent objects never fit."""
    said = phrase[:, None]
    fits = (scenes.things == said) | (said < 0)  # a shape is always said
    return fits[..., 0] & fits[..., 1] & fits[..., 2] & fits[..., 3]


# --- Texts as numbers of words and as token ids --------------------------------------------------


# texts to (n, context) token ids, padded at the end
Tokenize = Callable[[Sequence[str]], "torch.Tensor"]

_JOINTS: Final = ("the", "a", "an", "and")
_CANONICAL: Final = tuple(word for words in (*FEATURES, RELATIONS) for word in words)
WORDS: Final = (*_JOINTS, *_CANONICAL, *(SYNONYMS[w] for w in _CANONICAL if w in SYNONYMS))
_NUMBER: Final = {word: number for number, word in enumerate(WORDS)}
_THE, _A, _AN, _AND = range(len(_JOINTS))
# Where the words of each feature start, in the order of a statement's nine places.
_STARTS: Final = np.array([_NUMBER[words[0]] for words in (*FEATURES, *FEATURES, RELATIONS)])
_OTHER: Final = np.array([_NUMBER[SYNONYMS.get(word, word)] for word in WORDS])
_WANTS_AN: Final = np.array([indefinite(word) == "an" for word in WORDS])
_ENGLISH: Final = (1, 2, 3, SHAPE)  # size, colour, texture, shape

# Places of two texts whose words are of one kind: attributes and shapes of either phrase, joints.
_PAIRS: Final = np.array([(a, b) for a in range(11) for b in range(11) if a % 6 == b % 6 and a % 6])
STATEMENT_DRAWS: Final = MOST + 6 + 1 + len(RELATIONS) + 1


def statement_words(said: np.ndarray, rare: np.ndarray) -> np.ndarray:
    """Statements (n, 9) as words (n, 11), -1 for no word; `rare` marks the places to reword."""
    words = np.where(said < 0, -1, said + _STARTS)
    words = np.where(rare & (words >= 0), _OTHER[words], words)
    relation = words[:, RELATION]
    loose = relation < 0
    phrases = [_noun_phrases(words[:, part], loose) for part in (FIRST, SECOND)]
    joint = np.where(loose, _AND, relation)[:, None]
    return np.concatenate([phrases[0], joint, phrases[1]], axis=1)


def _noun_phrases(words: np.ndarray, definite: np.ndarray) -> np.ndarray:
    ordered = words[:, _ENGLISH]
    first = ordered[np.arange(len(ordered)), (ordered >= 0).argmax(axis=1)]
    article = np.where(definite, _THE, np.where(_WANTS_AN[first], _AN, _A))
    return np.concatenate([article[:, None], ordered], axis=1)


def joined_words(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Two texts as one, with "and" between them."""
    joint = np.full((len(first), 1), _AND)
    return np.concatenate([first, joint, second], axis=1)


def exchanged_words(
    first: np.ndarray, second: np.ndarray, draws: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Statements as words (n, 11) with a word of one exchanged for a word of the other, of the same
    kind (two colours, two shapes, two relations); and where there is such a pair. A word that both
    texts have is not exchanged. `draws` (n,) chooses the pair."""
    rows = np.arange(len(first))
    own, other = first[:, _PAIRS[:, 0]], second[:, _PAIRS[:, 1]]
    known = np.stack([(first[:, None] == other[:, :, None]), (second[:, None] == own[:, :, None])])
    free = (own > _AND) & (other > _AND) & ~known.any(axis=(0, 3))
    count = free.sum(axis=1)
    chosen = (free.cumsum(axis=1) > below(draws, np.maximum(count, 1))[:, None]).argmax(axis=1)
    there = count > 0
    one, two = first.copy(), second.copy()
    at, to = _PAIRS[chosen].T
    one[rows, at] = np.where(there, second[rows, to], one[rows, at])
    two[rows, to] = np.where(there, first[rows, at], two[rows, to])
    one, two = _with_articles(one), _with_articles(two)
    # Texts that differ in one word have become each other: in the other order, all is said again.
    return one, two, there & ((one != second) | (two != first)).any(axis=1)


def _with_articles(words: np.ndarray) -> np.ndarray:
    """Statements with "a" or "an" as the next word wants it."""
    words = words.copy()
    for place in (0, 6):
        following = words[:, place + 1 : place + 5]
        next_one = following[np.arange(len(words)), (following >= 0).argmax(axis=1)]
        fitting = np.where(_WANTS_AN[next_one], _AN, _A)
        words[:, place] = np.where(words[:, place] == _THE, _THE, fitting)
    return words


def reworded(places: np.ndarray) -> np.ndarray:
    """`rare` of `statement_words` for one place each; -1 is none."""
    return np.arange(9) == places[:, None]


def draw_statements(scenes: Scenes, draws: np.ndarray) -> np.ndarray:
    """True statements about two objects each, as `grammar.sample_caption` draws them."""
    rows = np.arange(len(draws))
    present = np.arange(MOST) < scenes.counts[:, None]
    pair = np.argsort(np.where(present, draws[:, :MOST], 2.0), axis=1)[:, :2]
    spots = scenes.places[rows[:, None], pair]
    relation = np.arange(len(RELATIONS))[None, :]
    gaps = along(spots[:, None, 1], relation) - along(spots[:, None, 0], relation)
    which = np.where(gaps >= RELATION_MARGIN, draws[:, MOST + 7 : STATEMENT_DRAWS - 1], -1.0)
    stated = (which.max(axis=1) >= 0) & (draws[:, MOST + 6] < 0.5)
    turned = ~stated & (leads(spots) != (draws[:, STATEMENT_DRAWS - 1] < LEFT_FIRST))
    pair = np.where(turned[:, None], pair[:, ::-1], pair)
    said = scenes.things[rows[:, None], pair]
    detail = np.where(stated, DETAIL["related"], DETAIL["and"])[:, None, None]
    keep = draws[:, MOST : MOST + 6].reshape(-1, 2, 3) < detail
    said[..., 1:] = np.where(keep, said[..., 1:], -1)
    return statements(said[:, 0], said[:, 1], np.where(stated, which.argmax(axis=1), -1))


def draw_false(said: np.ndarray, draws: np.ndarray) -> np.ndarray:
    """Statements with one word replaced. Most of them are false; the caller must check."""
    rows = np.arange(len(said))
    place = np.argmax(np.where(said >= 0, draws[:, :9], -1.0), axis=1)
    counts = np.array([*COUNTS, *COUNTS, len(RELATIONS)])[place]
    changed = said.copy()
    changed[rows, place] = (said[rows, place] + 1 + below(draws[:, 9], counts - 1)) % counts
    return changed


def draw_plain(scenes: Scenes, stream: np.ndarray, grammar: float, synonym: float) -> np.ndarray:
    """Captions (n, 16) like those that the base was trained on: a share `grammar` are sentences,
    the others keywords in random order; `synonym` is how often a word is in its rarer form."""
    n, slots = len(stream), 4 * MOST
    cuts = np.cumsum([1, len(WORDS), slots, slots])
    parts = np.split(uniforms(stream, int(cuts[-1]) + STATEMENT_DRAWS), cuts, axis=1)
    grammatical, rare_draws, keep, shuffle, statement_draws = parts
    rare = rare_draws < synonym
    said = draw_statements(scenes, statement_draws)
    numbers = np.where(said < 0, 0, said + _STARTS)
    full = statement_words(said, np.take_along_axis(rare, numbers, axis=1))
    full = np.pad(full, ((0, 0), (0, slots - full.shape[1])), constant_values=-1)

    bag = np.where(scenes.things < 0, -1, scenes.things + _STARTS[:4])
    bag[..., 1:] = np.where(keep.reshape(n, MOST, 4)[..., 1:] < 0.5, bag[..., 1:], -1)
    bag = bag.reshape(n, slots)
    reword = np.take_along_axis(rare, np.maximum(bag, 0), axis=1) & (bag >= 0)
    bag = np.where(reword, _OTHER[bag], bag)
    bag = np.take_along_axis(bag, np.argsort(shuffle, axis=1), axis=1)
    return np.where(grammatical < grammar, full, bag)


def texts(words: np.ndarray) -> list[str]:
    return [" ".join(WORDS[w] for w in row if w >= 0) for row in words.tolist()]


class WorldTokens:
    """Token ids of texts of the world, assembled from the tokens of its words.

    Most tokenizers split texts into words first. Whether this one does is tested; if not, it gets
    whole texts (many times slower).
    """

    def __init__(self, tokenize: Tokenize, pad: int) -> None:
        self.tokenize, self.pad = tokenize, pad
        empty = _ids(tokenize, "", pad)
        self.context = tokenize([""]).shape[1]
        self.by_words = len(empty) == 2
        if self.by_words:
            self.start, self.end = empty
            pieces = [_ids(tokenize, word, pad)[1:-1] for word in WORDS]
            longest = max(map(len, pieces))
            self.pieces = np.full((len(WORDS) + 1, longest), -1)  # the last row is of "no word"
            for number, piece in enumerate(pieces):
                self.pieces[number, : len(piece)] = piece
            self.by_words = self._agrees()

    def __call__(self, words: np.ndarray) -> torch.Tensor:
        """(n, words) to (n, context)."""
        import torch

        if not self.by_words:
            return self.tokenize(texts(words))
        ids = self.pieces[words].reshape(len(words), -1)
        said = ids >= 0
        place = np.cumsum(said, axis=1)
        length = place[:, -1]
        tokens = np.full((len(words), max(self.context, int(length.max(initial=0)) + 2)), self.pad)
        tokens[:, 0] = self.start
        row, column = np.nonzero(said)
        tokens[row, place[row, column]] = ids[row, column]
        tokens[np.arange(len(words)), length + 1] = self.end
        tokens = tokens[:, : self.context]
        tokens[length + 2 > self.context, -1] = self.end  # a text that is cut still ends
        return torch.from_numpy(np.ascontiguousarray(tokens))

    def _agrees(self) -> bool:
        """Tried with each word before and after another, in short and in long texts."""
        line = [*range(len(WORDS)), *range(len(WORDS))[::-1]]
        probes = [line[start : start + size] for start in range(len(line)) for size in (1, 2, 16)]
        words = np.array([probe + [-1] * (16 - len(probe)) for probe in probes])
        return bool(self(words).equal(self.tokenize(texts(words)).long()))


def _ids(tokenize: Tokenize, text: str, pad: int) -> list[int]:
    row = tokenize([text])[0].tolist()
    while row and row[-1] == pad:
        row.pop()
    return row
