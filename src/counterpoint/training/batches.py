"""What a training step works on: texts and images of a batch, and their vectors.

A batch has B samples. A sample is an image and its caption; it may have a positive (the caption
reworded), k negatives, an image of which its first negative is true, a hard image (one of the
image's nearest, with a caption and negatives of its own) and m dense captions. What a sample lacks
is masked: its vector is there, is finite, and must change neither the loss nor a gradient.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

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
