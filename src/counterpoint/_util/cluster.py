"""Ray: joining a cluster, or starting one on this machine."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CounterpointError, MissingExtraError
from counterpoint._util.untrusted import shortened, shown

ENGINES: Final = ("local", "ray")
_joined: list[str] = []  # by this process


def check_engine(name: str, known: Sequence[str] = ENGINES) -> None:
    if name not in known:
        raise CounterpointError(
            "E-OPTION-INVALID", f"no engine is called {shown(name)}; use {' or '.join(known)}."
        )


@contextmanager
def ray_cluster(address: str, workers: int | None = None) -> Iterator[Any]:
    """The module `ray`, joined to a cluster: `local`, `auto` or `ray://HOST:PORT`.

    `local` is a cluster of this machine, which ends with the block; it has room for `workers`.
    """
    try:
        import ray
    except ImportError:
        raise MissingExtraError("the engine ray", "ray") from None
    more: dict[str, Any] = {}  # a cluster that runs already has these settings
    if address == "local":
        more = {"num_cpus": workers or os.cpu_count() or 1, "include_dashboard": False}
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")  # or Ray warns of a change
    stop = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address, log_to_driver=False, logging_level=logging.ERROR, **more)
    except Exception as error:  # it raises errors of many kinds
        raise CounterpointError(
            "E-CLUSTER-UNREACHABLE",
            f"Ray cannot be reached at {shortened(address)}: {shortened(error).rstrip('.')}; start "
            "a cluster (ray start --head), or use --ray-address local.",
        ) from None
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, stop)  # Ray's own ends the process with another status
    _joined.append(address)
    ray._private.worker.print_to_stdstream = _silently  # deaths of workers, between our rows
    try:
        yield ray
    finally:
        ray.shutdown()


def ray_was_used() -> bool:
    """By this process, which then should not fork any more: its children may crash."""
    ray = sys.modules.get("ray")
    return bool(_joined) or (ray is not None and ray.is_initialized())


def _silently(*_: object, **__: object) -> None:
    """Ray has the same in its logs, and workers that died are replaced."""


def working_folder() -> str:
    """Where relative paths of a command start; workers have to be told."""
    return str(Path.cwd())
