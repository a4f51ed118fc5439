"""A recipe's loss as one function of a batch and its vectors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor

from counterpoint.train import losses
from counterpoint.train.batches import Batch, Features
from counterpoint.train.joining import join
from counterpoint.train.model import Towers
from counterpoint.train.steps import only, pack, split, stacked, unpack

_START = "start_"


class Loss:
    """The terms of a recipe. `start` is a frozen copy of the start, if a term asks for its vectors.

    `fields` is what the terms read of a batch; the rest need not be encoded.
    """

    def __init__(
        self,
        terms: Sequence[losses.Term],
        start: Towers | None,
        autocast: Callable[[], AbstractContextManager[Any]],
        part: int = 0,
    ) -> None:
        self.terms, self.start, self.autocast, self.part = terms, start, autocast, part
        self.fields = fields_of(terms)

    def __call__(
        self, batch: Batch, features: Features, scale: Tensor
    ) -> tuple[Tensor, dict[str, Tensor]]:
        start = None if self.start is None else self._vectors_of_start(batch)
        values = losses.loss(features, scale, self.terms, start)
        total = losses.total(values, self.terms)
        return total, {name: value.detach() for name, value in values.items()}

    @torch.no_grad()
    def _vectors_of_start(self, batch: Batch) -> Features:
        assert self.start is not None
        names = {n.removeprefix(_START) for n in losses.uses(self.terms) if n.startswith(_START)}
        parts = []
        for part in split(only(batch, names), self.part or len(batch.images)):
            with self.autocast():
                images, texts, _ = self.start(*pack(part))
            parts.append(unpack(part, images, texts))
        return join(stacked(parts))


def fields_of(terms: Sequence[losses.Term]) -> frozenset[str]:
    """The fields of a batch that the terms read of either model."""
    return frozenset(name.removeprefix(_START) for name in losses.uses(terms))


def needs_start(terms: Sequence[losses.Term]) -> bool:
    return any(name.startswith(_START) for name in losses.uses(terms))
