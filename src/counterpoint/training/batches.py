"""What a training step works on: texts and images of a batch, and their vectors.

A batch has B samples. A sample is an image and its caption; it may have a positive (the caption
reworded), k negatives, an image of which its first negative is true, a hard image (one of the
image's nearest, with a caption and negatives of its own) and m dense captions. What a sample lacks
is masked: its vector is there, is finite, and must change neither the loss nor a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    import torch
    from torch import Tensor

MASKS: Final = {  # which mask says which of these vectors are there
    "positives": "has_positive",
    "negatives": "has_negative",
    "negative_images": "has_negative_image",
    "dense": "has_dense",
    "dense_negatives": "has_dense_negative",
    "caption_tokens": "has_caption_token",
    "negative_tokens": "has_negative_token",
}
TOKENS: Final = ("image_tokens", "caption_tokens", "negative_tokens")
_ABSENT: Final[Any] = None


@dataclass(slots=True)
class Batch:
    """Preprocessed images, and texts as token ids (context cut to the longest of the batch).

    Of a locked image tower, images are what its trunk makes of them: (B, d) or (B, tokens, d).

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


@dataclass(frozen=True, slots=True)
class Features:
    """What a loss is given: the vectors of a batch, of all ranks once joined.

    Unit vectors, so that the product of two is their score, a cosine. Shapes are (B, d); negatives
    (B, k, d); dense and dense_negatives (B, m, d). Tokens are what the towers make of patches and
    of words before they are pooled, projected and not of unit length: image_tokens (B, p, d),
    caption_tokens (B, l, d) and negative_tokens (B, k l, d), those of one negative after those of
    another. `scale` is the factor of the scores before a
    softmax or a sigmoid (the exponential of the model's logit scale), `bias` what a model with a
    sigmoid loss adds to them (SigLIP's logit bias). What the data or the model lacks is None. A
    mask that is None says that all vectors are there; `mask` gives it as an array.
    """

    images: Tensor
    captions: Tensor
    scale: Tensor
    positives: Tensor = _ABSENT
    has_positive: Tensor | None = None
    negatives: Tensor = _ABSENT
    has_negative: Tensor | None = None
    negative_images: Tensor = _ABSENT
    has_negative_image: Tensor | None = None
    dense: Tensor = _ABSENT
    has_dense: Tensor | None = None
    dense_negatives: Tensor = _ABSENT
    has_dense_negative: Tensor | None = None
    image_tokens: Tensor = _ABSENT
    caption_tokens: Tensor = _ABSENT
    has_caption_token: Tensor | None = None
    negative_tokens: Tensor = _ABSENT
    has_negative_token: Tensor | None = None
    hard: Features = _ABSENT  # of the hard images (NegCLIP)
    start: Features = _ABSENT  # the same batch under the frozen start, or the teacher
    bias: Tensor = _ABSENT
    reconstruction: Tensor = _ABSENT  # (B, 1): log loss per word of positives, told from captions

    def mask(self, vectors: str = "images") -> Tensor:
        """Which of these vectors are there: (B,), (B, k) or (B, m)."""
        import torch

        mask = getattr(self, MASKS.get(vectors, ""), None)
        if mask is not None:
            return cast("Tensor", mask.bool())
        of = getattr(self, vectors)
        return torch.ones(of.shape[:-1], dtype=torch.bool, device=of.device)


LossT = TypeVar("LossT", bound=Callable[..., Any])


def reads(*vectors: str, optional: Sequence[str] = ()) -> Callable[[LossT], LossT]:
    """Declares what a loss reads of `Features`; the rest is neither encoded nor given to it.

    Names are those of the vectors (their masks come with them), `hard_...` for those of the hard
    images, `start_...` for those of the frozen start or the teacher, `..._tokens` for patches and
    words, `bias` for the logit bias of the model. Data or models without one of `vectors` are
    refused; what is `optional` is used where it is there. Without a declaration a loss reads images
    and captions.
    """

    def declared(loss: LossT) -> LossT:
        loss.__dict__["reads"] = (tuple(vectors), tuple(optional))
        return loss

    return declared
