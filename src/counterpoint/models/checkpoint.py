"""`checkpoint:PATH@ARCH`: a finetuned CLIP's weights, as its authors saved them, in open_clip.

NegCLIP, CREPE, TSVLC, DAC, CE-CLIP, BiVLC's and many more publish training checkpoints. They are
unwrapped, renamed and merged by `state_dicts`, and then loaded whole or not at all.
"""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import open_clip
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file

from counterpoint.errors import ModelError, NotFoundError
from counterpoint.models import LoadOptions
from counterpoint.models.fitting import fill
from counterpoint.models.lora import merge_lora
from counterpoint.models.open_clip import MERGES, OpenClip, opening
from counterpoint.models.open_clip_checks import (
    Source,
    builds_quick_gelu,
    config_says,
    file_says,
    is_torchscript,
    parse,
    unknown_activation,
    with_activation,
)
from counterpoint.models.state_dicts import (
    Tensors,
    from_transformers,
    place_text_tower,
    some,
    strip_prefixes,
    unwrap,
)
from counterpoint.models.torch_models import Place
from counterpoint.registry import did_you_mean
from counterpoint.untrusted import shortened


def load(rest: str, options: LoadOptions) -> OpenClip:
    """`PATH@ARCH`: a checkpoint and the open_clip architecture (or `local-dir:FOLDER`) for it."""
    path, name = _parse(rest)
    id, place = f"checkpoint:{rest}", Place(options)
    folder = Path(name.removeprefix("local-dir:")) if name.startswith("local-dir:") else None
    with _of(id):
        state, notes = _state(path)
        notes += _activation(path, name)
    with opening(id, name, folder, path, options):
        model, tokenizer = _build(name, folder)
        with _of(id):
            state = place_text_tower(state, inside=not hasattr(model, "positional_embedding"))
            notes += fill(model, state, name)
        rows = len(next((v for k, v in state.items() if k.endswith("token_embedding.weight")), ()))
        if rows and getattr(tokenizer, "vocab_size", 0) > rows:
            raise ModelError(
                f"{id}: its tokenizer has {tokenizer.vocab_size} tokens and its text tower {rows}; "
                f"put the matching {MERGES} into the architecture's folder."
            )
        source = Source(rest, name, str(path), notes=tuple(notes))
        return OpenClip(source, model.to(place.device), tokenizer, place)


@contextmanager
def _of(id: str) -> Iterator[None]:
    """What is wrong with a file, said of a model."""
    try:
        yield
    except ModelError as error:
        raise ModelError(f"{id}: {error}") from None


def _parse(rest: str) -> tuple[Path, str]:
    given, _, name = rest.rpartition("@")
    path = Path(given).expanduser()
    if not given or Path(rest).expanduser().exists():
        raise NotFoundError(
            f"checkpoint:{rest} needs an architecture after the path, as in "
            f"checkpoint:{rest or 'PATH'}@ViT-B-32-quickgelu."
        )
    if path.is_dir():
        files = sorted(p.name for p in path.iterdir() if p.suffix in _SUFFIXES)
        there = f"it holds {', '.join(files[:5])}" if files else "it holds none"
        raise NotFoundError(
            f"checkpoint:{rest}: {path} is a folder; name a file of weights, {there}."
        )
    if not path.is_file():
        raise NotFoundError(f"checkpoint:{rest}: there is no file {path}.")
    if name.startswith("local-dir:"):
        return path, parse(name).name
    if name not in open_clip.list_models():
        raise NotFoundError(did_you_mean("open_clip architecture", name, open_clip.list_models()))
    return path, name


_SUFFIXES: Final = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
# Training arguments and numbers of NumPy lie beside many weights. They are values and run nothing.
_SCALAR: Final = np.float64(0).__reduce__()[0]
_VALUES: Final[tuple[Any, ...]] = (
    *(Namespace, np.dtype, _SCALAR, (_SCALAR, "numpy.core.multiarray.scalar")),  # before NumPy 2
    *(type(np.dtype(kind)) for kind in ("f4", "f8", "i4", "i8")),
)


# --- the file ----------------------------------------------------------------------------------


def _state(path: Path) -> tuple[Tensors, list[str]]:
    """The weights under open_clip's names, and what should be known of how they came about."""
    unwrapped = unwrap(_read(path))
    merged = merge_lora(strip_prefixes(unwrapped.tensors), unwrapped.alpha)
    notes = [merged.note] if merged.note else []
    if unwrapped.unused:
        notes.append(f"not used of {path.name}: {some(unwrapped.unused)}.")
    return from_transformers(merged.state), notes


def _read(path: Path) -> object:
    if path.suffix == ".safetensors":
        try:
            return load_file(path)
        except (SafetensorError, OSError) as error:
            raise ModelError(
                f"it is not a readable safetensors file: {shortened(error)}."
            ) from None
    if is_torchscript(path):
        raise ModelError(
            "it is a TorchScript archive, which holds code; for OpenAI's own weights use "
            "open_clip:ViT-B-32-quickgelu/openai or another architecture's tag openai."
        )
    try:
        with torch.serialization.safe_globals([*_VALUES]):
            return _torch_load(path)
    except Exception as error:  # unpickling raises anything
        asked = re.search(r"GLOBAL ([\w.]+)", str(error))
        if asked:
            raise ModelError(
                f"loading it would run code ({asked[1]}), which is not done; "
                "save its state_dict() alone, best as safetensors."
            ) from None
        why = shortened(error) or type(error).__name__
        raise ModelError(f"it is not a readable checkpoint: {why.rstrip('.')}.") from None


def _torch_load(path: Path) -> object:
    try:
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError as error:
        if "mmap" not in str(error):
            raise
    return torch.load(path, map_location="cpu", weights_only=True)  # the format before torch 1.6


def _activation(path: Path, name: str) -> list[str]:
    """Refuse the wrong GELU where anything says which it was, else leave a note."""
    said = file_says(path)
    trained = config_says(path.parent / "config.json") if said is None else said
    if trained is None:
        return list(unknown_activation(name, path))
    if trained == builds_quick_gelu(name):
        return []
    fitting = with_activation(name, trained)
    kinds = {True: "QuickGELU", False: "GELU"}
    raise ModelError(
        f"its weights were trained with {kinds[trained]} and {name} computes "
        f"{kinds[not trained]}, which changes every score"
        + (f"; use checkpoint:{path}@{fitting}." if fitting else ".")
    )


# --- the model ---------------------------------------------------------------------------------


def _build(name: str, folder: Path | None) -> tuple[Any, Any]:
    """The architecture with random weights, and its tokenizer."""
    own = {"bpe_path": str(folder / MERGES)} if folder and (folder / MERGES).is_file() else {}
    model = open_clip.create_model(
        name,
        load_weights=False,
        pretrained_text=False,
        force_preprocess_cfg=_preprocessing(name),
    )
    return model, open_clip.get_tokenizer(name, **own)


def _preprocessing(name: str) -> dict[str, Any]:
    """What all tags of an architecture agree on (SigLIP's are not CLIP's), else open_clip's own."""
    tags = open_clip.list_pretrained_tags_by_model(name)
    configs = [open_clip.get_pretrained_cfg(name, tag) for tag in tags]
    keys = ("mean", "std", "interpolation", "resize_mode")
    found = [{key: config[key] for key in keys if config.get(key)} for config in configs]
    return found[0] if found and all(one == found[0] for one in found) else {}
