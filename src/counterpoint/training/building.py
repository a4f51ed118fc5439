"""From a recipe to the parts of a training run: model, data, loss, optimiser."""

from __future__ import annotations

import math
import warnings
from copy import deepcopy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from counterpoint._util.errors import ModelError
from counterpoint._util.progress import Progress
from counterpoint.models import ImageTrunk
from counterpoint.training.data.base import TrainingData
from counterpoint.training.data.opening import open_data
from counterpoint.training.locking import looking, recipe_start, trunk_names
from counterpoint.training.losses import terms as losses
from counterpoint.training.model import (
    TrainableModel,
    autocast,
    compile_blocks,
    groups,
    prepare,
)
from counterpoint.training.processes import Ranks
from counterpoint.training.recipe import Recipe, terms_of
from counterpoint.training.starts import Start, Towers, tokens_of, towers_of, trunk_of
from counterpoint.training.steps import Loss, Stepper, needs_start, tokens_read

if TYPE_CHECKING:
    from counterpoint.training.decoders import Captioner


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


def build(recipe: Recipe, ranks: Ranks, progress: Progress | None = None) -> TrainingRun:
    torch.manual_seed(recipe.seed)
    start = recipe_start(recipe, ranks.device.type)
    fingerprint = start.fingerprint
    terms = terms_of(recipe.loss)
    _refuse_missing_bias(recipe.model, start, terms)
    _refuse_missing_tokens(recipe, start, terms)
    trunk = None
    if recipe.lock is not None:
        trunk = trunk_of(start)
        trunk.noise = recipe.lock.noise
    frozen = _frozen(start, trunk) if needs_start(terms) else None
    origin = _origin(start) if recipe.wise < 1 else {}
    if trunk is not None:  # what is not trained is not mixed: rounding would change it
        locked = trunk_names(start, trunk)
        origin = {n: w for n, w in origin.items() if n not in locked}
    trained = prepare(recipe, start, trunk)
    trained.towers.tokens = tokens_read(terms)
    captioner = None if recipe.decoder is None else _captioner(recipe, trained, ranks)
    if trunk is not None and not ranks.first:
        ranks.wait()  # the first rank looks at the images
    data = open_data(
        recipe.data,
        start.transform,  # and not `preprocess`: the data takes it apart
        start.tokenizer,
        batch=recipe.batch,
        seed=recipe.seed,
        rank=ranks.rank,
        world_size=ranks.size,
        device=ranks.device,
        pad=trained.towers.pad,
        cut=start.cuts_padding,
        progress=progress,
        see=None if trunk is None else looking(trunk, recipe.data.vectors, ranks.device, progress),
    )
    if trunk is not None and ranks.first:
        ranks.wait()
    if not ranks.first:
        data.problems.clear()  # so far those of the whole file, which every rank has opened
    cast = autocast(recipe.precision, ranks.device)
    if recipe.compile:
        compile_blocks(trained.towers, recipe.model)
    towers = _wrapped(trained, recipe, ranks)
    loss = Loss(terms, frozen, cast, recipe.cached_batch)
    loss.captioner = captioner
    scaler = torch.amp.GradScaler(ranks.device.type) if recipe.precision == "fp16" else None
    parameters = trained.trainable()
    run = TrainingRun(
        recipe,
        ranks,
        trained,
        Stepper(towers, loss, recipe.cached_batch, cast, scaler, trained.towers.pad),
        loss,
        _optimiser(recipe, parameters, ranks.device),
        data,
        _steps(recipe, data),
        fingerprint,
        origin=origin,
        trunk=trunk,
    )
    if recipe.ema is not None:
        run.averaged = {name: p.detach().clone() for name, p in parameters.items()}
    return run


def _refuse_missing_bias(id: str, start: Start, terms: list[losses.Term]) -> None:
    if getattr(start.model, "logit_bias", None) is not None:
        return
    for term in terms:
        if "bias" in losses.uses([term]):
            raise ModelError("E-MODEL-UNSUITABLE", f"{id}: {losses.no_bias(term.name)}")


def _refuse_missing_tokens(recipe: Recipe, start: Start, terms: list[losses.Term]) -> None:
    shown = tokens_of(start) if recipe.lock is None else frozenset()
    for term in terms:
        if missing := sorted(tokens_read([term]) - shown):
            what = "the patches of images" if "image_tokens" in missing else "the words of texts"
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"{recipe.model}: the loss term {term.name!r} needs {what} before they are pooled, "
                "which this model does not show; use a transformer of open_clip, such as "
                f"open_clip:ViT-B-32-quickgelu/openai, without lock, or loss.{term.name}.weight=0.",
            )


def _captioner(recipe: Recipe, trained: TrainableModel, ranks: Ranks) -> Captioner:
    """A part of the towers: its projection is trained and checkpointed with them."""
    from counterpoint.training.decoders import open_captioner

    assert recipe.decoder is not None
    if ranks.size > 1:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"decoder={recipe.decoder} works in one process, and there are {ranks.size}; start it "
            "without torchrun, with cached_batch for less memory.",
        )
    found = open_captioner(recipe.decoder, trained.start, trained.towers, recipe.seed)
    trained.towers.captioner = found.to(ranks.device)
    return found


def _frozen(start: Start, trunk: ImageTrunk | None) -> Towers:
    """A copy of the start for the terms that compare with it."""
    return towers_of(start, deepcopy(start.model), trunk).eval().requires_grad_(False)


def _origin(start: Start) -> dict[str, Tensor]:
    return {n: w.detach().to("cpu", copy=True) for n, w in start.model.named_parameters()}


def _steps(recipe: Recipe, data: TrainingData) -> int:
    if recipe.steps is not None:
        return recipe.steps
    assert recipe.epochs is not None
    return max(1, math.ceil(recipe.epochs * data.steps_per_epoch / recipe.accumulate))


def _optimiser(
    recipe: Recipe, parameters: dict[str, nn.Parameter], device: torch.device
) -> torch.optim.Optimizer:
    return torch.optim.AdamW(
        groups(parameters, recipe.weight_decay),
        lr=recipe.lr,
        betas=recipe.betas,
        eps=recipe.eps,
        fused=device.type == "cuda" and not recipe.sharded,
    )


def _wrapped(trained: TrainableModel, recipe: Recipe, ranks: Ranks) -> nn.Module:
    towers = trained.towers
    if recipe.sharded:
        from torch.distributed.fsdp import fully_shard

        for block in towers.blocks():
            fully_shard(block)
        # a scalar cannot be sharded; every rank has its gradient
        fully_shard(towers, ignored_params=set(trained.scalars))
        return towers
    if ranks.size == 1:
        return towers
    device = [ranks.device] if ranks.device.type == "cuda" else None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch means to rename the option
        # Buffers (masks, a ResNet's running means) are each rank's own; rank 0's are saved.
        return nn.parallel.DistributedDataParallel(towers, device, broadcast_buffers=False)
