"""Processes: workers of one command, a cluster of them, and settings of the whole process.

A setting that several threads change for a while is a `Switch`. If every thread kept the setting
that it finds and put it back, the last one to end would put back what the first one had set. So
they share one change: the first thread makes it, the last undoes it.
"""

from __future__ import annotations

import logging
import os
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from multiprocessing import parent_process, resource_tracker
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import CounterpointError, MissingExtraError
from counterpoint._util.untrusted import shortened, shown

# --- worker processes ----------------------------------------------------------------------------

DEATHS: Final = 3  # of workers over one task, before it is given up
NICE: Final = 10


def hear_interrupts() -> None:
    """Ctrl-C ends a wait for a lock again: polars, once it is imported, makes it wait on."""
    if sys.platform != "win32":
        signal.siginterrupt(signal.SIGINT, True)


@contextmanager
def starting() -> Iterator[None]:
    """Processes that are started here do not get Ctrl-C, not even before their first line runs;
    this one does, also while it waits for them."""
    hear_interrupts()
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it ends a block of Ctrl-C
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def end_with_parent() -> None:
    """How a worker begins: it leaves Ctrl-C to its parent, and ends when its parent ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # also where it could not be blocked
    threading.Thread(target=_watch, daemon=True).start()


def _watch() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def let_driver_first() -> None:
    """How a process that decodes images begins. The driver has to give a GPU thousands of small
    jobs a second: beside decoders that take all cores, it would get half of them done."""
    if hasattr(os, "nice"):
        os.nice(NICE)


class WorkerFailure(NamedTuple):
    """An error on its way to the driver, where its class may be unknown."""

    pickled: bytes
    words: str

    def error(self) -> Exception:
        try:
            found = pickle.loads(self.pickled)
        except Exception:
            found = None
        return found if isinstance(found, Exception) else RuntimeError(self.words)


def failure(error: Exception) -> WorkerFailure:
    words = "".join(traceback.format_exception(error)).rstrip()
    error.add_note(f"In a worker:\n{words}")
    try:
        return WorkerFailure(pickle.dumps(error), words)
    except Exception:  # it holds a lock, a file, ...
        return WorkerFailure(b"", words)


# --- Ray: joining a cluster, or starting one on this machine -------------------------------------

ENGINES: Final = ("local", "ray")
_joined: list[str] = []  # by this process


def check_engine(name: str, known: Sequence[str] = ENGINES) -> None:
    if name not in known:
        raise CounterpointError(
            "E-OPTION-INVALID", f"no engine is called {shown(name)}; use {' or '.join(known)}."
        )


@contextmanager
def ray_cluster(address: str, workers: int | None = None) -> Iterator[Any]:
    """The module `ray`, joined to a cluster: `local`, `auto` or `ray://HOST:PORT`.

    `local` is a cluster of this machine, which ends with the block; it has room for `workers`.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtraError("the engine ray", "ray") from None
    more: dict[str, Any] = {}  # a cluster that runs already has these settings
    if address == "local":
        more = {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False}
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns of a change
    stop = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **more)
    except Exception as error:  # it raises errors of many kinds
        raise CounterpointError(
            "E-CLUSTER-UNREACHABLE",
            f"Ray cannot be reached at {shortened(address)}: {shortened(error).rstrip('.')}; start "
            "a cluster (ray start --head), or use --ray-address local.",
        ) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)  # Ray's own ends the process with another status
    _joined.append(address)
    ray._private.worker.print_to_stdstream = _silently  # deaths of workers, between our rows
    try:
        yield ray
    finally:
        ray.shutdown()


def ray_was_used() -> bool:
    """By this process, which then should not fork any more: its children may crash."""
    ray = sys.modules.get("ray")
    return bool(_joined) or (ray is not None and ray.is_initialized())


def _silently(*_: object, **__: object) -> None:
    """Ray has the same in its logs, and workers that died are replaced."""


def working_folder() -> str:
    """Where relative paths of a command start; workers have to be told."""
    return str(Path.cwd())


# --- settings of the process ---------------------------------------------------------------------


class Switch:
    """A context manager for any number of threads: `change` is entered by the first of them and
    left by the last."""

    def __init__(self, change: Callable[[], AbstractContextManager[object]]) -> None:
        self._change, self._lock = change, threading.Lock()
        self._inside, self._open = 0, change()

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._open = self._change()
                self._open.__enter__()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._open.__exit__(None, None, None)

    def outside(self, value: Callable[[], object]) -> object:
        """A value that the change sets, as it is without it; None while the change is in force."""
        with self._lock:
            return None if self._inside else value()


@Switch
@contextmanager
def without_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
