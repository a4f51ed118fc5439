"""Batches computed by other processes: one for each device of this machine, or actors of Ray.

Batches are cut by the driver as for one device and their results are stored in the same order, so
the store holds the same bytes. A process begins with a batch as soon as it gets it: it decodes and
computes several at a time, as `Here` does. A process that dies is replaced, and what it had begun
is computed again.

Ray does that itself for its actors, on this machine or on a cluster. An actor gets batches once it
has loaded the model, so that one for which the cluster has no room holds nothing up. Only the
driver touches the store, which so never lies on a network file system. Actors open images
themselves: the data folder has to be at the same path on every machine.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
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
from counterpoint.scoring.workers import Computed, Here, Laned

Load = Callable[[], Model]
_KINDS: Final = (DualEncoder, PairScorer, BlindScorer)


class ModelFacts(NamedTuple):
    """What a driver has to know of a model that is loaded elsewhere."""

    kind: str  # the name of a Protocol; empty if the model cannot be distributed
    fingerprint: str
    context_length: int | None
    described: dict[str, Any]
    lanes: int
    device: str


def facts_of(model: Model) -> ModelFacts:
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


# --- in the other process ------------------------------------------------------------------------

_loaded: dict[str, Here] = {}
_begun: dict[int, Any] = {}


def _answer(task: Callable[..., Any], *arguments: Any) -> Any:
    """Errors are returned: one that cannot be unpickled would break the pool."""
    try:
        return task(*arguments)
    except Exception as error:
        return failure(error)


def _load(load: Load, share: int) -> None:
    _loaded["here"] = Here(load(), threaded=True, share=share)


def _facts() -> ModelFacts:
    return facts_of(_loaded["here"].model)


def _begin(number: int, task: str, columns: Sequence[Sequence[Any]]) -> None:
    _begun[number] = _loaded["here"].submit(task, columns)


def _finish(number: int) -> Computed:
    found: Computed = _begun.pop(number).result()
    return found


def _forget(number: int) -> None:
    _begun.pop(number, None)


def _call(method: str, *arguments: Any) -> Any:
    return call(_loaded["here"], method, *arguments)


def call(here: Here, method: str, *arguments: Any) -> Any:
    """A method of the model, of its workers, or one that takes opened images."""
    if method == "tune":
        return here.tune(*arguments)
    if method == "encode_opened":
        [images] = arguments
        return here.model.encode_images([here.model.preprocess(image) for image in images])
    return getattr(here.model, method)(*arguments)


# --- in the driver -------------------------------------------------------------------------------


class _Elsewhere:
    """Workers, and the model that they have loaded: `facts`. Closed by `close`, not by a `with`."""

    facts: ModelFacts

    def call(self, method: str, *arguments: Any) -> Any:
        raise NotImplementedError

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        found: int | None = self.call("tune", task, item)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """The model stays loaded: there may be more to compute."""


class Processes(_Elsewhere):
    """A process for each way of loading the model, which name its device."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self._slots = [_Slot(loads[0], len(loads))]
        self._numbers, self._turns = itertools.count(), itertools.count()
        try:
            self.facts = self._slots[0].facts()
            if self.facts.kind:  # else it cannot be distributed
                self._slots += [_Slot(load, len(loads)) for load in loads[1:]]
        except BaseException:
            self.close()
            raise
        self.ahead, self.patience = len(loads) * (max(self.facts.lanes, 1) + 2), 0.1

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> _Distant:
        slot = min(self._slots, key=lambda slot: len(slot.begun))
        number = next(self._numbers)
        slot.begin(number, (task, columns))
        return _Distant(slot, number)

    def call(self, method: str, *arguments: Any) -> Any:
        return self._slots[next(self._turns) % len(self._slots)].call(method, *arguments)

    def close(self) -> None:
        for slot in self._slots:
            slot.close()


class _Slot:
    """A process, and what it has begun."""

    def __init__(self, load: Load, share: int) -> None:
        self._load, self._share, self._deaths = load, share, 0
        self.begun: dict[int, tuple[str, Sequence[Sequence[Any]]]] = {}
        self._start()

    def _start(self) -> None:
        self._pool = ProcessPoolExecutor(
            1, mp_context=get_context("spawn"), initializer=end_with_parent
        )
        with starting():
            self._loading: Future[Any] = self._pool.submit(_answer, _load, self._load, self._share)

    def facts(self) -> ModelFacts:
        found: ModelFacts = self._ask(_facts)
        return found

    def begin(self, number: int, job: tuple[str, Sequence[Sequence[Any]]]) -> None:
        self.begun[number] = job
        try:
            self._pool.submit(_answer, _begin, number, *job)
        except BrokenProcessPool:
            self._replace()

    def finish(self, number: int) -> Computed:
        try:
            found: Computed = self._ask(_finish, number)
        finally:
            self.begun.pop(number, None)
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        return self._ask(_call, method, *arguments)

    def _ask(self, task: Callable[..., Any], *arguments: Any) -> Any:
        while True:
            try:
                found = self._loading.result()
                if not isinstance(found, WorkerFailure):
                    found = self._pool.submit(_answer, task, *arguments).result()
            except BrokenProcessPool:
                self._replace()
                continue
            self._deaths = 0
            if isinstance(found, WorkerFailure):
                raise found.error()
            return found

    def _replace(self) -> None:
        self._deaths += 1
        if self._deaths > DEATHS:
            raise worker_died("a smaller --batch-size or fewer --devices")
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._start()
        with suppress(BrokenProcessPool):  # the next question will find that it died again
            for number, job in self.begun.items():
                self._pool.submit(_answer, _begin, number, *job)

    def forget(self, number: int) -> None:
        """The result is not needed any more."""
        self.begun.pop(number, None)
        with suppress(BrokenProcessPool):
            self._pool.submit(_forget, number)

    def close(self) -> None:
        for process in list((self._pool._processes or {}).values()):
            process.kill()  # it has nothing to lose
        self._pool.shutdown(wait=True, cancel_futures=True)


class _Distant:
    """A batch that another process has begun."""

    def __init__(self, slot: _Slot, number: int) -> None:
        self.slot, self.number = slot, number

    def result(self) -> Computed:
        return self.slot.finish(self.number)

    def cancel(self) -> bool:
        self.slot.forget(self.number)
        return True


def worker_died(less: str) -> ModelError:
    return ModelError(
        "E-WORKER-DIED",
        f"a worker process died {DEATHS + 1} times in a row, probably out of memory; run the same "
        f"command again with {less}.",
    )


# --- actors of Ray -------------------------------------------------------------------------------

_AT_A_TIME: Final = 4  # batches of an actor: some are decoded while one is computed


class _Actor:
    """A loaded model in a process of Ray. Errors are returned: Ray would wrap them."""

    def __init__(self, load: Load, folder: str) -> None:
        self.load, self.folder, self.lock = load, folder, threading.Lock()
        self.here: Here | None = None

    def compute(self, task: str, columns: Sequence[Sequence[Any]]) -> Any:
        return _answer(lambda: self._opened().submit(task, columns).result())

    def call(self, method: str, *arguments: Any) -> Any:
        return _answer(lambda: call(self._opened(), method, *arguments))

    def facts(self) -> Any:
        return _answer(lambda: facts_of(self._opened().model))

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
        self._loading = {one.facts.remote(): n for n, one in enumerate(self._actors)}
        self._begun: dict[int, int] = {}  # batches of the actors that are ready
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
            found.append(self.get(reference))
            self._begun[self._loading.pop(reference)] = 0
        self.ahead = len(self._begun) * _AT_A_TIME
        return found

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> _RayJob:
        self._welcome(0)
        number = min(self._begun, key=lambda number: self._begun[number])
        return _RayJob(
            self, self._begun, number, self._actors[number].compute.remote(task, columns)
        )

    def call(self, method: str, *arguments: Any) -> Any:
        return self.get(self._actors[next(iter(self._begun))].call.remote(method, *arguments))

    def get(self, reference: Any) -> Any:
        try:
            found = self._ray.get(reference)
        except self._ray.exceptions.RayActorError as error:
            if not error.actor_init_failed:
                raise worker_died("a smaller --batch-size or fewer --workers") from None
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


class _RayJob:
    """A batch that an actor has begun; `begun` counts those of each."""

    def __init__(
        self, workers: RayWorkers, begun: dict[int, int], number: int, answer: Any
    ) -> None:
        self.workers, self.begun, self.number, self.answer = workers, begun, number, answer
        self.open = True
        begun[number] += 1

    def result(self) -> Computed:
        try:
            found: Computed = self.workers.get(self.answer)
        finally:
            self.cancel()
        return found

    def cancel(self) -> bool:
        if self.open:
            self.begun[self.number] -= 1
        self.open = False
        return True


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
    """A DualEncoder."""

    def preprocess(self, image: Image.Image) -> Image.Image:
        return image

    encode_images = _distant("encode_opened")
    count_tokens = _distant("count_tokens")
    encode_captions = _distant("encode_captions")


class _DistantPairs(_DistantModel):
    """A PairScorer."""

    score_pairs = _distant("score_pairs")


class _DistantBlind(_DistantModel):
    """A BlindScorer."""

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
