"""Ctrl-C and termination (as clusters send it) between steps, so that nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from counterpoint.errors import Terminated


@dataclass(slots=True)
class Stop:
    """Whether a signal has asked for a stop, and which one."""

    signal: int | None = None

    @property
    def asked(self) -> bool:
        return self.signal is not None

    def error(self) -> KeyboardInterrupt:
        return Terminated() if self.signal == signal.SIGTERM else KeyboardInterrupt()


@contextmanager
def stop_between_steps(*, alone: bool) -> Iterator[Stop]:
    """The first signal asks for a stop after this step, with a checkpoint; a second stops at once.

    Not where there are other ranks: they would wait for this one for ever. There the run goes on
    from its last checkpoint. Nor outside the main thread, where Python handles no signals.
    """
    stop = Stop()
    if not alone or threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        del frame
        at_once, stop.signal = stop.asked, number
        if at_once:
            raise stop.error()

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
