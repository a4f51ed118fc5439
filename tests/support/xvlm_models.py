"""A tiny checkpoint of X-VLM in its authors' layout, with random weights."""

from __future__ import annotations

from pathlib import Path

import torch
from hf_models import words

DEPTHS, HEADS, WIDTH, WINDOW = (2, 2, 2), (1, 2, 4), 16, 4
SIDE, SEEN, TEXT, INNER, LAYERS, FUSION = 64, 64, 128, 160, 4, 2
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
PIECES = [*SPECIAL, *dict.fromkeys(p for word in words() for p in (word, f"##{word[-1]}"))]


def shapes() -> dict[str, tuple[int, ...]]:
    """Names and sizes as in the authors' checkpoints of retrieval."""
    found: dict[str, tuple[int, ...]] = {}

    def linear(name: str, wide: int, to: int, *, bias: bool = True) -> None:
        found[f"{name}.weight"] = (to, wide)
        if bias:
            found[f"{name}.bias"] = (to,)

    def norm(name: str, wide: int) -> None:
        found.update({f"{name}.weight": (wide,), f"{name}.bias": (wide,)})

    found["vision_encoder.patch_embed.proj.weight"] = (WIDTH, 3, 4, 4)
    found["vision_encoder.patch_embed.proj.bias"] = (WIDTH,)
    norm("vision_encoder.patch_embed.norm", WIDTH)
    for stage, (depth, heads) in enumerate(zip(DEPTHS, HEADS, strict=True)):
        wide, layer = WIDTH * 2**stage, f"vision_encoder.layers.{stage}"
        for number in range(depth):
            block = f"{layer}.blocks.{number}"
            found[f"{block}.attn.relative_position_bias_table"] = ((2 * WINDOW - 1) ** 2, heads)
            found[f"{block}.attn.relative_position_index"] = (WINDOW**2, WINDOW**2)
            norm(f"{block}.norm1", wide)
            norm(f"{block}.norm2", wide)
            linear(f"{block}.attn.qkv", wide, 3 * wide)
            linear(f"{block}.attn.proj", wide, wide)
            linear(f"{block}.mlp.fc1", wide, 4 * wide)
            linear(f"{block}.mlp.fc2", 4 * wide, wide)
        if stage + 1 < len(DEPTHS):
            linear(f"{layer}.downsample.reduction", 4 * wide, 2 * wide, bias=False)
            norm(f"{layer}.downsample.norm", 4 * wide)
    norm("vision_encoder.norm", SEEN)
    embeddings = "text_encoder.embeddings."
    for name, rows in (("word", len(PIECES)), ("position", 48), ("token_type", 2)):
        found[f"{embeddings}{name}_embeddings.weight"] = (rows, TEXT)
    norm(f"{embeddings}LayerNorm", TEXT)
    for number in range(LAYERS):
        layer = f"text_encoder.encoder.layer.{number}"
        kinds = {"attention": TEXT} | ({"crossattention": SEEN} if number >= FUSION else {})
        for kind, wide in kinds.items():
            for name, given in (("query", TEXT), ("key", wide), ("value", wide)):
                linear(f"{layer}.{kind}.self.{name}", given, TEXT)
            linear(f"{layer}.{kind}.output.dense", TEXT, TEXT)
            norm(f"{layer}.{kind}.output.LayerNorm", TEXT)
        linear(f"{layer}.intermediate.dense", TEXT, INNER)
        linear(f"{layer}.output.dense", INNER, TEXT)
        norm(f"{layer}.output.LayerNorm", TEXT)
    linear("vision_proj", SEEN, 12)
    linear("text_proj", TEXT, 12)
    linear("itm_head.0", TEXT, 2 * TEXT)
    norm("itm_head.1", 2 * TEXT)
    linear("itm_head.3", 2 * TEXT, 2)
    return {**found, "temp": ()}


def weights() -> dict[str, torch.Tensor]:
    torch.manual_seed(0)
    return {name: torch.randn(size) * 0.3 for name, size in shapes().items()}


def save_xvlm(path: Path) -> Path:
    """The checkpoint, with the vocabulary beside it."""
    config = {"image_res": SIDE, "optimizer": {"opt": "adamW", "lr": 3e-5}}
    torch.save({"model": weights(), "config": config, "epoch": 9}, path)
    (path.parent / "vocab.txt").write_text("\n".join(PIECES))
    return path
