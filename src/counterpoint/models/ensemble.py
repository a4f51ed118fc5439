"""`ensemble:A+B[+C]`: the mean of the standardised scores of other models.

A cosine lies between -1 and 1, a log probability anywhere below 0. So before they are averaged, the
scores of each member get mean 0 and standard deviation 1. These two numbers come from all pairs of
a benchmark that every member has scored. An ensemble therefore scores whole benchmarks: its scores
are those of this benchmark (and of this `--limit`), and no pair can be scored alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.progress import Named
from counterpoint._util.registry import did_you_mean
from counterpoint._util.store import digest
from counterpoint.cases import Cases
from counterpoint.metrics import Overlong
from counterpoint.models.registry import FAMILIES, LoadOptions, check_model, load_model
from counterpoint.scoring import Described, Model, Scored, Work, score

_PIECE: Final = 4_000_000  # scores in float64 at a time: a gallery may have a hundred million


class Member(NamedTuple):
    """A model, and the name under which it is shown."""

    name: str
    model: Model


class Ensemble:
    """The mean of its members' standardised scores."""

    def __init__(self, members: Sequence[Member]) -> None:
        if len(members) < 2:
            raise ModelError(
                "E-MODEL-ID-INVALID", f"an ensemble needs two members or more, not {len(members)}."
            )
        self.members = tuple(members)
        parts = (member.model.fingerprint for member in self.members)
        self.fingerprint = digest("ensemble 1", *parts).hex()

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        """Every member on every benchmark, one after the other, then their means."""
        found = [
            score(model, benchmarks, overlong, replace(work, progress=Named(work.progress, name)))
            for name, model in self.members
        ]
        return {
            name: combined([scored.pop(name) for scored in found], cases)
            for name, cases in benchmarks.items()
        }

    def describe(self) -> Mapping[str, Any]:
        return describe_members(self.members)


def describe_members(members: Sequence[Member]) -> dict[str, Any]:
    told = [
        (name, dict(model.describe()) if isinstance(model, Described) else {})
        for name, model in members
    ]
    return {
        "notes": [f"{name}: {note}" for name, info in told for note in info.pop("notes", ())],
        "members": [{"model": name, **info} for name, info in told],
    }


def combined(members: Sequence[Scored], cases: Cases) -> Scored:
    """One benchmark's scores from those of each member.

    What one member leaves out is left out, for its reason; the captions it cuts are added up.
    """
    kept = np.logical_and.reduce([np.isfinite(member.scores) for member in members])
    scales = [_scale(member.scores, kept) for member in members]
    scores = np.empty(len(kept), dtype=np.float32)
    for piece in _pieces(len(scores)):
        standardised = [
            (member.scores[piece].astype(np.float64) - mean) * factor
            for member, (mean, factor) in zip(members, scales, strict=True)
        ]
        scores[piece] = np.where(kept[piece], np.mean(standardised, axis=0), np.nan)
    cut = sum(member.cut_captions for member in members)
    return Scored(scores, *left_out_by_any(members, cases.image_counts), cut)


class _Scale(NamedTuple):
    """Scores less `mean`, times `factor`, are standardised."""

    mean: float
    factor: float


def _scale(scores: np.ndarray, kept: np.ndarray) -> _Scale:
    """Scores that are all the same say nothing: they become 0."""
    chosen = scores[kept]
    if not len(chosen) or chosen.min() == chosen.max():
        return _Scale(0.0, 0.0)
    mean = float(chosen.mean(dtype=np.float64))
    squares = sum(
        float(np.square(chosen[piece].astype(np.float64) - mean).sum())
        for piece in _pieces(len(chosen))
    )
    return _Scale(mean, (len(chosen) / squares) ** 0.5)


def _pieces(count: int) -> Iterator[slice]:
    return (slice(start, start + _PIECE) for start in range(0, count, _PIECE))


def left_out_by_any(
    members: Sequence[Scored], images: np.ndarray
) -> tuple[dict[int, str], dict[int, dict[int, str]]]:
    """The cases that any member leaves out, and the images that any member could not score.

    The first member's reason counts. A gallery is left out if each of its images could not be
    scored by some member.
    """
    cases: dict[int, str] = {}
    lost: dict[int, dict[int, str]] = {}
    for member in members:
        cases |= {row: why for row, why in member.left_out.items() if row not in cases}
        for row, reasons in member.left_out_images.items():
            known = lost.setdefault(row, {})
            known |= {image: why for image, why in reasons.items() if image not in known}
    for row, reasons in lost.items():
        if len(reasons) == images[row]:
            cases.setdefault(row, next(iter(reasons.values())))
    return cases, {row: reasons for row, reasons in lost.items() if row not in cases}


def load(rest: str, options: LoadOptions) -> Ensemble:
    """Ids of models, joined by `+`. All of them are in memory at the same time.

    An id may have a `+` of its own (in a path, say): it is cut only where the name of a family
    follows, with `:`, `+` or nothing after it. A member may be named twice, and then counts twice.
    """
    return Ensemble([Member(id, load_model(id, options)) for id in members(rest)])


def members(rest: str) -> list[str]:
    """The ids of an ensemble, or a refusal."""
    ids = split(rest)
    if "ensemble" in (id.partition(":")[0] for id in ids):
        raise ModelError(
            "E-MODEL-ID-INVALID",
            f"ensemble:{rest}: an ensemble cannot be a member of another; name all members.",
        )
    if len(ids) < 2:
        raise _too_few(rest)
    for id in ids:
        check_model(id)
    return ids


def split(rest: str) -> list[str]:
    """The ids of the members: `a:x+y+b:z` is `a:x+y` and `b:z` if `a` and `b` are families."""
    names = "|".join(re.escape(name) for name in FAMILIES.names())
    return re.split(rf"\+(?=(?:{names})(?:[:+]|$))", rest)


def _too_few(rest: str) -> ModelError | NotFoundError:
    """A single member usually means that the family of the second is misspelt."""
    for part in rest.split("+")[1:]:
        family, colon, _ = part.partition(":")
        if colon:
            return NotFoundError(
                "E-MODEL-UNKNOWN",
                f"ensemble:{rest}: {did_you_mean('model', family, FAMILIES.names())}",
            )
    return ModelError(
        "E-MODEL-ID-INVALID",
        f"ensemble:{rest}: two models or more are joined by '+', as in "
        "ensemble:world:base+blind:length.",
    )
