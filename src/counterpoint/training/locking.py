"""Locked-image tuning: what the trunk of the image tower makes of every image, computed once.

The outputs go to the content-addressed store, in the batches and with the progress bar of an
evaluation. So a run that is stopped before its first step continues where it was, and the next
recipe with the same trunk computes nothing. Images are opened as in evaluation: decoded whole,
and not augmented.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from counterpoint._util.errors import DataError, ImageError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.store import Store, default_store
from counterpoint.images import Picture
from counterpoint.models import ImageTrunk, NamedVectors, open_image_vectors
from counterpoint.scoring import Work, encode_images
from counterpoint.training.recipe import DataConfig, Recipe
from counterpoint.training.towers import Start, add_pool, open_start, parts_of

_IN_MEMORY: Final = 2**32  # bytes; more of them are mapped from a file that has no name
_READ: Final = 1024  # images whose outputs are read at a time


def recipe_start(recipe: Recipe, device: str) -> Start:
    """The start of a recipe, with the pool that its lock asks for."""
    start = open_start(recipe.start, device)
    lock = recipe.lock
    if lock is not None and lock.pool != "none":
        add_pool(recipe.start, start, lock.entry, recipe.seed)
    return start


def trunk_names(start: Start, trunk: ImageTrunk) -> set[str]:
    """The names of the trunk's weights in the start's network."""
    inside = {id(p) for part in parts_of(start, "image") for p in part.parameters()}
    inside -= {id(p) for p in trunk.head_parameters(start.model)}
    return {name for name, p in start.model.named_parameters() if id(p) in inside}


def looking(
    trunk: ImageTrunk,
    data: DataConfig,
    device: torch.device,
    progress: Progress | None,
) -> Callable[[Sequence[Picture]], LockedImages]:
    """A function that looks at images: stored vectors first, then photographs.

    What it sees first, the training images, tells a new pool its center.
    """

    def see(pictures: Sequence[Picture]) -> LockedImages:
        with Store(default_store()) as store:
            work = Work(store, None, progress or Quiet())
            found = _seen(trunk, pictures, data.vectors, work).near(device)
        trunk.learn(found.values)
        return found

    return see


class LockedImages:
    """The trunk's outputs, one row per image that differs from all others. `vectors`: digest of the
    stored ones; empty if there are none."""

    def __init__(
        self,
        values: Tensor,
        rows: Mapping[Picture, int],
        failures: Mapping[Picture, str],
        vectors: str = "",
    ) -> None:
        self.vectors = vectors
        self.values, self._rows, self._failures = values, rows, failures

    def __len__(self) -> int:
        return len(self.values)

    def row(self, picture: Picture) -> Tensor:
        """The number of an image. Raises ImageError."""
        if picture not in self._rows:
            raise ImageError("E-IMAGE-UNREADABLE", self._failures[picture])
        return torch.tensor(self._rows[picture])

    def take(self, rows: Tensor) -> Tensor:
        """The features of these numbers (n, ...)."""
        # What is stored in halves is computed with in float32: autocast to bf16 refuses halves.
        return self.values[rows.to(self.values.device)].float()

    def near(self, device: torch.device) -> LockedImages:
        """Itself, in the memory of a GPU if it takes less than half of what is free there."""
        if device.type == "cuda" and 2 * self.values.nbytes < torch.cuda.mem_get_info(device)[0]:
            self.values = self.values.to(device)
        return self


def _seen(
    trunk: ImageTrunk, pictures: Sequence[Picture], vectors: Path | None, work: Work
) -> LockedImages:
    given, rows = None, np.full(len(pictures), -1)
    if vectors is not None:
        given = _fitting(open_image_vectors(vectors), trunk)
        rows, _ = given.find_images(pictures)
    rest = [picture for picture, row in zip(pictures, rows, strict=True) if row < 0]
    encoded = encode_images(trunk, rest, work)  # type: ignore[arg-type]  # its image half is used
    failures = {rest[n]: why for n, why in encoded.failures.items()}
    photographs = dict.fromkeys(key for key in encoded.keys if key)
    places = {key: number for number, key in enumerate(photographs)}
    numbers = {picture: places[key] for picture, key in zip(rest, encoded.keys, strict=True) if key}
    own = np.unique(rows[rows >= 0])
    values = _room((len(places) + len(own), *trunk.shape), trunk.stored_as, work.store.folder)
    _read(list(places), values, work.store)
    if given is not None:
        values[len(places) :] = given.raw(own).reshape(-1, *trunk.shape)
        numbers |= {
            picture: len(places) + int(np.searchsorted(own, row))
            for picture, row in zip(pictures, rows, strict=True)
            if row >= 0
        }
    stored = "" if given is None else given.digest.hex()
    return LockedImages(torch.from_numpy(values), numbers, failures, stored)


def _fitting(vectors: NamedVectors, trunk: ImageTrunk) -> NamedVectors:
    wide, wanted = vectors.vectors.shape[1], int(np.prod(trunk.shape))
    if wide != wanted:
        form = "" if len(trunk.shape) == 1 else f" ({trunk.shape[0]} tokens of {trunk.shape[1]})"
        raise DataError(
            "E-VECTORS-INVALID",
            f"{vectors.path}: vectors have {wide:,} numbers, and the locked image trunk gives "
            f"{wanted:,}{form}; they must be outputs of that trunk.",
        )
    return vectors


def _room(shape: tuple[int, ...], kind: Any, folder: Path) -> np.ndarray:
    """An empty array, in memory or in a file that is gone when it is closed."""
    if np.prod(shape, dtype=object) * np.dtype(kind).itemsize <= _IN_MEMORY:
        return np.empty(shape, kind)
    with tempfile.TemporaryFile(dir=folder) as file:
        return np.memmap(file, kind, "w+", shape=shape)


def _read(keys: Sequence[bytes], values: np.ndarray, store: Store) -> None:
    for start in range(0, len(keys), _READ):
        found = store.get(keys[start : start + _READ])
        for number, one in enumerate(found, start):
            assert one is not None  # it was stored a moment ago
            values[number] = np.frombuffer(one, values.dtype).reshape(values.shape[1:])
