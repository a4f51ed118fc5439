"""Prompts for generative models, and how they are run: the part of an image is computed once.

A prompt is a prefix, which ends with the image, and a suffix, which holds the caption. The prefix
runs once and leaves its keys and values in a cache; the cache is repeated for the captions (in all
templates), and their suffixes run as one batch. Images whose prefixes have the same tokens may run
together. Suffixes are padded on the right, without a mask or positions: in a
causal model no token sees what comes after it, so padding there changes nothing, and every model
continues its own cache at the right positions (PaliGemma counts from one, Qwen-VL adds the offset
of its image). What a mask on the left would do to those positions differs from model to model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from PIL import Image

from counterpoint._util.errors import ModelError
from counterpoint.models.hub import render_template

CAPTION: Final = "{caption}"
QUESTION: Final = 'Does this figure show "{caption}"? Please answer yes or no.'  # VQAScore's
INSTRUCTION: Final = "Describe the image."
_MARK: Final = "CAPTIONGOESHERE"  # stands for the caption while a chat template is rendered
# These see all of their prompt both ways, and only their answer from left to right.
_PREFIX_LMS: Final = ("paligemma",)
Inputs = Mapping[str, torch.Tensor]
# Inputs with a number for each token: a prefix takes the front part of these and all of the rest.
_BY_TOKEN: Final = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
_BLANKS: Final = "▁Ġ "  # how vocabularies write a blank before a word
_OFFSET: Final = "rope_deltas"  # where Qwen-VL and its like keep the offset of the last image


class NotSharedError(Exception):
    """The tokens of this prompt cannot be put together from an image's part and a caption's."""


class Prompt(NamedTuple):
    """A whole prompt. `cut`: nothing before it looks at anything after it."""

    inputs: dict[str, torch.Tensor]
    cut: int
    wanted: range


def make_prompts(
    processor: Any, config: Any, texts: Sequence[str], *, answers: bool
) -> list[Prompts]:
    """The prompts of some texts, in each of which the caption has a place."""
    texts = [text.replace(CAPTION, _MARK) for text in texts]
    if getattr(processor, "chat_template", None):
        rendered = _in_template(processor, texts, answers=answers)
    else:
        # BLIP-2 and InstructBLIP put their image tokens before any text by themselves.
        image = "" if hasattr(processor, "num_query_tokens") else _placeholder(processor)
        apart = answers and config.model_type not in _PREFIX_LMS
        rendered = [f"{image}{text}\n{_MARK}" if apart else f"{image}{text}" for text in texts]
    return [Prompts(processor, config, one, answers=answers) for one in rendered]


def _in_template(processor: Any, texts: Sequence[str], *, answers: bool) -> list[str]:
    template = processor.chat_template
    if isinstance(template, dict) and "default" not in template:
        what = f"none of the model's chat templates ({', '.join(sorted(template))}) is the default."
        raise ModelError("E-TEMPLATE-UNSUITABLE", what)
    answer = {"role": "assistant", "content": [{"type": "text", "text": _MARK}]}
    chats = []
    for text in texts:
        content = [{"type": "image"}, {"type": "text", "text": text}]
        chats.append([{"role": "user", "content": content}, *([answer] if answers else [])])
    rendered = render_template(
        template["default"] if isinstance(template, dict) else template,
        chats,
        add_generation_prompt=not answers,
        **processor.tokenizer.special_tokens_map,
    )
    if not all(_MARK in one for one in rendered):
        raise ModelError(
            "E-TEMPLATE-UNSUITABLE", "the model's chat template leaves out what it is given."
        )
    return [one[: one.index(_MARK) + len(_MARK)] if answers else one for one in rendered]


def _placeholder(processor: Any) -> str:
    return str(getattr(processor, "image_token", None) or "")


class Prompts:
    """Prompts of one model. With `answers` the caption is the model's answer, else in the question.

    A chat template is used where the processor has one; without it the prompt is the image's token
    and the text, nothing else.
    """

    def __init__(self, processor: Any, config: Any, rendered: str, *, answers: bool) -> None:
        self.processor, self.answers = processor, answers
        names = ("image_token_id", "image_token_index")
        self.image_id: int = next((getattr(config, n) for n in names if hasattr(config, n)), -1)
        self.both_ways = config.model_type in _PREFIX_LMS
        self.text = rendered
        self.anchor, self.anchor_tokens = self._last_special(self.text.partition(_MARK)[0])
        bos = processor.tokenizer.bos_token
        self.special = not (bos and self.text.startswith(bos))  # as apply_chat_template does it
        words = [_placeholder(processor)]
        if self.image_id >= 0:
            words.append(processor.tokenizer.convert_ids_to_tokens(self.image_id))
        self.reserved = sorted({word for word in words if word})
        self.glue: list[int] = []  # tokens between the last of the image and the anchored text

    @property
    def shown(self) -> str:
        """The prompt as it is shown to users."""
        return self.text.replace(_MARK, CAPTION)

    def whole(self, image: Image.Image, caption: str) -> Prompt:
        """The whole prompt, from the processor."""
        apart = self.answers and self.both_ways  # the answer is given apart from the prompt
        text = self.text.replace(_MARK, "" if apart else caption)
        more = {"suffix": caption} if apart else {}
        given = dict(
            self.processor(
                images=[[image]],
                text=text,
                return_tensors="pt",
                add_special_tokens=self.special,
                **more,
            )
        )
        given.pop("labels", None)
        if apart:  # the processor ends the answer with a token that is not part of the caption
            given = shortened(given, given["input_ids"].shape[1] - 1)
        ids = given["input_ids"][0]
        answer = self.answer(caption)
        if ids[len(ids) - len(answer) :].tolist() != answer:
            raise ModelError(
                "E-TEMPLATE-UNSUITABLE", "the caption's tokens cannot be found in the prompt."
            )
        return Prompt(given, self._cut(ids, len(answer)), self._wanted(len(ids), answer))

    def suffix(self, caption: str) -> Suffix:
        """What follows the image's part in the prompt of this caption."""
        ids, answer = self._tokens(caption)
        ids = self.glue + ids
        return Suffix(ids, self._wanted(len(ids), answer))

    def answer(self, caption: str) -> list[int]:
        """The caption's tokens as the model's answer."""
        return self._tokens(caption)[1]

    def learn(self, prompts: Sequence[tuple[Prompt, str]]) -> None:
        """Find out from whole prompts what the processor puts after an image."""
        if self.both_ways and not self.answers:
            raise NotSharedError("the model reads its whole prompt both ways")
        glues = set()
        for prompt, caption in prompts:
            tail = prompt.inputs["input_ids"][0, prompt.cut :].tolist()
            ids = self._tokens(caption)[0]
            if not ids or tail[len(tail) - len(ids) :] != ids:
                raise NotSharedError("the text after the image is tokenised in another way")
            glues.add(tuple(tail[: len(tail) - len(ids)]))
        if len(glues) != 1:
            raise NotSharedError("the tokens after the image differ from caption to caption")
        self.glue = list(glues.pop())

    def _wanted(self, length: int, answer: list[int]) -> range:
        """Places whose next-token logits matter: before each token of the answer, or the last."""
        if self.answers:
            return range(length - len(answer) - 1, length - 1)
        return range(length - 1, length)

    def _cut(self, ids: torch.Tensor, answer: int) -> int:
        if self.both_ways:
            return len(ids) - answer if self.answers else len(ids)
        return max((n + 1 for n, id in enumerate(ids.tolist()) if id == self.image_id), default=0)

    def _tokens(self, caption: str) -> tuple[list[int], list[int]]:
        """Tokens of the text after the anchor, and those of them that are the answer.

        A tokenizer splits a text at its special tokens before anything else, so what follows one of
        them is tokenised in the same way, whatever comes before it.
        """
        for word in self.reserved:
            if word in caption:
                raise ModelError(
                    "E-CAPTION-REJECTED",
                    f"the caption {caption!r} holds {word}, the model's own image token.",
                )
        if self.answers and self.both_ways:
            ids = self._encode(caption)
            return ids, ids
        text = self.text[self.anchor :]
        ids = self._encode(text.replace(_MARK, caption))[self.anchor_tokens :]
        if not self.answers:
            return ids, []
        # A blank before the answer belongs to its first token in most vocabularies.
        before = self._encode(text.replace(_MARK, ""))[self.anchor_tokens :]
        same = 0
        while same < min(len(ids) - 1, len(before)) and ids[same] == before[same]:
            same += 1
        return ids, ids[same:]

    def _encode(self, text: str) -> list[int]:
        found: list[int] = self.processor.tokenizer(text, add_special_tokens=False)["input_ids"]
        return found

    def _last_special(self, text: str) -> tuple[int, int]:
        """Where the last special token of a text begins, from which on it can be tokenised by
        itself; and how many tokens that is: one or none."""
        added = self.processor.tokenizer.added_tokens_decoder.values()
        names = [token.content for token in added if token.special and token.content in text]
        return max(map(text.rindex, names), default=0), min(len(names), 1)


# --- running prompts ---------------------------------------------------------------------------


class Suffix(NamedTuple):
    """What follows a prefix."""

    ids: list[int]
    wanted: range  # places whose next-token logits are read; -1 is the last place of the prefix


class Prefix(NamedTuple):
    """The prefixes of some images, which have been run."""

    cache: Any
    last: torch.Tensor  # logits after their last token (images, 1, vocabulary)
    offset: torch.Tensor | None

    def memory(self) -> int:
        """Bytes that the keys and values of one image take; 0 if they are kept in another way."""
        layers = getattr(self.cache, "layers", ())
        kept = [getattr(layer, name, None) for layer in layers for name in ("keys", "values")]
        found = (value.nbytes for value in kept if isinstance(value, torch.Tensor))
        return sum(found) // len(self.last)


def shortened(inputs: Inputs, length: int) -> dict[str, torch.Tensor]:
    """The inputs of a prompt's first `length` tokens."""
    return {
        name: value[:, :length] if name in _BY_TOKEN else value for name, value in inputs.items()
    }


def run_whole(model: Any, inputs: Inputs, wanted: range) -> torch.Tensor:
    """Next-token logits (places, vocabulary) of one prompt, without a cache."""
    return _logits(model, list(wanted), **inputs, use_cache=False)[0][0].float()


def run_prefix(model: Any, inputs: Inputs) -> Prefix:
    length = inputs["input_ids"].shape[1]
    last, cache = _logits(model, [length - 1], **inputs, use_cache=True)
    if cache is None:
        raise RuntimeError("the model returns no cache")
    return Prefix(cache, last, getattr(model.base_model, _OFFSET, None))


def joined(prompts: Sequence[Prompt]) -> dict[str, torch.Tensor]:
    """The inputs of the prefixes of prompts of one form, as one batch."""
    [cut] = {prompt.cut for prompt in prompts}
    given = [shortened(prompt.inputs, cut) for prompt in prompts]
    return {name: torch.cat([inputs[name] for inputs in given]) for name in given[0]}


def form(prompt: Prompt) -> tuple[object, ...]:
    """What prompts have in common whose prefixes can run together: tokens, and shapes of images."""
    ids = tuple(prompt.inputs["input_ids"][0, : prompt.cut].tolist())
    shapes = ((n, v.shape) for n, v in prompt.inputs.items() if n not in _BY_TOKEN)
    return prompt.cut, ids, tuple(shapes)


def run_suffixes(
    model: Any, prefix: Prefix, suffixes: Sequence[Suffix], images: Sequence[int]
) -> list[torch.Tensor]:
    """Next-token logits (places, vocabulary) of each suffix; the prefix can be used again.

    `images` says for each suffix which of the prefix's images it follows.
    """
    rows = on_device(images, model.device)
    if prefix.offset is not None:  # another prompt may have run since
        setattr(model.base_model, _OFFSET, prefix.offset[rows])
    longest = max(len(suffix.ids) for suffix in suffixes)
    padded = [suffix.ids + [0] * (longest - len(suffix.ids)) for suffix in suffixes]
    places = sorted({place for suffix in suffixes for place in suffix.wanted if place >= 0})
    cache = copy.deepcopy(prefix.cache)
    cache.reorder_cache(rows)
    ids = on_device(padded, model.device)
    logits, _ = _logits(model, places, input_ids=ids, past_key_values=cache, use_cache=True)
    column = {place: number for number, place in enumerate(places)}
    found = []
    for row, (suffix, image) in enumerate(zip(suffixes, images, strict=True)):
        picked = [logits[row, column[place]] for place in suffix.wanted if place >= 0]
        before = [prefix.last[image, -1]] if suffix.wanted.start < 0 else []
        found.append(torch.stack([*before, *picked]).float())
    return found


def on_device(numbers: Any, device: torch.device) -> torch.Tensor:
    """Whole numbers as a tensor. The copy does not wait for what the device is doing."""
    return torch.tensor(numbers, dtype=torch.long).to(device, non_blocking=True)


def _logits(model: Any, places: list[int], **inputs: Any) -> tuple[torch.Tensor, Any]:
    """Logits at these places only (a vocabulary is large), and the cache."""
    keep = on_device(places, model.device)
    if "logits_to_keep" in signature(model.forward).parameters:
        out = model(**inputs, logits_to_keep=keep)
        return out.logits, out.past_key_values
    out = model(**inputs)
    return out.logits[:, keep], getattr(out, "past_key_values", None)


@contextmanager
def exact_head(model: Any) -> Iterator[None]:
    """Let the output layer of a half-precision model work in float32.

    Logits of bfloat16 come in steps of 1/8 around 20. Two captions of one image often fall on the
    same step, and a tie is a wrong answer: the last product is worth its float32.
    """
    head = model.get_output_embeddings()

    def again(module: Any, given: tuple[torch.Tensor, ...], _: torch.Tensor) -> torch.Tensor:
        bias = None if module.bias is None else module.bias.float()
        with torch.autocast(given[0].device.type, enabled=False):
            return torch.nn.functional.linear(given[0].float(), module.weight.float(), bias)

    handle = head.register_forward_hook(again) if isinstance(head, torch.nn.Linear) else None
    try:
        yield
    finally:
        if handle is not None:
            handle.remove()


# --- scores from logits -------------------------------------------------------------------------


def chance_of_yes(logits: torch.Tensor, answers: Mapping[str, list[int]]) -> torch.Tensor:
    """P(yes) / (P(yes) + P(no)) for the next token, from its logits (prompts, vocabulary)."""
    yes, no = (
        logits.index_select(1, on_device(answers[answer], logits.device)).double().logsumexp(1)
        for answer in ("yes", "no")
    )
    return torch.sigmoid(yes - no)


def mean_log_likelihood(logits: torch.Tensor, said: list[int]) -> torch.Tensor:
    """The mean log-probability of tokens, from the logits before each (tokens, vocabulary)."""
    chances = logits.double().log_softmax(-1)
    return chances.gather(1, on_device(said, logits.device)[:, None]).mean()


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


@dataclass(slots=True)
class TemplateSpread:
    """How far the scores of several templates are apart, summed over all pairs so far."""

    pairs: int = 0
    deviation: float = 0.0  # the sum over pairs of the standard deviation over templates
    answers: int = 0  # pairs whose answer (yes is likelier than no) depends on the template
    comparisons: int = 0  # of two captions of an image
    orders: int = 0  # comparisons whose winner depends on the template

    def add(self, chances: np.ndarray) -> None:
        """P(yes) of the captions of an image (templates, captions)."""
        self.pairs += chances.shape[1]
        self.deviation += float(chances.std(axis=0, ddof=1).sum())
        self.answers += _depend((chances > 0.5).astype(int))
        first, second = np.triu_indices(chances.shape[1], k=1)
        self.comparisons += len(first)
        self.orders += _depend(np.sign(chances[:, first] - chances[:, second]))

    def note(self, templates: int) -> str:
        return (
            f"asked in {templates} templates, whose P(yes) differ by a standard deviation of "
            f"{self.deviation / self.pairs:.4f} on average over the {self.pairs:,} pairs computed "
            f"here; the answer to {self.answers:,} of them depends on the template, and so does "
            f"which of two captions of an image wins in {self.orders:,} of {self.comparisons:,}."
        )


def _depend(verdicts: np.ndarray) -> int:
    """How many columns hold more than one value."""
    return int((verdicts != verdicts[:1]).any(axis=0).sum())
