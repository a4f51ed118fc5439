"""Keep the texts that blind models find best, as TROHN-Img was chosen from TROHN-Text."""

from __future__ import annotations

import numpy as np


def top(scores: np.ndarray, groups: np.ndarray, share: float) -> np.ndarray:
    """Which rows are among the best `share` of their group by every column of `scores` (n, D).

    At or above the (1 - share) quantile, interpolated linearly between neighbours as NumPy and
    pandas do by default; ties with it are kept. All columns have to agree, so fewer than `share`
    are left unless they order the texts alike. TROHN-Img: 0.355 of Vera and of CoLA.
    """
    kept = np.ones(len(scores), dtype=bool)
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    for rows in np.split(order, starts[1:]):
        if len(rows):
            limits = np.quantile(scores[rows].astype(np.float64), 1 - share, axis=0)
            kept[rows] = (scores[rows] >= limits).all(axis=1)
    return kept
