"""Numbers of very many cases in little memory, and exactly.

Most metrics have a few different values (0, 1/2, 1), of which a byte tells one; scores are 32-bit
numbers. A column is unpacked when it is used, so no more than one is in memory at full length.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, NamedTuple, cast

import numpy as np

from counterpoint.metrics import ValueTable

_LEVELS: Final = 250  # values that a byte tells apart
_LOOKED_AT: Final = 1000  # numbers, for the values that a column has


class _Packed(NamedTuple):
    """Some numbers of a column: codes of `levels`, or the numbers themselves."""

    codes: np.ndarray
    levels: np.ndarray | None = None

    def numbers(self, rows: Any = slice(None)) -> np.ndarray:
        found = self.codes[rows]
        return found.astype(np.float64) if self.levels is None else self.levels[found]


def _pack(column: np.ndarray) -> _Packed:
    levels = np.unique(np.append(column[:_LOOKED_AT], np.nan))  # NaN comes last
    if len(levels) <= _LEVELS:
        codes = np.searchsorted(levels, column)
        if np.array_equal(levels[np.minimum(codes, len(levels) - 1)], column, equal_nan=True):
            if not codes.size or (codes == codes[0]).all():
                return _Packed(np.broadcast_to(codes[:1].astype(np.uint8), len(codes)), levels)
            return _Packed(codes.astype(np.uint8), levels)
    narrow = column.astype(np.float32)
    return _Packed(narrow if np.array_equal(narrow, column, equal_nan=True) else column.copy())


class PackedTable:
    """A table of numbers (rows, columns), read by `[rows, column]` as an array is."""

    def __init__(self, width: int) -> None:
        self._columns: list[list[_Packed]] = [[] for _ in range(width)]
        self._starts = [0]

    @property
    def shape(self) -> tuple[int, int]:
        return self._starts[-1], len(self._columns)

    def add(self, columns: Iterable[np.ndarray]) -> None:
        """More rows, given column by column."""
        rows = 0
        for packed, column in zip(self._columns, columns, strict=True):
            packed.append(_pack(column))
            rows = len(column)
        self._starts.append(self._starts[-1] + rows)

    def __getitem__(self, place: Any) -> np.ndarray:
        rows, column = place if isinstance(place, tuple) else (place, slice(None))
        if isinstance(column, int | np.integer):
            return self._take(int(column), rows)
        chosen = np.arange(len(self._columns))[column].tolist()
        return np.stack([self._take(number, rows) for number in chosen], axis=-1)

    def astype(self, kind: Any) -> np.ndarray:
        """All of it as an array."""
        return self[:].astype(kind)

    def only(self, columns: Sequence[int]) -> PackedTable:
        """Some of the columns, which are not copied."""
        chosen = PackedTable(0)
        chosen._columns = [self._columns[column] for column in columns]
        chosen._starts = self._starts
        return chosen

    def _take(self, column: int, rows: Any) -> np.ndarray:
        packed = self._columns[column]
        if isinstance(rows, np.ndarray) and rows.dtype.kind in "iu" and _ascending(rows):
            ends = np.searchsorted(rows, self._starts)
            parts = zip(packed, self._starts, ends[:-1], ends[1:], strict=False)
            found = [part.numbers(rows[i:j] - start) for part, start, i, j in parts if j > i]
        else:
            found = [np.concatenate([part.numbers() for part in packed])[rows]] if packed else []
        return np.concatenate(found) if found else np.zeros(0)


def only_columns(values: ValueTable, columns: Sequence[int]) -> ValueTable:
    if isinstance(values, PackedTable):
        return values.only(columns)
    return cast(ValueTable, values[:, columns])


def difference(a: ValueTable, b: ValueTable) -> ValueTable:
    """The numbers of one table minus those of another with the same rows and columns."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return np.asarray(a - b)
    found = PackedTable(a.shape[1])
    found.add(a[:, column] - b[:, column] for column in range(a.shape[1]))
    return found


def _ascending(rows: np.ndarray) -> bool:
    return not len(rows) or bool(rows[0] >= 0 and (rows[1:] >= rows[:-1]).all())
