"""The processes of a training run: those that torchrun started, or this one alone.

Which process this is (`Ranks`), signals that end a run between two steps, and the vectors of all
ranks in one batch (`join`).
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, distributed

from counterpoint._util.errors import ModelError, Terminated
from counterpoint.models import pick_device
from counterpoint.training.losses.terms import Features

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
        )
    torch.cuda.set_device(device)
    return device


# --- Ctrl-C and termination (as clusters send it) between steps ---------------------------------


@dataclass(slots=True)
class Stop:
    """Whether a signal has asked for a stop, and which one."""

    signal: int | None = None
    patient: bool = True  # in a step; what lasts longer and can be repeated ends at once

    @property
    def asked(self) -> bool:
        return self.signal is not None

    def error(self) -> KeyboardInterrupt:
        return Terminated() if self.signal == signal.SIGTERM else KeyboardInterrupt()

    @contextmanager
    def at_once(self) -> Iterator[None]:
        self.patient = False
        try:
            if self.asked:
                raise self.error()
            yield
        finally:
            self.patient = True


@contextmanager
def stop_between_steps(*, alone: bool) -> Iterator[Stop]:
    """The first signal asks for a stop after this step, with a checkpoint; a second stops at once.

    Not with other ranks, which would wait for this one without end: there the run continues from
    its last checkpoint. Nor outside the main thread, where Python handles no signals.
    """
    stop = Stop()
    if not alone or threading.current_thread() is not threading.main_thread():
        yield stop
        return

    def ask(number: int, frame: FrameType | None) -> None:
        waits = stop.patient and not stop.asked
        stop.signal = number
        if waits:
            return
        handler = before[signal.Signals(number)]
        if not callable(handler):
            raise stop.error()
        handler(number, frame)  # it may wait for the end of an import

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


# --- the vectors of all ranks in one batch, with gradients ---------------------------------------
#
# Contrastive losses compare every sample with every other one. So each rank computes the loss of
# the whole batch: `loss(join(features), terms)` is the same number on every rank, and the number
# that one process would get from the joined batch. Everything is joined: negatives, positives,
# dense captions, hard images, and the masks that say which of them are there.
#
# Gradients, with W ranks. The loss is the same on all ranks, so each of them holds the whole
# gradient of the joined vectors, its own among them, and no second exchange is needed. A rank sends
# the part of its own vectors back through its towers. The gradient of a parameter is therefore the
# *sum* over ranks, but DDP and FSDP take the *mean*: so the backward step of `join` multiplies by
# W. What does not go through `join`, such as scale and bias, has the whole gradient on every rank,
# and its mean is right. Do not multiply the loss by W, and do not average the gradients of vectors
# by hand. All this holds only where each rank computes the same loss from what was joined.

# the model's, joined on their own, or of one process only
_WHOLE: Final = ("scale", "bias", "hard", "start", "reconstruction")
_NAMES: Final = tuple(f.name for f in fields(Features) if f.name not in _WHOLE)


def join(features: Features) -> Features:
    """The features of all ranks, those of rank 0 first; in a single process, what was given.

    Two exchanges for the vectors and their masks, and as many for the hard images. Every rank must
    bring as many samples, and the same fields in the same shapes.
    """
    if not (distributed.is_available() and distributed.is_initialized()):
        return features
    if distributed.get_world_size() == 1:
        return features
    return _joined(features)


def _joined(features: Features) -> Features:
    there = {name: value for name in _NAMES if (value := getattr(features, name)) is not None}
    masks = {name: value for name, value in there.items() if name.startswith("has_")}
    vectors = {name: value for name, value in there.items() if name not in masks}
    whole: dict[str, Any] = _split(_Join.apply(_packed(vectors)), vectors)
    if masks:
        wide = {name: mask.to(torch.uint8)[..., None] for name, mask in masks.items()}
        rows = _split(_gathered(_packed(wide)), wide)
        whole |= {name: row.squeeze(-1).bool() for name, row in rows.items()}
    return replace(features, **whole, hard=features.hard and _joined(features.hard))


def _packed(values: dict[str, Tensor]) -> Tensor:
    """All of (B, d) and (B, k, d) side by side, (B, n, d), for one exchange in place of many."""
    return torch.cat([v if v.ndim == 3 else v[:, None] for v in values.values()], 1)


def _split(packed: Tensor, like: dict[str, Tensor]) -> dict[str, Tensor]:
    counts = [value.shape[1] if value.ndim == 3 else 1 for value in like.values()]
    parts = zip(like.items(), torch.split(packed, counts, 1), strict=True)
    return {name: part if value.ndim == 3 else part[:, 0] for (name, value), part in parts}


def _gathered(local: Tensor) -> Tensor:
    whole = local.new_empty((distributed.get_world_size() * len(local), *local.shape[1:]))
    distributed.all_gather_into_tensor(whole, local.contiguous())
    return whole


class _Join(torch.autograd.Function):
    """Forward: the ranks' tensors one after the other. Backward: W times this rank's part."""

    @staticmethod
    def forward(ctx: Any, local: Tensor) -> Tensor:
        return _gathered(local)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        ranks = distributed.get_world_size()
        return ranks * gradient.chunk(ranks)[distributed.get_rank()]
