"""Settings of the whole process that are changed for a while, by several threads at once.

If every thread kept the setting that it finds and put it back, the last one to end would put back
what the first one had set. So they share one change: the first thread makes it, the last undoes it.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


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
