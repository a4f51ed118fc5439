"""Batches computed by actors of Ray, on this machine or on a cluster.

Ray restarts an actor that died and repeats what it had begun. Only the driver touches the store and
takes results in the order of the batches, so that they are the same bytes as from one process, and
a store never lies on a network file system. Actors open images themselves: the data folder has to
be at the same path on every machine.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from typing import Any, Final, Self

from counterpoint.scoring.processes import Facts, Load, call, facts_of
from counterpoint.scoring.workers import Here, Outcome

_AT_A_TIME: Final = 4  # batches of an actor: some are decoded while one is computed


class _Actor:
    """A loaded model in a process of Ray. Errors are returned: Ray would wrap them."""

    def __init__(self, load: Load, folder: str) -> None:
        os.chdir(folder)
        self.load, self.lock = load, threading.Lock()
        self.here: Here | None = None

    def compute(self, task: str, columns: Sequence[Sequence[Any]]) -> Outcome | Exception:
        try:
            return self._opened().submit(task, columns).result()
        except Exception as error:
            return error

    def call(self, method: str, *arguments: Any) -> Any:
        try:
            return call(self._opened(), method, *arguments)
        except Exception as error:
            return error

    def facts(self) -> Facts | Exception:
        try:
            return facts_of(self._opened().model)
        except Exception as error:
            return error

    def _opened(self) -> Here:
        with self.lock:
            if self.here is None:
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
            max_task_retries=-1,
        )
        self._actors = [actor.remote(load, folder) for _ in range(count)]
        self._begun = [0] * count
        self.facts: Facts = self._get(self._actors[0].facts.remote())
        self.ahead, self.patience = count * _AT_A_TIME, 0.1

    def submit(self, task: str, columns: Sequence[Sequence[Any]]) -> _RayJob:
        number = self._begun.index(min(self._begun))
        self._begun[number] += 1
        return _RayJob(self, number, self._actors[number].compute.remote(task, columns))

    def tune(self, task: str, item: Sequence[Any]) -> int | None:
        found: int | None = self.call("tune", task, item)
        return found

    def call(self, method: str, *arguments: Any) -> Any:
        return self._get(self._actors[0].call.remote(method, *arguments))

    def _get(self, reference: Any) -> Any:
        found = self._ray.get(reference)
        if isinstance(found, Exception):
            raise found
        return found

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        pass


class _RayJob:
    def __init__(self, workers: RayWorkers, number: int, reference: Any) -> None:
        self.workers, self.number, self.reference = workers, number, reference

    def result(self) -> Outcome:
        try:
            found: Outcome = self.workers._get(self.reference)
        finally:
            self.workers._begun[self.number] -= 1
        return found

    def cancel(self) -> bool:
        self.workers._begun[self.number] -= 1
        return True
