"""The model in training: any open_clip model, its two towers as one module; LoRA; precision."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from shutil import which
from typing import TYPE_CHECKING, Any, Final

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils import parametrize

from counterpoint._util.errors import ModelError
from counterpoint.models import LoadOptions, load_model, set_arithmetic
from counterpoint.models.openclip import OpenClip

if TYPE_CHECKING:
    from counterpoint.training.recipe import Lora, Recipe


# --- LoRA as parametrisations of weights ---------------------------------------------------------
#
# peft's layer for `nn.MultiheadAttention`, which open_clip uses, adds the product of the factors to
# the frozen weight before each call and subtracts it afterwards. The frozen weights drift by
# rounding, and a resumed run differs. Here W is constant, and W + alpha / rank * B A is computed on
# each use: autograd, DDP and activation checkpointing see an ordinary weight.


_INSIDE: Final = "parametrizations"
_PROJECTIONS: Final = ("proj", "text_projection")


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


def add_lora(model: nn.Module, lora: Lora, seed: int, frozen: str = "none") -> None:
    """Put factors beside the weights that the recipe names; all else stays frozen.

    TSVLC and DAC adapt attention, MLP and the first convolution of both
    towers: `targets: [attention, mlp, conv]`.
    """
    found = list(_weights(model))
    _refuse_gaps({(tower, kind) for *_, tower, kind in found}, lora, frozen)
    places = [(module, name) for module, name, _, kind in found if kind in lora.targets]
    for number, (module, name) in enumerate(places):
        weight = getattr(module, name)
        # every weight has its own start, whatever else is adapted before it
        factors = Factors(weight, lora.rank, lora.alpha, (seed * 1_000_003 + number) % 2**63)
        parametrize.register_parametrization(module, name, factors)


def _refuse_gaps(found: set[tuple[str, str]], lora: Lora, frozen: str) -> None:
    """A tower that is left out in silence would be one that does not learn."""
    for kind in lora.targets:
        towers = {"image"} if kind == "conv" else {"image", "text"}
        learning = towers - {frozen}
        missing = sorted(tower for tower in learning if (tower, kind) not in found)
        some = kind == "projection" and len(missing) < len(learning)  # not every tower has one
        if missing and not some:
            raise ModelError(
                "E-LORA-TARGET",
                f"LoRA finds no weights of the kind {kind!r} in the model's "
                f"{' and '.join(missing)} tower; name other lora.targets, freeze the tower, or "
                "train without LoRA.",
                target=kind,
                towers=missing,
            )


def _weights(model: nn.Module) -> Iterator[tuple[nn.Module, str, str, str]]:
    """Weights that may be adapted, each with its tower and its kind."""
    for path, module in model.named_modules():
        tower = "image" if path.startswith("visual") else "text"
        if isinstance(module, nn.MultiheadAttention):
            if module.in_proj_weight is not None:
                yield module, "in_proj_weight", tower, "attention"
            yield module.out_proj, "weight", tower, "attention"
        elif isinstance(module, nn.Linear) and path.split(".")[-2:-1] == ["mlp"]:
            yield module, "weight", tower, "mlp"
        elif isinstance(module, nn.Conv2d) and path.endswith("visual.conv1"):
            yield module, "weight", tower, "conv"
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


class Towers(nn.Module):
    """Images and texts in, unit vectors (float32) and the scale out: one call a step.

    DDP and FSDP see only calls of this module, so both towers run in one. Texts of all kinds come
    concatenated, as token ids. Where the text tower allows it, padding after the longest of a call
    is cut, as in evaluation: the vectors are the same, the work is a third of it for COCO's
    captions. (Several calls, of shorter and of longer texts, compute less still, and were slower:
    an H200 waits for the host.)
    """

    def __init__(self, start: OpenClip, model: nn.Module | None = None) -> None:
        """`model`: another network of the same kind than the start's own."""
        super().__init__()
        self.clip: Any = start.model if model is None else model
        self.cuts_padding = start.cuts_padding
        self.context = start.context_length
        self.pad = int(getattr(self._text_tower(), "pad_id", 0) or 0)
        if _causal(self._text_tower()):
            for module in self._text_tower().transformer.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.register_forward_pre_hook(_hint, with_kwargs=True)

    def forward(self, images: Tensor | None, texts: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        scale = self.clip.logit_scale.float().exp().reshape(())
        none = scale.new_zeros(0, 0)
        image_vectors = none if images is None else self._images(images)
        text_vectors = none if texts is None else self._texts(texts)
        return image_vectors, text_vectors, scale

    def _images(self, images: Tensor) -> Tensor:
        return normalize(self.clip.encode_image(images).float(), dim=-1)

    def _texts(self, tokens: Tensor) -> Tensor:
        if not self.cuts_padding:
            return normalize(self.clip.encode_text(self._whole(tokens)).float(), dim=-1)
        length = tokens.shape[1]  # the data has cut them to the longest of the batch
        tower = self._text_tower()
        cut: dict[str, Tensor] = {"positional_embedding": tower.positional_embedding[:length]}
        if getattr(tower, "attn_mask", None) is not None:
            cut["attn_mask"] = tower.attn_mask[:length, :length]
        given = (None, tokens) if tower is self.clip else (tokens,)
        # No weight is tied to these two; looking for ties takes longer than a layer.
        out = torch.func.functional_call(tower, cut, given, tie_weights=False)
        if isinstance(out, dict):
            out = out["text_features"]
        elif isinstance(out, tuple):  # (images, texts, scale), or (vectors, token states)
            out = out[1] if tower is self.clip else out[0]
        return normalize(out.float(), dim=-1)

    def _whole(self, tokens: Tensor) -> Tensor:
        """Tokens padded to the whole context again, for towers that want all of it."""
        missing = (self.context or tokens.shape[1]) - tokens.shape[1]
        return nn.functional.pad(tokens, (0, missing), value=self.pad) if missing > 0 else tokens

    def _text_tower(self) -> Any:
        return self.clip if hasattr(self.clip, "positional_embedding") else self.clip.text


def _causal(tower: Any) -> bool:
    """Whether texts are masked so that a token sees those before it, and in no other way."""
    mask = getattr(tower, "attn_mask", None)
    if mask is None or getattr(tower, "cls_emb", None) is not None:  # CoCa adds to the mask
        return False
    return torch.equal(mask, torch.full_like(mask, -torch.inf).triu(1))


def _hint(module: nn.Module, args: Any, kwargs: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """torch has faster attention for a mask that is said to be causal than for any other."""
    del module
    return args, {**kwargs, "is_causal": True}


@dataclass(slots=True)
class TrainableModel:
    """A model in training. `start` brings preprocessing, tokenizer and the start's fingerprint."""

    start: OpenClip
    towers: Towers
    scale: nn.Parameter

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.towers.named_parameters() if p.requires_grad}

    def buffers(self) -> dict[str, Tensor]:
        """What training changes beside parameters (a ResNet's running means), by name."""
        saved = self.towers.state_dict().keys()
        return {name: b for name, b in self.towers.named_buffers() if name in saved}


def open_start(id: str, device: str) -> OpenClip:
    """The model that training starts from, in float32."""
    model = load_model(id, LoadOptions(device))
    if not isinstance(model, OpenClip):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id} cannot be trained: a start is an open_clip model, as world:base, "
            "open_clip:ViT-B-32-quickgelu/openai or open_clip:local-dir:FOLDER.",
            model=id,
        )
    if getattr(model.model, "logit_bias", None) is not None:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id} cannot be trained: it was made with a sigmoid loss (it has a logit bias), and "
            "the losses here are CLIP's.",
            model=id,
        )
    return model


def prepare(recipe: Recipe, start: OpenClip) -> TrainableModel:
    """Freeze, add factors, switch activation checkpointing on: as the recipe says."""
    clip = start.model.train()
    clip.requires_grad_(recipe.lora is None)
    if recipe.lora is not None:
        add_lora(clip, recipe.lora, recipe.seed, recipe.freeze)
    if recipe.freeze == "image":
        clip.visual.requires_grad_(False)
        clip.visual.eval()  # a ResNet's running means stand still too
    elif recipe.freeze == "text":
        for part in _text_parts(clip):
            part.requires_grad_(False)
    for name, parameter in clip.named_parameters():
        if (
            "multimodal_decoder" in name or "text_decoder" in name
        ):  # CoCa's: no loss here reaches it
            parameter.requires_grad_(False)
    if not any(p.requires_grad for p in clip.parameters()):
        raise ModelError(
            "E-RECIPE-INVALID",
            f"recipe {recipe.name}: freeze={recipe.freeze} leaves nothing to train.",
            recipe=recipe.name,
            keys=["freeze"],
        )
    _refuse_statistics(recipe, clip)
    if recipe.checkpoint_activations:
        clip.set_grad_checkpointing(True)
    return TrainableModel(start, Towers(start), clip.logit_scale)


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
                recipe=recipe.name,
                keys=[key],
            )


def _text_parts(clip: Any) -> list[Any]:
    """Modules and parameters of the text tower; CLIP's own class has them at its top."""
    if hasattr(clip, "text"):
        return [clip.text]
    names = ("transformer", "token_embedding", "positional_embedding", "ln_final")
    parts = [getattr(clip, name) for name in (*names, "text_projection")]
    return [part for part in parts if part is not None]


def decayed(name: str, parameter: Tensor) -> bool:
    """Weight decay is for matrices: not for norms, biases and the scale."""
    return parameter.ndim >= 2 and not name.endswith(("bias", "logit_scale"))


def groups(named: dict[str, nn.Parameter], weight_decay: float) -> list[dict[str, Any]]:
    """Parameter groups for the optimiser, in a fixed order; a group without members is left out."""
    chosen = [
        ([p for name, p in named.items() if decayed(name, p)], weight_decay),
        ([p for name, p in named.items() if not decayed(name, p) and p.ndim], 0.0),
        ([p for p in named.values() if not p.ndim], 0.0),  # the scale, which FSDP leaves whole
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
    found = list(blocks(towers))
    if not found:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"compile=true: {model} has no transformer blocks of open_clip's.",
            model=model,
        )
    for block in found:
        block.compile()


def blocks(towers: Towers) -> Iterator[nn.Module]:
    """The transformer blocks: what FSDP shards one by one."""
    for module in towers.modules():
        if type(module).__name__ in ("ResidualAttentionBlock", "CustomResidualAttentionBlock"):
            yield module


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
