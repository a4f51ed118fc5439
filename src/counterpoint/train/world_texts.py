"""The world's texts as word numbers, and as token ids, many at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np
import torch

from counterpoint.train.sampling import uniforms
from counterpoint.train.world_scenes import (
    COUNTS,
    FEATURES,
    FIRST,
    MOST,
    RELATION,
    SECOND,
    SHAPE,
    Scenes,
    along,
    below,
    leads,
    statements,
)
from counterpoint.world.captions import DETAIL, LEFT_FIRST
from counterpoint.world.lexicon import RELATIONS, SYNONYMS
from counterpoint.world.scene import RELATION_MARGIN

Tokenize = Callable[[Sequence[str]], torch.Tensor]  # texts to (n, context) token ids, padded at the end

_JOINTS: Final = ("the", "a", "an", "and")
_CANONICAL: Final = tuple(word for words in (*FEATURES, RELATIONS) for word in words)
WORDS: Final = (*_JOINTS, *_CANONICAL, *(SYNONYMS[w] for w in _CANONICAL if w in SYNONYMS))
_NUMBER: Final = {word: number for number, word in enumerate(WORDS)}
_THE, _A, _AN, _AND = range(len(_JOINTS))
# Where the words of each feature start, in the order of a statement's nine places.
_STARTS: Final = np.array([_NUMBER[words[0]] for words in (*FEATURES, *FEATURES, RELATIONS)])
_OTHER: Final = np.array([_NUMBER[SYNONYMS.get(word, word)] for word in WORDS])
_VOWEL: Final = np.array([word[0] in "aeiou" for word in WORDS])
_ENGLISH: Final = (1, 2, 3, SHAPE)  # size, colour, texture, shape

STATEMENT_DRAWS: Final = MOST + 6 + 1 + len(RELATIONS) + 1


def statement_words(said: np.ndarray, rare: np.ndarray) -> np.ndarray:
    """Statements (n, 9) as words (n, 11), -1 where none stands; `rare` says which places reword."""
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
    article = np.where(definite, _THE, np.where(_VOWEL[first], _AN, _A))
    return np.concatenate([article[:, None], ordered], axis=1)


def reworded(places: np.ndarray) -> np.ndarray:
    """`rare` of `statement_words` for one place each; -1 is none."""
    return np.arange(9) == places[:, None]


def draw_statements(scenes: Scenes, draws: np.ndarray) -> np.ndarray:
    """True statements about two objects each, as `world.captions` makes them."""
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
    """Statements with one of their words replaced: most are false, which the caller must check."""
    rows = np.arange(len(said))
    place = np.argmax(np.where(said >= 0, draws[:, :9], -1.0), axis=1)
    counts = np.array([*COUNTS, *COUNTS, len(RELATIONS)])[place]
    changed = said.copy()
    changed[rows, place] = (said[rows, place] + 1 + below(draws[:, 9], counts - 1)) % counts
    return changed


def draw_plain(scenes: Scenes, stream: np.ndarray, grammar: float, synonym: float) -> np.ndarray:
    """Captions (n, 16) like those the base was trained on: see `world.captions.CaptionStyle`."""
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
    """Token ids of texts of the world, put together from the tokens of its words.

    Most tokenizers split texts at words first; whether this one does is tried, and one that does
    not is given whole texts (many times slower).
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
        return bool(torch.equal(self(words), self.tokenize(texts(words)).long()))


def _ids(tokenize: Tokenize, text: str, pad: int) -> list[int]:
    row = tokenize([text])[0].tolist()
    while row and row[-1] == pad:
        row.pop()
    return row
