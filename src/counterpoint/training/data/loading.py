"""From step numbers to batches: in this process, or ahead of time in worker processes."""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children
from typing import Any, Final

import torch
from torch.utils.data import DataLoader, Dataset

from counterpoint._util.children import let_driver_first
from counterpoint._util.cluster import ray_was_used
from counterpoint._util.errors import DataError
from counterpoint.images import Picture
from counterpoint.training.batches import Batch
from counterpoint.training.data.base import Problems, Setting

_AHEAD: Final = 2  # batches that each worker may have ready


@dataclass(slots=True)
class Parcel:
    """What a worker sends: a batch (or what one is drawn from), and what went wrong."""

    content: Any
    problems: Problems = field(default_factory=Problems)

    def pin_memory(self) -> Parcel:  # torch's loader calls this
        return Parcel(_pinned(self.content), self.problems)


def _pinned(content: Any) -> Any:
    if isinstance(content, torch.Tensor):
        return content.pin_memory()
    if isinstance(content, Batch):
        return Batch(**{name: _pinned(getattr(content, name)) for name in Batch.__slots__})
    if isinstance(content, dict):
        return {name: _pinned(value) for name, value in content.items()}
    if isinstance(content, tuple):
        return tuple(map(_pinned, content))
    return content


class Stepwise(ABC):
    """Training data of which each step can be made on its own (a `TrainingData`)."""

    def __init__(self, setting: Setting, size: int, name: object) -> None:
        self.setting = setting
        self.steps_per_epoch = (size + setting.whole * (setting.batch - 1)) // setting.batch
        self.problems = Problems()
        self.contents: dict[str, str] = {}
        if not self.steps_per_epoch:
            raise DataError(
                "E-SAMPLES-FEW",
                f"{name}: {size} samples do not fill a batch of {setting.batch}; "
                "take a smaller batch or more data.",
            )

    @abstractmethod
    def prepare(self, epoch: int, step: int) -> Parcel:
        """All that can be done in any process, without the device."""

    def all_texts(self) -> Iterator[list[str]]:
        """All texts that are trained on, some at a time; of drawn ones nothing is known."""
        return iter(())

    def all_photographs(self) -> list[Picture]:
        """All images that are trained on, as far as they have names."""
        return []

    def finish(self, content: Any) -> Batch:
        """All that is left to do in the process that trains."""
        batch: Batch = content
        return batch

    def batch(self, epoch: int, step: int) -> Batch:
        if not 0 <= step < self.steps_per_epoch:
            raise IndexError(f"an epoch has the steps 0 to {self.steps_per_epoch - 1}, not {step}")
        return self._finish(self.prepare(epoch, step))

    def stream(self, start: int = 0, stop: int | None = None) -> Iterator[Batch]:
        numbers = itertools.count(start) if stop is None else range(start, stop)
        others = active_children()
        parcels = self._parcels(numbers)
        workers = [child for child in active_children() if child not in others]
        try:
            for parcel in parcels:
                yield self._finish(parcel)
        finally:
            del parcels  # asks the workers to end, and waits a few seconds
            for worker in workers:
                worker.kill()  # of the others: they ignore SIGTERM, and an exit would wait for them

    def _parcels(self, numbers: Iterable[int]) -> Iterator[Parcel]:
        # More workers than cores only get in each other's way (and torch warns).
        workers = min(self.setting.config.workers, _cores())
        if workers and ray_was_used():
            warnings.warn(
                "Ray was used in this process, and its forks may crash: batches are prepared "
                "without workers; train in a new process to have them.",
                RuntimeWarning,
                stacklevel=2,
            )
            workers = 0
        if not workers:
            return (self.prepare(*divmod(number, self.steps_per_epoch)) for number in numbers)
        return iter(
            DataLoader(
                _Steps(self),
                batch_size=None,
                sampler=numbers,
                num_workers=workers,
                prefetch_factor=_AHEAD,
                pin_memory=self.setting.on_gpu(),
                worker_init_fn=_start_worker,
                # Transforms and tokenizers often cannot be pickled; workers touch no device.
                multiprocessing_context="fork" if sys.platform == "linux" else None,
            )
        )

    def _finish(self, parcel: Parcel) -> Batch:
        self.problems.update(parcel.problems)
        return self.finish(parcel.content)


class _Steps(Dataset[Parcel]):
    def __init__(self, data: Stepwise) -> None:
        self.data = data

    def __getitem__(self, number: int) -> Parcel:
        return self.data.prepare(*divmod(number, self.data.steps_per_epoch))


def _cores() -> int:
    known = hasattr(os, "sched_getaffinity")
    return len(os.sched_getaffinity(0)) if known else os.cpu_count() or 1


def _start_worker(number: int) -> None:
    del number
    os.environ["TOKENIZERS_PARALLELISM"] = "false"  # its threads do not survive a fork
    let_driver_first()
    # The whole process group gets a stop; the training process is the one that acts on it.
    for stop in (signal.SIGINT, signal.SIGTERM):
        signal.signal(stop, signal.SIG_IGN)


def cut_padding(tokens: torch.Tensor, pad: int) -> torch.Tensor:
    """Token ids (n, context) without the columns that are padding for all."""
    used = (tokens != pad).any(dim=0).nonzero()
    return tokens[:, : int(used.max()) + 1] if len(used) else tokens[:, :1]


@contextmanager
def seeded() -> Iterator[Callable[[int], None]]:
    """Transforms draw from the states of torch and Python: gives a way to seed both for an image.

    The states are put back at the end: training's own chance does not depend on where images were
    prepared.
    """
    states = torch.get_rng_state(), random.getstate()

    def seed(number: int) -> None:
        torch.default_generator.manual_seed(number)
        random.seed(number)

    try:
        yield seed
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
