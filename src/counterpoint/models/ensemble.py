"""`ensemble:A+B[+C]`: the mean of the standardised scores of other models."""

from __future__ import annotations

import re

from counterpoint.errors import ModelError, NotFoundError
from counterpoint.models import FAMILIES, LoadOptions, load_model
from counterpoint.registry import did_you_mean
from counterpoint.scoring.ensembles import Ensemble, Member


def load(rest: str, options: LoadOptions) -> Ensemble:
    """Ids of models, joined by `+`. All of them are in memory at the same time.

    An id may have a `+` of its own (in a path, say): it is cut only where the name of a family
    follows, with `:`, `+` or nothing after it. A member may be named twice, and then counts twice.
    """
    ids = split(rest)
    if "ensemble" in (id.partition(":")[0] for id in ids):
        raise ModelError(
            f"ensemble:{rest}: an ensemble cannot be a member of another; name all members at once."
        )
    if len(ids) < 2:
        raise _too_few(rest)
    return Ensemble([Member(id, load_model(id, options)) for id in ids])


def split(rest: str) -> list[str]:
    """The ids of the members: `a:x+y+b:z` is `a:x+y` and `b:z` if `a` and `b` are families."""
    names = "|".join(re.escape(name) for name in FAMILIES.names())
    return re.split(rf"\+(?=(?:{names})(?:[:+]|$))", rest)


def _too_few(rest: str) -> ModelError | NotFoundError:
    """One member is usually two, of which the second's family is misspelt."""
    for part in rest.split("+")[1:]:
        family, colon, _ = part.partition(":")
        if colon:
            return NotFoundError(
                f"ensemble:{rest}: {did_you_mean('model', family, FAMILIES.names())}"
            )
    return ModelError(
        f"ensemble:{rest}: two models or more are joined by '+', as in "
        "ensemble:world:base+blind:length."
    )
