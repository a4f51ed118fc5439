"""`python -m counterpoint`, and the command `counterpoint`.

Signals are set before anything slow is imported: from here on Ctrl-C and SIGTERM unwind the stack,
so that drafts are removed, and end with a status instead of a traceback.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

from counterpoint._util.errors import Terminated, stop_status


def main() -> None:
    signal.signal(signal.SIGTERM, _terminate)
    try:
        from counterpoint.cli import main as run

        run()
    except (KeyboardInterrupt, ImportError) as error:
        # A compiled module that is interrupted while it is imported raises an ImportError.
        stop = error.__cause__ if isinstance(error, ImportError) else error
        if not isinstance(stop, KeyboardInterrupt):
            raise
        sys.exit(stop_status(stop))


def _terminate(number: int, frame: FrameType | None) -> None:
    del frame
    signal.signal(number, signal.SIG_IGN)  # a second one must not interrupt the cleaning up
    Terminated.asked = True
    raise Terminated


if __name__ == "__main__":
    main()
