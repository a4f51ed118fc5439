"""What all losses share: masks, and sums that stay finite.

What is not there gets no logit at all (-inf), never the logit 0 of a zero vector, which is the
highest of all where scores are low. A mean is over the samples that take part. It is 0 where none
does, and still a node of the graph, so that every rank has the same graph.
"""

from __future__ import annotations

from typing import Final

import torch
from torch import Tensor

NOTHING: Final = float("-inf")


def own_scores(images: Tensor, texts: Tensor) -> Tensor:
    """Of each image (B, d) with its own texts: (B,) for (B, d) texts, (B, k) for (B, k, d)."""
    mine = images if texts.ndim == images.ndim else images[:, None]
    return (mine * texts).sum(-1)


def mean_over(values: Tensor, there: Tensor) -> Tensor:
    """The mean of the values that are there; 0 where none is. All values must be finite."""
    return torch.where(there, values, 0).sum() / there.sum().clamp_min(1)


def kept(logits: Tensor, there: Tensor, rows: Tensor) -> Tensor:
    """Logits (B, ...) without those that are not there.

    Rows that take no part keep all of theirs, and come to something finite that `mean_over` drops.
    A row of nothing but -inf would make NaN on the way back: masked again in the end, but an error
    under torch's anomaly detection, which is what one turns on to look for a NaN of another source.
    """
    takes_part = rows.view(-1, *[1] * (logits.ndim - 1))
    return logits.masked_fill(~there & takes_part, NOTHING)


def matched(logits: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Cross-entropy of logits (R, C >= R) with the diagonal as target, over the columns that are
    there, mean over the rows that are. A row that is there must be so as a column."""
    left = logits.masked_fill(~columns[None] & rows[:, None], NOTHING)  # as `kept`
    return mean_over(left.logsumexp(1) - left.diagonal(), rows)


def softplus_sum(logits: Tensor, there: Tensor) -> Tensor:
    """log(1 + the sum of exp(logit) over the last dimension), of those that are there."""
    left = logits.masked_fill(~there, NOTHING)
    none = torch.zeros_like(left[..., :1])
    return torch.cat((none, left), -1).logsumexp(-1)
