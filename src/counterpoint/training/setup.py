"""From a recipe to the parts of a training run: model, data, loss, optimiser."""

from __future__ import annotations

import math
import warnings
from copy import deepcopy

import torch
from torch import nn

from counterpoint._util.errors import ModelError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.training.data import open_data
from counterpoint.training.data.base import Setting, TrainingData
from counterpoint.training.decoders import open_captioner
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
from counterpoint.training.steps import Loss, Stepper, TrainingRun, needs_start, tokens_read
from counterpoint.training.towers import Start, tokens_of, towers_of, trunk_of


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
    frozen = None
    if needs_start(terms):  # a copy of the start for the terms that compare with it
        frozen = towers_of(start, deepcopy(start.model), trunk).eval().requires_grad_(False)
    origin = {}
    if recipe.wise < 1:  # what is not trained is not mixed: rounding would change it
        locked = set() if trunk is None else trunk_names(start, trunk)
        named = start.model.named_parameters()
        origin = {n: w.detach().to("cpu", copy=True) for n, w in named if n not in locked}
    trained = prepare(recipe, start, trunk)
    trained.towers.tokens = tokens_read(terms)
    if recipe.decoder is not None:  # a part of the towers: its projection is trained with them
        if ranks.size > 1:
            raise ModelError(
                "E-MODEL-UNSUITABLE",
                f"decoder={recipe.decoder} works in one process, and there are {ranks.size}; start "
                "it without torchrun, with cached_batch for less memory.",
            )
        captioner = open_captioner(recipe.decoder, start, trained.towers, recipe.seed)
        trained.towers.captioner = captioner.to(ranks.device)
    if trunk is not None and not ranks.first:
        ranks.wait()  # the first rank looks at the images
    data = open_data(
        Setting(
            recipe.data,
            start.transform,  # and not `preprocess`: the data takes it apart
            start.tokenizer,
            recipe.batch,
            recipe.seed,
            rank=ranks.rank,
            world_size=ranks.size,
            device=ranks.device,
            pad=trained.towers.pad,
            cut=start.cuts_padding,
            progress=progress or Quiet(),
            see=None if trunk is None else looking(trunk, recipe.data, ranks.device, progress),
        )
    )
    if trunk is not None and ranks.first:
        ranks.wait()
    if not ranks.first:
        data.problems.clear()  # so far those of the whole file, which every rank has opened
    cast = autocast(recipe.precision, ranks.device)
    if recipe.compile:
        compile_blocks(trained.towers, recipe.model)
    towers = _wrapped(trained, recipe, ranks)
    loss = Loss(terms, frozen, cast, recipe.cached_batch, trained.towers.captioner)
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
