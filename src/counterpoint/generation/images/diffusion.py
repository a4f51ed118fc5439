"""Images by a text-to-image pipeline of diffusers: by name, hub id or folder; safetensors only.

Images are drawn in batches, each with its own seed, and stored as they are made.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from PIL import Image

from counterpoint._util.errors import (
    CounterpointError,
    MissingExtraError,
    ModelError,
    NotFoundError,
)
from counterpoint._util.processes import Switch
from counterpoint._util.progress import Advance
from counterpoint._util.registry import did_you_mean
from counterpoint._util.store import digest
from counterpoint._util.untrusted import described
from counterpoint.generation.images.backends import (
    DEFAULT,
    Drawn,
    DrawnImage,
    DrawSettings,
    ImageFolder,
    Want,
    seed_of,
)
from counterpoint.generation.pairs import Rejection
from counterpoint.models import (
    LoadOptions,
    Runtime,
    fingerprint,
    guarded,
    hub_or_cache,
    memory_errors,
    pretrained,
    quiet,
)
from counterpoint.models.hf import as_text, bars as transformers_bars
from counterpoint.scoring import BatchSize, Work

try:
    import diffusers
    import transformers  # noqa: F401  (its text encoders are in every pipeline)
except ImportError:
    raise MissingExtraError("generate images", "generate") from None


class PipelineParts(NamedTuple):
    """A pipeline, and the UNet that replaces its own."""

    pipeline: str
    unet: str


MODELS: Final = {
    DEFAULT: PipelineParts(
        "stabilityai/stable-diffusion-xl-base-1.0", "mhdang/dpo-sdxl-text2image-v1"
    )
}
PRECISIONS: Final = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}
UNSAFE: Final = Rejection("the model's safety checker held the image back")
BLACK: Final = Rejection(
    "the image is all black (half precision may overflow: try --precision fp32)"
)
EMPTY: Final = Rejection("the text is empty")
RESAMPLING: Final = Image.Resampling.BICUBIC  # Pillow's default, which the authors used
_TOKENIZERS: Final = ("tokenizer", "tokenizer_2", "tokenizer_3")
_ENDLESS: Final = 10**6  # transformers gives a larger number for a tokenizer without a limit
_NEEDED: Final = ("prompt", "generator", "num_inference_steps")
_LIBRARIES: Final = ("diffusers", "transformers")  # whose classes a pipeline may name


@dataclass(frozen=True, slots=True)
class LoadedPipeline:
    """A pipeline on its device, in one precision; `takes` are the arguments of a call."""

    id: str
    pipeline: Any
    place: Runtime
    precision: str
    takes: Mapping[str, inspect.Parameter]
    fingerprint: str

    def describe(self) -> dict[str, Any]:
        names = ("diffusers", "transformers", "torch")
        return {
            "model": self.id,
            "class": type(self.pipeline).__name__,
            "fingerprint": self.fingerprint,
            "device": self.place.device,
            "precision": self.precision,
            "versions": {name: version(name) for name in names},
        }


def open_pipeline(
    model: str, device: str = "auto", precision: str = "auto", *, inpaint: bool = False
) -> LoadedPipeline:
    """Open a model, by default in half precision on a GPU and in full precision on a CPU.

    `inpaint`: it draws into a part of an image, and not from a text alone.
    """
    place = Runtime(LoadOptions(device))
    usual = "fp16" if place.device.startswith("cuda") else "fp32"
    chosen = usual if precision == "auto" else precision
    if chosen not in PRECISIONS:
        raise NotFoundError(
            "E-PRECISION-UNKNOWN", did_you_mean("precision", precision, ("auto", *PRECISIONS))
        )
    recipe = MODELS.get(model, PipelineParts(model, ""))
    pipeline = _load(model, recipe, PRECISIONS[chosen], inpaint)
    takes = _takes(pipeline, inpaint)
    pipeline.set_progress_bar_config(disable=True)
    with explained(model, "cannot be put on its device"):
        pipeline.to(place.device)
    return LoadedPipeline(model, pipeline, place, chosen, takes, _fingerprint(pipeline, chosen))


def _load(model: str, recipe: PipelineParts, dtype: torch.dtype, inpaint: bool) -> Any:
    source = _source(model, recipe.pipeline)
    what = "is not a local folder and cannot be loaded from the hub"
    with hub_or_cache(model, source), explained(model, what):
        _refuse_code(model, diffusers.DiffusionPipeline.load_config(source))
    plain: Any = diffusers.DiffusionPipeline
    how = {"torch_dtype": dtype, "use_safetensors": True}
    options = LoadOptions()
    parts = {}
    local = Path(source).is_dir()
    unread = "has weights that cannot be loaded"
    guard = guarded(model, source, options)
    hub = hub_or_cache(model, recipe.unet or source)
    with hub, guard, explained(model, unread), bars(shown=not local):
        if recipe.unet:
            unet: Any = diffusers.UNet2DConditionModel
            parts["unet"] = pretrained(unet, recipe.unet, options, subfolder="unet", **how)
        pipeline = pretrained(plain, source, options, **how, **parts)
        # A pipeline that edits images may have a sister that draws, with the same parts.
        fitting = pipeline if _takes(pipeline, inpaint) else _sister(pipeline, inpaint)
    if not _takes(fitting, inpaint):
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{model}: {type(pipeline).__name__} does not "
            f"{'draw into a part of an image' if inpaint else 'make images from text alone'}.",
        )
    return fitting


def _sister(pipeline: Any, inpaint: bool) -> Any:
    auto: Any = (  # slow to import
        diffusers.AutoPipelineForInpainting if inpaint else diffusers.AutoPipelineForText2Image
    )
    try:
        return auto.from_pipe(pipeline)
    except ValueError:
        return pipeline


def _takes(pipeline: Any, inpaint: bool) -> Mapping[str, inspect.Parameter]:
    """The parameters of a call; empty if it cannot do what is asked of it."""
    parameters = inspect.signature(type(pipeline).__call__).parameters
    fits = {"image", "mask_image"} <= set(parameters) if inpaint else "image" not in parameters
    able = fits and all(name in parameters for name in _NEEDED)
    return parameters if able else {}


def _source(model: str, name: str) -> str:
    folder = Path(name).expanduser()
    looks_local = folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1
    if looks_local and not folder.is_dir():
        raise NotFoundError(
            "E-MODEL-UNKNOWN",
            f"{model}: {'a file, and no folder' if folder.is_file() else 'no such folder'}, nor a "
            f"repository's name (ORG/REPO), nor one of {', '.join((*MODELS, 'world'))}.",
        )
    if folder.is_dir() and not (folder / "model_index.json").is_file():
        raise ModelError(
            "E-MODEL-BROKEN",
            f"{model}: the folder has no model_index.json, which a pipeline needs.",
        )
    return str(folder) if folder.is_dir() else name


def _refuse_code(model: str, config: Any) -> None:
    """A pipeline may name its own Python files, or any module: none of them is imported."""
    named = config.get("_class_name") if isinstance(config, dict) else None
    if not isinstance(named, str):
        raise ModelError(
            "E-CODE-REFUSED", f"{model}: its pipeline is code of its own, which is not run here."
        )
    for name, part in config.items():
        if name.startswith("_") or not isinstance(part, list) or not part or part[0] is None:
            continue
        library = str(part[0])
        if library not in _LIBRARIES and not hasattr(diffusers.pipelines, library):
            raise ModelError(
                "E-CODE-REFUSED", f"{model}: {name} is code of {library!r}, which is not run here."
            )


def _fingerprint(pipeline: Any, precision: str) -> str:
    """A digest of weights, configurations and tokenizers, independent of paths."""
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
    """The configuration of a part, without paths and versions."""
    config = getattr(part, "config", None)
    if config is None:
        config = part if hasattr(part, "to_dict") and not hasattr(part, "get_vocab") else {}
    content = config.to_dict() if hasattr(config, "to_dict") else dict(config)
    parts = (torch.nn.Module, list, tuple)  # parts of a pipeline have their own entries
    kept = {k: v for k, v in content.items() if not k.startswith("_") and type(v) not in parts}
    return as_text(kept)


def bars(*, shown: bool) -> contextlib.AbstractContextManager[None]:
    """Progress bars of the libraries; shown only while something may be downloaded."""
    return contextlib.nullcontext() if shown else _no_bars()


@Switch
@contextlib.contextmanager
def _no_bars() -> Iterator[None]:
    logs: Any = diffusers.utils.logging
    before = logs.is_progress_bar_enabled()
    logs.disable_progress_bar()
    try:
        with transformers_bars(shown=False):
            yield
    finally:
        if before:
            logs.enable_progress_bar()


class ImageOrder(NamedTuple):
    """One image to draw; `name` is a digest of everything that it depends on."""

    prompt: str
    seed: int
    name: str
    want: Want


class Diffusion:
    """Draws with a pipeline, and stores the images in a folder."""

    task = "drawing"  # part of every image's name

    def __init__(
        self, opened: LoadedPipeline, settings: DrawSettings, folder: ImageFolder, work: Work
    ) -> None:
        self.opened, self.folder, self.progress = opened, folder, work.progress
        self.settings, self.fingerprint = settings, opened.fingerprint
        self.side = settings.side or own_side(opened)
        self.call = _call(opened, settings, self.side)
        self.how = {**self.call, "saved": settings.saved, "resampling": RESAMPLING.name.lower()}
        owner = f"{opened.fingerprint} images of {self.side} pixels"
        self.size = BatchSize(work.batch, work.store, owner)
        self.drawn = self.found = self.cut = 0

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        """What several wants have in common is drawn once."""
        rows = [self._orders(want) for want in wants]
        orders = {order.name: order for row in rows if isinstance(row, list) for order in row}
        self.cut += self._count_cut([o.prompt for o in orders.values() if o.name.endswith("-0")])
        drawn = self._make(list(orders.values()))
        return [
            [drawn[order.name] for order in row]
            if isinstance(row, list)
            else [row] * self.settings.candidates
            for row in rows
        ]

    def describe(self) -> Mapping[str, Any]:
        names = ("candidates", "seed", "suffix")
        return {
            **self.opened.describe(),
            "settings": {name: getattr(self.settings, name) for name in names} | self.how,
            "drawn": self.drawn,
            "found": self.found,
            "cut": self.cut,
        }

    def _orders(self, want: Want) -> list[ImageOrder] | Rejection:
        """The candidates of a text, or why it cannot be drawn."""
        if not want.text.strip():
            return EMPTY
        parts = self._parts(want)
        if isinstance(parts, Rejection):
            return parts
        prompt, how = prompt_of(want.text, self.settings), repr(sorted(self.how.items()))
        orders = []
        for candidate in range(self.settings.candidates):
            seed = seed_of(self.settings.seed, want.text, candidate)
            key = digest(self.task, self.fingerprint, prompt, str(seed), how, *parts).hex()
            orders.append(ImageOrder(prompt, seed, f"{key}-{candidate}", want))
        return orders

    def _parts(self, want: Want) -> Sequence[bytes] | Rejection:
        """Digests of what an image depends on besides the text, or why there is none."""
        del want
        return ()

    def _make(self, orders: Sequence[ImageOrder]) -> dict[str, Drawn]:
        advance = self.progress.start("images", len(orders))
        drawn: dict[str, Drawn] = {}
        missing = []
        for order in orders:
            known = self.folder.find(order.name)
            if known is None:
                missing.append(order)
            else:
                drawn[order.name] = (
                    DrawnImage(known, order.seed) if isinstance(known, str) else known
                )
        self.found += len(drawn)
        advance(len(drawn))
        return drawn | self._all(missing, advance)

    def _all(self, orders: Sequence[ImageOrder], advance: Advance) -> dict[str, Drawn]:
        drawn: dict[str, Drawn] = {}
        while len(drawn) < len(orders):
            chosen = orders[len(drawn) : len(drawn) + self.size.size]
            drawn |= self._batch(chosen)
            advance(len(chosen))
        return drawn

    def _batch(self, orders: Sequence[ImageOrder]) -> dict[str, Drawn]:
        """Draw and store a batch; when memory runs out, in halves."""
        try:
            images = self._run(orders)
        except MemoryError as error:
            self.size.halve(len(orders), error)
            return self._all(orders, lambda _: None)
        drawn: dict[str, Drawn] = {}
        for order, image in zip(orders, images, strict=True):
            if isinstance(image, Rejection):
                drawn[order.name] = self.folder.reject(order.name, image)
            else:
                drawn[order.name] = DrawnImage(self.folder.keep(order.name, image), order.seed)
        self.drawn += len(orders)
        return drawn

    @memory_errors
    def _run(self, orders: Sequence[ImageOrder]) -> list[Image.Image | Rejection]:
        # On the CPU, so that the noise is the same on every device.
        generators = [torch.Generator("cpu").manual_seed(order.seed) for order in orders]
        with explained(self.opened.id, "does not draw"), self.opened.place.running():
            answer = self.opened.pipeline(
                prompt=[order.prompt for order in orders],
                generator=generators,
                output_type="pil",
                **self._inputs(orders),
                **self.call,
            )
        unsafe = getattr(answer, "nsfw_content_detected", None) or [False] * len(orders)
        return [
            UNSAFE
            if flag
            else BLACK
            if not image.convert("RGB").getbbox()
            else self._finished(order, image)
            for order, image, flag in zip(orders, answer.images, unsafe, strict=True)
        ]

    def _inputs(self, orders: Sequence[ImageOrder]) -> dict[str, Any]:
        """What the pipeline gets besides prompts and settings."""
        del orders
        return {}

    def _finished(self, order: ImageOrder, drawn: Image.Image) -> Image.Image:
        """As it is saved: the authors drew at the pipeline's own size and then resized, too."""
        del order
        factor = self.settings.saved / max(drawn.size)
        if factor >= 1:
            return drawn
        return drawn.resize([round(side * factor) for side in drawn.size], RESAMPLING)

    def _count_cut(self, prompts: Sequence[str]) -> int:
        """The number of prompts that are too long for every text encoder."""
        readers = [getattr(self.opened.pipeline, name, None) for name in _TOKENIZERS]
        limits = {reader.model_max_length: reader for reader in readers if reader is not None}
        if not prompts or not limits or max(limits) >= _ENDLESS:
            return 0
        longest = max(limits)
        tokens = limits[longest](list(prompts), verbose=False)["input_ids"]
        return sum(len(ids) > longest for ids in tokens)


def prompt_of(text: str, settings: DrawSettings) -> str:
    return text.strip().removesuffix(".").rstrip() + settings.suffix


def own_side(opened: LoadedPipeline) -> int | None:
    """The width and height that a pipeline draws where none is asked for, if it says so.

    1024 for SDXL: 128 cells of its latent space of 8 pixels each.
    """
    asked = opened.takes.get("height")
    if asked is not None and isinstance(asked.default, int):
        return asked.default
    names = ("default_sample_size", "vae_scale_factor")
    cells, pixels = (getattr(opened.pipeline, name, None) for name in names)
    return cells * pixels if isinstance(cells, int) and isinstance(pixels, int) else None


def _call(opened: LoadedPipeline, settings: DrawSettings, side: int | None) -> dict[str, Any]:
    """The settings as parameters of this pipeline; others are not passed."""
    default = opened.takes["num_inference_steps"].default
    wanted = {
        "num_inference_steps": default if settings.steps is None else settings.steps,
        "guidance_scale": settings.guidance,
        "height": side,
        "width": side,
    }
    return {name: one for name, one in wanted.items() if name in opened.takes and one is not None}


@contextlib.contextmanager
def explained(id: str, what: str) -> Iterator[None]:
    """Silence the library's logs and warnings; every error becomes one sentence."""
    try:
        with quiet():
            yield
    except (CounterpointError, MemoryError, torch.OutOfMemoryError):
        raise
    except Exception as error:  # diffusers raises errors of many kinds
        raise ModelError("E-MODEL-FAILED", f"{id} {what}: {described(error)}.") from None
