"""LoRA factors in a state dict, merged into the weights they belong to."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

import torch

from counterpoint.errors import ModelError
from counterpoint.models.state_dicts import Tensors, some

# loralib: `mlp.c_fc.lora_A` beside `mlp.c_fc.weight`; its attention, as TSVLC, DAC and FSC-CLIP
# have it: `attn.in_proj_weight_lora_A`; peft: `mlp.c_fc.lora_A.default.weight`.
_FACTOR: Final = re.compile(r"(?P<stem>.+)[._]lora_(?P<side>[AB])(\.(?!weight$)[^.]+)?(\.weight)?")
_ALPHAS: Final = (".lora_alpha", "_lora_alpha", ".alpha")


class Merged(NamedTuple):
    state: Tensors
    note: str | None  # how the factors were merged, if there were any


def merge_lora(state: Tensors, alpha: float | None = None) -> Merged:
    """Every weight W that has factors becomes W + alpha / r * B A, in float32.

    `alpha` is what the checkpoint records as a whole; a tensor `X.lora_alpha` beside the factors
    of X comes before it. Where nothing is recorded it is the library's default: 1 in loralib, 8 in
    peft. Leaving factors out (as loading with `strict=False` does) gives another model without a
    word: TSVLC's attention starts with factors that are not zero.
    """
    if not any("lora_" in name for name in state):
        return Merged(state, None)
    state = {name.replace(".base_layer.", "."): value for name, value in state.items()}
    merged = dict(state)
    found: dict[str, dict[str, str]] = {}
    for name in state:
        if match := _FACTOR.fullmatch(name):
            sides = found.setdefault(match["stem"], {})
            if sides.setdefault(match["side"], name) != name:
                raise ModelError(f"it holds two LoRA adapters of {match['stem']}; merge one.")
    scales = set()
    for stem, sides in found.items():
        target = _target(state, stem)
        if set(sides) != {"A", "B"}:
            raise ModelError(f"it holds only one of the two LoRA factors of {stem}.")
        a, b = merged.pop(sides["A"]), merged.pop(sides["B"])
        default = 8.0 if sides["A"].endswith(".weight") else 1.0
        own = next((n for n in (stem + end for end in _ALPHAS) if n in state), None)
        known = float(merged.pop(own)) if own else alpha
        strength, rank = (default if known is None else known), _rank(a, state[target])
        merged[target] = state[target].float() + strength / rank * _product(a, b, state[target])
        source = "of the library, for the file records none" if known is None else "of the file"
        scales.add(f"alpha {strength:g} ({source}), rank {rank}")
    if left := [name for name in merged if "lora_" in name]:
        raise ModelError(f"its LoRA weights {some(left)} are of a kind that cannot be merged.")
    return Merged(merged, f"{len(found)} LoRA updates merged: {'; '.join(sorted(scales))}.")


def _target(state: Tensors, stem: str) -> str:
    """The weight that a pair of factors belongs to."""
    for name in (stem, f"{stem}.weight", f"{stem}.in_proj_weight"):
        if name in state:
            return name
    raise ModelError(
        f"it holds LoRA factors of {stem} and not the weight they belong to; "
        "merge them into the base model first."
    )


def _rank(a: torch.Tensor, weight: torch.Tensor) -> int:
    """loralib's factors of a convolution have r rows for each row of the kernel."""
    flat_convolution = weight.ndim == 4 and a.ndim == 2
    return a.shape[0] // weight.shape[-1] if flat_convolution else a.shape[0]


def _product(a: torch.Tensor, b: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    shapes = f"{tuple(b.shape)} and {tuple(a.shape)} for {tuple(weight.shape)}"
    a, b = a.float().flatten(1), b.float().flatten(1)
    if b.shape[1] != a.shape[0] or b.shape[0] * a.shape[1] != weight.numel():
        raise ModelError(f"its LoRA factors do not fit their weight: {shapes}.")
    product = b @ a
    embedding = weight.ndim == 2 and product.shape != weight.shape  # loralib's: stored transposed
    return product.T if embedding else product.reshape(weight.shape)
