"""Training data: how they are opened (`Setting`), and what the loop gets (`TrainingData`).

    data = open_data(Setting(config, preprocess, tokenize, batch=256, seed=0))
    for batch in data.stream(start=step):   # from that step on, epoch after epoch, without end
        ...

A step's batch is a pure function of the data, the seed and the step's number. So a run that was
stopped continues with `stream(start)`: there is no state of a sampler to keep. Ranks take
consecutive, disjoint parts of each batch: joined in the order of the ranks they are the batch of
one process.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import sys
import warnings
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing import active_children
from typing import Any, Final, NamedTuple

import torch
from PIL.Image import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from counterpoint._util.errors import DataError
from counterpoint._util.processes import let_driver_first, ray_was_used
from counterpoint._util.progress import Progress, Quiet
from counterpoint.images import Picture
from counterpoint.training.batches import Batch
from counterpoint.training.locking import LockedImages
from counterpoint.training.recipe import DataConfig
from counterpoint.world import Tokenize

Preprocess = Callable[[Image], Tensor]  # a picture to (3, H, W)
_AHEAD: Final = 2  # batches that each worker may have ready


# --- what the data had to leave out or replace ---------------------------------------------------
#
# Counted by kind, with a few examples of each. A data set of millions of samples may have as many
# broken ones, and every checkpoint holds these counts: they must not grow with the data.


UNREADABLE: Final = "samples that cannot be read: replaced by another sample"
NO_IMAGE: Final = "images of negatives that cannot be read: the negative has none"
_EXAMPLES: Final = 3


@dataclass(slots=True)
class Problems:
    """Counts, and the alphabetically first examples: so they are the same for any number of
    processes, and after a restart."""

    counts: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def add(self, kind: str, *examples: str, count: int = 1) -> None:
        self.counts[kind] += count
        if examples:
            kept = {*self.examples.get(kind, ()), *examples}
            self.examples[kind] = sorted(kept)[:_EXAMPLES]

    def update(self, other: Problems) -> None:
        for kind, count in other.counts.items():
            self.add(kind, *other.examples.get(kind, ()), count=count)

    def clear(self) -> None:
        self.counts.clear()
        self.examples.clear()

    def told(self) -> dict[str, int]:
        """How often each kind was met; the kind with its examples, as a line to print."""
        told = {}
        for kind, count in self.counts.items():
            some = " ".join(self.examples.get(kind, ()))
            told[f"{kind}, for instance: {some}" if some else kind] = count
        return told

    def as_json(self) -> dict[str, Any]:
        return {"counts": dict(self.counts), "examples": self.examples}

    @classmethod
    def of(cls, saved: Mapping[str, Any]) -> Problems:
        """From a checkpoint, as `as_json` gave them."""
        return cls(Counter(saved["counts"]), dict(saved["examples"]))


# --- how data are opened ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Setting:
    """How data are opened.

    `batch` is the whole batch of all ranks. `preprocess` and `tokenize` are the model's;
    `preprocess` may augment: the random state is seeded for every image. If it is a torchvision
    `Compose`, its end runs on the GPU, and batches are a quarter as large on their way. `pad` is
    the tokenizer's padding: all texts of a batch are cut after the longest of them, unless `cut`
    is False. The last, incomplete batch of an epoch is dropped (in other epochs it holds other
    samples), unless the data is to be seen as a `whole`. `see` looks at all images now: batches
    then hold what a locked trunk makes of them, and no image is opened later.
    """

    config: DataConfig
    preprocess: Preprocess
    tokenize: Tokenize
    batch: int
    seed: int
    rank: int = 0
    world_size: int = 1
    device: torch.device | str = "cpu"
    pad: int = 0
    cut: bool = True
    whole: bool = False
    progress: Progress = field(default_factory=Quiet)
    see: Callable[[Sequence[Picture]], LockedImages] | None = None

    def on_gpu(self) -> bool:
        return str(self.device).startswith("cuda")


# --- from step numbers to batches: in this process, or ahead of time in worker processes ----------


class Parcel(NamedTuple):
    """What a worker sends: a batch (or what one is drawn from), and what went wrong."""

    content: Any
    problems: Problems


class TrainingData(ABC):
    """Batches by number. `problems` says what was left out or replaced, and how often; `contents`
    has a digest of each part of the data that is read (images are not)."""

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
        """This rank's part of a step's batch, made here and now. `step` counts from 0."""
        return self._finish(self.prepare(epoch, step))

    def stream(self, start: int = 0, stop: int | None = None) -> Generator[Batch, None, None]:
        """The batches from step `start` (counted over all epochs) up to `stop`, made ahead.

        Worker processes prepare them; they come in order and equal `batch` bit for bit. Close the
        iterator, or drop it, to end the workers. If the device is a GPU, batches are on it already
        or in pinned memory.
        """
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

    def epoch_and_place(self, number: int) -> tuple[int, int]:
        """The epoch of a step and its place there. An epoch begins at place 0, with the data in a
        new order (`random_numbers.order`); the order depends on seed and epoch alone."""
        return divmod(number, self.steps_per_epoch)

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
            return itertools.starmap(self.prepare, map(self.epoch_and_place, numbers))
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
    def __init__(self, data: TrainingData) -> None:
        self.data = data

    def __getitem__(self, number: int) -> Parcel:
        return self.data.prepare(*self.data.epoch_and_place(number))


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
