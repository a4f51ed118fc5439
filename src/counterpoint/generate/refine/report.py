"""What refinement did to each blind model, in every group of pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from counterpoint.statistics import ALL

TARGET: Final = 0.5
WITHIN: Final = 0.01  # of the target: reached
Use = Literal["balanced", "selected", "watched"]


@dataclass(frozen=True, slots=True)
class Row:
    """One blind model on one group of negatives, before and after.

    Its accuracy is the share of pairs whose caption it scores above the text, half of a tie: 0.5 is
    chance. None where there are no pairs.
    """

    group: str
    model: str
    use: Use  # what its scores were used for; `watched` is for nothing
    before: int
    after: int
    accuracy_before: float | None
    accuracy_after: float | None
    ties_before: int
    ties_after: int
    reached: bool | None  # whether the accuracy after is 50 +- 1 per cent


def accuracy(gaps: np.ndarray) -> float | None:
    """The share of gaps above 0, with half of those that are 0."""
    return float((np.sign(gaps) / 2 + 0.5).mean()) if len(gaps) else None


def rows(
    gaps: Mapping[str, np.ndarray],
    uses: Mapping[str, Use],
    groups: np.ndarray,
    names: Sequence[str],
    kept: np.ndarray,
) -> list[Row]:
    """A row for each model on all pairs together, then for each group and model.

    `groups` are numbers into `names`; `gaps` are each model's, unscaled.
    """
    parts = [(ALL, np.ones(len(kept), dtype=bool))]
    if len(names) > 1:
        parts += [(name, groups == number) for number, name in enumerate(names)]
    return [
        _row(group, model, uses[model], found[part], kept[part])
        for group, part in parts
        for model, found in gaps.items()
    ]


def _row(group: str, model: str, use: Use, gaps: np.ndarray, kept: np.ndarray) -> Row:
    left = gaps[kept]
    after = accuracy(left)
    return Row(
        group=group,
        model=model,
        use=use,
        before=len(gaps),
        after=len(left),
        accuracy_before=accuracy(gaps),
        accuracy_after=after,
        ties_before=int((gaps == 0).sum()),
        ties_after=int((left == 0).sum()),
        reached=None if after is None else abs(after - TARGET) <= WITHIN + 1e-12,
    )
