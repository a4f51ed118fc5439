"""What a shared image prefix saves: pairs per second of a generative model, against whole pairs.

    PYTHONPATH=src python bench/generative.py [--size tiny|7b] [--device cpu|cuda] [--images 48]

The model is LLaVA-1.5's class with random weights (speed does not depend on what they are): of its
7B shape in bf16, or a tiny one to try this file. Three captions an image, asked in one template and
in three; JPEG photographs of 640 x 480 are decoded on the way. `shared` runs the image's part once
for all captions and templates, `whole` runs every pair by itself, and both are timed in turns.

Random weights say little about any caption, so that rounding decides many comparisons of two
captions: `another kernel`, whole pairs with another attention kernel, says how many.
"""

from __future__ import annotations

import argparse
import copy
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from itertools import combinations
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from torch.nn.attention import SDPBackend, sdpa_kernel
from training_data import photo

from counterpoint.cases import ImageRef
from counterpoint.images import Picture
from counterpoint.models.hf.generative import Generative
from counterpoint.models.hf.loading import bars
from counterpoint.models.hf.prompts import QUESTION, Prompts
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime

transformers: Any = import_module("transformers")  # its types are incomplete
TEMPLATES: Final = (
    QUESTION,
    'Is "{caption}" a correct description of the image? Answer yes or no.',
    'Look at the image. Does the sentence "{caption}" fit what it shows, yes or no?',
)
CAPTIONS, LOOKED_AT = 3, 8  # of an image; images whose logits are compared
WORDS: Final = (
    *("a", "the", "two", "of", "on", "in", "near", "old", "red", "green", "small", "man", "woman"),
    *("dog", "cat", "horse", "table", "chair", "street", "bus", "bench", "plate", "pizza", "kite"),
)
CHAT: Final = (
    "{% for m in messages %}USER: "
    "{% for c in m.content if c.type == 'image' %}<image>\n{% endfor %}"
    "{% for c in m.content if c.type == 'text' %}{{ c.text }} {% endfor %}{% endfor %}ASSISTANT:"
)
SHAPES: Final[dict[str, tuple[dict[str, int], dict[str, int]]]] = {
    "7b": (
        {
            "hidden_size": 1024,
            "intermediate_size": 4096,
            "num_hidden_layers": 24,
            "num_attention_heads": 16,
            "image_size": 336,
            "patch_size": 14,
        },
        {
            "hidden_size": 4096,
            "intermediate_size": 11008,
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 32,
            "vocab_size": 32064,
        },
    ),
    "tiny": (
        {
            "hidden_size": 64,
            "intermediate_size": 128,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "image_size": 112,
            "patch_size": 14,
        },
        {
            "hidden_size": 128,
            "intermediate_size": 256,
            "num_hidden_layers": 4,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            "vocab_size": 2048,
        },
    ),
}


# --- model and data ----------------------------------------------------------------------------


def tokenizer() -> Any:
    """Of words, as sentencepiece writes them; most are one token."""
    inner = Tokenizer(BPE(unk_token="<unk>"))
    inner.normalizer = normalizers.Replace(" ", "▁")
    inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    inner.decoder = decoders.Metaspace()
    special = ["<unk>", "<s>", "</s>", "<pad>"]
    trainer = BpeTrainer(
        vocab_size=1000, special_tokens=special, initial_alphabet=["\n"], show_progress=False
    )
    said = [*TEMPLATES, "USER: ASSISTANT: Yes No yes no", " ".join(WORDS)]
    inner.train_from_iterator(said * 20, trainer)
    inner.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )
    made.add_special_tokens({"additional_special_tokens": ["<image>"]})
    return made


def build(size: str, runtime: Runtime) -> Generative:
    vision, text = SHAPES[size]
    side, words = vision["image_size"], tokenizer()
    processor = transformers.LlavaProcessor(
        transformers.CLIPImageProcessor(
            size={"shortest_edge": side}, crop_size={"height": side, "width": side}
        ),
        words,
        patch_size=vision["patch_size"],
        vision_feature_select_strategy="default",
        num_additional_image_tokens=1,
        chat_template=CHAT,
    )
    config = transformers.LlavaConfig(
        vision_config=transformers.CLIPVisionConfig(**vision),
        text_config=transformers.LlamaConfig(**text, max_position_embeddings=4096),
        image_token_id=processor.image_token_id,
    )
    torch.manual_seed(0)
    dtype = torch.float32 if runtime.precision == "fp32" else torch.bfloat16
    with bars(shown=False), torch.device(runtime.device):
        model = transformers.AutoModelForImageTextToText.from_config(config, dtype=dtype)
    prompts = [Prompts(processor, config, each, answers=False) for each in TEMPLATES]
    with bars(shown=False):
        return Generative(model, prompts, runtime)


def write_pairs(folder: Path, images: int) -> list[tuple[Picture, str]]:
    rng = np.random.default_rng(0)
    pairs = []
    for number in range(images):
        path = folder / f"{number}.jpg"
        path.write_bytes(photo(number))
        for _ in range(CAPTIONS):
            caption = " ".join(rng.choice(WORDS, int(rng.integers(8, 16))))
            pairs.append((Picture(ImageRef(str(path))), caption))
    return pairs


# --- measuring ---------------------------------------------------------------------------------


@contextmanager
def used(asked: Generative, templates: int, *, shared: bool) -> Iterator[Generative]:
    """The same model with fewer templates, and with or without sharing."""
    other = copy.copy(asked)
    other.templates = asked.templates[:templates]
    other.why_not_shared = None if shared else "it is measured"
    other._last = None
    yield other
    del other


def timed(model: Generative, pairs: list[tuple[Picture, str]]) -> tuple[float, np.ndarray]:
    """Pairs per second, and the scores: these are on the host, so nothing is left to wait for."""
    begun = time.perf_counter()
    scores = model.score_pairs(*zip(*pairs, strict=True))
    return len(pairs) / (time.perf_counter() - begun), scores


def flips(found: np.ndarray, expected: np.ndarray) -> str:
    """Of all comparisons of two captions of an image, those that come out in another way."""
    a, b = (scores.reshape(-1, CAPTIONS) for scores in (found, expected))
    two = list(combinations(range(CAPTIONS), 2))
    changed = [np.sign(a[:, i] - a[:, j]) != np.sign(b[:, i] - b[:, j]) for i, j in two]
    return f"{np.sum(changed):,} of {np.size(changed):,}"


def logits(model: Generative, pairs: list[tuple[Picture, str]]) -> torch.Tensor:
    """After the prompts of the first images (prompts, vocabulary), by the model's way."""
    found: list[torch.Tensor] = []
    for start in range(0, CAPTIONS * LOOKED_AT, CAPTIONS):
        some = pairs[start : start + CAPTIONS]
        ready = model._ready(some[0][0].open(), [caption for _, caption in some])
        found += model._whole_each(ready) if ready.prompt is None else model._shared([ready])
    return torch.stack([each[-1] for each in found]).cpu()


def apart(found: torch.Tensor, expected: torch.Tensor) -> str:
    largest = float((found - expected).abs().max())
    return f"{largest:.2g} ({largest / float(expected.std()):.2g} of their spread)"


def compare(model: Generative, templates: int, pairs: list[tuple[Picture, str]]) -> None:
    speeds: dict[bool, list[float]] = {True: [], False: []}
    scores: dict[bool, np.ndarray] = {}
    for _ in range(3 if model.runtime.device != "cpu" else 1):
        for shared in speeds:
            with used(model, templates, shared=shared) as one:
                speed, scores[shared] = timed(one, pairs)
                speeds[shared].append(speed)
    fast, slow = median(speeds[True]), median(speeds[False])
    print(
        f"{templates} template(s): shared {fast:9,.1f} pairs/s, "
        f"whole {slow:9,.1f} pairs/s, ratio {fast / slow:.2f}",
        flush=True,
    )
    with used(model, templates, shared=True) as one, one._running():
        shared_logits = logits(one, pairs)
    with used(model, templates, shared=False) as one:
        with one._running():
            whole_logits = logits(one, pairs)
            with sdpa_kernel([SDPBackend.MATH]):
                other_logits = logits(one, pairs)
        with sdpa_kernel([SDPBackend.MATH]):
            other = timed(one, pairs)[1]
    print(
        f"  largest difference of logits: {apart(shared_logits, whole_logits)}; "
        f"of another kernel {apart(other_logits, whole_logits)}\n"
        f"  flips: {flips(scores[True], scores[False])}; "
        f"of another kernel {flips(other, scores[False])}",
        flush=True,
    )


def main() -> None:
    gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--size", choices=SHAPES, default="7b" if gpu else "tiny")
    parser.add_argument("--device", default="cuda" if gpu else "cpu")
    parser.add_argument("--images", type=int, help="48; without a GPU 8")
    given = parser.parse_args()
    on_gpu = torch.device(given.device).type == "cuda"
    given.images = max(LOOKED_AT, given.images or (48 if on_gpu else 8))
    precision = "bf16" if on_gpu else "fp32"
    where = torch.cuda.get_device_name() if on_gpu else "CPU"
    begun = time.perf_counter()
    model = build(given.size, Runtime(LoadOptions(given.device, precision)))
    numbers = sum(weight.numel() for weight in model.model.parameters())
    print(
        f"LLaVA of {numbers / 1e9:.2f} billion random weights, {precision}, {where}: "
        f"built and probed in {time.perf_counter() - begun:.0f} s; {given.images} images, "
        f"{CAPTIONS} captions each, {model.images_at_once} images at once",
        flush=True,
    )
    if model.why_not_shared:
        raise SystemExit(f"the prefix cannot be shared: {model.why_not_shared}")
    with tempfile.TemporaryDirectory() as folder:
        pairs = write_pairs(Path(folder), given.images)
        with used(model, len(TEMPLATES), shared=True) as one:
            timed(one, pairs[: 6 * CAPTIONS])
        with used(model, len(TEMPLATES), shared=False) as one:
            timed(one, pairs[:CAPTIONS])
        for templates in (1, len(TEMPLATES)):
            compare(model, templates, pairs)


if __name__ == "__main__":
    main()
