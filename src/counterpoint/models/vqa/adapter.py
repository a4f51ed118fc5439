"""Generative vision-language models of transformers, scored by P(yes) or by caption likelihood.

`vqa:FOLDER` or `vqa:ORG/REPO`: the model is asked `Does this figure show "{caption}"? Please answer
yes or no.` (VQAScore's question, Lin et al. 2024). The score is P(yes) / (P(yes) + P(no)) for the
next token after the prompt, where P(yes) is the sum over all tokens that are Yes or yes, with or
without a blank before them, and P(no) likewise. Which of these a model says depends on its template
and its vocabulary, hence the sums; dividing takes away how much it would rather say something else,
which differs between prompts and says nothing about the image.
`vqa:FOLDER?template=TEXT_OR_FILE` asks something else; the text must hold `{caption}`.

`lm:FOLDER` or `lm:ORG/REPO`: the mean log-probability of the caption's tokens as the model's answer
to `Describe the image.` (natural logarithm; the end of the answer is not counted).
`lm:FOLDER?prompt=TEXT_OR_FILE` asks something else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from itertools import groupby
from typing import Any, Final

import numpy as np
import torch
from PIL import Image
from torch.nn.attention import SDPBackend, sdpa_kernel

from counterpoint._util.errors import ModelError
from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions
from counterpoint.models.torch_models import Runtime, fingerprint, memory_errors
from counterpoint.models.vqa.loading import identity, open_model, quiet, read_option, versions
from counterpoint.models.vqa.prompts import (
    CAPTION,
    INSTRUCTION,
    QUESTION,
    NotSharedError,
    Prefix,
    Prompts,
    exact_head,
    run_prefix,
    run_suffixes,
    run_whole,
)

_BLANKS: Final = "▁Ġ "  # how vocabularies write a blank before a word
_PROBES: Final = ("a dog", "two red birds sit on the long branch of a tall green tree")
# How far logits may be apart, as a part of their spread, when the same is computed in two ways.
_TOLERANCE: Final = {"fp32": 1e-4, "tf32": 1e-2, "bf16": 5e-2, "fp16": 1e-2}
_UNLIKE: Final = 0.5  # no rounding is as large; another image moved logits by three


class Generative:
    """A pair scorer. An image's part of the prompt is computed once for all of its captions."""

    def __init__(self, model: Any, prompts: Prompts, runtime: Runtime) -> None:
        self.model, self.prompts, self.runtime = model.eval(), prompts, runtime
        self.answers = None if prompts.answers else yes_and_no(prompts.processor.tokenizer)
        self.fingerprint = fingerprint(  # before anything runs: models keep notes in themselves
            model,
            prompts.text,
            self.answers,
            runtime.precision,
            *identity(prompts.processor, model),
        )
        self._last: tuple[bytes, Prefix] | None = None
        self.why_not_shared = self._probe()

    @memory_errors
    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        pairs = zip(pictures, captions, strict=True)
        scores: list[float] = []
        try:
            for picture, group in groupby(pairs, key=lambda pair: pair[0]):
                scores += self._score(picture.open(), [caption for _, caption in group])
        except torch.OutOfMemoryError:
            self._last = None
            raise
        return np.array(scores, dtype=np.float32)

    def describe(self) -> Mapping[str, Any]:
        why = self.why_not_shared
        note = f"each pair is computed whole, which is slower: {why}."
        return {
            **self.runtime.describe(self.model),
            "prompt": self.prompts.shown,
            "tokens": self.answers,
            "shared_prefix": why is None,
            "versions": versions(),
            "notes": [] if why is None else [note],
        }

    def _score(self, image: Image.Image, captions: list[str]) -> list[float]:
        with self._running():
            try:
                logits = None if self.why_not_shared else self._shared(image, captions)
            except NotSharedError:  # an image whose prompt is put together in another way
                logits = None
            if logits is None:
                logits = [self._whole(image, caption) for caption in captions]
            return [self._read(*found) for found in zip(logits, captions, strict=True)]

    def _read(self, logits: torch.Tensor, caption: str) -> float:
        """The score from the logits of the places that matter (places, vocabulary)."""
        if self.answers is not None:
            return chance_of_yes(logits[-1], self.answers)
        return mean_log_likelihood(logits, self.prompts.answer(caption))

    def _whole(self, image: Image.Image, caption: str) -> torch.Tensor:
        prompt = self.prompts.whole(image, caption)
        return run_whole(self.model, self._placed(prompt.inputs), prompt.wanted)

    def _shared(self, image: Image.Image, captions: list[str]) -> list[torch.Tensor]:
        suffixes = [self.prompts.suffix(caption) for caption in captions]
        return run_suffixes(self.model, self._prefix(image, captions[0]), suffixes)

    def _prefix(self, image: Image.Image, caption: str) -> Prefix:
        """The image's part; the last one is kept, for the engine may cut an image's pairs apart."""
        key = hashlib.blake2b(repr(image.size).encode() + image.tobytes()).digest()
        if self._last is None or self._last[0] != key:
            self._last = None  # free its memory first
            prompt = self.prompts.whole(image, caption)
            tail = prompt.inputs["input_ids"][0, prompt.cut :].tolist()
            if tail != self.prompts.suffix(caption).ids:
                raise NotSharedError("the prompt is put together in another way")
            self._last = key, run_prefix(self.model, self._placed(prompt.inputs), prompt.cut)
        return self._last[1]

    def _placed(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        kind = self.model.dtype
        return {
            name: value.to(self.runtime.device, kind if value.is_floating_point() else None)
            for name, value in inputs.items()
        }

    @contextmanager
    def _running(self) -> Iterator[None]:
        half = self.model.dtype != torch.float32
        with quiet(), self.runtime.running(), exact_head(self.model) if half else nullcontext():
            yield

    def _probe(self) -> str | None:
        """Compute two captions in both ways; why the prefix cannot be shared, or None if it can."""
        noise = np.random.default_rng(0).integers(0, 256, (160, 224, 3), dtype=np.uint8)
        image = Image.fromarray(noise)
        with self._running():
            whole = [self._whole(image, caption) for caption in _PROBES]
            with sdpa_kernel([SDPBackend.MATH]):
                other = [self._whole(image, caption) for caption in _PROBES]
            try:
                self.prompts.learn([(self.prompts.whole(image, text), text) for text in _PROBES])
                shared = self._shared(image, list(_PROBES))
            except NotSharedError as error:
                return str(error)
            except torch.OutOfMemoryError:
                raise
            except Exception as error:  # models refuse caches in many ways
                return f"{type(error).__name__}: {' '.join(str(error).split())[:120]}"
            finally:
                self._last = None
        # Another attention kernel gives the same but for rounding, which is large in a deep model:
        # of 7 billion random weights in bf16, 0.13 of the logits' spread, a shared prefix 0.12.
        allowed = max(_TOLERANCE[self.runtime.precision], 3 * _apart(other, whole))
        if _apart(shared, whole) < min(allowed, _UNLIKE):
            return None
        return "with a shared prefix the model computes something else"


def _apart(found: list[torch.Tensor], expected: list[torch.Tensor]) -> float:
    """The largest difference of logits, as a part of their spread."""
    pairs = zip(found, expected, strict=True)
    return max(float((a - b).abs().max() / b.std()) for a, b in pairs)


def load(rest: str, options: LoadOptions) -> Generative:
    """`PATH` or `ORG/REPO`, and `?template=TEXT_OR_FILE`."""
    where, text = read_option("vqa", rest, "template", QUESTION)
    if CAPTION not in text:
        raise ModelError(
            "E-OPTION-INVALID",
            f"vqa:{rest}: the template must hold {CAPTION} where the caption goes.",
            model=f"vqa:{rest}",
            option="template",
        )
    return _load("vqa", where, text, options)


def load_lm(rest: str, options: LoadOptions) -> Generative:
    """`PATH` or `ORG/REPO`, and `?prompt=TEXT_OR_FILE`."""
    where, text = read_option("lm", rest, "prompt", INSTRUCTION)
    if CAPTION in text:
        raise ModelError(
            "E-OPTION-INVALID",
            f"lm:{rest}: the caption is the answer, so no {CAPTION} in the prompt.",
            model=f"lm:{rest}",
            option="prompt",
        )
    return _load("lm", where, text, options)


def _load(family: str, where: str, text: str, options: LoadOptions) -> Generative:
    runtime = Runtime(options)
    model, processor = open_model(family, where, runtime, options)
    try:
        with quiet():
            prompts = Prompts(processor, model.config, text, answers=family == "lm")
            return Generative(model, prompts, runtime)
    except Exception as error:  # chat templates and processors raise anything
        kind = "" if isinstance(error, ModelError) else f"{type(error).__name__}: "
        why = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelError(
            error.code if isinstance(error, ModelError) else "E-MODEL-BROKEN",
            f"{family}:{where} cannot be used: {kind}{why}.",
            model=f"{family}:{where}",
        ) from None


# --- scores from logits ------------------------------------------------------------------------


def chance_of_yes(logits: torch.Tensor, answers: Mapping[str, list[int]]) -> float:
    """P(yes) / (P(yes) + P(no)) for the next token, from its logits (vocabulary)."""
    yes, no = (logits.double()[answers[answer]].logsumexp(0) for answer in ("yes", "no"))
    return float(torch.sigmoid(yes - no))


def mean_log_likelihood(logits: torch.Tensor, said: list[int]) -> float:
    """The mean log-probability of tokens, from the logits before each (tokens, vocabulary)."""
    chances = logits.double().log_softmax(-1)
    places = torch.tensor(said, device=logits.device)
    return float(chances.gather(1, places[:, None]).mean())


def yes_and_no(tokenizer: Any) -> dict[str, list[int]]:
    """The tokens that begin the answers Yes and No.

    Those are the tokens that are the word, with or without a blank before it. A vocabulary without
    such a token has the word's first pieces instead, less those that yes and no have in common.
    """
    words = {"yes": ("Yes", "yes"), "no": ("No", "no")}
    vocabulary = tokenizer.get_vocab().items()
    found = {
        answer: {id for token, id in vocabulary if token.lstrip(_BLANKS) in spellings}
        for answer, spellings in words.items()
    }
    if not all(found.values()):
        pieces = {
            answer: {
                tokenizer(blank + word, add_special_tokens=False)["input_ids"][0]
                for word in spellings
                for blank in ("", " ")
            }
            for answer, spellings in words.items()
        }
        common = {tokenizer.unk_token_id} | (pieces["yes"] & pieces["no"])
        found = {answer: ids - common for answer, ids in pieces.items()}
    if not all(found.values()):
        raise ModelError(
            "E-TOKENIZER-UNSUITABLE", "its tokenizer cannot tell yes from no by their first token."
        )
    return {answer: sorted(ids) for answer, ids in found.items()}
