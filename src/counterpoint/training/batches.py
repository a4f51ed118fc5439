"""What a training step works on: texts and images of a batch, and their vectors.

A batch has B samples. A sample is an image and its caption; it may have a positive (the caption
reworded), k negatives, an image of which its first negative is true, a hard image (one of the
image's nearest, with a caption and negatives of its own) and m dense captions. What a sample lacks
is masked: its vector is there, is finite, and must change neither the loss nor a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, Final

import torch
import torch.distributed as dist
from torch import Tensor

from counterpoint._util.errors import DataError

if TYPE_CHECKING:
    import torch
    from torch import Tensor


@dataclass(slots=True)
class Batch:
    """Preprocessed images, and texts as token ids (context cut to the longest of the batch).

    Shapes: images (B, 3, H, W), captions (B, L), positives (B, L), negatives (B, k, L),
    negative_images (B, 3, H, W), dense (B, m, L), dense_negatives (B, m, L); masks are boolean
    (B,), (B, k), (B,), (B, m). `samples` are the samples' numbers in the data, for the record.
    """

    images: Tensor
    captions: Tensor
    positives: Tensor | None = None
    has_positive: Tensor | None = None
    negatives: Tensor | None = None
    has_negative: Tensor | None = None
    negative_images: Tensor | None = None
    has_negative_image: Tensor | None = None
    dense: Tensor | None = None
    has_dense: Tensor | None = None
    dense_negatives: Tensor | None = None
    has_dense_negative: Tensor | None = None
    hard: Batch | None = None  # hard images with their captions and negatives (NegCLIP), B as well
    samples: list[int] = field(default_factory=list)

    def to(self, device: torch.device) -> Batch:
        """The batch on a device; copies overlap with work there where memory is pinned."""
        import torch

        moved = {
            name: value.to(device, non_blocking=True)
            for name in self.__slots__
            if isinstance(value := getattr(self, name), torch.Tensor)
        }
        hard = None if self.hard is None else self.hard.to(device)
        return Batch(**moved, hard=hard, samples=self.samples)


@dataclass(slots=True)
class Features:
    """Unit vectors of a batch: (B, d), (B, k, d), (B, m, d); of all ranks' batches once joined."""

    images: Tensor
    captions: Tensor
    positives: Tensor | None = None
    has_positive: Tensor | None = None
    negatives: Tensor | None = None
    has_negative: Tensor | None = None
    negative_images: Tensor | None = None
    has_negative_image: Tensor | None = None
    dense: Tensor | None = None
    has_dense: Tensor | None = None
    dense_negatives: Tensor | None = None
    has_dense_negative: Tensor | None = None
    hard: Features | None = None


# --- The vectors of all ranks in one batch, with gradients --------------------------------------
#
# Contrastive losses compare every sample with every other, so each rank computes the loss of the
# whole batch: `loss(join(features), ...)` is the same number on every rank, and the number that one
# process would get from the joined batch. Everything is joined: negatives, positives, dense
# captions,
# hard images, and what says which of them are there.
#
# The convention for gradients, with W ranks. The loss is the same on all ranks, so each of them
# holds
# the whole gradient of the joined vectors, its own among them, and no second exchange is needed. A
# rank sends the part of its own vectors back through its towers, so what belongs to a parameter is
# the *sum* over ranks; DDP and FSDP take the *mean*. Therefore the backward step of `join`
# multiplies
# by W. What does not go through `join`, such as the logit scale, has the whole gradient on every
# rank, and its mean is right as it is. Do not multiply the loss by W, and do not take the mean of
# the
# vectors' gradients by hand. What is written here holds only where each rank computes the same loss
# from what was joined.


_NAMES: Final = tuple(f.name for f in fields(Features) if f.name != "hard")
_DTYPES: Final = (torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.bool)
_SIZES: Final = 3  # of a field: (B, k, d) at most


def join(features: Features) -> Features:
    """The features of all ranks, those of rank 0 first; in a single process, what was given.

    Two exchanges for the vectors and their masks, and as many for the hard images. Every rank must
    bring as many samples, and the same fields in the same shapes: else all ranks refuse alike.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_world_size() == 1:
        return features
    _refuse_unlike(features)
    return _joined(features)


def _joined(features: Features) -> Features:
    there = {name: value for name in _NAMES if (value := getattr(features, name)) is not None}
    masks = {name: value for name, value in there.items() if name.startswith("has_")}
    vectors = {name: value for name, value in there.items() if name not in masks}
    whole = _split(_Join.apply(_packed(vectors)), vectors)
    if masks:
        wide = {name: mask.to(torch.uint8)[..., None] for name, mask in masks.items()}
        rows = _split(_gathered(_packed(wide)), wide)
        whole |= {name: row.squeeze(-1).bool() for name, row in rows.items()}
    return replace(features, **whole, hard=features.hard and _joined(features.hard))


def _packed(values: dict[str, Tensor]) -> Tensor:
    """All of (B, d) and (B, k, d) side by side, (B, n, d), for one exchange in place of many."""
    return torch.cat([v if v.ndim == 3 else v[:, None] for v in values.values()], 1)


def _split(packed: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    counts = [value.shape[1] if value.ndim == 3 else 1 for value in like.values()]
    parts = zip(like.items(), torch.split(packed, counts, 1), strict=True)
    return {name: part if value.ndim == 3 else part[:, 0] for (name, value), part in parts}


def _gathered(local: Tensor) -> Tensor:
    whole = local.new_empty((dist.get_world_size() * len(local), *local.shape[1:]))
    dist.all_gather_into_tensor(whole, local.contiguous())
    return whole


class _Join(torch.autograd.Function):
    """Forward: the ranks' tensors one after the other. Backward: W times this rank's part."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        return _gathered(local)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        ranks = dist.get_world_size()
        return ranks * gradient.chunk(ranks)[dist.get_rank()]


def _refuse_unlike(features: Features) -> None:
    """Before anything large is sent: ranks that disagree about sizes would hang, or mix rows up.

    Over the CPU where the process group has a backend for it (`init_process_group()` without a
    backend sets up gloo beside nccl): asking the GPU would make the host wait for it each step.
    """
    on_host = "cpu:" in dist.get_backend_config()
    device = torch.device("cpu") if on_host else features.images.device
    mine = torch.tensor(_shapes(features), device=device)
    found = _gathered(mine[None]).tolist()
    other = next((rank for rank, shapes in enumerate(found) if shapes != found[0]), None)
    if other is None:
        return
    differs = next(i for i, (a, b) in enumerate(zip(found[0], found[other], strict=True)) if a != b)
    at = differs // (_SIZES + 1)
    name = (*_NAMES, *(f"hard {name}" for name in _NAMES))[at].replace("_", " ")
    first, second = (_words(found[rank], at) for rank in (0, other))
    raise DataError(
        "E-BATCH-MISMATCH",
        f"the ranks' batches do not fit together: {name} is {first} on rank 0 and {second} on rank "
        f"{other}; every rank must load batches of one size with the same parts.",
        field=name,
        rank=other,
    )


def _shapes(features: Features) -> list[int]:
    """Type and sizes of every field in a fixed order; -1 for what is not there."""
    told = []
    for part in (features, features.hard):
        for name in _NAMES:
            value = None if part is None else getattr(part, name)
            sizes = [] if value is None else [_DTYPES.index(value.dtype), *value.shape]
            told += [*sizes, *[-1] * (_SIZES + 1 - len(sizes))]
    return told


def _words(shapes: list[int], at: int) -> str:
    kind, *sizes = shapes[at * (_SIZES + 1) : (at + 1) * (_SIZES + 1)]
    if kind < 0:
        return "not there"
    dtype = str(_DTYPES[kind]).removeprefix("torch.")
    return f"{dtype} ({', '.join(str(size) for size in sizes if size >= 0)})"
