"""Work in a process of its own, which may be killed, without waiting seconds for its imports.

    child = start(work, tmp_path, environment={"RANK": "1"})
    child.kill()

A server imports the package once for all tests of a pytest worker; each process is a fork of it.
What a child prints goes to this process's standard output and error.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Mapping
from multiprocessing.process import BaseProcess

_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(
    ["counterpoint.evaluation", "counterpoint.training.loop", "counterpoint.cli.app"]
)


def start(
    work: Callable[..., object], *inputs: object, environment: Mapping[str, str] | None = None
) -> BaseProcess:
    """`work` is a function of a module; its inputs are pickled."""
    child = _SERVER.Process(target=_run, args=(work, inputs, dict(environment or {})), daemon=False)
    child.start()
    return child


def _run(
    work: Callable[..., object], inputs: tuple[object, ...], environment: dict[str, str]
) -> None:
    os.environ.update(environment)
    work(*inputs)


def ended(child: BaseProcess, seconds: float = 200) -> int:
    """The status of a process when it has ended, which it does."""
    child.join(seconds)
    assert child.exitcode is not None, "it does not end"
    return child.exitcode
