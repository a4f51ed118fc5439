"""`checkpoint:PATH@ARCH`: a finetuned CLIP's weights, as its authors saved them, in open_clip.

NegCLIP, CREPE, TSVLC, DAC, CE-CLIP, BiVLC's and many more publish training checkpoints. They are
unwrapped, renamed and merged by `weights`, and then loaded completely or not at all.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

import open_clip
import torch
from open_clip.model import CLIPTextCfg, CLIPVisionCfg

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint.models.openclip.adapter import OpenClip, guarded_loading, tokenizer_of
from counterpoint.models.openclip.ids import (
    OpenClipSource,
    builds_quick_gelu,
    config_says,
    file_says,
    other_activation,
    parse,
    refuse_architecture,
    unknown_activation,
    with_activation,
)
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime
from counterpoint.models.weights import (
    Tensors,
    explained_as,
    from_transformers,
    merge_lora,
    place_text_tower,
    read_weights,
    refuse_non_finite,
    some,
    strip_prefixes,
    unwrap,
)

_SUFFIXES: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# Scores are cosines: these change none, and some authors do not save them.
_NOT_NEEDED: Final = re.compile(r"logit_scale|logit_bias|.+\.num_batches_tracked")
# Buffers that were saved once and are computed now.
_HARMLESS: Final = re.compile(r".*(position_ids|attn_mask|logit_bias|num_batches_tracked)")


def load(rest: str, options: LoadOptions) -> OpenClip:
    """`PATH@ARCH`: a checkpoint and the open_clip architecture (or `local-dir:FOLDER`) for it."""
    path, name = _parse(rest)
    id, runtime = f"checkpoint:{rest}", Runtime(options)
    folder = Path(name.removeprefix("local-dir:")) if name.startswith("local-dir:") else None
    with explained_as(id):
        state, notes = _state(path)
        notes += _activation(path, name)
    with guarded_loading(id, name, folder, path, options):
        preprocessing = _preprocessing(name)
        how = {"load_weights": False, "pretrained_text": False}
        model: Any = open_clip.create_model(name, force_preprocess_cfg=preprocessing, **how)
        with explained_as(id):
            state = place_text_tower(state, inside=not hasattr(model, "positional_embedding"))
            notes += fill(model, state, name)
        rows = len(next((v for k, v in state.items() if k.endswith("token_embedding.weight")), ()))
        tokenizer = tokenizer_of(id, name, folder, rows, "architecture")
        source = OpenClipSource(rest, name, str(path), notes=tuple(notes))
        return OpenClip(source, model.to(runtime.device), tokenizer, runtime)


def _parse(rest: str) -> tuple[Path, str]:
    given, _, name = rest.rpartition("@")
    path = Path(given).expanduser()
    if not given or Path(rest).expanduser().exists():
        raise NotFoundError(
            "E-MODEL-ID-INVALID",
            f"checkpoint:{rest} needs an architecture after the path, as in "
            f"checkpoint:{rest or 'PATH'}@ViT-B-32-quickgelu.",
        )
    if path.is_dir():
        files = sorted(p.name for p in path.iterdir() if p.suffix in _SUFFIXES)
        there = f"it holds {', '.join(files[:5])}" if files else "it holds none"
        raise NotFoundError(
            "E-MODEL-ID-INVALID",
            f"checkpoint:{rest}: {path} is a folder; name a file of weights, {there}.",
        )
    if not path.is_file():
        raise NotFoundError("E-MODEL-MISSING", f"checkpoint:{rest}: there is no file {path}.")
    if name.startswith("local-dir:"):
        return path, parse(name).name
    refuse_architecture(name)
    return path, name


# --- the file ----------------------------------------------------------------------------------


def _state(path: Path) -> tuple[Tensors, list[str]]:
    """The weights under open_clip's names, and what should be known of how they came about."""
    unwrapped = unwrap(read_weights(path))
    state, note = merge_lora(strip_prefixes(unwrapped.tensors), unwrapped.alpha)
    notes = [note] if note else []
    if unwrapped.unused:
        notes.append(f"not used of {path.name}: {some(unwrapped.unused)}.")
    return from_transformers(state), notes


def _activation(path: Path, name: str) -> list[str]:
    """Refuse the wrong GELU where anything says which it was, else leave a note."""
    said = file_says(path)
    trained = config_says(path.parent / "config.json") if said is None else said
    if trained is None:
        return list(unknown_activation(name, path))
    if trained != builds_quick_gelu(name):
        fitting = with_activation(name, trained)
        fix = f"; use checkpoint:{path}@{fitting}" if fitting else ""
        raise other_activation("its weights", name, trained, fix)
    return []


# --- the model ---------------------------------------------------------------------------------


def _preprocessing(name: str) -> dict[str, Any]:
    """What all tags of an architecture agree on (SigLIP's are not CLIP's), else open_clip's own."""
    tags = open_clip.list_pretrained_tags_by_model(name)
    configs = [open_clip.get_pretrained_cfg(name, tag) for tag in tags]
    keys = ("mean", "std", "interpolation", "resize_mode")
    found = [{key: config[key] for key in keys if config.get(key)} for config in configs]
    return found[0] if found and all(one == found[0] for one in found) else {}


# --- its weights -------------------------------------------------------------------------------


def fill(model: torch.nn.Module, state: Tensors, name: str) -> list[str]:
    """Load the weights, all of them: a model that is half random would still give scores."""
    wanted = model.state_dict()
    missing = [k for k in wanted if k not in state and not _NOT_NEEDED.fullmatch(k)]
    if missing:
        what = f"{len(missing)} of the {len(wanted)} weights of {name} are not in it: "
        raise ModelError("E-WEIGHTS-MISSING", f"{what}{some(missing)}{_hint(state, name)}.")
    for key in wanted.keys() & state.keys():
        if key.startswith("logit_") and state[key].numel() == 1:  # with or without a dimension
            state[key] = state[key].reshape(wanted[key].shape)
    shapes = [k for k in wanted if k in state and state[k].shape != wanted[k].shape]
    if shapes:
        theirs, ours = (tuple(weights[shapes[0]].shape) for weights in (state, wanted))
        raise ModelError(
            "E-WEIGHTS-MISMATCH",
            f"{len(shapes)} of its weights have another shape than in {name}, the first "
            f"{shapes[0]} with {theirs} instead of {ours}{_hint(state, name)}.",
        )
    extra = [k for k in state if k not in wanted]
    roots = {key.split(".")[0] for key in wanted}
    if layers := [k for k in extra if k.split(".")[0] in roots and not _HARMLESS.fullmatch(k)]:
        what = f"{name} has no place for {len(layers)} of its weights: {some(layers)}"
        raise ModelError("E-WEIGHTS-MISMATCH", f"{what}{_hint(state, name)}.")
    refuse_non_finite({k: v for k, v in state.items() if k in wanted})
    model.load_state_dict({k: v for k, v in state.items() if k in wanted}, strict=False)
    return [f"not used of the weights: {some(extra)}."] if extra else []


def _hint(state: Tensors, name: str) -> str:
    """Which architectures have the sizes that the weights have."""
    found = _sizes(state)
    fitting = [n for n in open_clip.list_models() if n != name and _fits(n, found)]
    # The plain names are short; long ones are variants of training or of another tokenizer.
    named = " or ".join(sorted(fitting, key=len)[:2])
    return f"; its shapes are those of {named}" if named else ""


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
