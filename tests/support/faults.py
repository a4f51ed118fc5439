"""Commands that are stopped at their n-th change of a folder: each change is a moment to die at.

A hook of Python's own audit events sees every file that is opened for writing, and every file and
folder that is made, renamed or removed. What compiled libraries write, they write into drafts.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path

_CHANGES = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate"}
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def stop_at(change: int, number: int, folder: Path) -> None:
    """Send this process a signal at its n-th change below a folder, counted from 1."""
    _watch(folder, lambda count: count == change and os.kill(os.getpid(), number))


def count_changes(folder: Path, into: Path) -> None:
    """How many changes below a folder this process makes, in a file that lies elsewhere."""
    counts = [0]
    _watch(folder, lambda count: counts.append(count))
    atexit.register(lambda: into.write_text(str(counts[-1])))


def _watch(folder: Path, changed: Callable[[int], object]) -> None:
    """Call `changed(n)` at the n-th change."""
    count, top = 0, folder.absolute()

    def watch(event: str, inputs: tuple[object, ...]) -> None:
        nonlocal count
        if event == "open":
            if not isinstance(inputs[2], int) or not inputs[2] & _WRITES:
                return
        elif event not in _CHANGES:
            return
        path = inputs[0]
        if isinstance(path, str | bytes | os.PathLike) and _is_below(os.fsdecode(path), top):
            count += 1
            changed(count)

    sys.addaudithook(watch)


def _is_below(path: str, top: Path) -> bool:
    return Path(path).absolute().is_relative_to(top)


def command(
    words: Sequence[str], here: Path, change: int = 0, number: int = signal.SIGKILL, below: str = ""
) -> None:
    """A command line as it is, stopped at its n-th change below a folder if `change` is given."""
    from counterpoint.__main__ import main

    os.chdir(here)
    if change:
        stop_at(change, number, here / below)
    sys.argv = ["counterpoint", *words]
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere):
        main()
