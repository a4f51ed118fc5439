"""From a recipe to the parts of a training run: model, LoRA, data, loss, optimiser, precision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import deepcopy
from functools import partial
from shutil import which
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from counterpoint._util.errors import ModelError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.models import ImageTrunk, set_arithmetic
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting, TrainingData
from counterpoint.training.decoders import open_captioner
from counterpoint.training.locking import looking, recipe_start, trunk_names
from counterpoint.training.losses import terms as losses
from counterpoint.training.processes import Ranks
from counterpoint.training.recipe import Lora, Recipe, terms_of
from counterpoint.training.steps import Loss, Stepper, TrainingRun, needs_start, tokens_read
from counterpoint.training.towers import (
    Start,
    Towers,
    TrainableModel,
    checkpoint_activations,
    parts_of,
    tokens_of,
    towers_of,
    trunk_of,
    unreached,
)


def build(recipe: Recipe, ranks: Ranks, progress: Progress | None = None) -> TrainingRun:
    torch.manual_seed(recipe.seed)
    start = recipe_start(recipe, ranks.device.type)
    fingerprint = start.fingerprint
    terms = terms_of(recipe.loss)
    _refuse_unfit(recipe, start, terms)
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


def _refuse_unfit(recipe: Recipe, start: Start, terms: list[losses.Term]) -> None:
    """A start that lacks what a term reads of it."""
    biased = getattr(start.model, "logit_bias", None) is not None
    shown = tokens_of(start) if recipe.lock is None else frozenset()
    for term in terms:
        if "bias" in losses.uses([term]) and not biased:
            raise ModelError("E-MODEL-UNSUITABLE", f"{recipe.model}: {losses.no_bias(term.name)}")
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


# --- what of the model learns, and how -----------------------------------------------------------


def prepare(recipe: Recipe, start: Start, trunk: ImageTrunk | None = None) -> TrainableModel:
    """Freeze, add factors, switch activation checkpointing on: as the recipe says."""
    useless = unreached(start)
    clip = start.model.train()
    clip.requires_grad_(recipe.lora is None)
    if recipe.lora is not None:
        add_lora(clip, recipe.lora, recipe.seed, recipe.freeze, locked=trunk is not None)
    if trunk is not None:
        for part in parts_of(start, "image"):
            part.requires_grad_(False).eval()
        for parameter in trunk.head_parameters(clip):
            parameter.requires_grad_(True)
    for part in () if recipe.freeze == "none" else parts_of(start, recipe.freeze):
        part.requires_grad_(False)
    for parameter in useless:
        parameter.requires_grad_(False)
    for part in (*parts_of(start, "image"), *parts_of(start, "text")):
        if isinstance(part, nn.Module) and not any(p.requires_grad for p in part.parameters()):
            part.eval()  # no dropout, and the running means of a ResNet stand still
    if not any(p.requires_grad for p in clip.parameters()):
        raise ModelError(
            "E-RECIPE-INVALID",
            f"recipe {recipe.name}: freeze={recipe.freeze} leaves nothing to train.",
        )
    _refuse_statistics(recipe, clip)
    if recipe.checkpoint_activations:
        checkpoint_activations(start)
    scale, bias = clip.logit_scale, getattr(clip, "logit_bias", None)
    # SigLIP's scale is 117, and its bias goes with it.
    least = -math.inf if bias is None else float(scale.detach())
    return TrainableModel(start, towers_of(start, trunk=trunk), scale, bias, least)


def _refuse_statistics(recipe: Recipe, clip: nn.Module) -> None:
    """A ResNet's running means are of the batches it saw, and go with the weights of then."""
    if not any(isinstance(m, _BatchNorm) and m.training for m in clip.modules()):
        return
    for key, asked in (("cached_batch", recipe.cached_batch), ("wise", recipe.wise < 1)):
        if asked:
            raise ModelError(
                "E-RECIPE-INVALID",
                f"{key} does not go with {recipe.model}, which normalises over the batch: leave it "
                "out, or freeze=image.",
            )


def decayed(name: str, parameter: Tensor) -> bool:
    """Weight decay is for matrices: not for norms, biases and the scale."""
    return parameter.ndim >= 2 and not name.endswith(("bias", "logit_scale"))


def _is_scalar(name: str, parameter: Tensor) -> bool:
    return not parameter.ndim or name.endswith(("logit_scale", "logit_bias"))


def groups(named: dict[str, nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser, in a fixed order; a group without members is left out."""
    chosen = [
        ([p for name, p in named.items() if decayed(name, p)], weight_decay),
        ([p for n, p in named.items() if not decayed(n, p) and not _is_scalar(n, p)], 0.0),
        # scale and bias, which FSDP leaves whole
        ([p for n, p in named.items() if _is_scalar(n, p)], 0.0),
    ]
    return [{"params": members, "weight_decay": decay} for members, decay in chosen if members]


def compile_blocks(towers: Towers, model: str) -> None:
    """One block after the other, and not the towers: those of a kind share what is compiled, and
    names of weights stay as they are."""
    if not any(map(which, ("cc", "gcc", "clang"))):
        raise ModelError(
            "E-COMPILER-MISSING",
            "compile=true needs a C compiler: install gcc or clang, or leave it out.",
        )
    found = list(towers.blocks())
    if not found:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"compile=true: {model} has no transformer blocks that are known here.",
        )
    for block in found:
        block.compile()


_HALF: Final = {"bf16": torch.bfloat16, "fp16": torch.float16}


def autocast(precision: str, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """For the towers: weights stay float32, matrix products are done in half precision."""
    half = _HALF.get(precision)
    return partial(torch.autocast, device.type, dtype=half, enabled=half is not None)


@contextmanager
def arithmetic(precision: str, device: torch.device) -> Iterator[None]:
    """For a whole run. Half precision aside, float32 is float32: torch would round to TF32.

    On a CPU without instructions for half precision torch finds out in the first product, and from
    then on computes everything in another way, float32 too: a resumed run would begin with what the
    undisturbed one had left behind. So it is made to find out here, and to forget afterwards.
    """
    set_arithmetic()
    before = torch._C._get_mkldnn_enabled(), torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = True  # a run's images have one shape
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "mkldnn_matmul failed")
        if device.type == "cpu" and precision in _HALF:
            # a product of this form finds out; one of two matrices does not
            probe = torch.ones(8, 5, 32, dtype=_HALF[precision])
            torch.nn.functional.linear(probe, torch.ones(96, 32, dtype=_HALF[precision]))
        try:
            yield
        finally:
            torch._C._set_mkldnn_enabled(before[0])
            torch.backends.cudnn.benchmark = before[1]


# --- LoRA as parametrisations of weights ---------------------------------------------------------
#
# peft's layer for `nn.MultiheadAttention`, which open_clip uses, adds the product of the factors to
# the frozen weight before each call and subtracts it afterwards. The frozen weights drift by
# rounding, and a resumed run differs. Here W is constant, and W + alpha / rank * B A is computed on
# each use: autograd, DDP and activation checkpointing see an ordinary weight.


_INSIDE: Final = "parametrizations"
_PROJECTIONS: Final = ("proj", "text_projection", "visual_projection")
# Modules whose linear layers are attention or MLP: of timm, and of transformers' CLIP and BERT.
_ATTENTION: Final = {"attn", "self_attn", "attention"}
_MLP: Final = {"mlp", "intermediate", "output"}
_FIRST: Final = (
    *("visual.conv1", "patch_embed.proj", "patch_embedding", "patch_embeddings.projection"),
)


class Factors(nn.Module):
    """W -> W + alpha / rank * B A. B starts at zero, A as a linear layer's weight (Hu et al.)."""

    def __init__(self, weight: Tensor, rank: int, alpha: float, seed: int) -> None:
        super().__init__()
        rows, columns = weight.shape[0], weight[0].numel()
        made = torch.Generator().manual_seed(seed)
        first = torch.empty(rank, columns).uniform_(-1, 1, generator=made) * columns**-0.5
        self.lora_a = nn.Parameter(first.to(weight.device))
        self.lora_b = nn.Parameter(torch.zeros(rows, rank, device=weight.device))
        self.share = alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.share * (self.lora_b @ self.lora_a).view_as(weight)


def add_lora(
    model: nn.Module, lora: Lora, seed: int, frozen: str = "none", locked: bool = False
) -> None:
    """Put factors beside the weights that the recipe names; all else stays frozen.

    A `locked` image tower gets none.

    TSVLC and DAC adapt attention, MLP and the first convolution of both
    towers: `targets: [attention, mlp, conv]`.
    """
    found = [one for one in _weights(model) if not (locked and one[2] == "image")]
    _refuse_gaps({(t, kind) for *_, t, kind in found}, lora, {frozen, "image" if locked else ""})
    places = [(module, name) for module, name, _, kind in found if kind in lora.targets]
    for number, (module, name) in enumerate(places):
        weight = getattr(module, name)
        # every weight has its own start, whatever else is adapted before it
        factors = Factors(weight, lora.rank, lora.alpha, (seed * 1_000_003 + number) % 2**63)
        parametrize.register_parametrization(module, name, factors)


def _refuse_gaps(found: set[tuple[str, str]], lora: Lora, frozen: set[str]) -> None:
    """A tower that is left out in silence would be one that does not learn."""
    for kind in lora.targets:
        towers = {"image"} if kind == "conv" else {"image", "text"}
        learning = towers - frozen
        missing = sorted(tower for tower in learning if (tower, kind) not in found)
        some = kind == "projection" and len(missing) < len(learning)  # not every tower has one
        if missing and not some:
            raise ModelError(
                "E-LORA-TARGET",
                f"LoRA finds no weights of the kind {kind!r} in the model's "
                f"{' and '.join(missing)} tower; name other lora.targets, freeze the tower, or "
                "train without LoRA.",
            )


def _weights(model: nn.Module) -> Iterator[tuple[nn.Module, str, str, str]]:
    """Weights that may be adapted, each with its tower and its kind."""
    whole: list[str] = []  # modules whose weights are known already
    for path, module in model.named_modules():
        tower = "image" if path.startswith(("visual", "vision_", "image_")) else "text"
        above = path.split(".")[:-1]
        if isinstance(module, nn.MultiheadAttention):
            if module.in_proj_weight is not None:
                yield module, "in_proj_weight", tower, "attention"
            yield module.out_proj, "weight", tower, "attention"
            whole.append(f"{path}.")
        elif path.startswith(tuple(whole)):
            continue
        elif module._parameters.get("in_proj_weight") is not None:  # open_clip's other attention
            yield module, "in_proj_weight", tower, "attention"
        elif isinstance(module, nn.Conv2d | nn.Linear) and path.endswith(_FIRST):
            yield module, "weight", tower, "conv"
        elif isinstance(module, nn.Linear) and _ATTENTION & set(above):
            yield module, "weight", tower, "attention"
        elif isinstance(module, nn.Linear) and _MLP & set(above[-1:]):
            yield module, "weight", tower, "mlp"
        elif isinstance(module, nn.Linear) and path.rpartition(".")[2] in _PROJECTIONS:
            yield module, "weight", tower, "projection"
        for name in _PROJECTIONS:
            held = module._parameters.get(name)
            if held is not None and held.ndim == 2:
                yield module, name, tower, "projection"


@torch.no_grad()
def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict under open_clip's own names, with the factors merged in, as copies."""
    state = {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if f"{_INSIDE}." not in name
    }
    for path, module in model.named_modules():
        if parametrize.is_parametrized(module):
            for name in module.parametrizations:
                state[f"{path}.{name}" if path else name] = getattr(module, name).detach().clone()
    return state
