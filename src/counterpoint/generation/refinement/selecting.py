"""Which pairs are kept: SugarCrepe's adversarial refinement, on a grid of any number of dimensions.

The gap of a pair is the score of its caption minus the score of its text, by one blind model. The
gaps of D models put the pair into a cell of a D-dimensional grid. A model that sees nothing else
does well where a cell holds more pairs than its mirror, the cell with all signs changed. So the
larger of the two is reduced to the size of the smaller. What is left is symmetric about 0: each of
the D models, any odd function of their gaps, and any vote among them, is right as often as wrong.

Which pairs of a cell are kept is decided by the rank of a random key of each pair. So neither the
order of the pairs nor the content of other cells matters. Sorting is all the work: O(n log n).
"""

from __future__ import annotations

from typing import Final, Literal, get_args

import numpy as np

from counterpoint._util.errors import DataError

Scale = Literal["max", "rank"]
SCALES: Final[tuple[Scale, ...]] = get_args(Scale)


BINS: Final = 50  # from 0 to 1, as SugarCrepe's authors
ZERO_BINS: Final = 10  # the same for pairs with a gap of exactly 0 to some model


def is_probability(scores: np.ndarray) -> bool:
    """Whether all scores lie within [0, 1]: then their gaps need no scaling."""
    return bool(((scores >= 0) & (scores <= 1)).all())


def scaled(gaps: np.ndarray, groups: np.ndarray, scale: Scale) -> np.ndarray:
    """One model's gaps (n,), scaled into [-1, 1] within each group: monotone, odd, and 0 stays 0.

    `max` divides by the group's largest |gap|, so that cells have equal widths. `rank` takes the
    share of the group's non-zero gaps that are not larger, so that cells have equal numbers.
    """
    found = np.zeros(len(gaps))
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        rows = rows[gaps[rows] != 0]
        if len(rows):
            found[rows] = np.sign(gaps[rows]) * _size(np.abs(gaps[rows]), scale)
    return found


def _size(sizes: np.ndarray, scale: Scale) -> np.ndarray:
    if scale == "max":
        return sizes / sizes.max()
    ordered = np.sort(sizes)
    return np.searchsorted(ordered, sizes, side="right") / len(sizes)


def top(scores: np.ndarray, groups: np.ndarray, share: float) -> np.ndarray:
    """Which rows are in the best `share` of their group by every column of `scores` (n, D).

    At or above the (1 - share) quantile, interpolated linearly between neighbours as NumPy and
    pandas do by default; ties are kept. All columns must agree, so fewer than `share` are left
    unless they order the texts in the same way. TROHN-Img used 0.355 of Vera and of CoLA.
    """
    kept = np.ones(len(scores), dtype=bool)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows):
            limits = np.quantile(scores[rows].astype(np.float64), 1 - share, axis=0)
            kept[rows] = (scores[rows] >= limits).all(axis=1)
    return kept


def cells(gaps: np.ndarray, bins: int = BINS, zero_bins: int = ZERO_BINS) -> np.ndarray:
    """The cell (n, D) of each row of gaps (n, D) within [-1, 1].

    sign(g) * (floor(bins * |g|) + 1), and 0 for a gap of exactly 0. |g| = 1 is in the last cell,
    `bins`. A row in which some gaps are 0 and others are not has `zero_bins` instead: there are few
    of them, and the zero separates their cells from all others.
    """
    size = np.abs(gaps)
    if not (size <= 1).all():  # false for NaN, too
        bad = int((~(size <= 1)).any(axis=1).sum())
        raise DataError(
            "E-GAP-INVALID",
            f"{bad:,} of {len(gaps):,} pairs have a gap outside [-1, 1] or none.",
            count=bad,
        )
    count = np.where((gaps == 0).any(axis=1), zero_bins, bins)[:, None]
    numbers = np.minimum(np.floor(size * count) + 1, count)
    found: np.ndarray = (np.sign(gaps) * numbers).astype(np.int64)
    return found


def balanced(
    gaps: np.ndarray,
    keys: np.ndarray,
    groups: np.ndarray | None = None,
    *,
    bins: int = BINS,
    zero_bins: int = ZERO_BINS,
) -> np.ndarray:
    """Which rows of `gaps` (n, D) are kept: a mask (n,).

    Of every cell and its mirror, within each of `groups`, as many as the smaller of the two holds:
    those with the lowest `keys` (n,). Rows without any gap are their own mirror and all kept.
    """
    cell = cells(gaps, bins, zero_bins)
    side = _side(cell)
    canonical = cell * side[:, None]
    group = np.zeros(len(cell), dtype=np.int64) if groups is None else np.asarray(groups)
    order = np.lexsort((keys, side, *canonical.T, group))
    where = np.column_stack((group, canonical))[order]
    new_cell = _changes(where)
    new_side = new_cell | _changes(side[order, None])
    number = np.cumsum(new_cell) - 1  # of the cell, mirrors taken together
    rank = np.arange(len(order)) - _last_start(new_side)
    ahead = np.bincount(number[side[order] > 0], minlength=len(order))
    behind = np.bincount(number[side[order] < 0], minlength=len(order))
    kept = np.empty(len(order), dtype=bool)
    kept[order] = (rank < np.minimum(ahead, behind)[number]) | (side[order] == 0)
    return kept


def _side(cell: np.ndarray) -> np.ndarray:
    """1 or -1, the sign of a row's first number that is not 0; mirrors have opposite ones."""
    side = np.zeros(len(cell), dtype=np.int64)
    for column in cell.T:
        side = np.where(side == 0, np.sign(column), side)
    return side


def _changes(rows: np.ndarray) -> np.ndarray:
    """Where a row differs from the one before it; the first does."""
    return np.concatenate(([True], (rows[1:] != rows[:-1]).any(axis=1)))[: len(rows)]


def _last_start(starts: np.ndarray) -> np.ndarray:
    """For each place, the last place up to it at which something starts."""
    places: np.ndarray = np.maximum.accumulate(np.where(starts, np.arange(len(starts)), 0))
    return places
