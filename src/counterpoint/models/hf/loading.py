"""Opening models of transformers for every family that uses them: weights, tokenizer, processor.

Whatever the library logs or shows is kept quiet, and its errors become one sentence.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from counterpoint._util.errors import (
    CounterpointError,
    MissingExtraError,
    ModelError,
    NotFoundError,
)
from counterpoint._util.registry import did_you_mean
from counterpoint._util.switches import Switch
from counterpoint._util.untrusted import described
from counterpoint.models.hub import guarded, hub_or_cache, pretrained, refuse_file
from counterpoint.models.records import records_in
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, fingerprint, quiet, stacked

try:
    import transformers
except ImportError:
    raise MissingExtraError("a model of transformers", "vlm") from None

# Entries of a configuration that say where a model came from, not what it computes.
_PASSING: Final = ("_name_or_path", "architectures", "dtype", "torch_dtype", "transformers_version")
_EXTRA: Final = ("accelerate", "sentencepiece")  # what `vlm` brings besides transformers
Tensors = dict[str, torch.Tensor]
Levels = Callable[[torch.Tensor], torch.Tensor]
SUPPORTED: Final = (
    *("align", "altclip", "chinese_clip", "clip", "flava", "metaclip_2", "siglip", "siglip2"),
    "vision-text-dual-encoder",
)
# The class of a dual encoder and its module that reads captions, unless it is BLIP or FLAVA.
DUAL: Final = ("AutoModel", "text_model")
_BLIP: Final = ("blip-itm", "blip-itc")
_ELSEWHERE: Final = {"blip": _BLIP, "blip-2": _BLIP, "flava": ("flava-itm",)}
# These text towers were trained on padding that they see: they need all of it, and no mask.
_SEES_PADDING: Final = ("siglip", "siglip2")
_PIXELS: Final = ("pixel_values", "pixel_attention_mask", "spatial_shapes")  # NaFlex has all three
_ENDLESS: Final = 10**6  # what transformers says of a tokenizer without a limit is larger
PROBES: Final = ("a", "two red birds sit on the long branch of a tall green tree")


@dataclass(frozen=True, slots=True)
class HfModel:
    """A model of transformers with its own tokenizer and image processor."""

    id: str
    model: Any
    tokenizer: Any
    processor: Any
    runtime: Runtime
    context_length: int | None
    identity: tuple[object, ...]  # what outputs depend on beside the weights
    fingerprint: str
    levels: Levels | None = None  # what is left to do if images are bytes
    training_records: tuple[str, ...] = ()

    def renewed(self, records: tuple[str, ...]) -> HfModel:
        """The same after its weights were changed: another fingerprint, other records."""
        new = fingerprint(self.model, *self.identity)
        return replace(self, fingerprint=new, training_records=records)

    def preprocess(self, image: Image.Image) -> Tensors:
        return preprocessed(self.processor, image, as_bytes=self.levels is not None)

    def stage(self, images: Sequence[Tensors]) -> Tensors:
        """A batch for `placed`, in memory from which a GPU copies without waiting."""
        pinned = self.runtime.on_gpu
        return {n: stacked([image[n] for image in images], pinned=pinned) for n in images[0]}

    def placed(self, staged: Tensors) -> Tensors:
        """Images as the towers take them, on the device."""
        device = self.runtime.device
        found = {name: one.to(device, non_blocking=True) for name, one in staged.items()}
        if self.levels is not None:
            found[_PIXELS[0]] = self.levels(found[_PIXELS[0]])
        if self.runtime.weights_cast:
            found[_PIXELS[0]] = found[_PIXELS[0]].to(self.runtime.half)
        return found

    def stack(self, images: Sequence[Tensors]) -> Tensors:
        return self.placed(self.stage(images))

    @property
    def sees_padding(self) -> bool:
        return self.model.config.model_type in _SEES_PADDING

    def token_ids(self, captions: Sequence[str], most: int | None = None) -> list[list[int]]:
        """Of each caption, cut to `most`, without padding: with it and as tensors, transformers
        takes twice as long."""
        cut = {} if most is None else {"truncation": True, "max_length": most}
        ids: list[list[int]] = self.tokenizer(
            list(captions),
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,  # of texts that are too long
            **cut,
        )["input_ids"]
        return ids

    def padded(self, ids: Sequence[Sequence[int]], width: int | None, filler: int) -> Tensors:
        """Tensors of `width` columns, or of as many as the longest has tokens."""
        lengths = np.fromiter(map(len, ids), np.int64, len(ids))
        there = np.arange(max(lengths) if width is None else width) < lengths[:, None]
        there = there[:, ::-1] if self.tokenizer.padding_side == "left" else there
        filled = np.full(there.shape, filler, np.int64)
        filled[there] = np.fromiter(chain.from_iterable(ids), np.int64, int(lengths.sum()))
        return {
            "input_ids": torch.from_numpy(filled),
            "attention_mask": torch.from_numpy(there.astype(np.int64)),
        }

    def tokens(self, captions: Sequence[str]) -> Tensors:
        ids = self.token_ids(captions, self.context_length)
        width = self.context_length if self.sees_padding else None
        found = self.padded(ids, width, self.filler)
        names = ("input_ids",) if self.sees_padding else ("input_ids", "attention_mask")
        return {name: found[name].to(self.runtime.device) for name in names}

    @property
    def filler(self) -> int:
        return int(self.tokenizer.pad_token_id or 0)

    def describe(self) -> dict[str, Any]:
        return {
            **self.runtime.describe(self.model),
            "class": type(self.model).__name__,
            "context_length": self.context_length,
            "tokenizer": type(self.tokenizer).__name__,
            "preprocessing": f"{type(self.processor).__name__} {as_text(self.processor.to_dict())}",
            "versions": {"torch": str(torch.__version__), "transformers": transformers.__version__},
            "notes": [],
            **({"training_records": [*self.training_records]} if self.training_records else {}),
        }


def open_model(
    family: str,
    rest: str,
    options: LoadOptions,
    classes: Mapping[str, tuple[str, str]],
    needed: tuple[str, ...] = ("",),
    *,
    halves: bool = False,
) -> HfModel:
    """Open a folder or a repository whose model type is one of `classes`.

    For each type, `classes` has a class and its module that reads captions. Only weights whose
    names begin with one of `needed` are used, and all of these have to be there. With `halves`,
    the weights are put into the half precision that is asked for.
    """
    id, runtime = f"{family}:{rest}", Runtime(options)
    source = str(Path(rest).expanduser()) if rest.startswith("~") else rest
    said = _read_config(id, source)
    kind = str(said.get("model_type"))
    name, text_tower = classes.get(kind, DUAL)
    readers: tuple[Any, ...] = (transformers.AutoTokenizer, transformers.AutoImageProcessor)
    with hub_or_cache(id, source), guarded(id, source, options):
        if kind not in classes and not (options.trust_remote_code and said.get("auto_map")):
            raise ModelError("E-MODEL-UNSUITABLE", _misfit(id, rest, kind, classes))
        shown = not Path(source).is_dir()
        with explained(id, "has weights that cannot be loaded"), bars(shown=shown):
            chosen = _class_of(id, source, name, said, options)
            model = _weights(id, source, chosen, needed, options).to(runtime.device)
        with explained(id, "has no tokenizer that can be loaded"):
            tokenizer = pretrained(readers[0], source, options)
        with explained(id, "has no image processor that can be loaded"):
            processor = pretrained(readers[1], source, options)
    # Positions count from the left, where padding would move the words.
    tokenizer.padding_side = tokenizer.truncation_side = "right"
    context = _context_length(id, tokenizer, model.get_submodule(text_tower))
    config = as_text(model.config.to_dict())  # some of it is read while running
    reading = reading_identity(tokenizer, processor)
    how = runtime.identity if halves else runtime.precision
    identity = (family, config, context, *reading, how)
    digest = fingerprint(model, *identity)
    if halves:
        runtime.cast(model)
    levels = levels_of(processor)
    parts = (model, tokenizer, processor, runtime, context, identity, digest, levels)
    return HfModel(id, *parts, records_in(source))


def _class_of(
    id: str, source: str, name: str, said: Mapping[str, Any], options: LoadOptions
) -> Any:
    """The class of the model; ours if its configuration names a pool, which it has to fit."""
    from counterpoint.models.hf.pooling import ENTRY, PooledDualEncoderModel, refuse_pool

    if said.get(ENTRY) is None:
        return getattr(transformers, name)
    refuse_pool(id, said[ENTRY], pretrained(transformers.AutoConfig, source, options))
    return PooledDualEncoderModel


def _weights(id: str, source: str, kind: Any, needed: tuple[str, ...], options: LoadOptions) -> Any:
    """The model in float32, without what is not needed."""
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")  # or the hub is asked to convert
    model, report = pretrained(kind, source, options, output_loading_info=True, weights_only=True)
    # What is missing, transformers makes up: at random, and with no more than a warning.
    missing = sorted(key for key in report["missing_keys"] if key.startswith(needed))
    if missing:
        raise ModelError(
            "E-WEIGHTS-MISSING",
            f"{id}: its weights, of {model.config.architectures}, lack {len(missing)} tensors of "
            f"{type(model).__name__}, for instance {missing[0]}; use another head or model.",
        )
    for part, _ in list(model.named_children()):
        if not f"{part}.".startswith(needed):
            setattr(model, part, None)
    for module in model.modules():
        if hasattr(module, "name_or_path"):
            module.name_or_path = ""  # a copy in another folder has the same fingerprint
    return model.float().eval()


def _read_config(id: str, source: str) -> dict[str, Any]:
    refuse_file(id, source)
    folder = Path(source)
    looks_local = folder.is_absolute() or source.startswith((".", "~")) or source.count("/") != 1
    if not source or (looks_local and not folder.is_dir()):
        raise NotFoundError(
            "E-MODEL-MISSING", f"{id}: no such folder, nor a repository's name (ORG/REPO)."
        )
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(
            "E-CONFIG-MISSING",
            f"{id}: the folder has no config.json, as models of transformers have.",
        )
    what = "is not a folder here, and cannot be fetched from the hub"
    with hub_or_cache(id, source), explained(id, what):
        config: dict[str, Any] = transformers.PretrainedConfig.get_config_dict(source)[0]
    return config


def _misfit(id: str, rest: str, kind: str, classes: Mapping[str, Any]) -> str:
    """One sentence for a model of a type that the family does not take."""
    from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES

    families = list(_ELSEWHERE.get(kind, ()))
    families += ["hf"] if kind in SUPPORTED else []
    families += ["vqa"] if kind in MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES else []
    if families:
        fitting = " or ".join(f"{family}:{rest}" for family in families)
        return f"{id}: a model of type {kind!r} does not fit this family; use {fitting}."
    return f"{id}: {did_you_mean('model type of this family', kind, classes)}"


def _context_length(id: str, tokenizer: Any, tower: torch.nn.Module) -> int | None:
    """How many tokens fit; also whether the tokenizer is this tower's own."""
    tables = {n: m for n, m in tower.named_modules() if isinstance(m, torch.nn.Embedding)}
    words = max(table.num_embeddings for table in tables.values())
    # transformers makes up a tokenizer of a few tokens where a folder has none.
    if not words / 2 <= tokenizer.vocab_size <= words:
        raise ModelError(
            "E-TOKENIZER-MISMATCH",
            f"{id}: its tokenizer has {tokenizer.vocab_size} tokens and its text tower {words}; "
            "put the model's own tokenizer beside its weights.",
        )
    # RoBERTa numbers its positions from after the padding token's.
    places = [
        table.num_embeddings - (0 if table.padding_idx is None else table.padding_idx + 1)
        for name, table in tables.items()
        if "position_embedding" in name
    ]
    length = min(tokenizer.model_max_length, *places, _ENDLESS)
    return None if length == _ENDLESS else int(length)


def reading_identity(tokenizer: Any, processor: Any) -> tuple[str, ...]:
    """What identifies a tokenizer and an image processor, wherever their files are."""
    backend, pieces = (getattr(tokenizer, n, None) for n in ("backend_tokenizer", "sp_model"))
    words = backend.to_str() if backend else as_text(tokenizer.get_vocab())
    scores = repr(pieces.serialized_model_proto()) if pieces else ""
    probe = as_text(tokenizer("A Dog &amp; two  CATS, the long-haired ones: don't!")["input_ids"])
    kinds = (type(thing).__name__ for thing in (tokenizer, processor))
    return (*kinds, words, scores, probe, as_text(processor.to_dict()))


def as_text(content: Any) -> str:
    """A configuration as text, without what does not change an output."""

    def kept(part: Any) -> Any:
        if isinstance(part, dict):
            return {str(k): kept(v) for k, v in part.items() if k not in _PASSING}
        return part

    return json.dumps(kept(content), sort_keys=True, default=str)


def probe_images() -> list[Image.Image]:
    """Two shapes: a processor must bring both to one size."""
    return [Image.new("RGB", size, "gray") for size in ((40, 30), (30, 50))]


def preprocessed(processor: Any, image: Image.Image, *, as_bytes: bool = False) -> Tensors:
    """One image; as bytes it is resized and cropped and no more."""
    more = {"do_rescale": False, "do_normalize": False} if as_bytes else {}
    found = processor(images=image, return_tensors="pt", **more)
    return {name: found[name][0] for name in _PIXELS if name in found}


def levels_of(processor: Any) -> Levels | None:
    """What a processor does after resizing, for a batch on a device; None if it cannot be told.

    Then bytes travel instead of floats. It is tried on noise, and has to give the same floats.
    """
    noise = np.random.default_rng(0).integers(0, 256, (80, 60, 3), dtype=np.uint8)
    try:
        image, scale = Image.fromarray(noise), float(processor.rescale_factor)
        mean, std = (
            torch.tensor(v).view(1, -1, 1, 1) for v in (processor.image_mean, processor.image_std)
        )
        whole, levels = (
            preprocessed(processor, image),
            preprocessed(processor, image, as_bytes=True),
        )
        [expected], [given] = whole.values(), levels.values()
    except Exception:  # of another kind: it does all of its work itself
        return None

    def whole_numbers(pixels: torch.Tensor) -> torch.Tensor:
        """As the processors of torchvision do it: mean and deviation are scaled, not the pixels."""
        wide, middle = (one.to(pixels.device) * (1 / scale) for one in (std, mean))
        return (pixels.float() - middle) / wide

    def fractions(pixels: torch.Tensor) -> torch.Tensor:
        return (pixels.float() * scale - mean.to(pixels.device)) / std.to(pixels.device)

    ways = (whole_numbers, fractions)
    same = (way for way in ways if torch.equal(way(given[None])[0], expected))
    return next(same, None) if given.dtype == torch.uint8 else None


@contextlib.contextmanager
def explained(id: str, what: str) -> Iterator[None]:
    """No log lines or warnings of the library; whatever it raises becomes one sentence."""
    try:
        with quiet():
            yield
    except CounterpointError:
        raise
    except Exception as error:  # transformers and its loaders raise anything
        if isinstance(error, ImportError) and not all(map(find_spec, _EXTRA)):
            raise MissingExtraError(id, "vlm") from None
        raise ModelError("E-MODEL-BROKEN", f"{id} {what}: {described(error)}.") from None


def bars(*, shown: bool) -> contextlib.AbstractContextManager[None]:
    """Progress bars of transformers, which are worth their lines while something is downloaded."""
    return contextlib.nullcontext() if shown else _no_bars()


@Switch
@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    bars: Any = transformers.logging
    before = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        yield
    finally:
        if before:
            bars.enable_progress_bar()
