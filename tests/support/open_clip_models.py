"""Tiny models of open_clip's own classes, with random weights, as folders."""

from __future__ import annotations

import json
import shutil
from copy import deepcopy
from pathlib import Path

import numpy as np
import open_clip
import torch
from errors import raises
from PIL import Image
from safetensors.torch import save_file

import counterpoint
from counterpoint.models.openclip.adapter import MERGES, OpenClip
from counterpoint.models.registry import LoadOptions, load_model

BASE = Path(counterpoint.__file__).parent / "world" / "checkpoints" / "base"
CONFIG, WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
CONTEXT = 24
PREPROCESS = {
    "mean": [0.5, 0.4, 0.3],
    "std": [0.2, 0.25, 0.3],
    "interpolation": "bicubic",
    "resize_mode": "squash",
}
VISION = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 16}
TEXT = {"context_length": CONTEXT, "width": 32, "heads": 2, "layers": 2, "vocab_size": 679}
CLIP = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
CUSTOM = {**CLIP, "custom_text": True}
LAST = {**CUSTOM, "text_cfg": {**TEXT, "pool_type": "last"}}
BOTH_WAYS = {**CUSTOM, "text_cfg": {**TEXT, "no_causal_mask": True}}
COCA = {
    "embed_dim": 32,
    "custom_text": True,
    "vision_cfg": {
        **VISION,
        "attentional_pool": True,
        "attn_pooler_queries": 4,
        "attn_pooler_heads": 2,
        "output_tokens": True,
    },
    "text_cfg": {**TEXT, "embed_cls": True, "output_tokens": True},
    "multimodal_cfg": {
        "context_length": CONTEXT,
        "vocab_size": 679,
        "width": 32,
        "heads": 2,
        "layers": 1,
    },
}
ALL_CLASSES = {
    "clip": CLIP,
    "custom": CUSTOM,
    "coca": COCA,
    "last": LAST,
    "both-ways": BOTH_WAYS,
}
CAPTIONS = [
    "a red circle",
    "the Small green STAR and the striped heart",
    "a dog &amp; a cat",
    "a large ivory star above a small solid heart, to the left of nothing at all",
    "!! a ring !!",
]


def build(model_cfg: dict, seed: int = 0) -> torch.nn.Module:
    """A model with random weights, large enough that every position of the text matters."""
    settings = {key: value for key, value in deepcopy(model_cfg).items() if key != "custom_text"}
    kinds = {True: open_clip.CoCa, False: open_clip.CustomTextCLIP}
    kind = kinds["multimodal_cfg" in model_cfg] if "custom_text" in model_cfg else open_clip.CLIP
    model = kind(**settings)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.normal_(std=0.2, generator=generator)
    return model


def save_model(
    folder: Path, model_cfg: dict = CLIP, preprocess: dict = PREPROCESS, seed: int = 0
) -> Path:
    """An open_clip folder of a tiny model, with the world's vocabulary."""
    folder.mkdir(exist_ok=True)
    save_file(
        {name: value.contiguous() for name, value in build(model_cfg, seed).state_dict().items()},
        folder / WEIGHTS,
    )
    config = {"model_cfg": model_cfg, "preprocess_cfg": preprocess}
    (folder / CONFIG).write_text(json.dumps(config))
    shutil.copy(BASE / MERGES, folder)
    return folder


def load(folder: Path, device: str = "cpu") -> OpenClip:
    model = load_model(f"open_clip:local-dir:{folder}", LoadOptions(device))
    assert isinstance(model, OpenClip)
    return model


def tokenizer_of(folder: Path, length: int = CONTEXT) -> open_clip.SimpleTokenizer:
    return open_clip.SimpleTokenizer(bpe_path=str(folder / MERGES), context_length=length)


@torch.inference_mode()
def straight_captions(folder: Path, captions: list[str]) -> np.ndarray:
    """Caption vectors by open_clip alone: one at a time, padded to the whole context."""
    model = open_clip.create_model(f"local-dir:{folder}").eval()
    tokenizer = tokenizer_of(folder)
    rows = [model.encode_text(tokenizer([caption]), normalize=True) for caption in captions]
    return torch.cat(rows).numpy()


@torch.inference_mode()
def straight_images(folder: Path, images: list[Image.Image]) -> np.ndarray:
    model, transform = open_clip.create_model_from_pretrained(f"local-dir:{folder}")
    model.eval()
    rows = [model.encode_image(transform(image)[None], normalize=True) for image in images]
    return torch.cat(rows).numpy()


def noise(width: int, height: int, seed: int = 0) -> Image.Image:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)
    return Image.fromarray(pixels)


def sequence_lengths(model: OpenClip, captions: list[str]) -> list[int]:
    """How many positions the text transformer works on."""
    seen: list[int] = []
    tower = model.model if hasattr(model.model, "transformer") else model.model.text
    handle = tower.transformer.register_forward_pre_hook(lambda _, given: seen.append(given[0]))
    model.encode_captions(captions)
    handle.remove()
    return [tokens.shape[1] for tokens in seen]


def refusal(id: str, code: str, device: str = "cpu") -> str:
    """The message with which a model is refused: it must be one line that a user can read."""
    with raises(code) as caught:
        load_model(id, LoadOptions(device))
    message = str(caught.value)
    assert message and "\n" not in message and len(message) < 600
    assert "Traceback" not in message
    return message
