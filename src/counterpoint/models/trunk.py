"""Image towers without their projection: what locked-image tuning keeps of a start."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from counterpoint.models.torch_models import Runtime, memory_errors

_IMAGES: Final = 1024  # whose features are added up at a time


class ImageTrunk(ABC):
    """What locked-image tuning keeps of a start's image tower: what comes before its projection, or
    all of it where the two cannot be parted.

    For `scoring.encode_images` it is the image half of a dual encoder, whose outputs are stored
    under the image's content. Its fingerprint is of the trunk alone: models that were tuned with a
    locked trunk share what is stored.

    `shape` is that of one image's features: (width,), or (tokens, width) if a pool that trains
    comes next. Methods that take a `model` work on any network of the start's architecture.
    """

    fingerprint: str
    shape: tuple[int, ...]
    part: str | None  # the projection's name in `owner`; none where the whole tower is the trunk
    owner: Any
    stored_as: Any = np.float32
    reader: Any = None
    noise: float = 0.0  # of training, in standard deviations of the features
    _deviations: Tensor | None = None

    def __init__(self, dual: Any, runtime: Runtime) -> None:
        self.dual, self.runtime = dual, runtime
        self.lanes, self.device = runtime.lanes, runtime.hardware

    def preprocess(self, image: Image.Image) -> Any:
        return self.dual.preprocess(image)

    @memory_errors
    def encode_images(self, images: Sequence[Any]) -> np.ndarray:
        """The features of preprocessed images, one flat row each."""
        found = self.runtime.outputs(lambda: self.features(images).flatten(1).float())
        return found.astype(self.stored_as, copy=False)

    @abstractmethod
    def features(self, images: Sequence[Any]) -> Tensor:
        """Of preprocessed images: (n, *shape), on the device."""

    @abstractmethod
    def head(self, model: Any, features: Tensor) -> Tensor:
        """Image vectors of features: what is left of the tower."""

    @abstractmethod
    def head_parameters(self, model: Any) -> list[nn.Parameter]:
        """The weights of `head`; none where the whole tower is the trunk."""

    def learn(self, features: Tensor) -> None:
        """From the features of all training images, before the first step: how much they differ.

        What is learned stays: later features are those of a validation.
        """
        if self.noise and self._deviations is None:
            total = features.new_zeros(self.shape, dtype=torch.float64)
            squares = torch.zeros_like(total)
            for some in torch.split(features, _IMAGES):
                total += some.double().sum(0)
                squares += some.double().square().sum(0)
            variance = squares / len(features) - (total / len(features)).square()
            self._deviations = variance.clamp(min=0).sqrt().float()

    def noisy(self, features: Tensor) -> Tensor:
        """Features with noise, in training."""
        if self._deviations is None:
            return features
        deviations = self._deviations.to(features.device)
        return features + self.noise * deviations * torch.randn_like(features)

    def settle(self, model: Any, features: Tensor, vectors: Tensor) -> None:
        """From one probe: whether the projection is what follows the features, and their shape."""
        if self.part is not None and not self.agrees(model, vectors, features):
            self.part, features = None, vectors
        self.shape = tuple(features.shape[1:])

    @contextmanager
    def unprojected(self) -> Iterator[None]:
        last = None if self.part is None else getattr(self.owner, self.part)
        with replaced(
            self.owner, self.part, nn.Identity() if isinstance(last, nn.Module) else None
        ):
            yield

    def agrees(self, model: Any, vectors: Tensor, features: Tensor) -> bool:
        """Whether `head` makes these vectors of these features."""
        with torch.inference_mode():
            found = self.head(model, features)
        return found.shape == vectors.shape and torch.allclose(
            found, vectors, rtol=1e-4, atol=1e-5 * float(vectors.abs().max())
        )


@contextmanager
def replaced(owner: Any, name: str | None, by: Any) -> Iterator[None]:
    """`owner` has something else under that name inside; without a name, nothing changes."""
    if name is None:
        yield
        return
    before = getattr(owner, name)
    setattr(owner, name, by)
    try:
        yield
    finally:
        setattr(owner, name, before)
