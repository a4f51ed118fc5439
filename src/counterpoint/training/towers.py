"""Where training starts: a dual encoder of open_clip or transformers, its towers as one module."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import torch
from open_clip.transformer import VisionTransformer
from torch import Tensor, distributed, nn
from torch.nn.functional import normalize

from counterpoint._util.errors import ModelError
from counterpoint.models import ImageTrunk, LoadOptions, load_model
from counterpoint.models.openclip import OpenClip, OpenClipSource, fill_folder
from counterpoint.training.batches import cut_padding

if TYPE_CHECKING:
    from counterpoint.models.hf import HfDual, HfStart

Start: TypeAlias = "OpenClip | HfStart"
# open_clip's own, and timm's, which SigLIP sees with
_BLOCKS: Final = ("ResidualAttentionBlock", "CustomResidualAttentionBlock", "Block")
_TOGETHER: Final = 128  # texts of about one length that a CPU encodes at a time


def open_start(id: str, device: str) -> Start:
    """The model that training starts from, in float32."""
    model = load_model(id, LoadOptions(device, torch=True))
    if isinstance(model, OpenClip):
        return model
    if id.startswith("hf:"):
        from counterpoint.models.hf import HfDual, HfStart

        if isinstance(model, HfDual):
            return HfStart(model)
    raise ModelError(
        "E-MODEL-UNSUITABLE",
        f"{id} cannot be trained: a start is a dual encoder of open_clip or transformers, as "
        "world:base, open_clip:ViT-B-32-quickgelu/openai, open_clip:local-dir:FOLDER or "
        "hf:google/siglip-base-patch16-224.",
    )


def towers_of(
    start: Start, model: nn.Module | None = None, trunk: ImageTrunk | None = None
) -> Towers:
    """The towers of a start; `model`: of another network of the same kind; `trunk`: a locked one,
    whose outputs come in the place of images."""
    return (Towers if isinstance(start, OpenClip) else HfTowers)(start, model, trunk)


def trunk_of(start: Start) -> ImageTrunk:
    """What locked-image tuning locks: the image tower up to its projection."""
    if isinstance(start, OpenClip):
        from counterpoint.models.openclip import OpenClipTrunk

        return OpenClipTrunk(start)
    return start.trunk()


def add_pool(id: str, start: Start, entry: dict[str, Any], seed: int) -> None:
    """Let a new pool over the tokens of its patches follow the image trunk."""
    if isinstance(start, OpenClip):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{id}: lock.pool={entry['kind']} needs a VisionTextDualEncoder of transformers; leave "
            "it out.",
        )
    start.add_pool(entry, seed)


def with_weights(
    start: Start, state: Mapping[str, Tensor], name: str, records: tuple[str, ...] = ()
) -> OpenClip | HfDual:
    """The dual encoder that a start becomes with other weights; `records` of what they saw."""
    start.model.load_state_dict(dict(state))
    if not isinstance(start, OpenClip):
        return start.renewed(records)
    source = OpenClipSource(name, name, None, records=records)
    return OpenClip(source, start.model, start.tokenizer, start.runtime)


def save_start(
    folder: Path, id: str, start: Start, state: Mapping[str, Tensor], about: Mapping[str, Any]
) -> None:
    """Put these weights in the architecture of the start `id` into an empty folder."""
    if isinstance(start, OpenClip):
        fill_folder(folder, id, start, state, about)
    else:
        start.fill_folder(folder, state, about)


def saved_id(start: Start, folder: Path) -> str:
    """The id of what `save_start` has written."""
    return f"open_clip:local-dir:{folder}" if isinstance(start, OpenClip) else f"hf:{folder}"


def parts_of(start: Start, tower: str) -> list[Any]:
    """Modules and parameters of the image or the text tower."""
    if not isinstance(start, OpenClip):
        return list(start.parts(tower))
    clip = start.model
    if tower == "image":
        return [clip.visual]
    if hasattr(clip, "text"):
        return [clip.text]
    # CLIP's own class has the parts of its text tower at its top.
    names = ("transformer", "token_embedding", "positional_embedding", "ln_final")
    parts = [getattr(clip, name) for name in (*names, "text_projection")]
    return [part for part in parts if part is not None]


def unreached(start: Start) -> list[nn.Parameter]:
    """Weights that no loss here reaches, such as CoCa's decoder."""
    if not isinstance(start, OpenClip):
        return start.unreached()
    decoders = ("multimodal_decoder", "text_decoder")
    return [p for n, p in start.model.named_parameters() if any(d in n for d in decoders)]


def checkpoint_activations(start: Start) -> None:
    if isinstance(start, OpenClip):
        start.model.set_grad_checkpointing(True)
    else:
        start.checkpoint_activations()


class Towers(nn.Module):
    """Images and texts in, unit vectors (float32), the scale and, if the model has one, the bias
    out: one call a step.

    DDP and FSDP see only calls of this module, so both towers run in one. Texts of all kinds come
    concatenated, as token ids. Where the text tower allows it, padding after the longest of a call
    is cut, as in evaluation: the vectors are the same, the work is a third of it for COCO's
    captions. On a CPU shorter and longer texts go apart, which leaves a third of that. (On a GPU
    this was slower: an H200 waits for the host.)
    """

    pad: int
    tokens: frozenset[str] = frozenset()  # what of patches and words the terms read
    captioner: nn.Module | None  # a frozen decoder with its projection, where a recipe has one

    def __init__(
        self, start: Start, model: nn.Module | None = None, trunk: ImageTrunk | None = None
    ) -> None:
        """`model`: another network of the same kind than the start's own. `trunk`: images come as
        what this one makes of them."""
        super().__init__()
        self.clip: Any = start.model if model is None else model
        self.trunk, self.captioner = trunk, None
        self.cuts_padding = start.cuts_padding
        self.context = start.context_length
        self._adapt(start)

    def _adapt(self, start: Any) -> None:
        del start
        self.pad = int(getattr(self._text_tower(), "pad_id", 0) or 0)
        if _causal(self._text_tower()):
            for module in self._text_tower().transformer.modules():
                if isinstance(module, nn.MultiheadAttention):
                    module.register_forward_pre_hook(_hint, with_kwargs=True)

    def forward(self, images: Tensor | None, texts: Tensor | None) -> tuple[Any, ...]:
        """With `tokens` there follow: patches (n, p, d), words (m, l, d) and which words count."""
        if self.tokens and images is not None and texts is not None:
            return self._with_tokens(images, texts)
        scale, bias = self._scalars()
        none = scale.new_zeros(0, 0)
        image_vectors = none if images is None else normalize(self._seen(images).float(), dim=-1)
        text_vectors = none if texts is None else self._texts(texts)
        scalars = (scale,) if bias is None else (scale, bias)
        return image_vectors, text_vectors, *scalars

    def _with_tokens(self, images: Tensor, texts: Tensor) -> tuple[Tensor | None, ...]:
        seen, patches = token_images(self.clip.visual, images)
        words = there = None
        if "caption_tokens" in self.tokens:
            said, words = token_texts(self._text_tower(), partial(self._read, texts))
            words, there = words.float(), texts != self.pad
            there[:, 0] = False  # the start of the text is the same for all
            if distributed.is_available() and distributed.is_initialized():  # alike on all ranks
                missing = (self.context or texts.shape[1]) - texts.shape[1]
                words = nn.functional.pad(words, (0, 0, 0, missing))
                there = nn.functional.pad(there, (0, missing))
        else:
            said = self._texts(texts)
        seen = normalize(seen.float(), dim=-1)
        return seen, said, *self._scalars(), patches.float(), words, there

    def _scalars(self) -> tuple[Tensor, Tensor | None]:
        bias = getattr(self.clip, "logit_bias", None)
        scale: Tensor = self.clip.logit_scale.float().exp().reshape(())
        return scale, None if bias is None else bias.float().reshape(())

    def blocks(self) -> Iterator[nn.Module]:
        """The transformer blocks: what FSDP shards and torch compiles one by one."""
        for module in self.modules():
            if type(module).__name__ in _BLOCKS:
                yield module

    def _seen(self, images: Tensor) -> Tensor:
        if self.trunk is not None:
            outputs = images.float()
            return self.trunk.head(
                self.clip, self.trunk.noisy(outputs) if self.training else outputs
            )
        return self._images(images)

    def _images(self, images: Tensor) -> Tensor:
        found: Tensor = self.clip.encode_image(images)
        return found

    def _texts(self, tokens: Tensor) -> Tensor:
        """Unit vectors of texts; on a CPU in pieces of about one length."""
        if not self.cuts_padding or tokens.device.type != "cpu" or len(tokens) <= _TOGETHER:
            return self._read(tokens)
        place = torch.arange(1, tokens.shape[1] + 1)
        order = ((tokens != self.pad) * place).amax(1).argsort(stable=True)  # by length
        pieces = (cut_padding(piece, self.pad) for piece in torch.split(tokens[order], _TOGETHER))
        return torch.cat([self._read(piece) for piece in pieces])[order.argsort()]

    def _read(self, tokens: Tensor) -> Tensor:
        """Unit vectors of texts that are cut to the longest of them."""
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


def tokens_of(start: Start) -> frozenset[str]:
    """Which tokens the towers can show: patches of open_clip's and timm's transformers, and words
    of texts that begin and end with a sign of their own, as CLIP's do."""
    if not isinstance(start, OpenClip):
        return frozenset()
    clip, found = start.model, set[str]()
    visual = clip.visual
    own = isinstance(visual, VisionTransformer) and visual.attn_pool is None
    if own or _is_timm_transformer(visual):
        found.add("image_tokens")
    words = clip if hasattr(clip, "positional_embedding") else getattr(clip, "text", None)
    pool = getattr(words, "pool_type", getattr(words, "text_pool_type", None))
    plain = getattr(words, "cls_emb", None) is None  # CoCa's normalises what it has pooled
    if hasattr(words, "ln_final") and pool == "argmax" and plain:
        found |= {"caption_tokens", "negative_tokens"}
    return frozenset(found)


def _is_timm_transformer(visual: Any) -> bool:
    """As SigLIP's: it pools in its trunk, and a head may follow."""
    trunk, head = getattr(visual, "trunk", None), getattr(visual, "head", None)
    pools = head is not None and any(name == "pool" for name, _ in head.named_children())
    return hasattr(trunk, "num_prefix_tokens") and hasattr(trunk, "blocks") and not pools


def token_images(visual: Any, images: Tensor) -> tuple[Tensor, Tensor]:
    """Images (n, d) and their patches (n, p, d), projected alike; neither of unit length."""
    if not isinstance(visual, VisionTransformer):
        patches = visual.trunk.forward_features(images)
        pooled = visual.head(visual.trunk.forward_head(patches))
        return pooled, visual.head(patches[:, visual.trunk.num_prefix_tokens :])
    before, visual.output_tokens = visual.output_tokens, True
    try:
        pooled, tokens = visual(images)
    finally:
        visual.output_tokens = before
    return pooled, tokens if visual.proj is None else tokens @ visual.proj


def token_texts(tower: Any, encode: Callable[[], Tensor]) -> tuple[Tensor, Tensor]:
    """What `encode` makes of texts, and all of their words (m, l, d), projected alike."""
    caught: list[Tensor] = []
    hook = tower.ln_final.register_forward_hook(lambda module, given, out: caught.append(out))
    try:
        vectors = encode()
    finally:
        hook.remove()
    by = tower.text_projection
    if by is None:
        return vectors, caught[0]
    return vectors, by(caught[0]) if isinstance(by, nn.Module) else caught[0] @ by


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


class HfTowers(Towers):
    """Of a model of transformers."""

    def _adapt(self, start: Any) -> None:
        self.pad, self._start = start.pad, start

    def blocks(self) -> Iterator[nn.Module]:
        yield from self._start.blocks(self.clip)

    def _images(self, images: Tensor) -> Tensor:
        found: Tensor = self._start.embed_images(self.clip, images)
        return found

    def _read(self, tokens: Tensor) -> Tensor:
        tokens = tokens if self.cuts_padding else self._whole(tokens)
        return normalize(self._start.embed_texts(self.clip, tokens).float(), dim=-1)


@dataclass(slots=True)
class TrainableModel:
    """A model in training. `start` brings preprocessing, tokenizer and the start's fingerprint."""

    start: Start
    towers: Towers
    scale: nn.Parameter
    bias: nn.Parameter | None = None
    least_clamp: float = -math.inf  # a scale is not clamped below this logarithm

    @property
    def scalars(self) -> list[nn.Parameter]:
        return [self.scale] if self.bias is None else [self.scale, self.bias]

    def trainable(self) -> dict[str, nn.Parameter]:
        return {name: p for name, p in self.towers.named_parameters() if p.requires_grad}

    def buffers(self) -> dict[str, Tensor]:
        """What training changes beside parameters (a ResNet's running means), by name."""
        saved = self.towers.state_dict().keys()
        return {name: b for name, b in self.towers.named_buffers() if name in saved}
