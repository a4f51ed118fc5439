"""Writing a model as a folder that `open_clip:local-dir:` loads."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
from safetensors.torch import save_file
from torch import Tensor

import counterpoint
from counterpoint.models.openclip.adapter import OpenClip
from counterpoint.models.openclip.ids import parse, parse_scratch
from counterpoint.models.torch_models import quiet

ABOUT: Final = "training.json"
_CONFIG, _WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"


def fill_folder(
    folder: Path, id: str, start: OpenClip, state: Mapping[str, Tensor], about: Mapping[str, Any]
) -> None:
    """Put `state` in the architecture of model `id` into an empty folder.

    Floating-point tensors keep the type that they come in.
    """
    name, source = _origin(id)
    tensors = {key: value.to("cpu", copy=True).contiguous() for key, value in state.items()}
    quick = _quick_gelu(start.model)
    # No second key: safetensors writes metadata in random order, and a model is the same bytes.
    save_file(tensors, folder / _WEIGHTS, metadata={"quick_gelu": str(quick).lower()})
    with quiet():
        model_cfg = dict(open_clip.get_model_config(name))
    if quick:
        model_cfg["quick_gelu"] = True
    config = {"model_cfg": model_cfg, "preprocess_cfg": start.model.visual.preprocess_cfg}
    _write(folder / _CONFIG, config)
    shutil.copymode(folder / _CONFIG, folder / _WEIGHTS)  # safetensors writes for its owner only
    _write(folder / ABOUT, dict(about))
    _copy_tokenizer(start, source, folder)


def _origin(id: str) -> tuple[str, Path | None]:
    """A model's architecture as open_clip names it, and its folder if it has one."""
    family, _, rest = id.partition(":")
    if family == "world":
        folder = Path(counterpoint.__file__).parent / "world" / "checkpoints" / rest
        return f"local-dir:{folder}", folder
    if family == "scratch":
        return parse_scratch(rest)[0], None
    if family == "checkpoint":
        rest = rest.rpartition("@")[2]
        if not rest.startswith("local-dir:"):
            return rest, None
    source = parse(rest)
    return source.name, source.folder


def _quick_gelu(model: torch.nn.Module) -> bool:
    return any(type(module).__name__ == "QuickGELU" for module in model.modules())


def _copy_tokenizer(start: OpenClip, source: Path | None, folder: Path) -> None:
    """The files of the tokenizer beside the start's weights; else the tokenizer saves its own."""
    inner = getattr(start.tokenizer, "tokenizer", None)  # transformers'
    if source is None:
        if inner is not None:
            inner.save_pretrained(folder)
        return
    for path in sorted(source.iterdir()):
        name = path.name.lower()
        if path.is_file() and (
            "token" in name or name.startswith(("bpe", "merges", "vocab", "spiece", "config.json"))
        ):
            shutil.copyfile(path, folder / path.name)


def _write(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, default=list) + "\n", encoding="utf-8")
