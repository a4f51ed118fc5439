"""`python -m counterpoint`, and the command `counterpoint`.

Signals are set before anything slow is imported: from here on Ctrl-C and SIGTERM unwind the stack,
so that drafts are removed, and end with a status instead of a traceback.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from counterpoint._util.errors import UNINTERRUPTED, StopRequest, Terminated, stop_status

_IMPORTING = "<frozen importlib._bootstrap>"
_AGAIN = 0.02  # seconds


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    sys.unraisablehook = _lost
    try:
        from counterpoint.cli import main as run

        run()
    except (KeyboardInterrupt, Exception) as error:
        if status := stop_status(error):
            sys.exit(status)
        raise
    except SystemExit as end:
        if end.code == 130:  # of Typer, to which every stop outside of a verb is a Ctrl-C
            sys.exit(StopRequest.status or 130)
        raise
    finally:
        if sys.platform != "win32":  # what came in the last moment: nothing is left to stop
            signal.setitimer(signal.ITIMER_REAL, 0)


def _stop(number: int, frame: FrameType | None) -> None:
    """Raise what the signal asks for, once no module is being imported and no draft is moved.

    Compiled modules that are interrupted while they are imported hide it, or abort the process.
    """
    if sys.platform != "win32" and _has_to_wait(frame):
        _send_again(number)
        return
    StopRequest.status = 128 + number
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
    raise Terminated


def _lost(error: sys.UnraisableHookArgs) -> None:
    """A stop was raised where Python ignores errors, such as in a finaliser.

    What else fails there after a stop is told nobody: workers that the same signal has ended.
    """
    if sys.platform != "win32" and isinstance(error.exc_value, KeyboardInterrupt):
        number = signal.SIGTERM if isinstance(error.exc_value, Terminated) else signal.SIGINT
        signal.signal(number, _stop)
        _send_again(number)
    elif StopRequest.status is None:
        sys.__unraisablehook__(error)


def _send_again(number: int) -> None:
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(number))
    signal.setitimer(signal.ITIMER_REAL, _AGAIN)


def _has_to_wait(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename == _IMPORTING or frame.f_code in UNINTERRUPTED:
            return True
        frame = frame.f_back
    return False


if __name__ == "__main__":
    main()
