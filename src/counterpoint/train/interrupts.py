"""Ctrl-C and termination (as clusters send it) between steps, so that nothing is half done."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType


@dataclass(slots=True)
class Stop:
    asked: bool = False


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
        if stop.asked:
            raise KeyboardInterrupt
        stop.asked = True

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
