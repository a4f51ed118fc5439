"""Where batches are computed. `Here` is this process; other places have the same two methods.

Images are read, decoded and preprocessed in threads, several batches ahead. A model on a GPU takes
batches in lanes: threads with a stream each, so that one batch is copied while another is computed,
and the device never waits for a result to be stored. All other models compute in the thread that
asks for the result: it can be interrupted there.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from counterpoint._util.errors import ImageError
from counterpoint.images import Picture
from counterpoint.scoring.kinds import RefusedInputsError

T = TypeVar("T")
R = TypeVar("R")
# Reading waits for the disk and decoding releases the interpreter: more threads than cores.
READERS: Final = max(4, min(32, os.cpu_count() or 4))
# Methods of models; of ENCODE_IMAGES, the arguments here are pictures.
ENCODE_IMAGES, ENCODE_CAPTIONS = "encode_images", "encode_captions"
_SIZES: Final = (32, 64, 128, 256, 512, 1024, 2048)  # batch sizes that are tried
_NEARLY: Final = 0.97  # of the best rate: then the smaller batch is preferred
_TRIES: Final = 4  # batches of each size


class Outcome(NamedTuple):
    """The results of the inputs that were computed, in order, and why others were not.

    Numbers of inputs: `refused` by the model, `broken` if their image cannot be opened.
    """

    values: np.ndarray
    refused: dict[int, str]
    broken: dict[int, str]


class Job(Protocol):
    """A batch that is being computed."""

    def result(self) -> Outcome: ...

    def cancel(self) -> object: ...


class Workers(Protocol):
    """Computes batches of one model.

    `ahead` of them are submitted before a result is asked for. Results are stored when the last
    were stored `patience` seconds ago: a commit waits for the disk.
    """

    ahead: int
    patience: float

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> Job:
        """Compute a method of the model with lists as arguments."""

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        """The batch size that is fast for items like this one; None if any size is as good."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *error: object) -> None: ...


@runtime_checkable
class Laned(Protocol):
    """A model that computes several batches at a time, in threads: one on a GPU."""

    lanes: int
    device: str  # a name of the hardware


@runtime_checkable
class FileReader(Protocol):
    """A model that may decode image files itself."""

    reads_files: bool

    def preprocess_file(self, data: bytes) -> Any:
        """The file as `encode_images` takes it, None if it is one that has to be opened here."""


@runtime_checkable
class Distributed(Protocol):
    """A model that is computed elsewhere: it brings its workers."""

    workers: Workers


def workers_of(model: object) -> Workers:
    return model.workers if isinstance(model, Distributed) else Here(model)


class Here:
    """Computes in this process."""

    def __init__(self, model: Any, *, threaded: bool = False) -> None:
        """`threaded`: even a model without lanes computes in a thread of its own."""
        self.model = model
        lanes = max(model.lanes if isinstance(model, Laned) else 0, int(threaded))
        self.ahead, self.patience = lanes + 2, 0.1 if lanes else 0.0
        self._lanes = ThreadPoolExecutor(lanes) if lanes else None
        self._readers = ThreadPoolExecutor(READERS)

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> Job:
        job: Callable[[], Outcome]
        if task == ENCODE_IMAGES:
            read = [self._readers.submit(self._read, picture) for picture in columns[0]]
            job = partial(self._see, read)
        else:
            job = partial(compute, self.model, task, columns)
        return _Later(job) if self._lanes is None else self._lanes.submit(job)

    def _read(self, picture: Picture) -> Any:
        """The image as the model takes it, or the error."""
        try:
            if isinstance(self.model, FileReader) and self.model.reads_files:
                data = picture.read()
                prepared = None if data is None else self.model.preprocess_file(data)
                if prepared is not None:
                    return prepared
            return self.model.preprocess(picture.open())
        except ImageError as error:
            return error

    def _see(self, read: Sequence[Future[Any]]) -> Outcome:
        found = [future.result() for future in read]
        broken = {n: str(error) for n, error in enumerate(found) if isinstance(error, ImageError)}
        images = [image for image in found if not isinstance(image, ImageError)]
        values = self.model.encode_images(images) if images else np.empty((0, 0), np.float32)
        return Outcome(values, {}, broken)

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        if not isinstance(self.model, Laned) or not self.model.lanes:
            return None
        model: Any = self.model
        argument = self._read(item[0]) if task == ENCODE_IMAGES else item[0]
        best, rates = 0.0, dict[int, float]()
        for size in _SIZES:
            try:
                rates[size] = self._rate(getattr(model, task), [argument] * size)
            except MemoryError:
                break
            if rates[size] < _NEARLY * best:
                break  # beyond the best size it only gets slower
            best = max(best, rates[size])
        return next((size for size, rate in rates.items() if rate >= _NEARLY * best), None)

    def _rate(self, function: Callable[[list[Any]], np.ndarray], items: list[Any]) -> float:
        """Items per second, of several batches at a time as in the run."""
        assert self._lanes is not None
        list(self._lanes.map(function, [items] * 2))  # the first call of a size is slow
        start = time.perf_counter()
        list(self._lanes.map(function, [items] * _TRIES))
        return _TRIES * len(items) / (time.perf_counter() - start)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for pool in (self._readers, self._lanes):
            if pool is not None:
                pool.shutdown(wait=True, cancel_futures=True)


class _Later:
    """Computes when the result is asked for, in the thread that asks."""

    def __init__(self, job: Callable[[], Outcome]) -> None:
        self.result = job

    def cancel(self) -> bool:
        return True


def compute(model: Any, task: str, columns: Sequence[Sequence[Any]]) -> Outcome:
    """Of models that open their images themselves, too: a broken one costs its own items only."""
    try:
        return Outcome(np.asarray(getattr(model, task)(*columns)), {}, {})
    except RefusedInputsError as error:
        return Outcome(np.asarray(error.values), dict(error.reasons), {})
    except ImageError:
        broken = _broken(columns[0])
        if not broken:
            raise
    kept = [n for n in range(len(columns[0])) if n not in broken]
    if not kept:
        return Outcome(np.empty(0, np.float32), {}, broken)
    rest = compute(model, task, [[column[n] for n in kept] for column in columns])
    return Outcome(
        rest.values,
        {kept[n]: why for n, why in rest.refused.items()},
        broken | {kept[n]: why for n, why in rest.broken.items()},
    )


def _broken(pictures: Sequence[Picture]) -> dict[int, str]:
    """Which pictures cannot be opened, and why."""
    reasons: dict[Picture, str | None] = {}
    for picture in dict.fromkeys(pictures):
        try:
            picture.open()
        except ImageError as error:
            reasons[picture] = str(error)
    return {n: why for n, p in enumerate(pictures) if (why := reasons.get(p)) is not None}


def in_threads(function: Callable[[T], R], items: Sequence[T]) -> Iterator[R]:
    """`map` in worker threads, in order, with a bounded number of results waiting."""
    with ThreadPoolExecutor(READERS) as pool:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) >= 4 * READERS:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()
