"""From gradients to weights: one optimiser step, and what goes with it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor

if TYPE_CHECKING:
    from counterpoint.training.building import Run


# --- The learning rate of a step ----------------------------------------------------------------


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
def update(run: Run, step: int) -> dict[str, Tensor | float]:
    """Take the step. What comes back is for the log; tensors are still on the device."""
    recipe = run.recipe
    rate = learning_rate(step, run.steps, recipe.lr, recipe.warmup, recipe.schedule)
    for group in run.optimiser.param_groups:
        group["lr"] = rate
    if recipe.sharded and run.trained.scale.grad is not None:  # FSDP does not look after it
        torch.distributed.all_reduce(run.trained.scale.grad)
        run.trained.scale.grad /= run.ranks.size
    scaler = run.stepper.scaler
    if scaler is not None:
        scaler.unscale_(run.optimiser)
    norm = clip_gradients(list(run.parameters.values()), recipe.grad_clip)
    if scaler is None:
        run.optimiser.step()
    else:
        scaler.step(run.optimiser)  # left out where a gradient overflowed; the scale then falls
        scaler.update()
    scale = run.trained.scale
    if recipe.clamp_scale is not None:
        scale.clamp_(0, math.log(recipe.clamp_scale))
    if recipe.ema is not None:
        own = [local(p) for p in run.parameters.values()]
        torch._foreach_lerp_([local(a) for a in run.averaged.values()], own, 1 - recipe.ema)
    return {"lr": rate, "grad_norm": norm, "scale": scale.detach().exp()}


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
