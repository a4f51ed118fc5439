"""Worker processes of one command."""

from __future__ import annotations

import os
import pickle
import signal
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import parent_process, resource_tracker
from typing import Final, NamedTuple

DEATHS: Final = 3  # of workers over one task, before it is given up
NICE: Final = 10


@contextmanager
def starting() -> Iterator[None]:
    """Processes that are started here do not get Ctrl-C, not even before their first line runs."""
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
