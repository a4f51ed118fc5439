"""What training takes of an open_clip model: its image tower alone, and a folder of its weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
from PIL import Image
from safetensors.torch import save_file
from torch import Tensor, nn

from counterpoint.models.openclip.adapter import OpenClip
from counterpoint.models.openclip.ids import parse, parse_scratch
from counterpoint.models.registry import world_folder
from counterpoint.models.torch_models import fingerprint, quiet
from counterpoint.models.trunk import ImageTrunk

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
        folder = world_folder(rest)
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


# --- the image tower alone ------------------------------------------------------------


class OpenClipTrunk(ImageTrunk):
    """The image tower without its projection (see `ImageTrunk`).

    A ViT ends in the matrix `proj`, a tower of timm in the layers `head`; a ResNet is whole.
    """

    def __init__(self, start: OpenClip) -> None:
        super().__init__(start, start.runtime)
        self.start, self.reader = start, start.reader
        self.owner = start.model.visual
        self.part = _projection(self.owner)
        probe = [self.preprocess(Image.linear_gradient("L").convert("RGB"))]
        with torch.inference_mode():
            features, vectors = self.features(probe), self._encoded(probe)
        self.settle(start.model, features, vectors)
        with self.unprojected():
            identity = ("trunk", start.transform, start.runtime.identity)
            self.fingerprint = fingerprint(start.model.visual, *identity)

    def features(self, images: Sequence[Any]) -> Tensor:
        with self.unprojected():
            return self._encoded(images)

    def head(self, model: Any, features: Tensor) -> Tensor:
        if self.part is None:
            return features
        last = getattr(model.visual, self.part)
        found: Tensor = last(features) if isinstance(last, nn.Module) else features @ last
        return found

    def head_parameters(self, model: Any) -> list[nn.Parameter]:
        if self.part is None:
            return []
        last = getattr(model.visual, self.part)
        return list(last.parameters()) if isinstance(last, nn.Module) else [last]

    def _encoded(self, images: Sequence[Any]) -> Tensor:
        pixels = self.start.pixels
        given = pixels.finish(pixels.stage(images))
        found: Tensor = self.start.model.encode_image(given, normalize=False)  # CoCa would
        return found


def _projection(visual: Any) -> str | None:
    """The name of what follows the trunk, if it is known and takes one vector per image."""
    if isinstance(getattr(visual, "proj", None), nn.Parameter):
        return "proj"
    head = getattr(visual, "head", None)
    timm = hasattr(visual, "trunk") and isinstance(head, nn.Sequential)
    return "head" if timm and len(head) and not hasattr(head, "pool") else None  # type: ignore[arg-type]
