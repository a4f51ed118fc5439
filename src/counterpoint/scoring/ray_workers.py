"""Batches computed by actors of Ray, on this machine or on a cluster.

Ray restarts an actor that died and repeats what it had begun. An actor gets batches once it has
loaded the model, so that one for which the cluster has no room holds nothing up. Only the driver
touches the store and takes results in the order of the batches, so that they are the same bytes as
from one process, and a store never lies on a network file system. Actors open images themselves:
the data folder has to be at the same path on every machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

from counterpoint._util.errors import ModelError
from counterpoint._util.processes import DEATHS, WorkerFailure, failure
from counterpoint._util.untrusted import shortened
from counterpoint.scoring.processes import Load, ModelFacts, call, facts_of, worker_died
from counterpoint.scoring.workers import Computed, Here

_AT_A_TIME: Final = 4  # batches of an actor: some are decoded while one is computed


class _Actor:
    """A loaded model in a process of Ray. Errors are returned: Ray would wrap them."""

    def __init__(self, load: Load, folder: str) -> None:
        self.load, self.folder, self.lock = load, folder, threading.Lock()
        self.here: Here | None = None

    def compute(self, task: str, columns: Sequence[Sequence[Any]]) -> Computed | WorkerFailure:
        try:
            return self._opened().submit(task, columns).result()
        except Exception as error:
            return failure(error)

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            return call(self._opened(), method, *arguments)
        except Exception as error:
            return failure(error)

    def facts(self) -> ModelFacts | WorkerFailure:
        try:
            return facts_of(self._opened().model)
        except Exception as error:
            return failure(error)

    def _opened(self) -> Here:
        with self.lock:
            if self.here is None:
                os.chdir(self.folder)
                self.here = Here(self.load(), threaded=True)
            return self.here


class RayWorkers:
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

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        found: int | None = self.call("tune", task, item)
        return found

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

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        """The model stays loaded: there may be more to compute."""


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
