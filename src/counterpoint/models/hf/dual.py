"""Models of transformers with a tokenizer and an image processor, and the dual encoders among them:
CLIP, SigLIP, ALIGN, FLAVA, VisionTextDualEncoder ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from PIL import Image

from counterpoint._util.errors import ModelError
from counterpoint._util.registry import did_you_mean
from counterpoint.models.hf.loading import (
    as_text,
    explained,
    load_weights,
    opening,
    refuse_other_tokenizer,
    transformers,
)
from counterpoint.models.hub import find_source, hub_or_cache, pretrained
from counterpoint.models.registry import LoadOptions, records_in
from counterpoint.models.torch_models import (
    Levels,
    Runtime,
    fingerprint,
    memory_errors,
    split_preprocess,
    stacked,
)

Tensors = dict[str, torch.Tensor]
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
Tower = Callable[[Tensors], torch.Tensor]


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
        if self.sees_padding:
            del found["attention_mask"]
        return {name: one.to(self.runtime.device) for name, one in found.items()}

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
    source = find_source(id, rest)
    if Path(source).is_dir() and not (Path(source) / "config.json").is_file():
        raise ModelError(
            "E-CONFIG-MISSING",
            f"{id}: the folder has no config.json, as models of transformers have.",
        )
    what = "is not a folder here, and cannot be fetched from the hub"
    with hub_or_cache(id, source), explained(id, what):
        said = transformers.PretrainedConfig.get_config_dict(source)[0]
    kind = str(said.get("model_type"))
    name, text_tower = classes.get(kind, DUAL)
    readers: tuple[Any, ...] = (transformers.AutoTokenizer, transformers.AutoImageProcessor)
    with opening(id, source, options):
        if kind not in classes and not (options.trust_remote_code and said.get("auto_map")):
            raise ModelError("E-MODEL-UNSUITABLE", _misfit(id, rest, kind, classes))
        with explained(id, "has weights that cannot be loaded"):
            chosen = _class_of(id, source, name, said, options)
            model = load_weights(id, source, chosen, options, needed).float().to(runtime.device)
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
    refuse_other_tokenizer(id, tokenizer, words)
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


def probe_images() -> list[Image.Image]:
    """Two shapes: a processor must bring both to one size."""
    return [Image.new("RGB", size, "gray") for size in ((40, 30), (30, 50))]


def preprocessed(processor: Any, image: Image.Image, *, as_bytes: bool = False) -> Tensors:
    """One image; as bytes it is resized and cropped and no more."""
    more = {"do_rescale": False, "do_normalize": False} if as_bytes else {}
    found = processor(images=image, return_tensors="pt", **more)
    return {name: found[name][0] for name in _PIXELS if name in found}


def levels_of(processor: Any) -> Levels | None:
    """What a processor does after resizing; None if it cannot be told."""
    try:
        how = (processor.image_mean, processor.image_std, float(processor.rescale_factor))
    except (AttributeError, TypeError, ValueError):  # it does all of its work itself
        return None

    def pixels(image: Image.Image, as_bytes: bool) -> torch.Tensor:
        [found] = preprocessed(processor, image, as_bytes=as_bytes).values()
        return found

    return split_preprocess(partial(pixels, as_bytes=False), partial(pixels, as_bytes=True), *how)


class HfDual:
    """A dual encoder. Vectors are unit float32, whatever precision the towers run in."""

    def __init__(self, opened: HfModel, see: Tower, read: Tower) -> None:
        self.opened, self.see, self.read = opened, see, read
        self.context_length, self.fingerprint = opened.context_length, opened.fingerprint
        self.lanes, self.device = opened.runtime.lanes, opened.runtime.hardware

    def preprocess(self, image: Image.Image) -> Tensors:
        return self.opened.preprocess(image)

    @memory_errors
    def encode_images(self, images: Sequence[Tensors]) -> np.ndarray:
        staged = self.opened.stage(images)
        return self.opened.runtime.vectors(lambda: self.see(self.opened.placed(staged)))

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        counted = self.opened.token_ids(captions) if captions else []
        return np.array([len(ids) for ids in counted], dtype=np.int64)

    @memory_errors
    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        tokens = self.opened.tokens(captions)
        return self.opened.runtime.vectors(lambda: self.read(tokens))

    def describe(self) -> Mapping[str, Any]:
        # Scale (its logarithm) and bias are the same for all pairs: they change no verdict.
        names = [n for n in ("logit_scale", "logit_bias") if hasattr(self.opened.model, n)]
        logits = {name: getattr(self.opened.model, name).item() for name in names}
        return {**self.opened.describe(), **logits}

    def tried(self) -> HfDual:
        """Itself, if it runs: towers may not take what tokenizer and image processor give."""
        with explained(self.opened.id, "does not run"):
            self.encode_captions(PROBES)
            self.encode_images([self.preprocess(image) for image in probe_images()])
        return self


def load(rest: str, options: LoadOptions) -> HfDual:
    """`ORG/REPO` on the hub, or a folder."""
    classes = dict.fromkeys(SUPPORTED, DUAL)
    return dual(open_model("hf", rest, options, classes, halves=True)).tried()


def dual(opened: HfModel) -> HfDual:
    model = opened.model
    return HfDual(
        opened,
        lambda pixels: vectors_of(model.get_image_features(**pixels)),
        lambda tokens: vectors_of(model.get_text_features(**tokens)),
    )


def vectors_of(output: Any) -> torch.Tensor:
    """transformers 4 returns vectors, 5 an object. FLAVA projects every position: [CLS] counts."""
    found: torch.Tensor = getattr(output, "pooler_output", output)
    return found[:, 0] if found.ndim == 3 else found
