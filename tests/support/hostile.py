"""Something hostile is opened in a child process: how it ends, in what time and memory."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import CounterpointError, explain
from counterpoint._util.untrusted import without_controls

_LONGEST: Final = 1000  # characters of a message
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class End(NamedTuple):
    """`kind` is result, sentence, traceback, hang, memory or died.

    The seconds are those of a processor, which other work on the machine does not change; of the
    clock if the child was ended.
    """

    kind: str
    said: str
    seconds: float
    memory: int  # bytes at most, of the process and of those that it started


def in_child(act: Callable[[], object], seconds: float, memory: int) -> End:
    """What comes of `act`, which is ended when it takes more seconds or bytes."""
    context = multiprocessing.get_context("fork")
    here, there = context.Pipe(duplex=False)
    child = context.Process(target=_act, args=(act, there))
    began, most, kind = time.monotonic(), 0, ""
    child.start()
    there.close()
    assert child.pid is not None
    while not kind and not here.poll(0.02):
        most = max(most, _resident(child.pid))
        spent = time.monotonic() - began
        kind = "memory" if most > memory else "hang" if spent > seconds else ""
    took = time.monotonic() - began
    try:
        ended, said, took = (kind, "", took) if kind else here.recv()
    except EOFError:
        ended, said = "died", ""
    if kind:
        os.killpg(child.pid, signal.SIGKILL)
    child.join()
    said = said or (f"signal {-child.exitcode}" if (child.exitcode or 0) < 0 else "")
    return End(ended, said, took, most)


def _act(act: Callable[[], object], there: Any) -> None:
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    try:
        act()
        end = ("result", "")
    except BaseException as error:  # a panic of compiled code is no Exception
        end = _ended_by(error)
    there.send((*end, sum(os.times()[:4])))
    os._exit(0)


def _ended_by(error: BaseException) -> tuple[str, str]:
    known = error if isinstance(error, CounterpointError) else explain(error)
    if known is None:
        return "traceback", f"{type(error).__name__}: {str(error)[:300]}"
    said = without_controls(str(known))  # as the terminal shows it
    sentence = len(said) < _LONGEST and said.endswith(".") and not _CONTROL.search(said)
    return "sentence" if sentence else "traceback", said


def _resident(pid: int) -> int:
    """Bytes of a process and of its children."""
    try:
        own = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except (OSError, IndexError):
        return 0
    return own + sum(map(_resident, map(int, children)))
