"""The image tower of an open_clip model without its projection (see models/trunks.py)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from counterpoint.models.openclip.adapter import OpenClip
from counterpoint.models.torch_models import fingerprint
from counterpoint.models.trunks import ImageTrunk


class OpenClipTrunk(ImageTrunk):
    """A ViT ends in the matrix `proj`, a tower of timm in the layers `head`; a ResNet is whole."""

    def __init__(self, start: OpenClip) -> None:
        super().__init__(start, start.runtime)
        self.start, self.reader = start, start.reader
        self.part = _projection(start.model.visual)
        probe = [self.preprocess(Image.linear_gradient("L").convert("RGB"))]
        with torch.inference_mode():
            features, vectors = self.features(probe), self._encoded(probe)
        if self.part is not None and not self.agrees(start.model, vectors, features):
            self.part, features = None, vectors
        self.shape = tuple(features.shape[1:])
        with self._unprojected():
            identity = ("trunk", start.transform, start.runtime.identity)
            self.fingerprint = fingerprint(start.model.visual, *identity)

    def features(self, images: Sequence[Any]) -> Tensor:
        with self._unprojected():
            return self._encoded(images)

    def head(self, model: Any, features: Tensor) -> Tensor:
        if self.part is None:
            return features
        last = getattr(model.visual, self.part)
        found: Tensor = last(features) if isinstance(last, nn.Module) else features @ last
        return found

    def head_parameters(self, model: Any) -> list[nn.Parameter]:
        if self.part is None:
            return []
        last = getattr(model.visual, self.part)
        return list(last.parameters()) if isinstance(last, nn.Module) else [last]

    def _encoded(self, images: Sequence[Any]) -> Tensor:
        pixels = self.start.pixels
        given = pixels.finish(pixels.stage(images))
        found: Tensor = self.start.model.encode_image(given, normalize=False)  # CoCa would
        return found

    @contextmanager
    def _unprojected(self) -> Iterator[None]:
        visual, part = self.start.model.visual, self.part
        if part is None:
            yield
            return
        last = getattr(visual, part)
        setattr(visual, part, nn.Identity() if isinstance(last, nn.Module) else None)
        try:
            yield
        finally:
            setattr(visual, part, last)


def _projection(visual: Any) -> str | None:
    """The name of what follows the trunk, if it is known and takes one vector per image."""
    if isinstance(getattr(visual, "proj", None), nn.Parameter):
        return "proj"
    head = getattr(visual, "head", None)
    timm = hasattr(visual, "trunk") and isinstance(head, nn.Sequential)
    return "head" if timm and len(head) and not hasattr(head, "pool") else None  # type: ignore[arg-type]
