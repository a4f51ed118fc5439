"""The losses by name, and the loss of a recipe: a weighted sum of terms.

A term is a pure function of the `Features` of a batch (`published.py`, `counterpoint.py`); its
other parameters are options, set in the recipe. What it reads is declared by `reads`.

Other packages add terms by entry points in the group `counterpoint.losses`. Nothing here imports
torch before a term is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from counterpoint._util.errors import DataError, ModelError, NotFoundError
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint._util.untrusted import shown

if TYPE_CHECKING:
    from torch import Tensor

MASKS: Final = {  # which mask says which of these vectors are there
    "positives": "has_positive",
    "negatives": "has_negative",
    "negative_images": "has_negative_image",
    "dense": "has_dense",
    "dense_negatives": "has_dense_negative",
    "caption_tokens": "has_caption_token",
    "negative_tokens": "has_negative_token",
}
TOKENS: Final = ("image_tokens", "caption_tokens", "negative_tokens")
_ABSENT: Final[Any] = None


@dataclass(frozen=True, slots=True)
class Features:
    """What a loss is given: the vectors of a batch, of all ranks once joined.

    Unit vectors, so that the product of two is their score, a cosine. Shapes are (B, d); negatives
    (B, k, d); dense and dense_negatives (B, m, d). Tokens are what the towers make of patches and
    of words before they are pooled, projected and not of unit length: image_tokens (B, p, d),
    caption_tokens (B, l, d) and negative_tokens (B, k l, d), those of one negative after those of
    another. `scale` is the factor of the scores before a
    softmax or a sigmoid (the exponential of the model's logit scale), `bias` what a model with a
    sigmoid loss adds to them (SigLIP's logit bias). What the data or the model lacks is None. A
    mask that is None says that all vectors are there; `mask` gives it as an array.
    """

    images: Tensor
    captions: Tensor
    scale: Tensor
    positives: Tensor = _ABSENT
    has_positive: Tensor | None = None
    negatives: Tensor = _ABSENT
    has_negative: Tensor | None = None
    negative_images: Tensor = _ABSENT
    has_negative_image: Tensor | None = None
    dense: Tensor = _ABSENT
    has_dense: Tensor | None = None
    dense_negatives: Tensor = _ABSENT
    has_dense_negative: Tensor | None = None
    image_tokens: Tensor = _ABSENT
    caption_tokens: Tensor = _ABSENT
    has_caption_token: Tensor | None = None
    negative_tokens: Tensor = _ABSENT
    has_negative_token: Tensor | None = None
    hard: Features = _ABSENT  # of the hard images (NegCLIP)
    start: Features = _ABSENT  # the same batch under the frozen start, or the teacher
    bias: Tensor = _ABSENT
    reconstruction: Tensor = _ABSENT  # (B, 1): log loss per word of positives, told from captions

    def mask(self, vectors: str = "images") -> Tensor:
        """Which of these vectors are there: (B,), (B, k) or (B, m)."""
        import torch

        mask = getattr(self, MASKS.get(vectors, ""), None)
        if mask is not None:
            return cast("Tensor", mask.bool())
        of = getattr(self, vectors)
        return torch.ones(of.shape[:-1], dtype=torch.bool, device=of.device)


LossT = TypeVar("LossT", bound=Callable[..., Any])


def reads(*vectors: str, optional: Sequence[str] = ()) -> Callable[[LossT], LossT]:
    """Declares what a loss reads of `Features`; the rest is neither encoded nor given to it.

    Names are those of the vectors (their masks come with them), `hard_...` for those of the hard
    images, `start_...` for those of the frozen start or the teacher, `..._tokens` for patches and
    words, `bias` for the logit bias of the model. Data or models without one of `vectors` are
    refused; what is `optional` is used where it is there. Without a declaration a loss reads images
    and captions.
    """

    def declared(loss: LossT) -> LossT:
        loss.__dict__["reads"] = (tuple(vectors), tuple(optional))
        return loss

    return declared


# --- the terms -----------------------------------------------------------------------------------

_BUILTIN: Final = {  # by file; functions have the names of their terms
    "published": (
        "clip clip-negatives negclip negatives focal focal-local analogy mil mil-negatives "
        "trohn-img tripletclip intra-modal rank text-grounded distill concepts concept-patches "
        "paraphrases reconstruct clic siglip siglip-negatives siglip-negclip siglip-own "
        "siglip-positives siglip-trohn-img siglip-concepts siglip-concept-patches"
    ),
    "counterpoint": "listwise hinge agreement agreement-images counterpart hold",
}
TERMS: Final = Registry(
    "loss term",
    "counterpoint.losses",
    {
        name: f"counterpoint.training.losses.{file}:{name.replace('-', '_')}"
        for file, names in _BUILTIN.items()
        for name in names.split()
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
    import torch

    values = {}
    for term in terms:
        if not term.weight:
            continue
        function: Callable[..., Tensor] = TERMS.get(term.name)
        for name in _reads(function)[0]:
            if _read(features, name) is None:
                raise _missing(term.name, name)
        # Autocast would make products in bfloat16, where logits near 25 come in steps of 1/8.
        with torch.autocast(features.images.device.type, enabled=False):
            values[term.name] = function(features, **term.options)
    return values


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


def _reads(function: Callable[..., Tensor]) -> tuple[Sequence[str], Sequence[str]]:
    """What a term needs, and what it uses if it is there; see `reads`."""
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


def _missing(term: str, name: str) -> DataError:
    what = name.replace("_", " ")
    if name == "bias":
        why = no_bias(term)
    elif name == "reconstruction":
        why = no_decoder(term)
    elif name.startswith("start_"):
        why = f"the loss term {term!r} needs the vectors of the start ({what})."
    else:
        why = (
            f"the loss term {term!r} needs {what}, and the data has none; use data that has, or "
            "give the term the weight 0."
        )
    return DataError("E-LOSS-INPUT-MISSING", why)


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
