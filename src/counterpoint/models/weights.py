"""Files of weights, read without running anything, and their tensors under open_clip's names.

A file is safetensors, or a pickle of tensors and values: this is the only place that unpickles a
file of weights. Training scripts wrap the tensors (`{"epoch": 5, "state_dict": ...}`), parallel and
compiled modules put prefixes before the names, transformers has other names for CLIP's weights, and
LoRA factors have to be merged into the weights that they belong to. Errors do not name the model;
the caller puts its id in front of them (`explained_as`).
"""

from __future__ import annotations

import re
import zipfile
from argparse import Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from counterpoint._util.errors import ModelError
from counterpoint._util.untrusted import shortened

Tensors = dict[str, torch.Tensor]

# Many checkpoints hold training arguments and NumPy numbers. These are values and run no code.
_SCALAR: Final = np.float64(0).__reduce__()[0]
_VALUES: Final[tuple[Any, ...]] = (
    *(Namespace, np.dtype, _SCALAR, (_SCALAR, "numpy.core.multiarray.scalar")),  # before NumPy 2
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8")),
)


@contextmanager
def explained_as(id: str) -> Iterator[None]:
    """Errors about a file begin with the id of the model."""
    try:
        yield
    except ModelError as error:
        raise ModelError(error.code, f"{id}: {error}") from None


def read_weights(path: Path) -> object:
    """Whatever a training script saved, if it can be read without running code."""
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise ModelError(
                "E-WEIGHTS-BROKEN", f"it is not a readable safetensors file: {shortened(error)}."
            ) from None
    if is_torchscript(path):
        raise ModelError(
            "E-CODE-REFUSED",
            "it is a TorchScript archive, which holds code; for OpenAI's own weights use "
            "open_clip:ViT-B-32-quickgelu/openai or another architecture's tag openai.",
        )
    try:
        with torch.serialization.safe_globals([*_VALUES]):
            return torch_load(path)
    except Exception as error:  # unpickling raises anything
        if asked := re.search(r"GLOBAL ([\w.]+)", str(error)):
            raise ModelError(
                "E-CODE-REFUSED",
                f"loading it would run code ({asked[1]}), which is not done; "
                "save its state_dict() alone, best as safetensors.",
            ) from None
        why = shortened(error) or type(error).__name__
        raise ModelError(
            "E-WEIGHTS-BROKEN", f"it is not a readable checkpoint: {why.rstrip('.')}."
        ) from None


def is_torchscript(path: Path) -> bool:
    if not zipfile.is_zipfile(path):
        return False
    try:
        with zipfile.ZipFile(path) as archive:
            return any(name.split("/", 1)[-1] == "constants.pkl" for name in archive.namelist())
    except Exception:  # of damaged archives the library raises anything
        return False  # loading it will say what is wrong, and runs no code either


def torch_load(path: Path) -> object:
    """The only call of `torch.load`. Tensors of files are mapped, not read."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
    return torch.load(path, map_location="cpu", weights_only=True)  # the format before torch 1.6


# --- wrappers and prefixes ---------------------------------------------------------------------

# The weights as trained come before their running mean.
_WRAPPERS: Final = (
    *("state_dict", "model_state_dict", "clip_model_state_dict", "model", "module", "net"),
    *("weights", "ema", "model_ema", "ema_state_dict", "state_dict_ema"),
)
_SETTINGS: Final = ("args", "config", "hparams", "hyper_parameters", "params", "lora_config")
_PREFIXES: Final = (
    *("module.", "model.", "clip.", "clip_model.", "base_model.", "net.", "student.", "backbone."),
)
_INSERTED: Final = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_ROOTS: Final = ("visual.", "vision_model.")  # what open_clip's and transformers' names begin with

# loralib: `mlp.c_fc.lora_A` beside `mlp.c_fc.weight`; its attention, as TSVLC, DAC and FSC-CLIP
# have it: `attn.in_proj_weight_lora_A`; peft: `mlp.c_fc.lora_A.default.weight`.
_FACTOR: Final = re.compile(r"(?P<stem>.+)[._]lora_(?P<side>[AB])(\.(?!weight$)[^.]+)?(\.weight)?")
_ALPHAS: Final = (".lora_alpha", "_lora_alpha", ".alpha")


class Unwrapped(NamedTuple):
    """The tensors of a checkpoint, what lay beside them, and the LoRA alpha if it is recorded."""

    tensors: Tensors
    unused: tuple[str, ...]
    alpha: float | None


def unwrap(checkpoint: object) -> Unwrapped:
    """The state dict inside whatever a training script saved."""
    unused: list[str] = []
    alpha = None
    while isinstance(checkpoint, Mapping):
        alpha = _recorded_alpha(checkpoint) if alpha is None else alpha
        inner = next((name for name in _WRAPPERS if _holds_tensors(checkpoint.get(name))), None)
        if inner is None:
            break
        unused += [str(name) for name in checkpoint if name != inner]
        checkpoint = checkpoint[inner]
    if not isinstance(checkpoint, Mapping):
        raise ModelError(
            "E-WEIGHTS-BROKEN", f"it holds a {type(checkpoint).__name__} and no weights by name."
        )
    tensors = {str(k): v for k, v in checkpoint.items() if isinstance(v, torch.Tensor)}
    rest = [str(name) for name in checkpoint if str(name) not in tensors]
    if not tensors:
        raise ModelError("E-WEIGHTS-BROKEN", f"it holds no weights by name, only {some(rest)}.")
    return Unwrapped(tensors, (*unused, *rest), alpha)


def _holds_tensors(value: object) -> bool:
    if not isinstance(value, Mapping):
        return False
    if any(isinstance(inner, torch.Tensor) for inner in value.values()):
        return True
    return any(_holds_tensors(value.get(name)) for name in _WRAPPERS)


def _recorded_alpha(checkpoint: Mapping[str, object]) -> float | None:
    for settings in (checkpoint, *(checkpoint.get(name) for name in _SETTINGS)):
        values = vars(settings) if isinstance(settings, Namespace) else settings
        found = values.get("lora_alpha") if isinstance(values, Mapping) else None
        if isinstance(found, int | float) and not isinstance(found, bool):
            return float(found)
    return None


def strip_prefixes(state: Tensors) -> Tensors:
    """Names without what wrappers of modules put before and into them.

    Goes on until an image tower stands at the top, so that `model.` is cut from
    `model.visual.proj` and a second copy, `teacher.visual.proj`, is left alone.
    """
    for inserted in _INSERTED:
        state = {name.replace(inserted, ""): value for name, value in state.items()}
    while not any(name.startswith(_ROOTS) for name in state):
        counts = {p: sum(name.startswith(p) for name in state) for p in _PREFIXES}
        prefix = max(counts, key=counts.__getitem__)
        if not counts[prefix]:
            break
        cut = {name.removeprefix(prefix): value for name, value in state.items()}
        if len(cut) < len(state):
            raise ModelError(
                "E-WEIGHTS-AMBIGUOUS", f"it holds weights of one name with and without {prefix!r}."
            )
        state = cut
    return state


# --- names -------------------------------------------------------------------------------------

_RENAMED: Final = (
    (r"text_model\.embeddings\.token_embedding\.", "token_embedding."),
    (r"text_model\.embeddings\.position_embedding\.weight", "positional_embedding"),
    (r"text_model\.final_layer_norm\.", "ln_final."),
    (r"text_model\.encoder\.layers\.", "transformer.resblocks."),
    (r"vision_model\.embeddings\.class_embedding", "visual.class_embedding"),
    (r"vision_model\.embeddings\.patch_embedding\.", "visual.conv1."),
    (r"vision_model\.embeddings\.position_embedding\.weight", "visual.positional_embedding"),
    (r"vision_model\.pre_layrnorm\.", "visual.ln_pre."),  # transformers' own spelling
    (r"vision_model\.post_layernorm\.", "visual.ln_post."),
    (r"vision_model\.encoder\.layers\.", "visual.transformer.resblocks."),
)
_IN_LAYERS: Final = (
    (".layer_norm1.", ".ln_1."),
    (".layer_norm2.", ".ln_2."),
    (".mlp.fc1.", ".mlp.c_fc."),
    (".mlp.fc2.", ".mlp.c_proj."),
    (".self_attn.out_proj.", ".attn.out_proj."),
)
_QUERY: Final = re.compile(r"(.+)\.self_attn\.q_proj\.(weight|bias)")


def from_transformers(state: Tensors) -> Tensors:
    """open_clip's names for the weights of a transformers CLIPModel; others are left as they are.

    Projections are stored the other way round, and queries, keys and values as one matrix.
    """
    if not any(name.startswith("vision_model.") for name in state):
        return state
    renamed = {_rename(name): value for name, value in state.items()}
    for name, ours in (
        ("text_projection", "text_projection"),
        ("visual_projection", "visual.proj"),
    ):
        if (weight := renamed.pop(f"{name}.weight", None)) is not None:
            renamed[ours] = weight.T
    for name in list(renamed):
        if match := _QUERY.fullmatch(name):
            parts = [f"{match[1]}.self_attn.{part}_proj.{match[2]}" for part in "qkv"]
            if all(part in renamed for part in parts):
                joined = torch.cat([renamed.pop(part) for part in parts])
                renamed[f"{match[1]}.attn.in_proj_{match[2]}"] = joined
    return renamed


def _rename(name: str) -> str:
    for pattern, ours in _RENAMED:
        name, changed = re.subn(f"^{pattern}", ours, name)
        if changed:
            break
    if ".resblocks." in name:
        for theirs, ours in _IN_LAYERS:
            name = name.replace(theirs, ours)
    return name


_TEXT: Final = ("transformer.", "token_embedding.", "positional_embedding", "ln_final.")


def place_text_tower(state: Tensors, inside: bool) -> Tensors:
    """open_clip keeps a text tower at the top of a model or, `inside`, under `text.`."""
    names = (*_TEXT, "text_projection")
    if inside and not any(name.startswith("text.") for name in state):
        return {f"text.{n}" if n.startswith(names) else n: v for n, v in state.items()}
    if not inside and not any(name.startswith("token_embedding.") for name in state):
        return {
            n.removeprefix("text.") if n.startswith("text.") else n: v for n, v in state.items()
        }
    return state


def refuse_non_finite(state: Tensors) -> None:
    if broken := [name for name, value in state.items() if not torch.isfinite(value).all()]:
        raise ModelError(
            "E-WEIGHTS-NON-FINITE",
            f"{len(broken)} of its weights hold NaN or infinity: {some(broken)}.",
        )


def some(names: Sequence[str]) -> str:
    """The first five names, for a message."""
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")


# --- LoRA --------------------------------------------------------------------------------------


def merge_lora(state: Tensors, alpha: float | None = None) -> tuple[Tensors, str | None]:
    """Every weight W that has factors becomes W + alpha / r * B A, in float32; also a note.

    `alpha` is what the checkpoint records as a whole; a tensor `X.lora_alpha` beside the factors
    of X comes before it. Where nothing is recorded it is the library's default: 1 in loralib, 8 in
    peft. Leaving factors out (as loading with `strict=False` does) gives another model without any
    warning: TSVLC's attention starts with factors that are not zero.
    """
    if not any("lora_" in name for name in state):
        return state, None
    state = {name.replace(".base_layer.", "."): value for name, value in state.items()}
    merged = dict(state)
    found: dict[str, dict[str, str]] = {}
    for name in state:
        if match := _FACTOR.fullmatch(name):
            sides = found.setdefault(match["stem"], {})
            if sides.setdefault(match["side"], name) != name:
                raise _odd_lora(f"it holds two LoRA adapters of {match['stem']}; merge one")
    scales = set()
    for stem, sides in found.items():
        target = _target(state, stem)
        if set(sides) != {"A", "B"}:
            raise _odd_lora(f"it holds only one of the two LoRA factors of {stem}")
        a, b = merged.pop(sides["A"]), merged.pop(sides["B"])
        default = 8.0 if sides["A"].endswith(".weight") else 1.0
        own = next((n for n in (stem + end for end in _ALPHAS) if n in state), None)
        known = float(merged.pop(own)) if own else alpha
        strength, rank = (default if known is None else known), _rank(a, state[target])
        merged[target] = state[target].float() + strength / rank * _product(a, b, state[target])
        source = "of the library, for the file records none" if known is None else "of the file"
        scales.add(f"alpha {strength:g} ({source}), rank {rank}")
    if left := [name for name in merged if "lora_" in name]:
        raise _odd_lora(f"its LoRA weights {some(left)} are of a kind that cannot be merged")
    return merged, f"{len(found)} LoRA updates merged: {'; '.join(sorted(scales))}."


def _odd_lora(why: str) -> ModelError:
    return ModelError("E-LORA-INVALID", f"{why}.")


def _target(state: Tensors, stem: str) -> str:
    """The weight that a pair of factors belongs to."""
    for name in (stem, f"{stem}.weight", f"{stem}.in_proj_weight"):
        if name in state:
            return name
    raise _odd_lora(
        f"it holds LoRA factors of {stem} and not the weight they belong to; merge them into the "
        "base model first"
    )


def _rank(a: torch.Tensor, weight: torch.Tensor) -> int:
    """loralib's factors of a convolution have r rows for each row of the kernel."""
    flat_convolution = weight.ndim == 4 and a.ndim == 2
    return a.shape[0] // weight.shape[-1] if flat_convolution else a.shape[0]


def _product(a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    shapes = f"{tuple(b.shape)} and {tuple(a.shape)} for {tuple(weight.shape)}"
    a, b = a.float().flatten(1), b.float().flatten(1)
    if b.shape[1] != a.shape[0] or b.shape[0] * a.shape[1] != weight.numel():
        raise _odd_lora(f"its LoRA factors do not fit their weight: {shapes}")
    product = b @ a
    embedding = weight.ndim == 2 and product.shape != weight.shape  # loralib's: stored transposed
    return product.T if embedding else product.reshape(weight.shape)
