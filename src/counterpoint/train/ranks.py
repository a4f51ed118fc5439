"""The processes of a run: those that torchrun started, or this one alone."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
from torch import distributed

from counterpoint.errors import ModelError
from counterpoint.models.torch_models import pick_device

if TYPE_CHECKING:
    from counterpoint.train.recipe import Recipe


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
            "sharded=true needs torchrun: torchrun --nproc-per-node N -m counterpoint ..."
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
        raise ModelError(f"device={name} is one GPU for {processes} processes; use device=cuda.")
    torch.cuda.set_device(device)
    return device
