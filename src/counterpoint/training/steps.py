"""One training step: forward, loss, backward, optimiser.

A batch goes through the towers at once, or in parts that fit into memory.

**Gradient caching** (Gao et al. 2021). A contrastive loss compares all samples of a batch, so the
loss cannot be computed in parts. The towers can: the vectors are computed in parts without a graph,
the loss gives the gradient of every vector, and each part is computed again for its backward pass.
The gradients are those of the whole batch, the memory is that of one part, and the towers run
forward twice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from counterpoint.models import ImageTrunk
from counterpoint.training.batches import (
    Batch,
    names_of,
    only,
    pack,
    split,
    stacked,
    unpack,
)
from counterpoint.training.data.loading import TrainingData
from counterpoint.training.logs import Meter
from counterpoint.training.losses import terms as losses
from counterpoint.training.losses.terms import TOKENS, Features
from counterpoint.training.processes import Ranks, join
from counterpoint.training.recipe import Recipe
from counterpoint.training.towers import Towers, TrainableModel

Values = dict[str, Tensor]
Autocast = Callable[[], AbstractContextManager[Any]]
_SEEDS: Final = 2**63


def encode(towers: nn.Module, batch: Batch, part: int, pad: int, autocast: Autocast) -> Features:
    """The vectors of a batch, of which the towers hold `part` samples at once (0: all)."""
    found = []
    for one in split(batch, part) if part else [batch]:
        with autocast():
            found.append(unpack(one, *towers(*pack(one, pad))))
    return stacked(found) if len(found) > 1 else found[0]


# --- gradients -----------------------------------------------------------------------------------


def gradients(
    run: TrainingRun, step: int, batches: Iterator[Batch], meter: Meter
) -> tuple[Tensor, Values]:
    """The gradients of one optimiser step: the mean over its batches.

    Returns the loss and the values of its terms.
    """
    run.optimiser.zero_grad(set_to_none=True)
    count = run.recipe.accumulate
    sums: Values = {}
    for number in range(count):
        before = time.perf_counter()
        batch = next(batches)
        meter.waited(time.perf_counter() - before)
        batch = only(batch.to(run.ranks.device), run.loss.fields)
        # of what the towers draw for one batch on one rank
        seed = run.recipe.seed * 1_000_003 + (step * count + number) * 65_537 + run.ranks.rank * 257
        values = run.stepper.backward(
            batch, share=1 / count, seed=seed % _SEEDS, last=number == count - 1
        )
        for name, value in values.items():
            sums[name] = sums.get(name, 0) + value / count
    weights = {term.term: term.weight for term in run.recipe.loss}
    loss = torch.stack([weights[name] * value for name, value in sums.items()]).sum()
    return loss, sums


@dataclass(slots=True)
class Stepper:
    """What all steps of a run have in common. `towers` may be wrapped by DDP or FSDP."""

    towers: nn.Module
    loss: Loss
    part: int = 0  # samples of this rank that the towers hold at once; 0: all
    autocast: Autocast = nullcontext
    scaler: torch.amp.GradScaler | None = None
    pad: int = 0

    def backward(self, batch: Batch, *, share: float, seed: int, last: bool) -> Values:
        """Add `share` of the loss's gradients to the parameters'; the terms' values are returned.

        `seed` is for whatever the towers draw (dropout). `last`: exchange gradients between ranks
        now; the earlier ones of several batches wait for it.
        """
        parts = list(split(batch, self.part)) if 0 < self.part < len(batch.images) else []
        with self._waiting(bool(parts) or not last):
            if parts:
                leaves = self._leaves(parts, seed)
                features = replace(stacked(leaves), **_scalars(leaves[-1]))
            else:
                torch.manual_seed(seed)
                features = encode(self.towers, batch, 0, self.pad, self.autocast)
            values = losses.loss(self.loss.complete(batch, join(features)), self.loss.terms)
            # Scale and bias are in it even where no term uses them: DDP waits for their gradients.
            unused = sum(0 * value for value in _scalars(features).values())
            total = share * (losses.total(values, self.loss.terms) + unused)
            if self.scaler is not None:
                total = self.scaler.scale(total)
            total.backward()
        if parts:
            self._send_back(parts, leaves, seed, last)
        return {name: value.detach() for name, value in values.items()}

    def _leaves(self, parts: list[Batch], seed: int) -> list[Features]:
        """The vectors of each part without a graph, as leaves of the loss's. Scale and bias are
        those of the last part: their gradients are whole already."""
        found = []
        for number, part in enumerate(parts):
            torch.manual_seed(seed + number)
            with torch.no_grad():
                found.append(encode(self.towers, part, 0, self.pad, self.autocast))
        own: dict[str, Any] = {
            n: v.detach().requires_grad_() for n, v in _scalars(found[-1]).items()
        }
        return [*map(_detached, found[:-1]), replace(_detached(found[-1]), **own)]

    def _send_back(self, parts: list[Batch], leaves: list[Features], seed: int, last: bool) -> None:
        """Compute each part again, and send the gradients of its vectors back."""
        for number, (part, leaf) in enumerate(zip(parts, leaves, strict=True)):
            final = number == len(parts) - 1
            torch.manual_seed(seed + number)
            with self._waiting(not (final and last)):
                again = encode(self.towers, part, 0, self.pad, self.autocast)
                carried = again.scale.new_zeros(())
                for name, value in _scalars(again).items():
                    grad = getattr(leaf, name).grad if final else None
                    carried = carried + value * (0 if grad is None else grad)
                for vectors, one in zip(_vectors(again), _vectors(leaf), strict=True):
                    if one.grad is not None:
                        carried = carried + (vectors * one.grad).sum()
                carried.backward()  # type: ignore[no-untyped-call]

    def _waiting(self, wait: bool) -> AbstractContextManager[Any]:
        """DDP exchanges gradients in every backward pass unless told not to."""
        if wait and isinstance(self.towers, nn.parallel.DistributedDataParallel):
            return self.towers.no_sync()
        if isinstance(self.towers, torch.distributed.fsdp.FSDPModule):
            self.towers.set_requires_gradient_sync(not wait)
        return nullcontext()


def _scalars(features: Features) -> dict[str, Any]:
    """The model's own numbers among the features."""
    return {n: v for n in ("scale", "bias") if (v := getattr(features, n)) is not None}


def _detached(features: Features) -> Features:
    own = {n: getattr(features, n).detach().requires_grad_() for n in names_of(features)}
    return replace(features, **own, hard=features.hard and _detached(features.hard))


def _vectors(features: Features) -> list[Tensor]:
    mine = [getattr(features, name) for name in names_of(features)]
    return mine if features.hard is None else mine + _vectors(features.hard)


# --- the loss of a recipe ----------------------------------------------------------------------


_START = "start_"


class Loss:
    """The terms of a recipe. `start` is a frozen copy of the start, if a term asks for its vectors;
    as a teacher it is given other weights after every step. `captioner`: a decoder that says
    positives from the vectors of captions.

    `fields` is what the terms read of a batch, of either model; the rest need not be encoded.
    """

    def __init__(
        self,
        terms: Sequence[losses.Term],
        start: Towers | None,
        autocast: Autocast,
        part: int = 0,
        captioner: nn.Module | None = None,
    ) -> None:
        self.terms, self.start, self.autocast, self.part = terms, start, autocast, part
        self.captioner = captioner
        self.fields = frozenset(name.removeprefix(_START) for name in losses.uses(terms))

    def complete(self, batch: Batch, features: Features, *, alone: bool = False) -> Features:
        """With what the start and the decoder make of the batch. `alone`: the batch is of this rank
        only, and no other waits for it."""
        if self.start is not None:
            read = (n for n in losses.uses(self.terms) if n.startswith(_START))
            own = only(batch, {name.removeprefix(_START) for name in read})
            with torch.no_grad():
                vectors = encode(self.start, own, self.part, self.start.pad, self.autocast)
            features = replace(features, start=vectors if alone else join(vectors))
        if self.captioner is not None and batch.positives is not None:
            # of one process: no other's texts are here
            told = self.captioner(features.captions, batch.positives)
            features = replace(features, reconstruction=told)
        return features

    @torch.no_grad()
    def teach(self, weights: Mapping[str, Tensor]) -> None:
        """Let the frozen copy have these weights, by the names of the trained towers."""
        assert self.start is not None
        held = dict(self.start.named_parameters())
        torch._foreach_copy_([held[name] for name in weights], list(weights.values()))


def tokens_read(terms: Sequence[losses.Term]) -> frozenset[str]:
    """Which patches and words the terms read."""
    return losses.uses(terms).intersection(TOKENS)


def needs_start(terms: Sequence[losses.Term]) -> bool:
    return any(name.startswith(_START) for name in losses.uses(terms))


# --- the step -----------------------------------------------------------------------------------


@dataclass(slots=True)
class TrainingRun:
    """Everything that a step reads or changes. `averaged`: by name, the moving averages.

    `origin`: the start's weights, where the result is to be mixed with them.
    """

    recipe: Recipe
    ranks: Ranks
    model: TrainableModel
    stepper: Stepper
    loss: Loss
    optimiser: torch.optim.Optimizer
    data: TrainingData
    steps: int
    fingerprint: str  # of the start
    averaged: dict[str, Tensor] = field(default_factory=dict)
    origin: dict[str, Tensor] = field(default_factory=dict)
    trunk: ImageTrunk | None = None  # of a locked image tower

    @property
    def parameters(self) -> dict[str, nn.Parameter]:
        return self.model.trainable()


Schedule = Literal["cosine", "constant"]


def learning_rate(
    step: int, steps: int, peak: float, warmup: int = 0, schedule: Schedule = "cosine"
) -> float:
    """Of step 0 to `steps` - 1: rises in a line over `warmup` steps, then falls as a cosine to 0.

    As open_clip's trainer: step 0 has peak / warmup, and the cosine starts at the peak. A warm-up
    longer than the run stops where the run does.
    """
    if step < warmup:
        return peak * (step + 1) / warmup
    if schedule == "constant":
        return peak
    done = (step - warmup) / max(1, steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * done))


@torch.no_grad()
def update(run: TrainingRun, step: int) -> dict[str, Tensor | float]:
    """Take the step. What comes back is for the log; tensors are still on the device."""
    recipe = run.recipe
    rate = learning_rate(step, run.steps, recipe.lr, recipe.warmup, recipe.schedule)
    for group in run.optimiser.param_groups:
        group["lr"] = rate
    for scalar in run.model.scalars if recipe.sharded else ():  # FSDP does not look after them
        if scalar.grad is not None:
            torch.distributed.all_reduce(scalar.grad)
            scalar.grad /= run.ranks.size
    scaler = run.stepper.scaler
    if scaler is not None:
        scaler.unscale_(run.optimiser)
    norm = clip_gradients(list(run.parameters.values()), recipe.grad_clip)
    if scaler is None:
        run.optimiser.step()
    else:
        scaler.step(run.optimiser)  # left out where a gradient overflowed; the scale then falls
        scaler.update()
    scale = run.model.scale
    if recipe.clamp_scale is not None:
        scale.clamp_(0, max(math.log(recipe.clamp_scale), run.model.least_clamp))
    if recipe.ema is not None:
        own = [local(p) for p in run.parameters.values()]
        torch._foreach_lerp_([local(a) for a in run.averaged.values()], own, 1 - recipe.ema)
        if recipe.ema_as == "teacher":
            run.loss.teach(run.averaged)
    told: dict[str, Tensor | float] = {"lr": rate, "grad_norm": norm}
    told["scale"] = scale.detach().exp().reshape(())
    if run.model.bias is not None:
        told["bias"] = run.model.bias.detach().reshape(())
    return told


def clip_gradients(parameters: list[torch.nn.Parameter], limit: float | None) -> Tensor:
    """The norm of all gradients, which are scaled down to `limit` if it is larger.

    torch's own function does not take sharded and whole tensors together.
    """
    grads = [p.grad for p in parameters if p.grad is not None]
    whole = [g for g in grads if not isinstance(g, DTensor)]
    sharded = [g.to_local() for g in grads if isinstance(g, DTensor)]
    squares = _squares(whole, parameters[0].device)
    if sharded:
        shared = _squares(sharded, sharded[0].device)
        torch.distributed.all_reduce(shared)
        squares = squares + shared
    norm = squares.sqrt()
    if limit is not None:
        torch._foreach_mul_([*whole, *sharded], (limit / (norm + 1e-6)).clamp(max=1.0))
    return norm


def _squares(tensors: list[Tensor], device: torch.device) -> Tensor:
    if not tensors:
        return torch.zeros((), device=device)
    return torch.stack(torch._foreach_norm(tensors)).square().sum()


def local(tensor: Tensor) -> Tensor:
    """This rank's part of a sharded tensor, sharing its memory; others as they are."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor
