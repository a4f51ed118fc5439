"""Weights into a model of open_clip: all of them or none, and if none, why."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any, Final

import open_clip
import torch
from open_clip.model import CLIPTextCfg, CLIPVisionCfg

from counterpoint.errors import ModelError
from counterpoint.models.state_dicts import Tensors, some

# Scores are cosines: these change none, and some authors do not save them.
_NOT_NEEDED: Final = re.compile(r"logit_scale|logit_bias|.+\.num_batches_tracked")
# Buffers that were saved once and are computed now.
_HARMLESS: Final = re.compile(r".*(position_ids|attn_mask|logit_bias|num_batches_tracked)")


def fill(model: torch.nn.Module, state: Tensors, name: str) -> list[str]:
    """Load the weights, all of them: a model that is half random would still give scores."""
    wanted = model.state_dict()
    missing = [k for k in wanted if k not in state and not _NOT_NEEDED.fullmatch(k)]
    if missing:
        raise ModelError(
            f"{len(missing)} of the {len(wanted)} weights of {name} are not in it: "
            f"{some(missing)}{_hint(state, name)}."
        )
    for key in wanted.keys() & state.keys():
        if key.startswith("logit_") and state[key].numel() == 1:  # with or without a dimension
            state[key] = state[key].reshape(wanted[key].shape)
    shapes = [k for k in wanted if k in state and state[k].shape != wanted[k].shape]
    if shapes:
        theirs, ours = (tuple(weights[shapes[0]].shape) for weights in (state, wanted))
        raise ModelError(
            f"{len(shapes)} of its weights have another shape than in {name}, the first "
            f"{shapes[0]} with {theirs} instead of {ours}{_hint(state, name)}."
        )
    extra = [k for k in state if k not in wanted]
    roots = {key.split(".")[0] for key in wanted}
    if layers := [k for k in extra if k.split(".")[0] in roots and not _HARMLESS.fullmatch(k)]:
        raise ModelError(
            f"{name} has no place for {len(layers)} of its weights: "
            f"{some(layers)}{_hint(state, name)}."
        )
    if broken := [k for k in wanted if k in state and not torch.isfinite(state[k]).all()]:
        raise ModelError(f"{len(broken)} of its weights hold NaN or infinity: {some(broken)}.")
    model.load_state_dict({k: v for k, v in state.items() if k in wanted}, strict=False)
    return [f"not used of the weights: {some(extra)}."] if extra else []


def _hint(state: Tensors, name: str) -> str:
    """Which architectures have the sizes that the weights have."""
    found = _sizes(state)
    fitting = [n for n in open_clip.list_models() if n != name and _fits(n, found)]
    # The plain names are short; long ones are variants of training or of another tokenizer.
    return (
        f"; its shapes are those of {' or '.join(sorted(fitting, key=len)[:2])}" if fitting else ""
    )


def _fits(name: str, found: dict[str, Any]) -> bool:
    config = open_clip.get_model_config(name)
    if "embed_dim" not in found or config["embed_dim"] != found["embed_dim"]:
        return False
    for part, defaults in (("vision_cfg", CLIPVisionCfg()), ("text_cfg", CLIPTextCfg())):
        theirs = {**asdict(defaults), **config[part]}
        other = theirs.get("timm_model_name") or theirs.get("hf_model_name")
        if other or part not in found or any(theirs[k] != v for k, v in found[part].items()):
            return False
    return True


def _sizes(state: Tensors) -> dict[str, object]:
    """What the shapes of a CLIP's weights say, under the names of open_clip's configurations."""
    shapes = {name.removeprefix("text."): tuple(value.shape) for name, value in state.items()}
    found: dict[str, object] = {}
    if shape := shapes.get("text_projection"):
        found["embed_dim"] = shape[-1]
    if shape := shapes.get("token_embedding.weight"):
        found["text_cfg"] = {
            "vocab_size": shape[0],
            "width": shape[1],
            "layers": _layers(shapes, "transformer.resblocks."),
            "context_length": shapes.get("positional_embedding", (0,))[0],
        }
    if len(shape := shapes.get("visual.conv1.weight", ())) == 4 and "visual.proj" in shapes:
        patches = shapes.get("visual.positional_embedding", (1,))[0] - 1
        found["vision_cfg"] = {
            "width": shape[0],
            "patch_size": shape[-1],
            "layers": _layers(shapes, "visual.transformer.resblocks."),
            "image_size": shape[-1] * round(patches**0.5),
        }
    elif "visual.layer1.0.conv1.weight" in shapes:
        found["vision_cfg"] = {
            "width": shapes["visual.layer1.0.conv1.weight"][0],
            "layers": [_layers(shapes, f"visual.layer{n}.") for n in (1, 2, 3, 4)],
        }
    return found


def _layers(names: Iterable[str], prefix: str) -> int:
    ends = (name.removeprefix(prefix) for name in names if name.startswith(prefix))
    return len({end.split(".")[0] for end in ends})
