"""The image tower of a model of transformers without its projection (see models/trunks.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from counterpoint.models.hf.dual import vectors_of
from counterpoint.models.hf.loading import as_text, probe_images
from counterpoint.models.hf.pooling import pool_of
from counterpoint.models.torch_models import fingerprint
from counterpoint.models.trunks import ImageTrunk

if TYPE_CHECKING:
    from counterpoint.models.hf.training import HfStart

_PROJECTIONS: Final = ("visual_projection", "vision_projection", "image_projection")


class HfTrunk(ImageTrunk):
    """SigLIP has no projection: all of its image tower is the trunk."""

    def __init__(self, start: HfStart) -> None:
        super().__init__(start.opened, start.opened.runtime)
        self.start, self.model = start, start.model
        self.pooled = pool_of(self.model) is not None
        self.stored_as = np.float16 if self.pooled else np.float32
        self.part = next((n for n in _PROJECTIONS if hasattr(self.model, n)), None)
        probe = [self.preprocess(image) for image in probe_images()]
        with torch.inference_mode():
            features = self.features(probe)
            vectors = vectors_of(self.model.get_image_features(**self.dual.stack(probe)))
        if self.part is not None and not self.agrees(self.model, vectors, features):
            self.part, features = None, vectors
        self.shape = tuple(features.shape[1:])
        self.fingerprint = self._fingerprint()

    def features(self, images: Sequence[Any]) -> Tensor:
        given = self.dual.stack(images)
        if self.pooled:  # `forward` itself, without the pool after it
            vision = self.model.vision_model
            found: Tensor = vision.pool.tokens(vision.forward(**given, return_dict=True))
            return found
        with self._unprojected():
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

    def _fingerprint(self) -> str:
        opened = self.start.opened
        processor = (type(opened.processor).__name__, as_text(opened.processor.to_dict()))
        kind = None if not self.pooled else pool_of(self.model).kind  # type: ignore[union-attr]
        identity = ("trunk", *processor, opened.runtime.identity, kind)
        with self._unprojected(), self._unpooled():
            parts = nn.ModuleList(self.start.parts("image"))
            return fingerprint(parts, *identity)

    @contextmanager
    def _unprojected(self) -> Iterator[None]:
        if self.part is None:
            yield
            return
        last = getattr(self.model, self.part)
        setattr(self.model, self.part, nn.Identity())
        try:
            yield
        finally:
            setattr(self.model, self.part, last)

    @contextmanager
    def _unpooled(self) -> Iterator[None]:
        if not self.pooled:
            yield
            return
        pool = self.model.vision_model._modules.pop("pool")
        try:
            yield
        finally:
            self.model.vision_model._modules["pool"] = pool
