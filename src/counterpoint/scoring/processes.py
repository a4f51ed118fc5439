"""Batches computed by other processes: one for each device of this machine, or actors of Ray.

Batches are cut by the driver as for one device and their results are stored in the same order, so
the store holds the same bytes. A process begins with a batch as soon as it gets it: it decodes and
computes several at a time, as `Here` does. A process that dies is replaced, and what it had not
answered is computed again.

Ray does that itself for its actors, on this machine or on a cluster. An actor gets batches once it
has loaded the model, so that one for which the cluster has no room holds nothing up. Only the
driver touches the store, which so never lies on a network file system. Actors open images
themselves: the data folder has to be at the same path on every machine.
"""

from __future__ import annotations

import itertools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection
from typing import Any, Final, NamedTuple, Self

from PIL import Image

from counterpoint._util.errors import ModelError
from counterpoint._util.processes import DEATHS, WorkerFailure, end_with_parent, failure, starting
from counterpoint._util.untrusted import shortened
from counterpoint.scoring.kinds import (
    BlindScorer,
    Described,
    DualEncoder,
    Model,
    PairScorer,
    check_kind,
)
from counterpoint.scoring.workers import Computed, Here, Job, Laned, Later

Load = Callable[[], Model]
Columns = Sequence[Sequence[Any]]
_KINDS: Final = (DualEncoder, PairScorer, BlindScorer)


class ModelFacts(NamedTuple):
    """What a driver has to know of a model that is loaded elsewhere."""

    kind: str  # the name of a Protocol; empty if the model cannot be distributed
    fingerprint: str
    context_length: int | None
    described: dict[str, Any]
    lanes: int
    device: str


# --- in the other process ------------------------------------------------------------------------


def _answer(task: Callable[[], Any]) -> Any:
    """Errors are returned: one that cannot be unpickled would end the driver's wait."""
    try:
        return task()
    except Exception as error:
        return failure(error)


def _call(here: Here, method: str, *arguments: Any) -> Any:
    """The model's facts, a method of its workers or of itself, or one that takes opened images."""
    model: Any = here.model
    if method == "facts":
        return _facts_of(model)
    if method == "tune":
        return here.tune(*arguments)
    if method == "encode_opened":
        return model.encode_images([model.preprocess(image) for image in arguments[0]])
    return getattr(model, method)(*arguments)


def _facts_of(model: Model) -> ModelFacts:
    check_kind(model)
    lanes, device = (model.lanes, model.device) if isinstance(model, Laned) else (0, "")
    return ModelFacts(
        next((kind.__name__ for kind in _KINDS if isinstance(model, kind)), ""),
        model.fingerprint,
        getattr(model, "context_length", None),
        dict(model.describe()) if isinstance(model, Described) else {},
        lanes,
        device,
    )


def _serve(connection: Connection, load: Load, share: int) -> None:
    """Answers requests until the driver ends: batches when they are computed, all else at once."""
    end_with_parent()
    sending = threading.Lock()

    def send(number: int, task: Callable[[], Any]) -> None:
        answer = _answer(task)
        with sending, suppress(OSError):  # the driver is gone
            try:
                connection.send((number, answer))
            except (TypeError, AttributeError, ValueError) as error:  # it cannot be pickled
                connection.send((number, failure(error)))

    here = _answer(lambda: Here(load(), threaded=True, share=share))
    while True:
        number, method, arguments = connection.recv()
        if isinstance(here, WorkerFailure):
            send(number, lambda: here)
        elif method == "submit":
            job: Any = here.submit(*arguments)
            job.add_done_callback(lambda job, number=number: send(number, job.result))
        else:
            send(number, partial(_call, here, method, *arguments))


# --- in the driver -------------------------------------------------------------------------------


class _Elsewhere(ABC):
    """Workers, and the model that they have loaded: `facts`. Closed by `close`, not by a `with`."""

    facts: ModelFacts
    begun: dict[int, int]  # by the number of a worker: its batches whose results are not taken

    @abstractmethod
    def call(self, method: str, *arguments: Any) -> Any:
        """What a worker answers."""

    @abstractmethod
    def begin(self, number: int, task: str, columns: Columns) -> Callable[[], Computed]:
        """Give a worker a batch; returns what waits for its results."""

    def submit(self, task: str, columns: Columns) -> Job:
        number = min(self.begun, key=self.begun.__getitem__)
        self.begun[number] += 1
        wait, open_here = self.begin(number, task, columns), [number]

        def end() -> None:
            while open_here:
                self.begun[open_here.pop()] -= 1

        def result() -> Computed:
            try:
                return wait()
            finally:
                end()

        return Later(result, end)

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        found: int | None = self.call("tune", task, item)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        del error  # the model stays loaded: there may be more to compute


class Processes(_Elsewhere):
    """A process for each way of loading the model, which name its device."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self._processes = [_Process(loads[0], len(loads))]
        self._turns, self.begun = itertools.count(), dict.fromkeys(range(len(loads)), 0)
        try:
            self.facts = self.call("facts")
            if self.facts.kind:  # else it cannot be distributed
                self._processes += [_Process(load, len(loads)) for load in loads[1:]]
        except BaseException:
            self.close()
            raise
        self.ahead, self.patience = len(loads) * (max(self.facts.lanes, 1) + 2), 0.1

    def begin(self, number: int, task: str, columns: Columns) -> Callable[[], Computed]:
        return self._processes[number].ask("submit", task, columns).result

    def call(self, method: str, *arguments: Any) -> Any:
        process = self._processes[next(self._turns) % len(self._processes)]
        return process.ask(method, *arguments).result()

    def close(self) -> None:
        for process in self._processes:
            process.close()


class _Process:
    """A process with a model, and what it was asked and has not answered.

    A thread takes its answers, and starts another process where it died.
    """

    def __init__(self, load: Load, share: int) -> None:
        self._load, self._share, self._deaths = load, share, 0
        self._numbers, self._lock = itertools.count(), threading.Lock()
        self._asked: dict[int, tuple[Any, Future[Any]]] = {}
        self._closed = False
        self._start()
        self._listener = threading.Thread(target=self._listen, daemon=True)
        self._listener.start()

    def _start(self) -> None:
        context = get_context("spawn")
        self._connection, theirs = context.Pipe()
        arguments = (theirs, self._load, self._share)
        self._process = context.Process(target=_serve, args=arguments, daemon=True)
        with starting():
            self._process.start()
        theirs.close()

    def ask(self, method: str, *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()  # an answer always finds it
        number = next(self._numbers)
        request = number, method, arguments
        with self._lock:  # not of the listener: a process that cannot answer takes no request
            if self._deaths > DEATHS:
                raise _worker_died("--devices")
            self._asked[number] = request, future
            with suppress(OSError):  # it died: the next one is asked
                self._connection.send(request)
        return future

    def _listen(self) -> None:
        while not self._closed and self._deaths <= DEATHS:
            try:
                number, answer = self._connection.recv()
            except (EOFError, OSError):
                self._replace()
                continue
            self._deaths = 0
            _, future = self._asked.pop(number)
            if isinstance(answer, WorkerFailure):
                future.set_exception(answer.error())
            else:
                future.set_result(answer)

    def _replace(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._deaths += 1
            if self._deaths > DEATHS:
                while self._asked:
                    _, future = self._asked.popitem()[1]
                    future.set_exception(_worker_died("--devices"))
                return
            self._connection.close()
            self._process.join()
            self._start()
            with suppress(OSError):  # the listener will find that it died again
                for request, _ in list(self._asked.values()):
                    self._connection.send(request)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._process.kill()  # it has nothing to lose
        self._process.join()
        self._listener.join()
        self._connection.close()


def _worker_died(option: str) -> ModelError:
    return ModelError(
        "E-WORKER-DIED",
        f"a worker process died {DEATHS + 1} times in a row, probably out of memory; run the same "
        f"command again with a smaller --batch-size or fewer {option}.",
    )


# --- actors of Ray -------------------------------------------------------------------------------

_AT_A_TIME: Final = 4  # batches of an actor: some are decoded while one is computed


class _Actor:
    """A loaded model in a process of Ray. Errors are returned: Ray would wrap them."""

    def __init__(self, load: Load, folder: str) -> None:
        self.load, self.folder, self.lock = load, folder, threading.Lock()
        self.here: Here | None = None

    def compute(self, task: str, columns: Columns) -> Any:
        return _answer(lambda: self._opened().submit(task, columns).result())

    def call(self, method: str, *arguments: Any) -> Any:
        return _answer(lambda: _call(self._opened(), method, *arguments))

    def _opened(self) -> Here:
        with self.lock:
            if self.here is None:
                os.chdir(self.folder)
                self.here = Here(self.load(), threaded=True)
            return self.here


class RayWorkers(_Elsewhere):
    """Workers on a cluster that this process has joined, and the facts of their model."""

    def __init__(self, ray: Any, load: Load, count: int, gpus: int, folder: str) -> None:
        self._ray = ray
        actor = ray.remote(_Actor).options(
            num_cpus=1,
            num_gpus=gpus,
            max_concurrency=_AT_A_TIME,
            max_restarts=-1,
            max_task_retries=DEATHS,
        )
        self._actors = [actor.remote(load, folder) for _ in range(count)]
        self._loading = {one.call.remote("facts"): n for n, one in enumerate(self._actors)}
        self.begun = {}  # of the actors that are ready
        self.ahead, self.patience = 0, 0.1
        try:
            self.facts = self._welcome(None)[0]
        except BaseException:
            self.close()
            raise

    def _welcome(self, patience: float | None) -> list[ModelFacts]:
        """What actors say that are ready now; they get batches from here on."""
        ready = self._ray.wait(list(self._loading), timeout=patience)[0] if self._loading else []
        found = []
        for reference in ready:
            found.append(self._get(reference))
            self.begun[self._loading.pop(reference)] = 0
        self.ahead = len(self.begun) * _AT_A_TIME
        return found

    def submit(self, task: str, columns: Columns) -> Job:
        self._welcome(0)
        return super().submit(task, columns)

    def begin(self, number: int, task: str, columns: Columns) -> Callable[[], Computed]:
        return partial(self._get, self._actors[number].compute.remote(task, columns))

    def call(self, method: str, *arguments: Any) -> Any:
        return self._get(self._actors[next(iter(self.begun))].call.remote(method, *arguments))

    def _get(self, reference: Any) -> Any:
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            if not error.actor_init_failed:
                raise _worker_died("--workers") from None
            raise ModelError(
                "E-WORKER-DIED",
                f"a worker cannot start: {shortened(str(error).splitlines()[-1]).rstrip('.')}; all "
                "machines of a cluster need the same packages.",
            ) from None
        if isinstance(found, WorkerFailure):
            raise found.error()
        return found

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)


# --- the model in the driver ---------------------------------------------------------------------


class _DistantModel:
    """A model that is computed by workers elsewhere."""

    def __init__(self, workers: Any, facts: ModelFacts) -> None:
        self.workers, self.fingerprint = workers, facts.fingerprint
        self.context_length, self._described = facts.context_length, facts.described
        self.lanes, self.device = facts.lanes, facts.device

    def describe(self) -> dict[str, Any]:
        return self._described


def _distant(method: str) -> Callable[..., Any]:
    """A method that is called with lists, where the model is."""

    def call_there(model: _DistantModel, *columns: Sequence[Any]) -> Any:
        return model.workers.call(method, *map(list, columns))

    return call_there


class _DistantDual(_DistantModel):
    def preprocess(self, image: Image.Image) -> Image.Image:
        return image

    encode_images = _distant("encode_opened")
    count_tokens = _distant("count_tokens")
    encode_captions = _distant("encode_captions")


class _DistantPairs(_DistantModel):
    score_pairs = _distant("score_pairs")


class _DistantBlind(_DistantModel):
    score_captions = _distant("score_captions")


_DISTANT: Final[dict[str, Callable[[Any, ModelFacts], Model]]] = {
    "DualEncoder": _DistantDual,
    "PairScorer": _DistantPairs,
    "BlindScorer": _DistantBlind,
}


def distributed(workers: Any) -> Model | None:
    """The model of some workers; None if it is of a kind that has to be in one place."""
    facts: ModelFacts = workers.facts
    return _DISTANT[facts.kind](workers, facts) if facts.kind else None
