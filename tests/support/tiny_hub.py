"""A cache of the hub in which the papers' models are tiny, so that their ids load as they stand.

Their classes are the real ones, their weights random.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from zlib import crc32

import diffusion_models
import hf_models
import open_clip
import pytest
import text_models
import torch
from huggingface_hub import constants
from open_clip_models import BASE, CLIP, TEXT, WEIGHTS, save_model, tokenizer_of
from paper_commands import DOCUMENT
from safetensors.torch import load_file
from xvlm_models import save_xvlm

_LONG = {**TEXT, "context_length": 77}  # for the prompts of VTAB
_VIT = {**CLIP, "text_cfg": _LONG}
_RESNET = {**_VIT, "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8}}
VIT, SCRATCH = "ViT-B-32-quickgelu", "RN50"
# Architecture and tag of every model of open_clip that the document names.
NAMED = sorted(set(re.findall(r"open_clip:([\w.-]+)/(\w+)", DOCUMENT.read_text())))
TINY = {
    name: {
        **(_RESNET if name.startswith("RN") else _VIT),
        "quick_gelu": name.endswith("-quickgelu"),
    }
    for name in [SCRATCH, *(name for name, _ in NAMED)]
}
_REPOSITORY, _COMMIT = "models--{}", "0" * 40


def install(patch: pytest.MonkeyPatch, cache: Path) -> None:
    """From here on the hub is this cache, and open_clip's architectures are tiny."""
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setattr(constants, "HF_HUB_OFFLINE", True)
    for name, config in TINY.items():
        patch.setitem(open_clip.factory._MODEL_CONFIGS, name, config)
    own, whole = tokenizer_of(BASE, 77), open_clip.get_tokenizer

    def get_tokenizer(name: str, **settings: Any) -> Any:
        tuned = name.startswith("local-dir:") and "bpe_path" not in settings
        return own if name in TINY or tuned else whole(name, **settings)

    patch.setattr(open_clip, "get_tokenizer", get_tokenizer)


def fill(cache: Path, words: list[str]) -> Path:
    """The cache; `words` are those that the text models know."""
    for repository, save in _models(words).items():
        folder = cache / _REPOSITORY.format(repository.replace("/", "--"))
        snapshot = folder / "snapshots" / _COMMIT
        snapshot.mkdir(parents=True)
        save(snapshot)
        (folder / "refs").mkdir()
        (folder / "refs/main").write_text(_COMMIT)
    return cache


def _models(words: list[str]) -> dict[str, Callable[[Path], object]]:
    drawn = diffusion_models.save_models
    return {
        **{_repository(*model): partial(_save, *model) for model in NAMED},
        "Salesforce/blip-itm-base-coco": lambda at: hf_models.save(
            at, lambda: hf_models.blip(room=2)
        ),
        "textattack/distilbert-base-uncased-CoLA": lambda at: text_models.save_grammar(
            at, words=words
        ),
        "textattack/roberta-base-CoLA": lambda at: text_models.save_roberta(at, words=words),
        "liujch1998/vera": lambda at: text_models.save_vera(at, words=words),
        "stabilityai/stable-diffusion-xl-base-1.0": lambda at: _moved(drawn, at, "xl"),
        "mhdang/dpo-sdxl-text2image-v1": lambda at: _moved(drawn, at, "dpo"),
        "stabilityai/stable-diffusion-2-inpainting": lambda at: _moved(drawn, at, "inpaint"),
    }


def _repository(name: str, tag: str) -> str:
    return str(open_clip.get_pretrained_cfg(name, tag)["hf_hub"]).strip("/")


def _save(name: str, tag: str, folder: Path) -> None:
    """Each with weights of its own."""
    save_model(folder, TINY[name], seed=crc32(f"{name} {tag}".encode()))


def _moved(save: Callable[..., dict[str, Path]], folder: Path, name: str) -> None:
    made = save(folder / "made", (name,))
    shutil.copytree(made[name], folder, dirs_exist_ok=True)
    shutil.rmtree(folder / "made")


def save_files(folder: Path) -> None:
    """Checkpoints that authors share as files: finetuned weights of open_clip, and X-VLM's."""
    state = load_file(save_model(folder / "of-FILE", TINY[VIT]) / WEIGHTS)
    state = {name: value * 1.1 for name, value in state.items()}
    torch.save({"epoch": 5, "name": VIT, "state_dict": state}, folder / "FILE")
    save_xvlm(folder / "16m_base_model_state_step_199999.th")
