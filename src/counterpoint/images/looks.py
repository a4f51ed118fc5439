"""A perceptual hash: copies of a photograph in another size, shape or quality are nearly equal.

The image is made gray and 17 x 16 pixels large, whatever its shape was; each of the 256 bits says
whether a pixel is brighter than the one to its left (dHash). Copies differ in a few bits, two
photographs in about half of them. An image without contrast has no hash.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from PIL import Image

from counterpoint._util.store import Store, digest
from counterpoint.images.pictures import Picture

SAME_LOOK: Final = 26  # bits: at most a tenth
_SIDE: Final = 16
_FLAT: Final = 4.0  # levels of 255: the deviation below which bits are noise
_WORDS: Final = _SIDE * _SIDE // 64
_BLOCK: Final = 512  # rows that are compared at a time
_VERSION: Final = "look 1"


def look(image: Image.Image) -> np.ndarray | None:
    """The hash of an image, four words of 64 bits; None if it has no contrast."""
    small = image.convert("L").resize((_SIDE + 1, _SIDE), Image.Resampling.BOX)
    levels = np.asarray(small, dtype=np.int16)
    if levels.std() < _FLAT:
        return None
    return np.packbits(levels[:, 1:] > levels[:, :-1]).view(np.uint64)


def look_of(picture: Picture, store: Store) -> np.ndarray | None:
    """The same of a picture, remembered by its content. Raises ImageError."""
    key = digest(_VERSION, picture.key(store))
    [known] = store.get([key])
    if known is None:
        found = look(picture.open())
        known = b"" if found is None else found.tobytes()
        store.remember(key, known)
    return np.frombuffer(known, np.uint64) if known else None


def same_looks(ones: np.ndarray, others: np.ndarray) -> Iterator[tuple[int, int, int]]:
    """Of hashes (n, 4) and (m, 4): each of the first with its nearest, and the bits between them,
    if these are few enough to be one photograph."""
    if not len(others):
        return
    for start in range(0, len(ones), _BLOCK):
        block = ones[start : start + _BLOCK]
        apart = np.zeros((len(block), len(others)), dtype=np.uint16)
        for word in range(_WORDS):
            apart += np.bitwise_count(block[:, word, None] ^ others[None, :, word])
        nearest = apart.argmin(1)
        for row, place in enumerate(nearest.tolist()):
            if apart[row, place] <= SAME_LOOK:
                yield start + row, place, int(apart[row, place])
