"""`random`: scores that depend on nothing but the seed and the pair, so results sit at chance."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import Any, Final

import numpy as np

from counterpoint.cases import TEXT, Cases
from counterpoint.errors import NotFoundError
from counterpoint.models import LoadOptions

_SEED: Final = 0  # not chosen: of 95 % intervals, about one in twenty does not hold chance
_PAIRS: Final = 4_000_000  # scored at a time


class RandomScorer:
    """A uniform score for every pair, the same wherever the pair appears."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.fingerprint = f"random 2 {seed}"

    def score_cases(self, cases: Cases) -> np.ndarray:
        images = cases.frame["images"].explode().to_list()
        left = self._numbers(_name(image) for image in images)
        right = self._numbers(cases.frame["captions"].explode().to_list())
        texts = np.array([image["path"].startswith(TEXT) for image in images])
        layout = cases.layout()
        scores = np.empty(cases.pair_offsets[-1], dtype=np.float32)
        for lines in layout.pieces(np.arange(len(left)), _PAIRS, _PAIRS):
            pairs = layout.pairs(lines)
            one, two = left[pairs.images], right[pairs.captions]
            # Two texts are as like as they are the other way round, and a text is most like itself.
            mixed = np.where(texts[pairs.images], _mix(one + two), _mix(one + _mix(two)))
            # 24 bits, the precision of a float32 below 1: two pairs are equal once in 16 million.
            found = (mixed >> np.uint64(40)) / np.float32(2**24)
            scores[pairs.places] = np.where(texts[pairs.images] & (one == two), 1, found)
        return scores

    def _numbers(self, texts: Iterable[str]) -> np.ndarray:
        """A number of 64 bits for each text."""
        key = hashlib.blake2b(str(self.seed).encode(), digest_size=32).digest()
        digests = (hashlib.blake2b(t.encode(), digest_size=8, key=key).digest() for t in texts)
        return np.frombuffer(b"".join(digests), dtype="<u8").astype(np.uint64)


def _name(image: dict[str, Any]) -> str:
    if image["path"].startswith(TEXT):
        return str(image["path"].removeprefix(TEXT))
    return f"{image['path']} {image['box']}"


def _mix(values: np.ndarray) -> np.ndarray:
    """SplitMix64's last steps: every bit of the result depends on every bit of the value."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def load(rest: str, options: LoadOptions) -> RandomScorer:
    """`random`, or `random:SEED`."""
    del options
    if rest and not rest.isdecimal():
        raise NotFoundError(f"random:{rest}: the seed must be a whole number, as in random:7.")
    return RandomScorer(int(rest or _SEED))
