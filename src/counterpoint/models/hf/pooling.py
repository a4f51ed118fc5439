"""Pools over the tokens of a vision transformer, in a VisionTextDualEncoder of transformers.

The class token alone says little about where things are. A pool looks at the patches too. It is
added to a model when it is tuned with a locked trunk, is saved beside its weights, and is named in
`config.json`: `"counterpoint_pool": {"kind": "attention", "heads": 4}`. Its last layer starts at
zero, so a model with a new pool gives the vectors that it gave without, unless its tokens are
centered.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention
from transformers import VisionTextDualEncoderModel

from counterpoint._util.errors import ModelError
from counterpoint._util.untrusted import shown

ENTRY: Final = "counterpoint_pool"
TRUNKS: Final = ("dinov2", "vit")  # their tokens are normalised, and the class token is the first
_NAME: Final = "pool"  # of the module, in the vision model
_IMAGES: Final = 1024  # whose tokens are added up at a time


class TokenPool(nn.Module, ABC):
    """From (n, tokens, width) to (n, width). The first token is what the trunk pools itself."""

    kind: str
    center: Tensor | None  # the mean of the first tokens and that of the others, if subtracted

    def __init__(self, width: int, heads: int, center: bool) -> None:
        super().__init__()
        self.heads = heads  # where it has any
        self.register_buffer("center", torch.zeros(2, width) if center else None)

    @abstractmethod
    def tokens(self, output: Any) -> Tensor:
        """Of what the trunk gives: what there is to pool."""

    @abstractmethod
    def added(self, others: Tensor) -> Tensor:
        """What of the other tokens is added to the first."""

    def forward(self, tokens: Tensor) -> Tensor:
        first, others = tokens[:, 0], tokens[:, 1:]
        if self.center is not None:
            first, others = first - self.center[0], others - self.center[1]
        return first + self.added(others)

    def learn_center(self, tokens: Tensor) -> None:
        """From the tokens of many images, unless it is known already."""
        if self.center is None or self.center.any():
            return
        total = torch.zeros(2, tokens.shape[-1], dtype=torch.float64, device=tokens.device)
        for start in range(0, len(tokens), _IMAGES):
            some = tokens[start : start + _IMAGES]
            total[0] += some[:, 0].double().sum(0)
            total[1] += some[:, 1:].double().mean(1).sum(0)
        self.center.copy_(total / len(tokens))


class MeanPool(TokenPool):
    """The mean of the patches, through a linear layer."""

    kind = "mean"

    def __init__(self, width: int, heads: int, center: bool) -> None:
        super().__init__(width, heads, center)
        self.out = nn.Linear(width, width, bias=False)
        nn.init.zeros_(self.out.weight)

    def tokens(self, output: Any) -> Tensor:
        mean = output.last_hidden_state[:, 1:].mean(1)
        return torch.stack((output.pooler_output, mean), 1)

    def added(self, others: Tensor) -> Tensor:
        found: Tensor = self.out(others[:, 0])
        return found


class AttentionPool(TokenPool):
    """One query that is learned looks at the patches with several heads."""

    kind = "attention"

    def __init__(self, width: int, heads: int, center: bool) -> None:
        super().__init__(width, heads, center)
        self.query = nn.Parameter(torch.randn(width))
        self.key, self.value, self.out = (nn.Linear(width, width, bias=False) for _ in range(3))
        nn.init.zeros_(self.out.weight)

    def tokens(self, output: Any) -> Tensor:
        return torch.cat((output.pooler_output[:, None], output.last_hidden_state[:, 1:]), 1)

    def added(self, others: Tensor) -> Tensor:
        count, _, width = others.shape
        shape = (count, -1, self.heads, width // self.heads)
        query = self.query.to(others.dtype).expand(count, 1, width)
        asked, keys, values = (
            part.reshape(shape).transpose(1, 2)
            for part in (query, self.key(others), self.value(others))
        )
        seen = scaled_dot_product_attention(asked.to(keys.dtype), keys, values)
        found: Tensor = self.out(seen.transpose(1, 2).reshape(count, width))
        return found


POOLS: Final[dict[str, type[TokenPool]]] = {p.kind: p for p in (MeanPool, AttentionPool)}


class PooledDualEncoderModel(VisionTextDualEncoderModel):  # type: ignore[no-untyped-call]
    """What `from_pretrained` makes of a folder whose configuration names a pool."""

    def __init__(self, config: Any, vision_model: Any = None, text_model: Any = None) -> None:
        super().__init__(config, vision_model, text_model)
        _attach(self, getattr(config, ENTRY))


def pool_of(model: Any) -> TokenPool | None:
    """The pool of a model, if it has one."""
    found = getattr(getattr(model, "vision_model", None), _NAME, None)
    return found if isinstance(found, TokenPool) else None


def add_pool(id: str, model: Any, entry: dict[str, Any], seed: int) -> None:
    """Put a new pool into a model that has none; one of the same kind stays as it is."""
    there = pool_of(model)
    if there is not None:
        if getattr(model.config, ENTRY) != entry:
            has = getattr(model.config, ENTRY)
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"{id}: has a pool already ({has['kind']}, {has['heads']} heads), which is tuned "
                "further with lock=image alone.",
            )
        return
    refuse_pool(id, entry, model.config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        _attach(model, entry)
    model.vision_model.pool.to(next(model.parameters()).device)
    setattr(model.config, ENTRY, entry)


def refuse_pool(id: str, entry: Any, config: Any) -> None:
    """Unless a model of this configuration can have this pool."""
    trunk = getattr(getattr(config, "vision_config", None), "model_type", None)
    if config.model_type != "vision-text-dual-encoder" or trunk not in TRUNKS:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id}: a pool over patches needs a VisionTextDualEncoder with a vision model of type "
            f"{' or '.join(TRUNKS)}; leave lock.pool out.",
        )
    wide = config.vision_config.hidden_size
    said = entry if isinstance(entry, dict) else {}
    kind, heads, center = said.get("kind"), said.get("heads"), said.get("center", False)
    divides = isinstance(heads, int) and heads > 0 and not wide % heads
    if kind not in POOLS or not divides or not isinstance(center, bool):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id}: its pool is {shown(str(entry))}; its kind should be {' or '.join(POOLS)}, and "
            f"its heads a divisor of the trunk's width, {wide}.",
        )


def _attach(model: Any, entry: Any) -> None:
    vision, new = model.vision_model, POOLS[entry["kind"]]
    wide = vision.config.hidden_size
    vision.add_module(_NAME, new(wide, entry["heads"], entry.get("center", False)))
    vision.register_forward_hook(_pooled)


def _pooled(vision: Any, given: Any, output: Any) -> Any:
    """After every call of the vision model."""
    del given
    output.pooler_output = vision.pool(vision.pool.tokens(output))
    return output
