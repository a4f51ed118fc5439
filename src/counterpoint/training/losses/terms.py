"""The losses by name, and the loss of a recipe: a weighted sum of terms.

A term is a pure function of vectors (`published.py`, `counterpoint.py`). It says what it
needs by the names of its parameters: `images`, `has_negative` and so on are fields of `Features`;
`hard_...` are those of the hard images; `start_...` those of the frozen start on the same batch;
`scale` is the exponential of the model's logit scale. All other parameters are options, set in the
recipe. A parameter with a default is used where the batch has it.

Other packages add terms by entry points in the group `counterpoint.losses`. Nothing here imports
torch before a term is used.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Any, Final

from counterpoint._util.errors import DataError, ModelError, NotFoundError
from counterpoint._util.registry import Registry, did_you_mean
from counterpoint._util.untrusted import shown
from counterpoint.training.batches import Features

if TYPE_CHECKING:
    from torch import Tensor

_PUBLISHED: Final = "counterpoint.training.losses.published"
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
        "analogy": f"{_PUBLISHED}:analogy",
        "mil": f"{_PUBLISHED}:mil",
        "mil-negatives": f"{_PUBLISHED}:mil_negatives",
        "trohn-img": f"{_PUBLISHED}:trohn_img",
        "listwise": f"{_OURS}:listwise",
        "hinge": f"{_OURS}:hinge",
        "agreement": f"{_OURS}:agreement",
        "agreement-images": f"{_OURS}:agreement_images",
        "counterpart": f"{_OURS}:counterpart",
        "hold": f"{_OURS}:hold",
    },
)
_FIELDS: Final = frozenset(f.name for f in fields(Features)) - {"hard"}
_PREFIXES: Final = ("hard_", "start_")


@dataclass(frozen=True, slots=True)
class Term:
    """One term of a recipe's loss. With weight 0 it is not computed, and needs no data."""

    name: str
    weight: float = 1.0
    options: Mapping[str, Any] = field(default_factory=dict)


def loss(
    features: Features, scale: Tensor, terms: Sequence[Term], start: Features | None = None
) -> dict[str, Tensor]:
    """The value of each term on a batch, by its name; `total` is their weighted sum.

    With several ranks, `features` and `start` are what `join` returns.
    """
    return {term.name: _value(term, features, scale, start) for term in terms if term.weight}


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
    found = {
        name
        for term in terms
        if term.weight
        for name in signature(TERMS.get(term.name)).parameters
        if _source(name)
    }
    return frozenset(found)


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


def _value(term: Term, features: Features, scale: Tensor, start: Features | None) -> Tensor:
    function: Callable[..., Tensor] = TERMS.get(term.name)
    given: dict[str, Any] = dict(term.options)
    for name, parameter in signature(function).parameters.items():
        if name == "scale":
            given[name] = scale
        elif source := _source(name):
            given[name] = _read({"": features, "hard_": features.hard, "start_": start}, *source)
            if given[name] is None and parameter.default is Parameter.empty:
                raise _missing(term.name, name)
    return function(**given)


def _source(name: str) -> tuple[str, str] | None:
    """The prefix and the field that a parameter names; None for an option and for `scale`."""
    prefix = next((prefix for prefix in _PREFIXES if name.startswith(prefix)), "")
    rest = name.removeprefix(prefix)
    return (prefix, rest) if rest in _FIELDS else None


def _read(sources: Mapping[str, Features | None], prefix: str, name: str) -> Tensor | None:
    return None if sources[prefix] is None else getattr(sources[prefix], name)


def _missing(term: str, name: str) -> DataError:
    what = name.replace("_", " ")
    if name.startswith("start_"):
        return DataError(
            "E-LOSS-INPUT-MISSING",
            f"the loss term {term!r} needs the vectors of the start ({what}).",
            term=term,
            field=name,
        )
    return DataError(
        "E-LOSS-INPUT-MISSING",
        f"the loss term {term!r} needs {what}, and the data has none; use data that has, or give "
        "the term the weight 0.",
        term=term,
        field=name,
    )


def _options(function: Callable[..., Tensor]) -> dict[str, Parameter]:
    given = signature(function).parameters.items()
    return {name: value for name, value in given if name != "scale" and not _source(name)}


def _fits(value: object, default: object) -> bool:
    if isinstance(default, bool) or isinstance(value, bool):
        return isinstance(default, bool) and isinstance(value, bool)
    return isinstance(value, int | float) and 0 <= value < math.inf
