"""The model in training: any open_clip model, its two towers as one module."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from shutil import which
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm

from counterpoint.errors import ModelError
from counterpoint.models import LoadOptions, load_model
from counterpoint.models.open_clip import OpenClip
from counterpoint.train.lora import add_lora

if TYPE_CHECKING:
    from counterpoint.train.recipe import Recipe


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
class Trained:
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
            f"{id} cannot be trained: a start is an open_clip model, as world:base, "
            "open_clip:ViT-B-32-quickgelu/openai or open_clip:local-dir:FOLDER."
        )
    if getattr(model.model, "logit_bias", None) is not None:
        raise ModelError(
            f"{id} cannot be trained: it was made with a sigmoid loss (it has a logit bias), and "
            "the losses here are CLIP's."
        )
    return model


def prepare(recipe: Recipe, start: OpenClip) -> Trained:
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
        raise ModelError(f"recipe {recipe.name}: freeze={recipe.freeze} leaves nothing to train.")
    _refuse_statistics(recipe, clip)
    if recipe.checkpoint_activations:
        clip.set_grad_checkpointing(True)
    return Trained(start, Towers(start), clip.logit_scale)


def _refuse_statistics(recipe: Recipe, clip: nn.Module) -> None:
    """A ResNet's running means are of the batches it saw, and go with the weights of then."""
    if not any(isinstance(m, _BatchNorm) and m.training for m in clip.modules()):
        return
    for key, asked in (("cached_batch", recipe.cached_batch), ("wise", recipe.wise < 1)):
        if asked:
            raise ModelError(
                f"{key} does not go with {recipe.model}, which normalises over the batch: leave it "
                "out, or freeze=image."
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
        raise ModelError("compile=true needs a C compiler: install gcc or clang, or leave it out.")
    found = list(blocks(towers))
    if not found:
        raise ModelError(f"compile=true: {model} has no transformer blocks of open_clip's.")
    for block in found:
        block.compile()


def blocks(towers: Towers) -> Iterator[nn.Module]:
    """The transformer blocks: what FSDP shards one by one."""
    for module in towers.modules():
        if type(module).__name__ in ("ResidualAttentionBlock", "CustomResidualAttentionBlock"):
            yield module
