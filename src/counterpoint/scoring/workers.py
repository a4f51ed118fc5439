"""Where batches are computed. `Here` is this process; other places have the same two methods.

Images are read, decoded and preprocessed in threads, several batches ahead. A model on a GPU takes
batches in lanes: threads with a stream each, so that one batch is copied while another is computed,
and the device never waits for a result to be stored. All other models compute in the thread that
asks for the result: it can be interrupted there.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from itertools import groupby
from typing import Any, BinaryIO, Final, NamedTuple, Protocol, Self, TypeVar, runtime_checkable

import numpy as np

from counterpoint._util.errors import ImageError
from counterpoint._util.processes import let_driver_first
from counterpoint.images import Picture
from counterpoint.scoring.kinds import RefusedInputsError

T = TypeVar("T")
R = TypeVar("R")
# Reading waits for the disk and decoding releases the interpreter: more threads than cores.
READERS: Final = max(4, min(32, os.cpu_count() or 4))
# Methods of models; of ENCODE_IMAGES, the arguments here are pictures.
ENCODE_IMAGES, ENCODE_CAPTIONS = "encode_images", "encode_captions"
_SIZES: Final = (32, 64, 128, 256, 512, 1024, 2048)  # batch sizes that are tried
_NEARLY: Final = 0.97  # of the best rate: as good
# Of sizes that are as good, the first from here on: a batch costs the driver the same work whatever
# its size, and beside readers of images that is work for cores that have none to spare.
_ENOUGH: Final = 256
_TRIES: Final = 4  # batches of each size
_LONG: Final = 3.0  # seconds for them: no larger size is tried
_MANY: Final = 1024  # images from which on processes read them
_CORES: Final = 4  # of a machine on which that pays


class Computed(NamedTuple):
    """The results of the inputs that were computed, in order, and why others were not.

    Numbers of inputs: `refused` by the model, `broken` if their image cannot be opened, `unread`
    if they have a value although the model's answers to them cannot be read.
    """

    values: np.ndarray
    refused: dict[int, str]
    broken: dict[int, str]
    unread: Mapping[int, Sequence[str]] = {}


class Job(Protocol):
    """A batch that is being computed."""

    def result(self) -> Computed: ...
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
class Reading(Protocol):
    """A model whose images can be read in other processes, by a function that can be pickled."""

    reader: Callable[[Picture], np.ndarray] | None  # None if it cannot, after all


@runtime_checkable
class Distributed(Protocol):
    """A model that is computed elsewhere: it brings its workers."""

    workers: Workers


def workers_of(model: object, images: int = 0) -> Workers:
    """`images`: how many will have to be read at most."""
    return model.workers if isinstance(model, Distributed) else Here(model, images=images)


class Here:
    """Computes in this process."""

    def __init__(
        self, model: Any, *, threaded: bool = False, images: int = _MANY, share: int = 1
    ) -> None:
        """`threaded`: even a model without lanes computes in a thread of its own. `images`: how
        many will have to be read at most. `share`: how many processes share this machine."""
        self.model = model
        lanes = max(model.lanes if isinstance(model, Laned) else 0, int(threaded))
        self.ahead, self.patience = lanes + 2, 0.1 if lanes else 0.0
        self._lanes = ThreadPoolExecutor(lanes) if lanes else None
        self._cores = max(2, READERS // share)
        self._threads = ThreadPoolExecutor(self._cores)
        self._on_gpu = isinstance(model, Laned) and model.lanes > 0
        self._processes: ReaderProcesses | None = None
        self._many = images >= _MANY

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> Job:
        job: Callable[[], Computed]
        if task == ENCODE_IMAGES:
            job = partial(self._see, columns[0], self._reading(columns[0]))
        else:
            job = partial(compute, self.model, task, columns)
        return Later(job) if self._lanes is None else self._lanes.submit(job)

    def _reading(self, pictures: Sequence[Picture]) -> list[Future[list[Any]]]:
        """Images as the model takes them, in pieces, or the errors of those that are broken.

        Beside a GPU, many images are read by processes, which take a second or two to start.
        """
        # Asked for here, because a model may have to be loaded for it.
        reader = self.model.reader if isinstance(self.model, Reading) else None
        if reader is None or not (self._many and self._on_gpu and READERS >= _CORES):
            read = reader or (lambda picture: self.model.preprocess(picture.open()))
            return [self._threads.submit(read_all, read, [picture]) for picture in pictures]
        if self._processes is None:
            self._processes = ReaderProcesses(reader, self._cores)
        self.ahead = max(self.ahead, self._processes.enough(len(pictures)))
        return self._processes.submit(pictures)

    def _see(self, pictures: Sequence[Picture], reading: Sequence[Future[list[Any]]]) -> Computed:
        try:
            return self._encoded([image for future in reading for image in future.result()])
        except ImageError:  # a file for the device's decoder that cannot be decoded at all
            return self._encoded(read_all(lambda p: self.model.preprocess(p.open()), pictures))

    def _encoded(self, found: Sequence[Any]) -> Computed:
        broken = {n: str(error) for n, error in enumerate(found) if isinstance(error, ImageError)}
        images = [image for image in found if not isinstance(image, ImageError)]
        values = self.model.encode_images(images) if images else np.empty((0, 0), np.float32)
        return Computed(values, {}, broken)

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        if not isinstance(self.model, Laned) or not self.model.lanes:
            return None
        model: Any = self.model
        argument = item[0]
        if task == ENCODE_IMAGES:
            [argument] = self._reading(item)[0].result()
        best, rates = 0.0, dict[int, float]()
        for size in _SIZES:
            try:
                rates[size] = self._rate(getattr(model, task), [argument] * size)
            except MemoryError:
                break
            # Beyond the best size it only gets slower, and on a slow device trying is not free.
            if rates[size] < _NEARLY * best or _TRIES * size / rates[size] > _LONG:
                break
            best = max(best, rates[size])
        good = [size for size, rate in rates.items() if rate >= _NEARLY * best]
        return next((size for size in good if size >= _ENOUGH), good[-1] if good else None)

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
        for pool in (self._threads, self._lanes):
            if pool is not None:
                pool.shutdown(wait=False, cancel_futures=True)
        if self._processes is not None:
            self._processes.close()
        for pool in (self._threads, self._lanes):
            if pool is not None:
                pool.shutdown()


class Later(NamedTuple):
    """A job that is done when its result is asked for, in the thread that asks."""

    result: Callable[[], Computed]
    cancel: Callable[[], object] = lambda: True


def compute(model: Any, task: str, columns: Sequence[Sequence[Any]]) -> Computed:
    """Of models that open their images themselves, too: a broken one costs its own items only."""
    try:
        return Computed(np.asarray(getattr(model, task)(*columns)), {}, {})
    except RefusedInputsError as error:
        return Computed(np.asarray(error.values), dict(error.reasons), {}, error.unread)
    except ImageError:
        broken = _broken(columns[0])
        if not broken:
            raise
    kept = [n for n in range(len(columns[0])) if n not in broken]
    if not kept:
        return Computed(np.empty(0, np.float32), {}, broken)
    rest = compute(model, task, [[column[n] for n in kept] for column in columns])
    return Computed(
        rest.values,
        {kept[n]: why for n, why in rest.refused.items()},
        broken | {kept[n]: why for n, why in rest.broken.items()},
        {kept[n]: said for n, said in rest.unread.items()},
    )


def _broken(pictures: Sequence[Picture]) -> dict[int, str]:
    """Which pictures cannot be opened, and why."""
    reasons = {picture: failure_of(picture) for picture in dict.fromkeys(pictures)}
    return {n: why for n, p in enumerate(pictures) if (why := reasons[p]) is not None}


def failure_of(picture: Picture) -> str | None:
    """Why a picture cannot be opened; None if it can."""
    try:
        picture.open()
    except ImageError as error:
        return str(error)
    return None


def once(items: Sequence[T]) -> tuple[list[T], list[int]]:
    """The different items, and each item's place among them."""
    numbers = {item: number for number, item in enumerate(dict.fromkeys(items))}
    return list(numbers), [numbers[item] for item in items]


def in_threads(
    function: Callable[[T], R], items: Sequence[T], threads: int = READERS
) -> Iterator[R]:
    """`map` in worker threads, in order, with a bounded number of results waiting."""
    with ThreadPoolExecutor(threads) as pool:
        pending: deque[Future[R]] = deque()
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) >= 8 * threads:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


# --- processes that read images ------------------------------------------------------------------

_CHUNK: Final = 16  # images that travel together
_DEEP: Final = 3  # chunks for each process: one that is read, the others so that it need not wait
Reads = Callable[[Any], np.ndarray]  # a picture as bytes; raises ImageError


class ReaderProcesses:
    """Processes that read images beside a GPU: threads of one decode less than half as much.

    Each thread of a pool has a process of its own and waits for it. They are started as programs of
    their own, with the reader on their standard input, so that a script that evaluates needs no
    guard around its main part. Each ends when its input ends.
    """

    def __init__(self, reads: Reads, count: int) -> None:
        self._reads = pickle.dumps(reads)
        self._mine = threading.local()
        self._started: list[subprocess.Popen[bytes]] = []
        self._pool = ThreadPoolExecutor(count)
        self._count = count

    def enough(self, batch: int) -> int:
        """How many batches of this size keep all processes busy."""
        return -(-_DEEP * self._count * _CHUNK // batch)

    def submit(self, pictures: Sequence[Picture]) -> list[Future[list[Any]]]:
        """The images in order, in pieces; an ImageError in the place of each that is broken."""
        return [self._pool.submit(self._ask, chunk) for chunk in _chunks(pictures)]

    def _ask(self, pictures: list[Any]) -> list[Any]:
        for last in (False, True):
            process = self._process()
            try:
                return _answer(process, pictures)
            except (EOFError, OSError, pickle.UnpicklingError):  # it died
                process.kill()
                process.wait()
                del self._mine.process
                if last:
                    raise
        raise AssertionError

    def _process(self) -> subprocess.Popen[bytes]:
        if not hasattr(self._mine, "process"):
            process = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
                start_new_session=True,  # Ctrl-C is for the driver
            )
            self._started.append(process)
            assert process.stdin is not None
            process.stdin.write(self._reads)
            process.stdin.flush()
            self._mine.process = process
        found: subprocess.Popen[bytes] = self._mine.process
        return found

    def close(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        for process in self._started:
            process.kill()
        self._pool.shutdown()
        for process in self._started:
            process.communicate()


def _chunks(pictures: Sequence[Picture]) -> Iterator[list[Picture]]:
    """Images that travel together. Neighbours of one photograph do, unless they are too many."""
    chunk: list[Picture] = []
    for _, group in groupby(pictures, key=lambda picture: picture.photograph):
        crops = list(group)
        if len(chunk) + len(crops) > _CHUNK and chunk:
            yield chunk
            chunk = []
        chunk += crops
        while len(chunk) >= _CHUNK:
            yield chunk[:_CHUNK]
            chunk = chunk[_CHUNK:]
    if chunk:
        yield chunk


def _answer(process: subprocess.Popen[bytes], pictures: list[Any]) -> list[Any]:
    assert process.stdin is not None and process.stdout is not None
    pickle.dump(pictures, process.stdin, protocol=5)
    process.stdin.flush()
    stacked, rest = pickle.load(process.stdout)
    values = iter(stacked)
    return [next(values) if each is None else each for each in rest]


def read_all(reads: Reads, pictures: Sequence[Any]) -> list[Any]:
    """Images, with an ImageError in the place of each that is broken."""
    found: list[Any] = []
    for picture in pictures:
        try:
            found.append(reads(picture))
        except ImageError as error:
            found.append(error)
    return found


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """In the other process. Images of one shape travel as one array."""
    reads = pickle.load(requests)
    while True:
        try:
            pictures = pickle.load(requests)
        except EOFError:
            return
        found = read_all(reads, pictures)
        shapes = [one.shape for one in found if isinstance(one, np.ndarray)]
        stacked: Any = ()
        if shapes and all(shape == shapes[0] for shape in shapes):
            stacked = np.stack([one for one in found if isinstance(one, np.ndarray)])
            found = [None if isinstance(one, np.ndarray) else one for one in found]
        pickle.dump((stacked, found), answers, protocol=5)
        answers.flush()


if __name__ == "__main__":
    let_driver_first()
    serve(sys.stdin.buffer, sys.stdout.buffer)
