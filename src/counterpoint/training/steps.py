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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

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
from counterpoint.training.data.base import TrainingData
from counterpoint.training.losses import terms as losses
from counterpoint.training.losses.terms import TOKENS, Features
from counterpoint.training.model import TrainableModel
from counterpoint.training.processes import Ranks, join
from counterpoint.training.recipe import Recipe
from counterpoint.training.towers import Towers

Values = dict[str, Tensor]
# From a rank's batch and the joined vectors to the loss and the values of its terms.
Objective = Callable[[Batch, Features], tuple[Tensor, Values]]


def encode(
    towers: nn.Module,
    batch: Batch,
    part: int,
    pad: int,
    autocast: Callable[[], AbstractContextManager[Any]],
) -> Features:
    """The vectors of a batch, of which the towers hold `part` samples at once (0: all)."""
    parts = list(split(batch, part)) if part else [batch]
    found = []
    for one in parts:
        with autocast():
            found.append(unpack(one, *towers(*pack(one, pad))))
    return stacked(found) if len(found) > 1 else found[0]


@dataclass(slots=True)
class Stepper:
    """What all steps of a run have in common. `towers` may be wrapped by DDP or FSDP."""

    towers: nn.Module
    objective: Objective
    part: int = 0  # samples of this rank that the towers hold at once; 0: all
    autocast: Callable[[], AbstractContextManager[Any]] = nullcontext
    scaler: torch.amp.GradScaler | None = None
    pad: int = 0

    def backward(self, batch: Batch, *, share: float, seed: int, last: bool) -> Values:
        """Add `share` of the loss's gradients to the parameters'; the terms' values are returned.

        `seed` is for whatever the towers draw (dropout). `last`: exchange gradients between ranks
        now; the earlier ones of several batches wait for it.
        """
        if self.part and self.part < len(batch.images):
            return self._cached(batch, share, seed, last)
        torch.manual_seed(seed)
        with self._waiting(not last):
            features = self._encode(batch)
            loss, values = self.objective(batch, join(features))
            self._send_back(loss, features, share)
        return values

    def _cached(self, batch: Batch, share: float, seed: int, last: bool) -> Values:
        parts = list(split(batch, self.part))
        first: list[Features] = []
        for number, part in enumerate(parts):
            torch.manual_seed(seed + number)
            with torch.no_grad():
                first.append(self._encode(part))
        leaves = [_leaves(features) for features in first]
        # Scale and bias: their gradients are whole already, and go with the last part.
        own: dict[str, Any] = {
            n: v.detach().requires_grad_() for n, v in _scalars(first[-1]).items()
        }
        features = replace(stacked(leaves), **own)
        loss, values = self.objective(batch, join(features))
        self._send_back(loss, features, share)
        for number, (part, leaf) in enumerate(zip(parts, leaves, strict=True)):
            final = number == len(parts) - 1
            torch.manual_seed(seed + number)
            with self._waiting(not (final and last)):
                again = self._encode(part)
                carried = again.scale.new_zeros(())
                for name, value in _scalars(again).items():
                    grad = own[name].grad
                    carried = carried + value * (grad if final and grad is not None else 0)
                for vectors, grad in zip(_vectors(again), _gradients(leaf), strict=True):
                    if grad is not None:
                        carried = carried + (vectors * grad).sum()
                carried.backward()  # type: ignore[no-untyped-call]
        return values

    def _encode(self, batch: Batch) -> Features:
        return encode(self.towers, batch, 0, self.pad, self.autocast)

    def _send_back(self, loss: Tensor, features: Features, share: float) -> None:
        # Scale and bias are in it even where no term uses them: DDP waits for their gradients.
        loss = share * (loss + sum(0 * value for value in _scalars(features).values()))
        if self.scaler is not None:
            loss = self.scaler.scale(loss)
        loss.backward()  # type: ignore[no-untyped-call]

    def _waiting(self, wait: bool) -> AbstractContextManager[Any]:
        """DDP exchanges gradients in every backward pass unless told not to."""
        if wait and isinstance(self.towers, nn.parallel.DistributedDataParallel):
            return self.towers.no_sync()
        if isinstance(self.towers, torch.distributed.fsdp.FSDPModule):
            self.towers.set_requires_gradient_sync(not wait)
        return nullcontext()


# --- vectors as leaves of the second graph -----------------------------------------------------


def _scalars(features: Features) -> dict[str, Tensor]:
    """The model's own numbers among the features."""
    return {n: v for n in ("scale", "bias") if (v := getattr(features, n)) is not None}


def _leaves(features: Features) -> Features:
    own = {n: getattr(features, n).detach().requires_grad_() for n in names_of(features)}
    return replace(features, **own, hard=features.hard and _leaves(features.hard))


def _vectors(features: Features) -> list[Tensor]:
    mine = [getattr(features, name) for name in names_of(features)]
    return mine if features.hard is None else mine + _vectors(features.hard)


def _gradients(features: Features) -> list[Tensor | None]:
    return [vectors.grad for vectors in _vectors(features)]


# --- the loss of a recipe ----------------------------------------------------------------------


_START = "start_"


class Loss:
    """The terms of a recipe. `start` is a frozen copy of the start, if a term asks for its vectors;
    as a teacher it is given other weights after every step.

    `fields` is what the terms read of a batch; the rest need not be encoded.
    """

    def __init__(
        self,
        terms: Sequence[losses.Term],
        start: Towers | None,
        autocast: Callable[[], AbstractContextManager[Any]],
        part: int = 0,
        captioner: nn.Module | None = None,
    ) -> None:
        """`captioner`: a decoder that says positives from the vectors of captions."""
        self.terms, self.start, self.autocast, self.part = terms, start, autocast, part
        self.captioner = captioner
        self.fields = fields_of(terms)

    def __call__(
        self, batch: Batch, features: Features, *, alone: bool = False
    ) -> tuple[Tensor, Values]:
        """`alone`: the batch is of this rank only, and no other waits for it."""
        if self.start is not None:
            vectors = self._vectors_of_start(batch)
            features = replace(features, start=vectors if alone else join(vectors))
        features = self.read(batch, features)
        values = losses.loss(features, self.terms)
        total = losses.total(values, self.terms)
        return total, {name: value.detach() for name, value in values.items()}

    def read(self, batch: Batch, features: Features) -> Features:
        """With the losses of the decoder, where there is one. Of one process: no other's texts are
        here."""
        if self.captioner is None or batch.positives is None:
            return features
        told = self.captioner(features.captions, batch.positives)
        return replace(features, reconstruction=told)

    @torch.no_grad()
    def teach(self, weights: Mapping[str, Tensor]) -> None:
        """Let the frozen copy have these weights, by the names of the trained towers."""
        assert self.start is not None
        held = dict(self.start.named_parameters())
        torch._foreach_copy_([held[name] for name in weights], list(weights.values()))

    @torch.no_grad()
    def _vectors_of_start(self, batch: Batch) -> Features:
        assert self.start is not None
        names = {n.removeprefix(_START) for n in losses.uses(self.terms) if n.startswith(_START)}
        return encode(self.start, only(batch, names), self.part, self.start.pad, self.autocast)


def fields_of(terms: Sequence[losses.Term]) -> frozenset[str]:
    """The fields of a batch that the terms read of either model."""
    return frozenset(name.removeprefix(_START) for name in losses.uses(terms))


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
