"""`xvlm:FILE`: X-VLM, from a checkpoint as its authors saved it (Zeng et al. 2022).

A Swin Transformer reads the image: the mean of its tokens stands before them. The first half of
BERT's layers read the caption, the other layers also attend to the image. The matching head reads
what became of [CLS]. A score is the head's logit of a match, by which the authors rank; with
`?score=aro` behind the file, the cosine of the two projections is added, as in ARO's code.

All sizes are read from the shapes of the weights. The authors' tokenizer is BERT's without [SEP];
its `vocab.txt` lies beside the file, or is that of bert-base-uncased on the hub.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torchvision
from open_clip import OPENAI_DATASET_MEAN, OPENAI_DATASET_STD
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torchvision.models.swin_transformer import SwinTransformer
from torchvision.transforms import Compose, InterpolationMode, Normalize, Resize, ToTensor

from counterpoint._util.errors import MissingExtraError, ModelError, NotFoundError
from counterpoint._util.registry import read_options
from counterpoint._util.untrusted import shortened
from counterpoint.images import Picture
from counterpoint.models.hub import fetched_file
from counterpoint.models.registry import ARO, LoadOptions
from counterpoint.models.torch_models import Runtime, TowerPixels, fingerprint, memory_errors, unit
from counterpoint.models.weights import (
    Tensors,
    explained_as,
    read_weights,
    refuse_non_finite,
    some,
    unwrap,
)
from counterpoint.scoring import in_threads, once

_MATCH: Final = 1  # of the matching head's two logits
_HEAD_WIDTH: Final = 64  # of every BERT; the shapes do not show it
_STRIDE: Final = 4  # pixels of a patch, along each side
_TOKENS: Final = 40  # the authors' longest caption, [CLS] included
_VOCABULARY: Final = "vocab.txt"
_BERT: Final = "google-bert/bert-base-uncased"
_NEEDED: Final = (
    "vision_encoder.layers.0.blocks.0.attn.relative_position_bias_table",
    "vision_encoder.patch_embed.proj.weight",
    "vision_encoder.norm.weight",
    "text_encoder.embeddings.word_embeddings.weight",
    "text_encoder.embeddings.position_embeddings.weight",
    "text_encoder.encoder.layer.0.intermediate.dense.weight",
    "vision_proj.weight",
    "itm_head.3.weight",
)
# Weights of other tasks, buffers, and the temperature, which changes no score.
_UNUSED: Final = re.compile(
    r"temp|bbox_head\..*|text_encoder\.(cls|pooler)\..*"
    r"|.*(position_ids|relative_position_index|attn_mask)"
)


class Attention(nn.Module):
    """BERT's attention and what follows it. The names are those of the checkpoint."""

    def __init__(self, width: int, seen: int) -> None:
        super().__init__()
        self.heads = width // _HEAD_WIDTH
        projections = {"query": nn.Linear(width, width)}
        projections |= {name: nn.Linear(seen, width) for name in ("key", "value")}
        self.self = nn.ModuleDict(projections)
        self.output = _add_and_norm(width, width)

    def forward(
        self, words: torch.Tensor, seen: torch.Tensor, mask: torch.Tensor | None
    ) -> torch.Tensor:
        query, key, value = (
            self.self[name](given).unflatten(-1, (self.heads, -1)).transpose(1, 2)
            for name, given in (("query", words), ("key", seen), ("value", seen))
        )
        read = scaled_dot_product_attention(query, key, value, mask).transpose(1, 2).flatten(2)
        return _added(self.output, read, words)


class Layer(nn.Module):
    """A layer of BERT; with `seen`, it also attends to an image of tokens of that width."""

    def __init__(self, width: int, inner: int, seen: int | None) -> None:
        super().__init__()
        self.attention = Attention(width, width)
        self.crossattention = Attention(width, seen) if seen else None
        self.intermediate = nn.ModuleDict({"dense": nn.Linear(width, inner)})
        self.output = _add_and_norm(inner, width)

    def forward(
        self, words: torch.Tensor, mask: torch.Tensor, image: torch.Tensor | None
    ) -> torch.Tensor:
        words = self.attention(words, words, mask)
        if self.crossattention is not None:
            words = self.crossattention(words, image, None)
        inner = nn.functional.gelu(self.intermediate["dense"](words))
        return _added(self.output, inner, words)


def _add_and_norm(inner: int, width: int) -> nn.ModuleDict:
    norm = nn.LayerNorm(width, eps=1e-12)
    return nn.ModuleDict({"dense": nn.Linear(inner, width), "LayerNorm": norm})


def _added(output: nn.ModuleDict, change: torch.Tensor, to: torch.Tensor) -> torch.Tensor:
    added: torch.Tensor = output["LayerNorm"](output["dense"](change) + to)
    return added


class XVlmModel(nn.Module):
    """The network, of the sizes that the weights have."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.vision_encoder = _swin(shapes)
        seen = shapes["vision_encoder.norm.weight"][0]
        rows, width = shapes["text_encoder.embeddings.word_embeddings.weight"]
        places = shapes["text_encoder.embeddings.position_embeddings.weight"][0]
        stem = "text_encoder.encoder.layer."
        inner = shapes[f"{stem}0.intermediate.dense.weight"][0]
        self.fusion = _count(shapes, stem) - _count(shapes, stem, "crossattention")
        layers = [
            Layer(width, inner, seen if number >= self.fusion else None)
            for number in range(_count(shapes, stem))
        ]
        embeddings = {
            "word_embeddings": nn.Embedding(rows, width),
            "position_embeddings": nn.Embedding(places, width),
            "token_type_embeddings": nn.Embedding(2, width),
            "LayerNorm": nn.LayerNorm(width, eps=1e-12),
        }
        encoder = nn.ModuleDict({"layer": nn.ModuleList(layers)})
        parts = {"embeddings": nn.ModuleDict(embeddings), "encoder": encoder}
        self.text_encoder = nn.ModuleDict(parts)
        shared = shapes["vision_proj.weight"][0]
        self.vision_proj, self.text_proj = nn.Linear(seen, shared), nn.Linear(width, shared)
        self.itm_head = nn.Sequential(
            nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU(), nn.Linear(2 * width, 2)
        )

    def see(self, pixels: torch.Tensor) -> torch.Tensor:
        """Tokens of images (n, 1 + patches, width): their mean, and each."""
        tokens = self.vision_encoder.norm(self.vision_encoder.features(pixels)).flatten(1, 2)
        return torch.cat([tokens.mean(dim=1, keepdim=True), tokens], dim=1)

    def read(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Captions (n, length, width) after the layers that see no image."""
        parts: Any = self.text_encoder["embeddings"]
        places = torch.arange(ids.shape[1], device=ids.device)
        words = parts["word_embeddings"](ids) + parts["position_embeddings"](places)
        words = parts["LayerNorm"](words + parts["token_type_embeddings"](torch.zeros_like(ids)))
        return self._through(slice(None, self.fusion), words, mask, None)

    def match(self, words: torch.Tensor, mask: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        """The logit of a match (n,) of n captions, as `read` gives them, and their images."""
        fused = self._through(slice(self.fusion, None), words, mask, seen)
        logits: torch.Tensor = self.itm_head(fused[:, 0])[:, _MATCH]
        return logits

    def _through(
        self, which: slice, words: torch.Tensor, mask: torch.Tensor, image: torch.Tensor | None
    ) -> torch.Tensor:
        layers: Any = self.text_encoder["encoder"]["layer"]  # type: ignore[index]
        for layer in layers[which]:
            words = layer(words, mask[:, None, None].bool(), image)
        return words


class XVlm:
    """A PairScorer: each image and each caption of a call is read once, whatever its pairs."""

    def __init__(
        self,
        model: XVlmModel,
        tokenizer: Any,
        side: int,
        adds_cosine: bool,
        options: LoadOptions,
    ) -> None:
        self.tokenizer, self.runtime = tokenizer, Runtime(options)
        self.model = model.eval().to(self.runtime.device)
        self.adds_cosine = adds_cosine
        self.transform = Compose(
            [
                Resize((side, side), interpolation=InterpolationMode.BICUBIC),
                ToTensor(),
                Normalize(OPENAI_DATASET_MEAN, OPENAI_DATASET_STD),
            ]
        )
        self.pixels = TowerPixels(self.transform, self.runtime.device, jpegs=self.runtime.decodes)
        score = "logit and cosine" if self.adds_cosine else "logit"
        self.identity = (score, self.transform, tokenizer.to_str(), self.runtime.precision)
        self.fingerprint = fingerprint(model, *self.identity)

    @memory_errors
    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        (images, which), (texts, said) = once(pictures), once(captions)
        prepared = list(in_threads(lambda one: self.pixels.prepare(one.open()), images))
        with self.runtime.running():
            seen = self.model.see(self.pixels.finish(self.pixels.stage(prepared)))
            ids, mask = self._tokens(texts)
            words = self.model.read(ids, mask)
            logits = self.model.match(words[said], mask[said], seen[which]).float().cpu().numpy()
            if not self.adds_cosine:
                return logits
            looks = unit(self.model.vision_proj(seen[:, 0]))[which]
            meant = unit(self.model.text_proj(words[:, 0]))[said]
        cosines: np.ndarray = np.einsum("nd,nd->n", looks, meant)
        return logits + cosines

    def _tokens(self, texts: Sequence[str]) -> tuple[torch.Tensor, torch.Tensor]:
        """Numbers of tokens and which of them are there, cut and padded."""
        encoded, device = self.tokenizer.encode_batch(list(texts)), self.runtime.device
        ids = torch.tensor([one.ids for one in encoded], device=device)
        return ids, torch.tensor([one.attention_mask for one in encoded], device=device)

    def describe(self) -> Mapping[str, Any]:
        return {
            **self.runtime.describe(self.model),
            "score": self.identity[0],
            "longest_caption": _TOKENS,
            "preprocessing": repr(self.transform),
            "versions": {"torch": str(torch.__version__), "torchvision": torchvision.__version__},
            "notes": [],
        }


def load(rest: str, options: LoadOptions) -> XVlm:
    """`FILE`, or `FILE?score=aro`."""
    id, (path, _, text) = f"xvlm:{rest}", rest.partition("?")
    adds_cosine = bool(read_options("xvlm", text, ARO)["score"])
    file = Path(path).expanduser()
    if not file.is_file():
        raise NotFoundError(
            "E-MODEL-MISSING",
            f"{id}: there is no file {shortened(file)}; give a checkpoint of X-VLM, as in "
            "xvlm:16m_base_model_state_step_199999.th.",
        )
    with explained_as(id):
        state = _renamed(unwrap(read_weights(file)).tensors)
        shapes = {name: tuple(value.shape) for name, value in state.items()}
        _refuse_others(shapes)
        model = XVlmModel(shapes)
        _fill(model, state)
        side = _STRIDE * 2 ** (len(_depths(shapes)) - 1) * _window(shapes)
        rows = shapes["text_encoder.embeddings.word_embeddings.weight"][0]
        tokenizer = _tokenizer(id, file.parent, rows)
    return XVlm(model, tokenizer, side, adds_cosine, options)


# --- the checkpoint ----------------------------------------------------------------------------


def _renamed(state: Tensors) -> Tensors:
    """Names as of a finetuned model: a pretrained one has BERT inside a language model."""
    state = {
        name.replace("text_encoder.bert.", "text_encoder."): one for name, one in state.items()
    }
    return {name: one.float() for name, one in state.items() if not _UNUSED.fullmatch(name)}


def _refuse_others(shapes: Mapping[str, tuple[int, ...]]) -> None:
    lacking = [name for name in _NEEDED if name not in shapes]
    if lacking:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"it has no {lacking[0]}: xvlm: reads X-VLM's checkpoints of pretraining and of "
            "retrieval, which have a Swin Transformer, BERT and a matching head; it holds "
            f"{some(list(shapes))}.",
        )


def _depths(shapes: Mapping[str, tuple[int, ...]]) -> list[int]:
    stages = _count(shapes, "vision_encoder.layers.")
    return [_count(shapes, f"vision_encoder.layers.{n}.blocks.") for n in range(stages)]


def _count(shapes: Mapping[str, tuple[int, ...]], stem: str, part: str = "") -> int:
    """How many numbers stand after a stem, with a part of that name if one is given."""
    ends = (name.removeprefix(stem) for name in shapes if name.startswith(stem))
    return len({end.split(".")[0] for end in ends if f".{part}" in end})


def _window(shapes: Mapping[str, tuple[int, ...]]) -> int:
    table = shapes["vision_encoder.layers.0.blocks.0.attn.relative_position_bias_table"]
    return (round(table[0] ** 0.5) + 1) // 2


def _swin(shapes: Mapping[str, tuple[int, ...]]) -> Any:
    depths, window = _depths(shapes), _window(shapes)
    tables = (
        f"vision_encoder.layers.{n}.blocks.0.attn.relative_position_bias_table"
        for n in range(len(depths))
    )
    tower = SwinTransformer(
        patch_size=[_STRIDE, _STRIDE],
        embed_dim=shapes["vision_encoder.patch_embed.proj.weight"][0],
        depths=depths,
        num_heads=[shapes[name][1] for name in tables],
        window_size=[window, window],
    )
    tower.head = nn.Identity()
    return tower


_SWIN_NAMES: Final = (
    (r"patch_embed\.proj\.", "features.0.0."),
    (r"patch_embed\.norm\.", "features.0.2."),
    (r"layers\.(\d+)\.blocks\.", lambda found: f"features.{2 * int(found[1]) + 1}."),
    (r"layers\.(\d+)\.downsample\.", lambda found: f"features.{2 * int(found[1]) + 2}."),
    (r"\.mlp\.fc1\.", ".mlp.0."),
    (r"\.mlp\.fc2\.", ".mlp.3."),
)


def _fill(model: XVlmModel, state: Tensors) -> None:
    """All weights, none missing and none left over."""
    place = "vision_encoder."
    for name in [name for name in state if name.startswith(place)]:
        ours = name.removeprefix(place)
        for theirs, replacement in _SWIN_NAMES:
            ours = re.sub(theirs, replacement, ours)
        state[place + ours] = state.pop(name)
    wanted = {n: one for n, one in model.state_dict().items() if not _UNUSED.fullmatch(n)}
    odd = sorted(wanted.keys() ^ state.keys())
    odd = odd or [name for name, one in wanted.items() if one.shape != state[name].shape]
    if odd:
        raise ModelError(
            "E-WEIGHTS-MISMATCH",
            f"{len(odd)} of its weights are missing, left over or of another shape than in X-VLM: "
            f"{some(odd)}.",
        )
    refuse_non_finite(state)
    model.load_state_dict(state, strict=False)  # the rest are buffers, which are computed


# --- captions ----------------------------------------------------------------------------------


def _tokenizer(id: str, folder: Path, rows: int) -> Any:
    """BERT's, lower-casing, with [CLS] and without [SEP]: the authors' own class leaves it out."""
    try:
        from tokenizers import BertWordPieceTokenizer
        from tokenizers.processors import TemplateProcessing
    except ImportError:
        raise MissingExtraError(id, "vlm") from None
    file = folder / _VOCABULARY
    tokenizer = BertWordPieceTokenizer(str(file if file.is_file() else _fetched()))
    if tokenizer.get_vocab_size() != rows:
        raise ModelError(
            "E-TOKENIZER-MISMATCH",
            f"its text tower has {rows} tokens and {_VOCABULARY} {tokenizer.get_vocab_size()}; put "
            f"the {_VOCABULARY} that it was trained with beside it.",
        )
    first = tokenizer.token_to_id("[CLS]")
    tokenizer.post_processor = TemplateProcessing("[CLS] $A", special_tokens=[("[CLS]", first)])
    tokenizer.enable_truncation(_TOKENS)
    tokenizer.enable_padding(pad_id=tokenizer.token_to_id("[PAD]"))
    return tokenizer


def _fetched() -> str:
    try:
        return fetched_file(_BERT, _VOCABULARY)
    except Exception as error:  # the library and its HTTP client raise anything
        raise ModelError(
            "E-TOKENIZER-MISSING",
            f"there is no {_VOCABULARY} beside it, and that of {_BERT} cannot be fetched "
            f"({shortened(error).rstrip('.')}); put it there.",
        ) from None
