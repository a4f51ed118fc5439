"""The processes of a run: those that torchrun started, or this one alone."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING

import torch
from torch import distributed

from counterpoint._util.errors import ModelError, Terminated
from counterpoint.models import pick_device

if TYPE_CHECKING:
    from counterpoint.training.recipe import Recipe


@dataclass(frozen=True, slots=True)
class Ranks:
    """Which of the processes this is, and the device it works on."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        return self.rank == 0

    def wait(self) -> None:
        if self.size > 1:
            distributed.barrier()


@contextmanager
def processes(recipe: Recipe) -> Iterator[Ranks]:
    """Join the others if torchrun has set the environment; leave them in the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", "1")), int(os.environ.get("RANK", "0"))
    device = _device(recipe.device, size)
    started = False
    if (size > 1 or (recipe.sharded and "RANK" in os.environ)) and not distributed.is_initialized():
        # nccl with gloo beside it, for small things that need not wait for the GPU; the first rank
        # alone writes and evaluates, which may take long
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=timedelta(hours=2))
        started = True
    elif recipe.sharded and not distributed.is_initialized():
        raise ModelError(
            "E-TORCHRUN-MISSING",
            "sharded=true needs torchrun: torchrun --nproc-per-node N -m counterpoint ...",
        )
    try:
        yield Ranks(rank, size, device)
    finally:
        if started:
            distributed.destroy_process_group()


def _device(name: str, processes: int) -> torch.device:
    device = pick_device(name)
    if device.type != "cuda":
        return device
    if device.index is None:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    elif processes > 1:
        raise ModelError(
            "E-DEVICE-SHARED",
            f"device={name} is one GPU for {processes} processes; use device=cuda.",
            device=name,
            processes=processes,
        )
    torch.cuda.set_device(device)
    return device


# --- Ctrl-C and termination (as clusters send it) between steps, so that nothing is half done ---


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
