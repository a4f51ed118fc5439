"""Dual encoders of transformers: CLIP, SigLIP, ALIGN, FLAVA, VisionTextDualEncoder ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image

from counterpoint.models.hf.loading import (
    DUAL,
    PROBES,
    SUPPORTED,
    HfModel,
    Tensors,
    explained,
    open_model,
    probe_images,
)
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import memory_errors

Tower = Callable[[Tensors], torch.Tensor]


class HfDual:
    """A dual encoder. Vectors are unit float32, whatever precision the towers run in."""

    def __init__(self, opened: HfModel, see: Tower, read: Tower) -> None:
        self.opened, self.see, self.read = opened, see, read
        self.context_length, self.fingerprint = opened.context_length, opened.fingerprint
        self.lanes, self.device = opened.runtime.lanes, opened.runtime.hardware

    def preprocess(self, image: Image.Image) -> Tensors:
        return self.opened.preprocess(image)

    @memory_errors
    def encode_images(self, images: Sequence[Tensors]) -> np.ndarray:
        staged = self.opened.stage(images)
        return self.opened.runtime.vectors(lambda: self.see(self.opened.placed(staged)))

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        counted = self.opened.token_ids(captions) if captions else []
        return np.array([len(ids) for ids in counted], dtype=np.int64)

    @memory_errors
    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        tokens = self.opened.tokens(captions)
        return self.opened.runtime.vectors(lambda: self.read(tokens))

    def describe(self) -> Mapping[str, Any]:
        # Scale (its logarithm) and bias are the same for all pairs: they change no verdict.
        names = [n for n in ("logit_scale", "logit_bias") if hasattr(self.opened.model, n)]
        logits = {name: getattr(self.opened.model, name).item() for name in names}
        return {**self.opened.describe(), **logits}

    def tried(self) -> HfDual:
        """Itself, if it runs: towers may not take what tokenizer and image processor give."""
        with explained(self.opened.id, "does not run"):
            self.encode_captions(PROBES)
            self.encode_images([self.preprocess(image) for image in probe_images()])
        return self


def load(rest: str, options: LoadOptions) -> HfDual:
    """`ORG/REPO` on the hub, or a folder."""
    classes = dict.fromkeys(SUPPORTED, DUAL)
    return dual(open_model("hf", rest, options, classes, halves=True)).tried()


def dual(opened: HfModel) -> HfDual:
    model = opened.model
    return HfDual(
        opened,
        lambda pixels: vectors_of(model.get_image_features(**pixels)),
        lambda tokens: vectors_of(model.get_text_features(**tokens)),
    )


def vectors_of(output: Any) -> torch.Tensor:
    """transformers 4 returns vectors, 5 an object. FLAVA projects every position: [CLS] counts."""
    found: torch.Tensor = getattr(output, "pooler_output", output)
    return found[:, 0] if found.ndim == 3 else found
