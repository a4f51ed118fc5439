"""LoRA on open_clip models, as parametrisations of their weights.

peft's layer for `nn.MultiheadAttention`, which open_clip uses, adds the factors' product to the
frozen weight before each call and subtracts it afterwards: the frozen weights drift by rounding,
and a resumed run is another run. Here W stands still and W + alpha / rank * B A is computed when it
is asked for, so autograd, DDP and activation checkpointing see a weight like any other.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from counterpoint.errors import ModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from counterpoint.train.recipe import Lora

_INSIDE: Final = "parametrizations"
_PROJECTIONS: Final = ("proj", "text_projection")


class Factors(nn.Module):
    """W -> W + alpha / rank * B A. B starts at zero, A as a linear layer's weight (Hu et al.)."""

    def __init__(self, weight: Tensor, rank: int, alpha: float, seed: int) -> None:
        super().__init__()
        rows, columns = weight.shape[0], weight[0].numel()
        made = torch.Generator().manual_seed(seed)
        first = torch.empty(rank, columns).uniform_(-1, 1, generator=made) * columns**-0.5
        self.lora_a = nn.Parameter(first.to(weight.device))
        self.lora_b = nn.Parameter(torch.zeros(rows, rank, device=weight.device))
        self.share = alpha / rank

    def forward(self, weight: Tensor) -> Tensor:
        return weight + self.share * (self.lora_b @ self.lora_a).view_as(weight)


def add_lora(model: nn.Module, lora: Lora, seed: int, frozen: str = "none") -> None:
    """Put factors beside the weights that the recipe names; all else stays frozen.

    TSVLC and DAC adapt attention, MLP and the first convolution of both
    towers: `targets: [attention, mlp, conv]`.
    """
    found = list(_weights(model))
    _refuse_gaps({(tower, kind) for *_, tower, kind in found}, lora, frozen)
    places = [(module, name) for module, name, _, kind in found if kind in lora.targets]
    for number, (module, name) in enumerate(places):
        weight = getattr(module, name)
        # every weight has its own start, whatever else is adapted before it
        factors = Factors(weight, lora.rank, lora.alpha, (seed * 1_000_003 + number) % 2**63)
        parametrize.register_parametrization(module, name, factors)


def _refuse_gaps(found: set[tuple[str, str]], lora: Lora, frozen: str) -> None:
    """A tower that is left out in silence would be one that does not learn."""
    for kind in lora.targets:
        towers = {"image"} if kind == "conv" else {"image", "text"}
        learning = towers - {frozen}
        missing = sorted(tower for tower in learning if (tower, kind) not in found)
        some = kind == "projection" and len(missing) < len(learning)  # not every tower has one
        if missing and not some:
            raise ModelError(
                f"LoRA finds no weights of the kind {kind!r} in the model's "
                f"{' and '.join(missing)} tower; name other lora.targets, freeze the tower, or "
                "train without LoRA."
            )


def _weights(model: nn.Module) -> Iterator[tuple[nn.Module, str, str, str]]:
    """Weights that may be adapted, each with its tower and its kind."""
    for path, module in model.named_modules():
        tower = "image" if path.startswith("visual") else "text"
        if isinstance(module, nn.MultiheadAttention):
            if module.in_proj_weight is not None:
                yield module, "in_proj_weight", tower, "attention"
            yield module.out_proj, "weight", tower, "attention"
        elif isinstance(module, nn.Linear) and path.split(".")[-2:-1] == ["mlp"]:
            yield module, "weight", tower, "mlp"
        elif isinstance(module, nn.Conv2d) and path.endswith("visual.conv1"):
            yield module, "weight", tower, "conv"
        elif isinstance(module, nn.Linear) and path.rpartition(".")[2] in _PROJECTIONS:
            yield module, "weight", tower, "projection"
        for name in _PROJECTIONS:
            held = module._parameters.get(name)
            if held is not None and held.ndim == 2:
                yield module, name, tower, "projection"


@torch.no_grad()
def merged_state(model: nn.Module) -> dict[str, Tensor]:
    """The state dict under open_clip's own names, with the factors merged in, as copies."""
    state = {
        name: value.detach().clone()
        for name, value in model.state_dict().items()
        if f"{_INSIDE}." not in name
    }
    for path, module in model.named_modules():
        if parametrize.is_parametrized(module):
            for name in module.parametrizations:
                state[f"{path}.{name}" if path else name] = getattr(module, name).detach().clone()
    return state
