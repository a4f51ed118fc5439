"""Texts by their length: which go through the text tower together."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor


class Lengths:
    """The lengths of texts (n, context), on their way from the device to the host.

    Making one does not wait for the device; `grouped` does, as long as it must.
    """

    def __init__(self, tokens: Tensor, pad: int) -> None:
        places = torch.arange(1, tokens.shape[1] + 1, device=tokens.device)
        # The last place that is no padding: the id of padding may be that of a sign, too.
        self._there = ((tokens != pad) * places).amax(dim=1)
        self._here = self._there.to("cpu", non_blocking=True)
        self._copied: torch.cuda.Event | None = None
        if tokens.is_cuda:
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            self._copied.record()

    def grouped(self, most: int) -> tuple[Tensor, list[tuple[int, int]]]:
        """The texts' numbers from short to long, on the device, and the groups that they fall into:
        how many texts each has, and its longest."""
        if self._copied is not None:
            self._copied.synchronize()
        return self._there.argsort(stable=True), best_groups(self._here.numpy(), most)


def best_groups(lengths: np.ndarray, most: int) -> list[tuple[int, int]]:
    """At most `most` groups of sorted texts with the least sum of (texts x longest of the group).

    Texts of one length stay together. Exact: the best end for a group is looked for at every length
    that occurs.
    """
    values, counts = np.unique(np.maximum(lengths, 1), return_counts=True)
    ends = np.concatenate([[0], np.cumsum(counts)])
    # least[j]: of the texts of the first j lengths; one more group a round
    least = np.concatenate([[0.0], np.full(len(values), np.inf)])
    cost = np.full((len(values) + 1, len(values) + 1), np.inf)  # of a group from i to j
    for j, value in enumerate(values, start=1):
        cost[:j, j] = value * (ends[j] - ends[:j])
    cost[0, 0] = 0.0
    froms = []
    for _ in range(min(most, len(values))):
        total = least[:, None] + cost
        froms.append(total.argmin(axis=0))
        least = total.min(axis=0)
    groups, end = [], len(values)
    for begins in reversed(froms):
        begin = int(begins[end])
        if begin < end:
            groups.append((int(ends[end] - ends[begin]), int(values[end - 1])))
        end = begin
    return groups[::-1]
