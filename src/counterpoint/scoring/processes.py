"""Batches computed by several processes, one for each device.

Batches are cut by the driver as for one device and their results are stored in the same order, so
the store holds the same bytes. A process begins with a batch as soon as it gets it: it decodes and
computes several at a time, as `Here` does. A process that dies is replaced, and what it had begun
is computed again.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing import get_context
from typing import Any, Final, NamedTuple, Self

import numpy as np
from PIL import Image

from counterpoint._util.errors import ModelError
from counterpoint._util.processes import DEATHS, WorkerFailure, end_with_parent, failure, starting
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


class Processes:
    """Workers, and the model that they have loaded: `facts`. Closed by `close`, not by a `with`."""

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

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        found: int | None = self.call("tune", task, item)
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        return self._slots[next(self._turns) % len(self._slots)].call(method, *arguments)

    def close(self) -> None:
        for slot in self._slots:
            slot.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """The model stays loaded: there may be more to compute."""


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


# --- the model in the driver ---------------------------------------------------------------------


class _DistantModel:
    """A model that is computed by workers elsewhere."""

    def __init__(self, workers: Any, facts: ModelFacts) -> None:
        self.workers, self.fingerprint = workers, facts.fingerprint
        self.context_length, self._described = facts.context_length, facts.described
        self.lanes, self.device = facts.lanes, facts.device

    def describe(self) -> dict[str, Any]:
        return self._described


class DistantDual(_DistantModel):
    """A DualEncoder."""

    def preprocess(self, image: Image.Image) -> Image.Image:
        return image

    def encode_images(self, images: Sequence[Image.Image]) -> np.ndarray:
        found: np.ndarray = self.workers.call("encode_opened", list(images))
        return found

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        found: np.ndarray = self.workers.call("count_tokens", list(captions))
        return found

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        found: np.ndarray = self.workers.call("encode_captions", list(captions))
        return found


class DistantPairs(_DistantModel):
    """A PairScorer."""

    def score_pairs(self, pictures: Sequence[Any], captions: Sequence[str]) -> np.ndarray:
        found: np.ndarray = self.workers.call("score_pairs", list(pictures), list(captions))
        return found


class DistantBlind(_DistantModel):
    """A BlindScorer."""

    def score_captions(self, captions: Sequence[str]) -> np.ndarray:
        found: np.ndarray = self.workers.call("score_captions", list(captions))
        return found


_DISTANT: Final[dict[str, Callable[[Any, ModelFacts], Model]]] = {
    "DualEncoder": DistantDual,
    "PairScorer": DistantPairs,
    "BlindScorer": DistantBlind,
}


def distributed(workers: Any) -> Model | None:
    """The model of some workers; None if it is of a kind that has to be in one place."""
    facts: ModelFacts = workers.facts
    return _DISTANT[facts.kind](workers, facts) if facts.kind else None
