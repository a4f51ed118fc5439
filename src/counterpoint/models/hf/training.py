"""A dual encoder of transformers as the start of a training: tensors in, vectors out.

A batch of training is one tensor of images and one of token ids. So what a model wants beside them
travels inside: padding is marked by -1, which no token has (CLIP pads with its end-of-text token),
and the masks and shapes of NaFlex images are further columns of their patches.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from counterpoint._util.errors import ModelError
from counterpoint.models.hf.dual import (
    PROBES,
    HfDual,
    dual,
    preprocessed,
    probe_images,
    vectors_of,
)
from counterpoint.models.hf.loading import as_text, bars, explained
from counterpoint.models.hf.pooling import add_pool, pool_of
from counterpoint.models.torch_models import fingerprint
from counterpoint.models.trunk import ImageTrunk, replaced

ABOUT: Final = "training.json"
_MARK: Final = -1  # padding, where the text tower is told of it by a mask
_LONGEST: Final = 512  # tokens of a text, where the model has no limit
_PROJECTIONS: Final = ("visual_projection", "vision_projection", "image_projection")
_TOWERS: Final = {"image": ("vision_", "visual_", "image_"), "text": ("text_",)}


class HfStart:
    """What training asks of a start; `model` is transformers' own module."""

    notes: tuple[str, ...] = ()

    def __init__(self, loaded: HfDual) -> None:
        self.opened, self.model = loaded.opened, loaded.opened.model
        self.fingerprint, self.context_length = loaded.fingerprint, loaded.context_length
        self.cuts_padding = not self.opened.sees_padding
        self.pad = _MARK if self.cuts_padding else self.opened.filler
        if getattr(self.model, "logit_scale", None) is None:
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"{self.opened.id} cannot be trained: {type(self.model).__name__} has no logit "
                "scale, which the losses here need.",
            )

    def transform(self, image: Image.Image) -> Tensor:
        """(3, H, W); of NaFlex (1, patches, values + mask + height + width)."""
        found = preprocessed(self.opened.processor, image)
        pixels = found["pixel_values"]
        if "spatial_shapes" not in found:
            return pixels
        mask = found["pixel_attention_mask"][:, None].to(pixels.dtype)
        shape = found["spatial_shapes"].to(pixels.dtype).expand(len(pixels), 2)
        return torch.cat((pixels, mask, shape), 1)[None]

    def tokenizer(self, texts: Sequence[str]) -> Tensor:
        """Token ids and `pad`: as wide as the longest, or as the context if padding is seen."""
        most = self.context_length or _LONGEST
        # A model that sees no padding is given none: with 512 columns, a batch took four times as
        # long to prepare.
        width = None if self.cuts_padding else most
        ids = self.opened.token_ids(texts, most)
        return self.opened.padded(ids, width, self.pad)["input_ids"]

    def embed_images(self, model: Any, images: Tensor) -> Tensor:
        """Vectors of a network like the start's own, as it makes them: of any length."""
        if images.shape[1] == 3:
            return vectors_of(model.get_image_features(pixel_values=images))
        packed = images[:, 0]
        given = {
            "pixel_values": packed[:, :, :-3],
            "pixel_attention_mask": packed[:, :, -3].to(torch.int32),
            "spatial_shapes": packed[:, 0, -2:].to(torch.int64),
        }
        return vectors_of(model.get_image_features(**given))

    def embed_texts(self, model: Any, tokens: Tensor) -> Tensor:
        if not self.cuts_padding:
            return vectors_of(model.get_text_features(input_ids=tokens))
        there = tokens != _MARK
        ids = tokens.masked_fill(~there, self.opened.filler)
        return vectors_of(model.get_text_features(input_ids=ids, attention_mask=there.long()))

    def trunk(self) -> HfTrunk:
        """The image tower without its projection and its pool."""
        return HfTrunk(self)

    def add_pool(self, entry: dict[str, Any], seed: int) -> None:
        """Let a pool over the patches' tokens follow the vision model."""
        add_pool(self.opened.id, self.model, entry, seed)

    def parts(self, tower: str) -> list[nn.Module]:
        """The modules of the image or of the text tower."""
        return [m for name, m in self.model.named_children() if name.startswith(_TOWERS[tower])]

    def blocks(self, model: nn.Module) -> list[nn.Module]:
        return [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]

    def checkpoint_activations(self) -> None:
        self.model.gradient_checkpointing_enable({"use_reentrant": False})

    def unreached(self) -> list[nn.Parameter]:
        """Weights on which no vector depends, such as FLAVA's multimodal encoder."""
        device, model = self.opened.runtime.device, self.model.eval()
        images = torch.stack([self.transform(image) for image in probe_images()]).to(device)
        tokens = self.tokenizer(PROBES).to(device)
        total = self.embed_images(model, images).sum() + self.embed_texts(model, tokens).sum()
        total.backward()  # type: ignore[no-untyped-call]
        scalars = {id(getattr(model, n, None)) for n in ("logit_scale", "logit_bias")}
        found = [p for p in model.parameters() if p.grad is None and id(p) not in scalars]
        model.zero_grad(set_to_none=True)
        return found

    def renewed(self, records: tuple[str, ...]) -> HfDual:
        """The dual encoder with the weights that the network has now."""
        return dual(self.opened.renewed(records))

    @property
    def training_records(self) -> tuple[str, ...]:
        return self.opened.training_records

    def fill_folder(
        self, folder: Path, state: Mapping[str, Tensor], about: Mapping[str, Any]
    ) -> None:
        """Put `state` in the start's architecture into an empty folder, for `hf:FOLDER`."""
        tensors = {key: value.to("cpu", copy=True).contiguous() for key, value in state.items()}
        tokenizer = self.opened.tokenizer
        backend = getattr(tokenizer, "backend_tokenizer", None)
        if backend is not None:  # what the last call has set
            backend.no_padding()
            backend.no_truncation()
        with explained(self.opened.id, "cannot be saved"), bars(shown=False):
            self.model.save_pretrained(folder, state_dict=tensors)
            tokenizer.save_pretrained(folder)
            self.opened.processor.save_pretrained(folder)
        text = json.dumps(dict(about), indent=1, default=list) + "\n"
        (folder / ABOUT).write_text(text, encoding="utf-8")


# --- the image tower alone ------------------------------------------------------------


class HfTrunk(ImageTrunk):
    """The image tower without its projection (see `ImageTrunk`).

    SigLIP has no projection: all of its image tower is the trunk.
    """

    def __init__(self, start: HfStart) -> None:
        super().__init__(start.opened, start.opened.runtime)
        self.start, self.model = start, start.model
        self.pooled = pool_of(self.model) is not None
        self.stored_as = np.float16 if self.pooled else np.float32
        self.owner = self.model
        self.part = next((n for n in _PROJECTIONS if hasattr(self.model, n)), None)
        probe = [self.preprocess(image) for image in probe_images()]
        with torch.inference_mode():
            features = self.features(probe)
            vectors = vectors_of(self.model.get_image_features(**self.dual.stack(probe)))
        self.settle(self.model, features, vectors)
        processor = (type(self.dual.processor).__name__, as_text(self.dual.processor.to_dict()))
        kind = pool.kind if (pool := pool_of(self.model)) is not None else None
        identity = ("trunk", *processor, self.runtime.identity, kind)
        owner, name = (self.model.vision_model, "pool") if self.pooled else (None, None)
        with self.unprojected(), replaced(owner, name, None):
            self.fingerprint = fingerprint(nn.ModuleList(start.parts("image")), *identity)

    def features(self, images: Sequence[Any]) -> Tensor:
        given = self.dual.stack(images)
        if self.pooled:  # `forward` itself, without the pool after it
            vision = self.model.vision_model
            found: Tensor = vision.pool.tokens(vision.forward(**given, return_dict=True))
            return found
        with self.unprojected():
            return vectors_of(self.model.get_image_features(**given))

    def head(self, model: Any, features: Tensor) -> Tensor:
        pool = pool_of(model)
        found = features if pool is None else pool(features)
        return found if self.part is None else getattr(model, self.part)(found)

    def head_parameters(self, model: Any) -> list[nn.Parameter]:
        modules = [pool_of(model), None if self.part is None else getattr(model, self.part)]
        return [p for module in modules if module is not None for p in module.parameters()]

    def learn(self, features: Tensor) -> None:
        super().learn(features)
        if (pool := pool_of(self.model)) is not None:
            pool.learn_center(features)
