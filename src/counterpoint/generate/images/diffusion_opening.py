"""Opening a text-to-image pipeline of diffusers: by name, hub id or folder; safetensors only."""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint.errors import MissingExtraError, ModelError, NotFoundError
from counterpoint.generate.images.backends import DEFAULT
from counterpoint.models import LoadOptions
from counterpoint.registry import did_you_mean

try:
    import diffusers
    import torch
    import transformers  # noqa: F401  (its text encoders are in every pipeline)
except ImportError:
    raise MissingExtraError("generate images", "generate") from None

from counterpoint.generate.images.diffusion import Opened, explained
from counterpoint.models import hf_library
from counterpoint.models.hf_library import as_text
from counterpoint.models.hub import hub_or_cache
from counterpoint.models.own_code import guarded
from counterpoint.models.torch_models import Place, fingerprint


class Recipe(NamedTuple):
    """A pipeline, and the UNet that takes the place of its own."""

    pipeline: str
    unet: str


MODELS: Final = {
    DEFAULT: Recipe("stabilityai/stable-diffusion-xl-base-1.0", "mhdang/dpo-sdxl-text2image-v1")
}
PRECISIONS: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
_NEEDED: Final = ("prompt", "generator", "num_inference_steps")
_LIBRARIES: Final = ("diffusers", "transformers")  # whose classes a pipeline may name


def open_pipeline(model: str, device: str = "auto", precision: str = "auto") -> Opened:
    """Open a model in half precision on a GPU and in full on a CPU, unless told otherwise."""
    place = Place(LoadOptions(device))
    usual = "fp16" if place.device.startswith("cuda") else "fp32"
    chosen = usual if precision == "auto" else precision
    if chosen not in PRECISIONS:
        raise NotFoundError(did_you_mean("precision", precision, ("auto", *PRECISIONS)))
    recipe = MODELS.get(model, Recipe(model, ""))
    pipeline = _load(model, recipe, PRECISIONS[chosen])
    takes = _takes(pipeline)
    pipeline.set_progress_bar_config(disable=True)
    with explained(model, "cannot be put on its device"):
        pipeline.to(place.device)
    return Opened(model, pipeline, place, chosen, takes, _fingerprint(pipeline, chosen))


def _load(model: str, recipe: Recipe, dtype: torch.dtype) -> Any:
    source = _source(model, recipe.pipeline)
    what = "is no folder here, and cannot be had from the hub"
    with hub_or_cache(model, source), explained(model, what):
        _refuse_code(model, diffusers.DiffusionPipeline.load_config(source))
    plain: Any = diffusers.DiffusionPipeline
    options = {"torch_dtype": dtype, "use_safetensors": True, "trust_remote_code": False}
    parts = {}
    local = Path(source).is_dir()
    unread = "has weights that cannot be loaded"
    guard = guarded(model, source, LoadOptions())
    hub = hub_or_cache(model, recipe.unet or source)
    with hub, guard, explained(model, unread), bars(shown=not local):
        if recipe.unet:
            unet: Any = diffusers.UNet2DConditionModel
            parts["unet"] = unet.from_pretrained(
                recipe.unet, subfolder="unet", torch_dtype=dtype, use_safetensors=True
            )
        pipeline = plain.from_pretrained(source, **options, **parts)
        # One that changes or mends images may have a sister that draws, of the same parts.
        found = pipeline if _takes(pipeline) else _sister(pipeline)
    if not _takes(found):
        raise ModelError(f"{model}: {type(pipeline).__name__} makes no image of a text alone.")
    return found


def _sister(pipeline: Any) -> Any:
    auto: Any = diffusers.AutoPipelineForText2Image  # slow to import
    try:
        return auto.from_pipe(pipeline)
    except ValueError:
        return pipeline


def _takes(pipeline: Any) -> Mapping[str, inspect.Parameter]:
    """What a call takes; nothing if it cannot draw from a text alone."""
    found = inspect.signature(type(pipeline).__call__).parameters
    able = "image" not in found and all(name in found for name in _NEEDED)
    return found if able else {}


def _source(model: str, name: str) -> str:
    folder = Path(name).expanduser()
    looks_local = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1
    if looks_local and not folder.is_dir():
        raise NotFoundError(
            f"{model}: no such folder, nor a repository's name (ORG/REPO), nor one of "
            f"{', '.join((*MODELS, 'world'))}."
        )
    if folder.is_dir() and not (folder / "model_index.json").is_file():
        raise ModelError(f"{model}: the folder has no model_index.json, as pipelines have.")
    return str(folder) if folder.is_dir() else name


def _refuse_code(model: str, config: Any) -> None:
    """A pipeline may name Python files of its own, or any module: none of them is imported."""
    named = config.get("_class_name") if isinstance(config, dict) else None
    if not isinstance(named, str):
        raise ModelError(f"{model}: its pipeline is code of its own, which is not run here.")
    for name, part in config.items():
        if name.startswith("_") or not isinstance(part, list) or not part or part[0] is None:
            continue
        library = str(part[0])
        if library not in _LIBRARIES and not hasattr(diffusers.pipelines, library):
            raise ModelError(f"{model}: {name} is code of {library!r}, which is not run here.")


def _fingerprint(pipeline: Any, precision: str) -> str:
    """A digest of weights, configurations and tokenizers, wherever the files lie."""
    parts = [precision, type(pipeline).__name__, _settings(pipeline)]
    parts.append(str(getattr(pipeline, "watermark", None) is not None))
    modules = torch.nn.Module()
    for name, part in sorted(pipeline.components.items()):
        parts.append(f"{name} {type(part).__name__} {_settings(part)}")
        if isinstance(part, torch.nn.Module):
            for module in (m for m in part.modules() if hasattr(m, "name_or_path")):
                vars(module)["name_or_path"] = ""
            modules.add_module(name, part)
        elif hasattr(part, "get_vocab"):
            backend = getattr(part, "backend_tokenizer", None)
            parts.append(backend.to_str() if backend else as_text(part.get_vocab()))
    return fingerprint(modules, *parts)


def _settings(part: Any) -> str:
    """The configuration of a part, without where it was and what wrote it."""
    found = getattr(part, "config", None)
    if found is None:
        found = part if hasattr(part, "to_dict") and not hasattr(part, "get_vocab") else {}
    content = found.to_dict() if hasattr(found, "to_dict") else dict(found)
    parts = (torch.nn.Module, list, tuple)  # of a pipeline: named here, and told by themselves
    kept = {k: v for k, v in content.items() if not k.startswith("_") and type(v) not in parts}
    return as_text(kept)


@contextlib.contextmanager
def bars(*, shown: bool) -> Iterator[None]:
    """Progress bars of the libraries, which are worth their lines while something is downloaded."""
    told: Any = diffusers.utils.logging
    before = told.is_progress_bar_enabled()
    if not shown:
        told.disable_progress_bar()
    try:
        with hf_library.bars(shown=shown):
            yield
    finally:
        if before:
            told.enable_progress_bar()
