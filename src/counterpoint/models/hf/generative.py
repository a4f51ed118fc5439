"""Generative vision-language models of transformers, scored by P(yes) or by caption likelihood.

`vqa:FOLDER` or `vqa:ORG/REPO`: the model is asked `Does this figure show "{caption}"? Please answer
yes or no.` (VQAScore's question, Lin et al. 2024). The score is P(yes) / (P(yes) + P(no)) for the
next token after the prompt, where P(yes) is the sum over all tokens that are Yes or yes, with or
without a blank before them, and P(no) likewise. Which of these a model says depends on its template
and its vocabulary, hence the sums; dividing takes away how much it would rather say something else,
which differs between prompts and says nothing about the image.
`vqa:FOLDER?template=TEXT_OR_FILE` asks something else; the text must hold `{caption}`.
`vqa:FOLDER?templates=FILE` asks all questions of a file, one per line: the score is the mean of
their P(yes), and how far they are apart is recorded. The image's part is computed once for all.

`lm:FOLDER` or `lm:ORG/REPO`: the mean log-probability of the caption's tokens as the model's answer
to `Describe the image.` (natural logarithm; the end of the answer is not counted).
`lm:FOLDER?prompt=TEXT_OR_FILE` asks something else.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from itertools import groupby, islice
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterpoint._util.errors import ModelError
from counterpoint._util.registry import Option, read_options
from counterpoint.images import Picture
from counterpoint.models.hf.loading import (
    as_text,
    explained,
    load_weights,
    opening,
    transformers,
)
from counterpoint.models.hf.prompts import (
    CAPTION,
    INSTRUCTION,
    QUESTION,
    NotSharedError,
    Prefix,
    Prompt,
    Prompts,
    Suffix,
    TemplateSpread,
    chance_of_yes,
    exact_head,
    form,
    joined,
    make_prompts,
    mean_log_likelihood,
    run_prefix,
    run_suffixes,
    run_whole,
    yes_and_no,
)
from counterpoint.models.hub import find_source, pretrained
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, fingerprint, memory_errors, plain, quiet
from counterpoint.scoring import in_threads

_PROBES: Final = ("a dog", "two red birds sit on the long branch of a tall green tree")
# How far logits may be apart, as a part of their spread, when the same is computed in two ways.
_TOLERANCE: Final = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}
_UNLIKE: Final = 0.5  # no rounding is as large; another image moved logits by three
_IMAGES: Final = 4  # prefixes that run together: two or three keep a large GPU busy
_PART: Final = 4  # of the memory beside the weights, one in so many parts is for repeated prefixes
_HOST: Final = 2**33  # bytes of memory, where there is no GPU to ask


class _Ready(NamedTuple):
    """An image and its captions as the device takes them; without a prompt they run whole."""

    image: Image.Image
    captions: list[str]
    form: tuple[object, ...]  # images in a row that have the same form run together
    key: bytes = b""  # the image's content, if its prefix may be wanted again
    prompt: Prompt | None = None
    suffixes: Sequence[Suffix] = ()  # of all captions in the first template, then in the second ...
    answers: Sequence[list[int]] = ()  # of the captions, where they are the model's answers


class Generative:
    """A pair scorer. An image's part of the prompt is computed once for all of its captions."""

    def __init__(self, model: Any, prompts: Prompts | Sequence[Prompts], runtime: Runtime) -> None:
        self.templates = [prompts] if isinstance(prompts, Prompts) else list(prompts)
        self.prompts = self.templates[0]
        self.model, self.runtime = model.eval(), runtime
        processor = self.prompts.processor
        self.answers = None if self.prompts.answers else yes_and_no(processor.tokenizer)
        texts = tuple(each.text for each in self.templates)
        self.fingerprint = fingerprint(  # before anything runs: models keep notes in themselves
            model,
            texts if len(texts) > 1 else texts[0],
            self.answers,
            runtime.precision,
            *identity(processor, model),
        )
        self.spread = TemplateSpread()
        self._last: tuple[bytes, Prefix] | None = None
        self._tokenizing = threading.Lock()  # fast tokenizers fail when two threads use them
        self.images_at_once = 1
        self.why_not_shared = self._probe()

    @memory_errors
    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        pairs = groupby(zip(pictures, captions, strict=True), key=lambda pair: pair[0])
        groups = [(picture, [caption for _, caption in group]) for picture, group in pairs]
        if not groups:
            return np.zeros(0, dtype=np.float32)

        def ready(number: int) -> _Ready:
            picture, asked = groups[number]
            # The engine may cut the pairs of an image apart: the first and the last image of a call
            # run alone and are kept, so that they are the same whichever call comes before.
            return self._ready(picture.open(), asked, number in (0, len(groups) - 1))

        try:
            with self._running():
                found = list(self._all(in_threads(ready, range(len(groups)), 1)))
                scores = torch.cat(found, dim=1).cpu().numpy()  # the only wait for the device
        except torch.OutOfMemoryError:
            self._last = None
            raise
        if len(scores) > 1:
            ends = np.cumsum([len(asked) for _, asked in groups])[:-1]
            for chances in np.split(scores, ends, axis=1):
                self.spread.add(chances)
        return scores.mean(axis=0).astype(np.float32)

    def describe(self) -> Mapping[str, Any]:
        why, count = self.why_not_shared, len(self.templates)
        notes = [] if why is None else [f"each pair is computed whole, which is slower: {why}."]
        shown = [each.shown for each in self.templates]
        about: dict[str, Any] = {"prompt": shown[0]}
        if count > 1:
            about = {"prompts": shown, "spread": asdict(self.spread)}
            notes += [self.spread.note(count)] if self.spread.pairs else []
        return {
            **self.runtime.describe(self.model),
            **about,
            "tokens": self.answers,
            "shared_prefix": why is None,
            "images_at_once": self.images_at_once,
            "versions": {"transformers": transformers.__version__, "torch": str(torch.__version__)},
            "notes": notes,
        }

    # --- on the host: prompts of an image -------------------------------------------------------

    def _ready(self, image: Image.Image, captions: list[str], alone: bool = True) -> _Ready:
        with self._tokenizing:
            answers = [self.prompts.answer(text) for text in captions] if not self.answers else []
            whole = _Ready(image, captions, (object(),), answers=answers)
            if self.why_not_shared:
                return whole
            suffixes = [each.suffix(text) for each in self.templates for text in captions]
            prompt = self.prompts.whole(image, captions[0])
        tail = prompt.inputs["input_ids"][0, prompt.cut :].tolist()
        if tail != suffixes[0].ids:  # an image whose prompt is put together in another way
            return whole
        if not alone:
            return _Ready(image, captions, form(prompt), b"", prompt, suffixes, answers)
        key = hashlib.blake2b(repr(image.size).encode() + image.tobytes()).digest()
        return whole._replace(key=key, prompt=prompt, suffixes=suffixes)

    # --- on the device --------------------------------------------------------------------------

    def _all(self, images: Iterable[_Ready]) -> Iterator[torch.Tensor]:
        """The scores (templates, captions) of each image."""
        for _, same in groupby(images, key=lambda image: image.form):
            while batch := list(islice(same, self.images_at_once)):
                yield from self._scores(batch)

    def _scores(self, batch: list[_Ready]) -> Iterator[torch.Tensor]:
        logits = iter(
            self._whole_each(batch[0]) if batch[0].prompt is None else self._shared(batch)
        )
        for image in batch:
            count = len(self.templates) * len(image.captions)
            scores = self._read(list(islice(logits, count)), image.answers)
            yield scores.reshape(len(self.templates), -1)

    def _read(self, logits: list[torch.Tensor], answers: Sequence[list[int]]) -> torch.Tensor:
        """The scores from the logits of the places that matter (places, vocabulary)."""
        if self.answers is not None:
            return chance_of_yes(torch.stack([found[-1] for found in logits]), self.answers)
        found = zip(logits, answers, strict=True)
        return torch.stack([mean_log_likelihood(*each) for each in found])

    def _whole_each(self, asked: _Ready) -> Iterator[torch.Tensor]:
        for prompts in self.templates:
            for caption in asked.captions:
                yield self._whole(asked.image, caption, prompts)

    def _whole(self, image: Image.Image, caption: str, prompts: Prompts) -> torch.Tensor:
        with self._tokenizing:
            prompt = prompts.whole(image, caption)
        return run_whole(self.model, self._placed(prompt.inputs), prompt.wanted)

    def _shared(self, batch: list[_Ready]) -> Iterator[torch.Tensor]:
        prefix = self._prefix(batch)
        suffixes = [(each, n) for n, image in enumerate(batch) for each in image.suffixes]
        most = max(1, self._room() // max(prefix.memory(), 1))
        for start in range(0, len(suffixes), most):
            chosen, images = zip(*suffixes[start : start + most], strict=True)
            yield from run_suffixes(self.model, prefix, chosen, images)

    def _prefix(self, batch: list[_Ready]) -> Prefix:
        key = batch[0].key
        if key and self._last is not None and self._last[0] == key:
            return self._last[1]
        self._last = None  # free its memory first
        inputs = joined([image.prompt for image in batch if image.prompt is not None])
        prefix = run_prefix(self.model, self._placed(inputs))
        if key:
            self._last = key, prefix
        return prefix

    def _room(self) -> int:
        """Bytes for repeated prefixes: by what a GPU has, not by what is free now, so that the same
        run is cut into the same batches."""
        device = torch.device(self.runtime.device)
        if device.type != "cuda":
            return _HOST // _PART
        total = torch.cuda.get_device_properties(device).total_memory
        weights = sum(weight.nbytes for weight in self.model.parameters())
        return max(total - weights, 0) // _PART

    def _placed(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """On the device, without waiting for it: that takes memory that is not paged."""
        kind, device = self.model.dtype, torch.device(self.runtime.device)

        def place(value: torch.Tensor) -> torch.Tensor:
            value = value.pin_memory() if device.type == "cuda" else value
            return value.to(device, kind if value.is_floating_point() else None, non_blocking=True)

        return {name: place(value) for name, value in inputs.items()}

    @contextmanager
    def _running(self) -> Iterator[None]:
        half = self.model.dtype != torch.float32
        with quiet(), self.runtime.running(), exact_head(self.model) if half else nullcontext():
            yield

    # --- whether a prefix can be shared ---------------------------------------------------------

    def _probe(self) -> str | None:
        """Compute two captions in both ways; why the prefix cannot be shared, or None if it can.

        First with two images at once, then, where a model does not take that, one by one.
        """
        noise = np.random.default_rng(0).integers(0, 256, (2, 160, 224, 3), dtype=np.uint8)
        images = [Image.fromarray(pixels) for pixels in noise]
        pairs = list(zip(images, _PROBES, strict=True))
        asked = [(*pair, each) for each in self.templates for pair in pairs]
        self.why_not_shared, why = None, ""
        with self._running():
            whole = [self._whole(*each) for each in asked]
            with sdpa_kernel([SDPBackend.MATH]):
                other = [self._whole(*each) for each in asked]
            # Another attention kernel gives the same but for rounding, which is large in a deep
            # model: of 7 billion random weights in bf16, 0.13 of the logits' spread, a shared
            # prefix 0.12.
            allowed = max(_TOLERANCE[self.runtime.precision], 3 * _apart(other, whole))
            for self.images_at_once in (_IMAGES, 1):
                why = ""
                try:
                    self._learn(images[0])
                    found = list(self._shared_probes(images))
                    if _apart(found, whole) >= min(allowed, _UNLIKE):
                        why = "with a shared prefix the model computes something else"
                except NotSharedError as error:
                    why = str(error)
                except torch.OutOfMemoryError:
                    raise
                except Exception as error:  # models refuse caches in many ways
                    why = f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
                finally:
                    self._last = None
                if not why:
                    return None
        return why

    def _learn(self, image: Image.Image) -> None:
        """What the processors put after an image; it must be the same in all templates."""
        for each in self.templates:
            each.learn([(each.whole(image, text), text) for text in _PROBES])
        if len({each.text[: each.anchor] for each in self.templates}) > 1:
            raise NotSharedError("the templates differ before their captions' part")

    def _shared_probes(self, images: list[Image.Image]) -> Iterator[torch.Tensor]:
        """The first caption of the first image and the second of the second, in each template."""
        size = self.images_at_once
        asked = [self._ready(image, list(_PROBES), alone=size == 1) for image in images]
        if any(image.prompt is None for image in asked):
            raise NotSharedError("the prompt is put together in another way")
        logits = list[torch.Tensor]()
        for start in range(0, len(asked), size):
            logits += self._shared(asked[start : start + size])
        each_image = len(self.templates) * len(_PROBES)
        for template in range(len(self.templates)):
            for number in range(len(images)):
                yield logits[number * each_image + template * len(_PROBES) + number]


def _apart(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference of logits, as a part of their spread."""
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.std()) for a, b in pairs)


def load(rest: str, options: LoadOptions) -> Generative:
    """`PATH` or `ORG/REPO`, and `?template=TEXT_OR_FILE` or `?templates=FILE`."""
    id, (where, _, text) = f"vqa:{rest}", rest.partition("?")
    asked = read_options("vqa", text, {"template": Option(QUESTION), "templates": Option("")})
    file = str(asked["templates"])
    texts = read_lines(id, file) if file else [read_text(id, str(asked["template"]))]
    for text in texts:
        if CAPTION not in text:
            raise ModelError(
                "E-OPTION-INVALID",
                f"{id}: the template {text!r:.80} must hold {CAPTION} for the caption.",
            )
    return _load("vqa", where, texts, options)


def load_lm(rest: str, options: LoadOptions) -> Generative:
    """`PATH` or `ORG/REPO`, and `?prompt=TEXT_OR_FILE`."""
    where, _, text = rest.partition("?")
    asked = read_options("lm", text, {"prompt": Option(INSTRUCTION)})
    prompt = read_text(f"lm:{rest}", str(asked["prompt"]))
    if CAPTION in prompt:
        raise ModelError(
            "E-OPTION-INVALID",
            f"lm:{rest}: the caption is the answer, so no {CAPTION} in the prompt.",
        )
    return _load("lm", where, [prompt], options)


def _load(family: str, where: str, texts: list[str], options: LoadOptions) -> Generative:
    runtime = Runtime(options)
    model, processor = open_model(family, where, runtime, options)
    try:
        with quiet():
            prompts = make_prompts(processor, model.config, texts, answers=family == "lm")
            return Generative(model, prompts, runtime)
    except Exception as error:  # chat templates and processors raise anything
        kind = "" if isinstance(error, ModelError) else f"{type(error).__name__}: "
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelError(
            error.code if isinstance(error, ModelError) else "E-MODEL-BROKEN",
            f"{family}:{where} cannot be used: {kind}{why}.",
        ) from None


# --- opening a model -----------------------------------------------------------------------------


def open_model(family: str, where: str, runtime: Runtime, options: LoadOptions) -> tuple[Any, Any]:
    """The model on its device, and its processor.

    Half precisions load the weights in half: these models are published in bfloat16, and the
    larger ones fit no other way.
    """
    id = f"{family}:{where}"
    source = find_source(id, where)
    kind = transformers.AutoModelForImageTextToText
    dtype = runtime.half or torch.float32
    with opening(id, source, options), explained(id, "cannot be loaded"):
        _refuse_other_kinds(id, pretrained(transformers.AutoConfig, source, options), options)
        processor = pretrained(transformers.AutoProcessor, source, options)
        model = load_weights(id, source, kind, options, dtype=dtype).to(runtime.device)
    if getattr(processor, "tokenizer", None) is None:
        raise ModelError(
            "E-PROCESSOR-MISSING", f"{id}: its folder holds no processor of images and text."
        )
    return model, processor


def read_text(id: str, value: str) -> str:
    """The value of an option: a text, or the content of a file."""
    content = _content(id, value)
    return value if content is None else content


def read_lines(id: str, file: str) -> list[str]:
    """The lines of a file, each once, without empty ones."""
    lines = [line for line in (_content(id, file) or "").splitlines() if line.strip()]
    if not lines:
        raise ModelError(
            "E-OPTION-INVALID", f"{id}: after templates= there should be a text file, one per line."
        )
    return list(dict.fromkeys(lines))


def _content(id: str, path: str) -> str | None:
    """The text of a file; None if there is no such file."""
    try:
        if Path(path).expanduser().is_file():
            return Path(path).expanduser().read_text(encoding="utf-8").strip("\n")
    except OSError:
        return None
    except UnicodeDecodeError:
        raise ModelError("E-TEXT-ENCODING", f"{id}: {path} is not a text file in UTF-8.") from None
    return None


def _refuse_other_kinds(name: str, config: Any, options: LoadOptions) -> None:
    own = options.trust_remote_code and hasattr(config, "auto_map")
    if type(config) not in transformers.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING and not own:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{name}: a {config.model_type} model does not answer in words to an image and a text; "
            "give a generative vision-language model (LLaVA, Qwen-VL, ...).",
        )
    inner = config.get_text_config()
    if config.is_encoder_decoder or inner.is_encoder_decoder:
        raise ModelError(
            "E-MODEL-UNSUITABLE",
            f"{name}: {config.model_type} has an encoder for its text; not supported.",
        )


def identity(processor: Any, model: Any) -> tuple[Any, ...]:
    """What outputs depend on beyond weights and prompt: configuration, preprocessing, tokenizer."""
    inner = getattr(processor.tokenizer, "backend_tokenizer", None)
    words = inner.to_str() if inner is not None else sorted(processor.tokenizer.get_vocab().items())
    images = processor.image_processor
    return (
        as_text(model.config.to_dict()),
        type(images).__name__,
        as_text(images.to_dict()),
        plain(processor),
        type(processor.tokenizer).__name__,
        words,
    )
