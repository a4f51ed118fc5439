"""Writers of one file or one folder that write often, or die on the way, in processes of their own.

They are not forks of the process of the tests: that has the threads of several libraries, and a
lock that one of them holds at the moment of a fork is never released in the child.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from processes import ended, start

from counterpoint._util.writing import locked, whole_file, whole_folder

FILES = 3
CALLS = ("open", "mkdir", "rename", "replace", "fsync", "unlink", "rmdir")
DIED = 9
Write = Callable[..., None]


def write_file(place: Path, text: str, **options: float) -> None:
    with whole_file(place, **options) as draft:  # type: ignore[arg-type]
        draft.write_text(text)


def write_folder(place: Path, text: str, **options: float) -> None:
    with whole_folder(place, **options) as draft:  # type: ignore[arg-type]
        for number in range(FILES):
            (draft / str(number)).write_text(text)


def killed_at(call: int, write: Write, place: Path) -> bool:
    """Write in a process that dies before its n-th call of those above; whether it did."""
    status = ended(start(write_and_die, call, write, place))
    assert status in (0, DIED)
    return status == DIED


def write_and_die(call: int, write: Write, place: Path) -> None:
    left = call

    def dying(right: Callable[..., object]) -> Callable[..., object]:
        def run(*inputs: object, **options: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                os._exit(DIED)
            return right(*inputs, **options)

        return run

    for name in CALLS:
        setattr(os, name, dying(getattr(os, name)))
    write(place, "new")
    os._exit(0)


def die_locked(place: Path) -> None:
    with locked(place):
        os._exit(DIED)


def write_often(write: Write, place: Path, text: str) -> None:
    for _ in range(20):
        write(place, text * 2000, wait=60)
