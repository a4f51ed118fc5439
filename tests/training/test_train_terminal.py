"""Ctrl-C typed at a terminal: the whole command, and the status that its shell sees."""

from __future__ import annotations

import fcntl
import os
import sys
import termios
import time
from contextlib import suppress

import pytest
from processes import ended, start
from training import held_out, small_recipe, written

from counterpoint.training import loop

pytestmark = pytest.mark.faults

HERE = b"it is here now"
MANY = ("steps=400", "save_every=0", "eval_every=2", "benchmarks=[world-swap:size=8]")


def train_on(terminal: str, place: str, path: str) -> None:
    """The command on a terminal of its own; it says when it has come to the place, and stays."""
    os.setsid()
    screen = os.open(terminal, os.O_RDWR)
    fcntl.ioctl(screen, termios.TIOCSCTTY, 0)
    for stream in (0, 1, 2):
        os.dup2(screen, stream)

    def stay(*_: object, **__: object) -> None:
        os.write(1, HERE)
        time.sleep(0.3 if place == "a step" else 60)  # a step is waited for

    if place == "the start":
        loop.build = stay
    elif place == "a step":
        inner = loop.update
        loop.update = lambda run, step: (stay() if step == 0 else None, inner(run, step))[1]
    elif place == "validation":
        loop.Validator.value = stay
    else:
        loop.evaluate = stay
    from counterpoint.__main__ import main

    sys.argv = ["counterpoint", "train", path]
    main()


@pytest.mark.parametrize(
    ("place", "kept"),
    [("the start", []), ("a step", [1]), ("validation", [3]), ("evaluation", [2])],
)
def test_ctrl_c_on_a_terminal_is_not_success(tmp_path, place, kept):
    changes = [*MANY, held_out(tmp_path), "validation.every=3"]
    if place != "evaluation":
        changes.append("eval_every=0")
    path = written(small_recipe(tmp_path, *changes))
    mine, theirs = os.openpty()
    child = start(train_on, os.ttyname(theirs), place, path)
    said = b""
    while HERE not in said:
        said += os.read(mine, 1000)
    os.close(theirs)  # now the terminal ends with the child
    os.write(mine, b"\x03")
    with suppress(OSError):  # how Linux says that it has ended
        while more := os.read(mine, 1000):
            said += more
    assert ended(child) == 130
    assert b"interrupted; " in said and b"Traceback" not in said
    assert loop.steps_in(tmp_path / "run") == kept
