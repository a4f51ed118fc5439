"""Digests of training data by its parts, which a resumed run compares: by content, so that a file
that is written again with the same rows is the same data."""

from __future__ import annotations

import hashlib
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_SIZE: Final = 16
_ROWS: Final = 100_000  # at a time


def column_digest(column: pa.Array) -> str:
    """Of texts, of whole numbers, or of lists of them; null is a value of its own."""
    state = hashlib.blake2b(digest_size=_SIZE)
    for start in range(0, len(column), _ROWS):
        _update(state, column.slice(start, _ROWS))
    return state.hexdigest()


def array_digest(numbers: np.ndarray) -> str:
    return hashlib.blake2b(numbers.astype("<i8").tobytes(), digest_size=_SIZE).hexdigest()


def _update(state: Any, values: pa.Array) -> None:
    if pa.types.is_list(values.type):
        state.update(_numbers(pc.list_value_length(values)))
        _update(state, pc.list_flatten(values))
    elif pa.types.is_string(values.type):
        state.update(_numbers(pc.binary_length(values)))
        there = values.drop_null()
        if len(there):
            _, starts, letters = there.buffers()
            places = np.frombuffer(starts, np.int32)
            first, end = places[there.offset], places[there.offset + len(there)]
            state.update(memoryview(letters)[first:end])
    else:
        state.update(_numbers(values))


def _numbers(values: pa.Array) -> bytes:
    plain = pc.fill_null(values.cast(pa.int64()), -1).to_numpy(zero_copy_only=False)
    return bytes(plain.astype("<i8").tobytes())
