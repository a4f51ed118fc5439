"""A batch of training: what data make, what towers are given, and the vectors that come back.

A batch has B samples. A sample is an image and its caption; it may have a positive (the caption
reworded), k negatives, an image of which its first negative is true, a hard image (one of the
image's nearest, with a caption and negatives of its own) and m dense captions. What a sample lacks
is masked: its vector is there, is finite, and must change neither the loss nor a gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

import torch
from torch import Tensor, nn

from counterpoint.training.losses.terms import MASKS, TOKENS, Features


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
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> Batch:  # torch's loader calls this
        return self._map(Tensor.pin_memory)

    def rows(self, rows: slice) -> Batch:
        """Some of its samples."""
        return self._map(lambda tensor: tensor[rows], rows)

    def tensors(self) -> Iterator[Tensor]:
        for value in (getattr(self, name) for name in self.__slots__):
            if isinstance(value, Tensor):
                yield value
        if self.hard is not None:
            yield from self.hard.tensors()

    def _map(self, change: Callable[[Tensor], Tensor], rows: slice = slice(None)) -> Batch:
        changed = {
            name: change(value)
            for name in self.__slots__
            if isinstance(value := getattr(self, name), Tensor)
        }
        hard = None if self.hard is None else self.hard._map(change, rows)
        return Batch(**changed, hard=hard, samples=self.samples[rows])


# --- batches to towers and back ----------------------------------------------------------------

# In which order things are put together for the towers; (B, ...) or (B, k, ...).
_IMAGES: Final = ("images", "negative_images")
_TEXTS: Final = ("captions", "positives", "negatives", "dense", "dense_negatives")
_BATCH_MASKS: Final = tuple(mask for name, mask in MASKS.items() if name not in TOKENS)


def pack(batch: Batch, pad: int = 0) -> tuple[Tensor, Tensor]:
    """All images and all texts of a batch, for one call of each tower.

    `pad` is the padding of the tokenizer; 0 is that of CLIP's.
    """
    images = [getattr(b, n) for b in _batches(batch) for n in _IMAGES if getattr(b, n) is not None]
    texts = [
        getattr(b, n).flatten(0, -2)
        for b in _batches(batch)
        for n in _TEXTS
        if getattr(b, n) is not None
    ]
    length = max(text.shape[1] for text in texts)
    padded = [nn.functional.pad(text, (0, length - text.shape[1]), value=pad) for text in texts]
    return torch.cat(images), torch.cat(padded)


def cut_padding(tokens: Tensor, pad: int) -> Tensor:
    """Token ids (n, context) without the columns that are padding for all."""
    used = (tokens != pad).any(dim=0).nonzero()
    return tokens[:, : int(used.max()) + 1] if len(used) else tokens[:, :1]


def unpack(
    batch: Batch,
    images: Tensor,
    texts: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *tokens: Tensor | None,
) -> Features:
    """The vectors that came of `pack`, in their places, with the batch's masks. `tokens`: patches,
    words and which words are there, where the towers were asked for them."""
    shown, said = [images], [texts]

    def take(one: Batch) -> Features:
        found: dict[str, Any] = {name: getattr(one, name) for name in _BATCH_MASKS}
        for names, left, of_texts in ((_IMAGES, shown, False), (_TEXTS, said, True)):
            for name in names:
                given = getattr(one, name)
                if given is not None:
                    shape = given.shape[:-1] if of_texts else given.shape[:1]
                    head, left[0] = left[0].tensor_split([shape.numel()])
                    found[name] = head.view(*shape, -1)
        return Features(**found, scale=scale, bias=cast("Tensor", bias))

    features = take(batch)
    if tokens:
        features = replace(features, **_tokens(batch, *cast("tuple[Any, Any, Any]", tokens)))
    return features if batch.hard is None else replace(features, hard=take(batch.hard))


def _tokens(
    batch: Batch, patches: Tensor, words: Tensor | None, there: Tensor | None
) -> dict[str, Any]:
    """Those of images, captions and negatives; a negative that is not there has no words."""
    size = len(batch.images)
    found = {"image_tokens": patches[:size]}
    if words is None or there is None:
        return found
    found |= {"caption_tokens": words[:size], "has_caption_token": there[:size]}
    if batch.negatives is None:
        return found
    first, count = size * (1 if batch.positives is None else 2), batch.negatives.shape[1]
    rows = slice(first, first + size * count)  # after captions and positives
    said = there[rows].view(size, count, -1)
    if batch.has_negative is not None:
        said = said & batch.has_negative[..., None]
    return found | {
        "negative_tokens": words[rows].reshape(size, -1, words.shape[-1]),
        "has_negative_token": said.flatten(1),
    }


def only(batch: Batch, names: Collection[str]) -> Batch:
    """The batch without what no term of the loss reads; hard images go by `hard_...`."""
    kept = {
        name: getattr(batch, name)
        for name in (*_IMAGES, *_TEXTS)
        if name in names or name in ("images", "captions")
    }
    masks = {n: getattr(batch, n) for n in _BATCH_MASKS if n in names}
    inner = {name.removeprefix("hard_") for name in names if name.startswith("hard_")}
    hard = only(batch.hard, inner) if batch.hard is not None and inner else None
    return Batch(**kept, **masks, hard=hard, samples=batch.samples)


def split(batch: Batch, size: int) -> Iterator[Batch]:
    """Parts of `size` samples, in order."""
    for start in range(0, len(batch.images), size):
        yield batch.rows(slice(start, start + size))


def _batches(batch: Batch) -> list[Batch]:
    return [batch] if batch.hard is None else [batch, batch.hard]


def names_of(features: Features) -> list[str]:
    """Which vectors are there."""
    return [n for n in (*_IMAGES, *_TEXTS, *TOKENS) if getattr(features, n) is not None]


def stacked(parts: list[Features]) -> Features:
    """Parts one after the other, as one batch."""
    names = [n for n in (*names_of(parts[0]), *MASKS.values()) if getattr(parts[0], n) is not None]
    whole: dict[str, Any] = {
        name: torch.cat([getattr(part, name) for part in parts]) for name in names
    }
    hard = [part.hard for part in parts if part.hard is not None]
    return replace(parts[0], **whole, hard=stacked(hard) if hard else parts[0].hard)
