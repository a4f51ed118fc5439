"""The losses by name, and the loss of a recipe: a weighted sum of terms.

A term is a pure function of the `Features` of a batch (`published.py`, `sigmoid.py`, `tokens.py`,
`counterpoint.py`); its other parameters are options, set in the recipe. What it reads is declared
by `reads`.

Other packages add terms by entry points in the group `counterpoint.losses`. Nothing here imports
torch before a term is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final

from counterpoint._util.errors import DataError, ModelError, NotFoundError
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint._util.untrusted import shown
from counterpoint.training.batches import MASKS, Features

if TYPE_CHECKING:
    from torch import Tensor

_PUBLISHED: Final = "counterpoint.training.losses.published"
_SIGMOID: Final = "counterpoint.training.losses.sigmoid"
_TOKENS: Final = "counterpoint.training.losses.tokens"
_OURS: Final = "counterpoint.training.losses.counterpoint"

TERMS: Final = Registry(
    "loss term",
    "counterpoint.losses",
    {
        "clip": f"{_PUBLISHED}:clip",
        "clip-negatives": f"{_PUBLISHED}:clip_with_negatives",
        "negclip": f"{_PUBLISHED}:negclip",
        "negatives": f"{_PUBLISHED}:negative_loss",
        "focal": f"{_PUBLISHED}:focal",
        "focal-local": f"{_TOKENS}:focal_local",
        "analogy": f"{_PUBLISHED}:analogy",
        "mil": f"{_PUBLISHED}:mil",
        "mil-negatives": f"{_PUBLISHED}:mil_negatives",
        "trohn-img": f"{_PUBLISHED}:trohn_img",
        "tripletclip": f"{_PUBLISHED}:triplet_clip",
        "intra-modal": f"{_PUBLISHED}:intra_modal",
        "rank": f"{_PUBLISHED}:rank",
        "text-grounded": f"{_PUBLISHED}:text_grounded",
        "distill": f"{_PUBLISHED}:distill",
        "concepts": f"{_PUBLISHED}:concepts",
        "concept-patches": f"{_TOKENS}:concept_patches",
        "paraphrases": f"{_PUBLISHED}:paraphrases",
        "reconstruct": f"{_TOKENS}:reconstruct",
        "clic": f"{_PUBLISHED}:clic",
        "siglip": f"{_SIGMOID}:siglip",
        "siglip-negatives": f"{_SIGMOID}:siglip_with_negatives",
        "siglip-negclip": f"{_SIGMOID}:siglip_negclip",
        "siglip-own": f"{_SIGMOID}:siglip_own",
        "siglip-positives": f"{_SIGMOID}:siglip_positives",
        "siglip-trohn-img": f"{_SIGMOID}:siglip_trohn_img",
        "siglip-concepts": f"{_SIGMOID}:siglip_concepts",
        "siglip-concept-patches": f"{_TOKENS}:siglip_concept_patches",
        "listwise": f"{_OURS}:listwise",
        "hinge": f"{_OURS}:hinge",
        "agreement": f"{_OURS}:agreement",
        "agreement-images": f"{_OURS}:agreement_images",
        "counterpart": f"{_OURS}:counterpart",
        "hold": f"{_OURS}:hold",
    },
)


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a recipe's loss. With weight 0 it is not computed, and needs no data."""

    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


def loss(features: Features, terms: Sequence[Term]) -> dict[str, Tensor]:
    """The value of each term on a batch, by its name; `total` is their weighted sum.

    With several ranks, `features` is what `join` returns.
    """
    return {term.name: _value(term, features) for term in terms if term.weight}


def total(values: Mapping[str, Tensor], terms: Sequence[Term]) -> Tensor:
    weighted = [term.weight * values[term.name] for term in terms if term.weight]
    if not weighted:
        raise ModelError(
            "E-LOSS-EMPTY", "the loss has no term with a weight; give at least one, such as clip."
        )
    return sum(weighted[1:], weighted[0])


def uses(terms: Sequence[Term]) -> frozenset[str]:
    """What the terms read, such as `negatives`, `hard_images`, `start_captions`: all else need be
    neither loaded nor encoded. Masks are named as well."""
    return frozenset(name for t in terms if t.weight for name in _with_masks(TERMS.get(t.name)))


def faults(terms: Sequence[Term]) -> list[str]:
    """All that is wrong with the terms of a recipe, a sentence each; none where they are fine."""
    found = []
    names = [term.name for term in terms]
    for number, term in enumerate(terms):
        if term.name in names[:number]:
            found.append(f"the loss term {term.name!r} is there twice; add up the weights.")
        if not (math.isfinite(term.weight) and term.weight >= 0):
            found.append(f"the weight of {term.name!r} is {term.weight}, not a number from 0 on.")
        found += _option_faults(term)
    return found


def _option_faults(term: Term) -> list[str]:
    try:
        known = _options(TERMS.get(term.name))
    except NotFoundError as error:
        return [str(error)]
    found = []
    for name, value in term.options.items():
        if not known:
            found.append(f"the loss term {term.name!r} has no options; {name} is none of them.")
        elif name not in known:
            found.append(did_you_mean(f"option of {term.name!r}", name, known))
        elif not _fits(value, known[name].default):
            wanted = "true or false" if isinstance(known[name].default, bool) else "a number >= 0"
            found.append(
                f"the option {name} of {term.name!r} must be {wanted}, not {shown(value)}."
            )
    return found


def _value(term: Term, features: Features) -> Tensor:
    import torch

    function: Callable[..., Tensor] = TERMS.get(term.name)
    for name in _reads(function)[0]:
        if _read(features, name) is None:
            raise _missing(term.name, name)
    # Autocast would make products in bfloat16, where logits near 25 come in steps of 1/8.
    with torch.autocast(features.images.device.type, enabled=False):
        return function(_seen(features, _with_masks(function)), **term.options)


def _reads(function: Callable[..., Tensor]) -> tuple[Sequence[str], Sequence[str]]:
    """What a term needs, and what it uses if it is there; see `batches.reads`."""
    return getattr(function, "reads", (("images", "captions"), ()))


def _with_masks(function: Callable[..., Tensor]) -> list[str]:
    names = [name for part in _reads(function) for name in part]
    return names + [
        name.removesuffix(vectors) + mask
        for name in names
        for vectors, mask in MASKS.items()
        if name in (vectors, f"hard_{vectors}")
    ]


def _read(features: Features, name: str) -> Tensor | None:
    part, _, inner = name.partition("_")
    if part in ("hard", "start"):
        features, name = getattr(features, part), inner
    return getattr(features, name, None)


def _seen(features: Features, names: Sequence[str]) -> Features:
    """These parts in float32 at least, and nothing else: a term cannot read more than it says."""
    given: dict[str, Any] = {"images": features.images, "captions": features.captions}
    own = [name for name in names if not name.startswith(("hard_", "start_"))]
    given |= {name: _wide(getattr(features, name)) for name in ("scale", *own)}
    for part in ("hard", "start"):
        inner = [n.removeprefix(f"{part}_") for n in names if n.startswith(f"{part}_")]
        if inner and (other := getattr(features, part)) is not None:
            given[part] = _seen(other, inner)
    return Features(**given)


def _wide(value: Tensor | None) -> Tensor | None:
    import torch

    if value is None or value.dtype not in (torch.float16, torch.bfloat16):
        return value
    return value.float()


def _missing(term: str, name: str) -> DataError:
    what = name.replace("_", " ")
    if name == "bias":
        return DataError("E-LOSS-INPUT-MISSING", no_bias(term))
    if name == "reconstruction":
        return DataError("E-LOSS-INPUT-MISSING", no_decoder(term))
    if name.startswith("start_"):
        return DataError(
            "E-LOSS-INPUT-MISSING",
            f"the loss term {term!r} needs the vectors of the start ({what}).",
        )
    return DataError(
        "E-LOSS-INPUT-MISSING",
        f"the loss term {term!r} needs {what}, and the data has none; use data that has, or give "
        "the term the weight 0.",
    )


def no_decoder(term: str) -> str:
    return (
        f"the loss term {term!r} needs a decoder; give decoder=hf:google/t5-v1_1-large, or "
        "decoder=world for the world's."
    )


def no_bias(term: str) -> str:
    return (
        f"the loss term {term!r} needs a model with a logit bias, as SigLIP has, and this one has "
        "none; use clip and its like, or another start."
    )


def _options(function: Callable[..., Tensor]) -> dict[str, Parameter]:
    return dict(list(signature(function).parameters.items())[1:])  # the first is the features


def _fits(value: object, default: object) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    return isinstance(value, int | float) and 0 <= value < math.inf
