"""Counter-based random numbers: a draw depends on the seed and its address, and on nothing else.

With an ordinary generator, a sample would depend on the samples before it and on the number of
processes. Here every draw has an address (a seed, a sample, an epoch, ...), which is hashed, many
at once.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final

import numpy as np

_STEP: Final = np.uint64(0x9E3779B97F4A7C15)
_FIRST: Final = np.uint64(0xBF58476D1CE4E5B9)
_SECOND: Final = np.uint64(0x94D049BB133111EB)
_ALL: Final = 2**64 - 1
_FEW: Final = 64  # items, for which arrays are slower


def key(*words: int) -> np.ndarray:
    """The start of an independent stream: an array of one number."""
    return np.random.SeedSequence(words).generate_state(1, np.uint64)


def fold(state: np.ndarray, numbers: np.ndarray | int) -> np.ndarray:
    """The stream's branch for each number (SplitMix64 at that position); arrays broadcast."""
    mixed = state + np.asarray(numbers, dtype=np.uint64) * _STEP
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FIRST
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _SECOND
    return mixed ^ (mixed >> np.uint64(31))


def uniforms(state: np.ndarray, count: int) -> np.ndarray:
    """`count` numbers in [0, 1) for each stream, along a new last axis."""
    bits = fold(state[..., None], np.arange(1, count + 1))
    return (bits >> np.uint64(11)) * 2.0**-53


@lru_cache(maxsize=4)
def order(seed: int, epoch: int, size: int) -> np.ndarray:
    """The samples of an epoch, each exactly once, in random order."""
    return np.random.default_rng((seed, epoch)).permutation(size)


def part(numbers: np.ndarray, rank: int, world_size: int) -> np.ndarray:
    """The numbers of one rank; joined in the order of the ranks they are `numbers`."""
    each = len(numbers) // world_size
    return numbers[rank * each : (rank + 1) * each]


def take(state: np.ndarray, number: int, epoch: int, size: int, count: int) -> list[int]:
    """`count` of `size` items for a number, different ones in each epoch; all, if there are no
    more.

    The items are shuffled once and taken in turn. So no item comes twice in an epoch, and each has
    come after `size / count` epochs; independent draws would miss a third by then.
    """
    if size <= count:
        return list(range(size))
    stream = _folded(int(state[0]), number)
    if size > _FEW:
        draws = uniforms(np.array([stream], dtype=np.uint64), size)
        shuffled = np.argsort(draws.ravel(), kind="stable")
        return shuffled[(epoch * count + np.arange(count)) % size].tolist()
    bits = [_folded(stream, place) >> 11 for place in range(1, size + 1)]
    turns = sorted(range(size), key=bits.__getitem__)
    return [turns[(epoch * count + place) % size] for place in range(count)]


def _folded(state: int, number: int) -> int:
    """`fold` of one number, which takes a tenth of the time without arrays."""
    mixed = (state + number * int(_STEP)) & _ALL
    mixed = ((mixed ^ (mixed >> 30)) * int(_FIRST)) & _ALL
    mixed = ((mixed ^ (mixed >> 27)) * int(_SECOND)) & _ALL
    return mixed ^ (mixed >> 31)
