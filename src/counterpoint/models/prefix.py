"""One image, many captions: the image's part of a prompt is computed once.

A prompt is a prefix, which ends with the image, and a suffix, which holds the caption. The prefix
runs once and leaves its keys and values in a cache; the cache is repeated for the captions, and
their suffixes run as one batch. Suffixes are padded on the right and no mask or position is given:
in a causal model nothing looks at what comes after it, so padding there changes nothing, and every
model continues its own cache at the right positions (PaliGemma counts from one, Qwen-VL adds the
offset its image left). What a mask on the left would do to those positions differs from model to
model.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from inspect import signature
from typing import Any, Final, NamedTuple

import torch

Inputs = Mapping[str, torch.Tensor]
# Inputs with a number for each token: a prefix takes the front part of these and all of the rest.
_BY_TOKEN: Final = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids")
_OFFSET: Final = "rope_deltas"  # where Qwen-VL and its like keep the offset of the last image


class Suffix(NamedTuple):
    """What follows a prefix.

    `wanted` are the places whose next-token logits are read; -1 is the last place of the prefix.
    """

    ids: list[int]
    wanted: range


class Prefix(NamedTuple):
    """A prefix that has been run."""

    cache: Any
    last: torch.Tensor  # logits after its last token (1, 1, vocabulary)
    offset: torch.Tensor | None


def shortened(inputs: Inputs, length: int) -> dict[str, torch.Tensor]:
    """The inputs of a prompt's first `length` tokens."""
    return {
        name: value[:, :length] if name in _BY_TOKEN else value for name, value in inputs.items()
    }


def run_whole(model: Any, inputs: Inputs, wanted: range) -> torch.Tensor:
    """Next-token logits (places, vocabulary) of one prompt, without a cache."""
    return _logits(model, list(wanted), **inputs, use_cache=False)[0][0].float()


def run_prefix(model: Any, inputs: Inputs, length: int) -> Prefix:
    last, cache = _logits(model, [length - 1], **shortened(inputs, length), use_cache=True)
    if cache is None:
        raise RuntimeError("the model returns no cache")
    return Prefix(cache, last, getattr(model.base_model, _OFFSET, None))


def run_suffixes(model: Any, prefix: Prefix, suffixes: Sequence[Suffix]) -> list[torch.Tensor]:
    """Next-token logits (places, vocabulary) of each suffix; the prefix can be used again."""
    if prefix.offset is not None:  # another prompt may have run since
        setattr(model.base_model, _OFFSET, prefix.offset)
    count, longest = len(suffixes), max(len(suffix.ids) for suffix in suffixes)
    padded = [suffix.ids + [0] * (longest - len(suffix.ids)) for suffix in suffixes]
    places = sorted({place for suffix in suffixes for place in suffix.wanted if place >= 0})
    cache = copy.deepcopy(prefix.cache)
    cache.reorder_cache(torch.zeros(count, dtype=torch.long, device=model.device))
    ids = torch.tensor(padded, device=model.device)
    logits, _ = _logits(model, places, input_ids=ids, past_key_values=cache, use_cache=True)
    column = {place: number for number, place in enumerate(places)}
    found = []
    for row, suffix in enumerate(suffixes):
        picked = [logits[row, column[place]] for place in suffix.wanted if place >= 0]
        before = [prefix.last[0, -1]] if suffix.wanted.start < 0 else []
        found.append(torch.stack([*before, *picked]).float())
    return found


def _logits(model: Any, places: list[int], **inputs: Any) -> tuple[torch.Tensor, Any]:
    """Logits at these places only (a vocabulary is large), and the cache."""
    keep = torch.tensor(places, dtype=torch.long, device=model.device)
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
