"""Models that are made of others: ensembles, and re-ranking.

`ensemble:A+B[+C]`: the mean of the standardised scores of other models.

A cosine lies between -1 and 1, a log probability anywhere below 0. So before they are averaged, the
scores of each member get mean 0 and standard deviation 1. These two numbers come from all pairs of
a benchmark that every member has scored. An ensemble therefore scores whole benchmarks: its scores
are those of this benchmark (and of this `--limit`), and no pair can be scored alone.

`rerank:DUAL+PAIR?k=128`: a pair scorer puts the best k answers of a dual encoder in order.

A model that looks at image and caption together is too slow for the 125 million pairs of COCO
retrieval. So the dual encoder ranks all of them, and the pair scorer scores what stands among the k
best captions of an image or the k best images of a caption. These pairs have the pair scorer's
score; all others keep their order and their ties by the dual encoder and stand below them: of their
scores only the order means anything.

The authors of BLIP rank each direction by its own lists: an image's k best captions only, and a
caption's k best images only. One score per pair cannot be both, and with `side=both` (the default)
a list may also hold pairs that the other direction found. `side=images` re-ranks the captions of
images alone, `side=captions` the images of captions: in that direction this is BLIP's own rule.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError, NotFoundError
from counterpoint._util.progress import Named
from counterpoint._util.registry import Option, did_you_mean, read_options
from counterpoint._util.store import digest
from counterpoint.cases import SCHEMA, Cases, gallery_rows
from counterpoint.metrics import Overlong
from counterpoint.models.registry import FAMILIES, LoadOptions, check_model, load_model
from counterpoint.scoring import (
    Described,
    DualEncoder,
    Model,
    PairScorer,
    Scored,
    Work,
    score,
)

_PIECE: Final = 4_000_000  # scores in float64 at a time: a gallery may have a hundred million


class Member(NamedTuple):
    """A model, and the name under which it is shown."""

    name: str
    model: Model

    def score(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        named = replace(work, progress=Named(work.progress, self.name))
        return score(self.model, benchmarks, overlong, named)


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
        found = [member.score(benchmarks, overlong, work) for member in self.members]
        return {
            name: combined([scored.pop(name) for scored in found], cases)
            for name, cases in benchmarks.items()
        }

    def describe(self) -> Mapping[str, Any]:
        return describe_members(self.members)


def describe_members(members: Sequence[Member]) -> dict[str, Any]:
    about = [
        {"model": name, **(model.describe() if isinstance(model, Described) else {})}
        for name, model in members
    ]
    notes = [f"{one['model']}: {note}" for one in about for note in one.pop("notes", ())]
    return {"notes": notes, "members": about}


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


def _scale(scores: np.ndarray, kept: np.ndarray) -> tuple[float, float]:
    """A mean and a factor: scores less the mean, times the factor, are standardised.

    Scores that are all the same say nothing: they become 0.
    """
    chosen = scores[kept]
    if not len(chosen) or chosen.min() == chosen.max():
        return 0.0, 0.0
    mean = float(chosen.mean(dtype=np.float64))
    squares = sum(
        float(np.square(chosen[piece].astype(np.float64) - mean).sum())
        for piece in _pieces(len(chosen))
    )
    return mean, (len(chosen) / squares) ** 0.5


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


def load_ensemble(rest: str, options: LoadOptions) -> Ensemble:
    """Ids of models, joined by `+`. All of them are in memory at the same time.

    An id may have a `+` of its own (in a path, say): it is cut only where the name of a family
    follows, with `:`, `+` or nothing after it. A member may be named twice, and then counts twice.
    """
    return Ensemble([Member(id, load_model(id, options)) for id in check_ensemble(rest)])


def check_ensemble(rest: str) -> list[str]:
    """The ids of an ensemble, or a refusal."""
    ids = split(rest)
    if "ensemble" in (id.partition(":")[0] for id in ids):
        raise ModelError(
            "E-MODEL-ID-INVALID",
            f"ensemble:{rest}: an ensemble cannot be a member of another; name all members.",
        )
    if len(ids) < 2:
        for part in rest.split("+")[1:]:  # usually the family of the second is misspelt
            family, colon, _ = part.partition(":")
            if colon:
                why = did_you_mean("model", family, FAMILIES.names())
                raise NotFoundError("E-MODEL-UNKNOWN", f"ensemble:{rest}: {why}")
        raise ModelError(
            "E-MODEL-ID-INVALID",
            f"ensemble:{rest}: two models or more are joined by '+', as in "
            "ensemble:world:base+blind:length.",
        )
    for id in ids:
        check_model(id)
    return ids


def split(rest: str) -> list[str]:
    """The ids of the members: `a:x+y+b:z` is `a:x+y` and `b:z` if `a` and `b` are families."""
    names = "|".join(re.escape(name) for name in FAMILIES.names())
    return re.split(rf"\+(?=(?:{names})(?:[:+]|$))", rest)


# --- re-ranking ----------------------------------------------------------------------------------

K: Final = 128
SIDES: Final = ("both", "images", "captions")
_RERANK: Final = {"k": Option(K, least=1), "side": Option(SIDES[0], SIDES)}
_OWN: Final = re.compile(r"\?(?=(?:k|side)=)")  # any other ? belongs to a member
_CELLS: Final = 8_000_000  # scores sorted at a time
_SIGN, _MAGNITUDE = 1 << 31, (1 << 31) - 1  # bits of a float32


class Reranker:
    """Ranks with a dual encoder, and puts the best answers in order with a pair scorer."""

    def __init__(self, dual: Member, pair: Member, k: int = K, side: str = "both") -> None:
        for member, kind in ((dual, DualEncoder), (pair, PairScorer)):
            if not isinstance(member.model, kind):
                raise ModelError(
                    "E-MODEL-UNSUITABLE",
                    f"rerank needs a dual encoder and a pair scorer, in this order; {member.name} "
                    f"is not a {kind.__name__}.",
                )
        self.dual, self.pair, self.k, self.side = dual, pair, k, side
        parts = (dual.model.fingerprint, pair.model.fingerprint, str(k), side)
        self.fingerprint = digest("rerank 2", *parts).hex()

    def score_benchmarks(
        self, benchmarks: Mapping[str, Cases], overlong: Mapping[str, Overlong], work: Work
    ) -> dict[str, Scored]:
        """All pairs by the dual encoder, then the best of them by the pair scorer."""
        first = self.dual.score(benchmarks, overlong, work)
        chosen = {
            name: best_pairs(cases, first[name].scores, self.k, self.side)
            for name, cases in benchmarks.items()
        }
        lists = {
            name: _shortlists(cases, chosen[name])
            for name, cases in benchmarks.items()
            if chosen[name].any()  # else nothing has a score
        }
        tables = {name: found.cases for name, found in lists.items()}
        second = self.pair.score(tables, overlong, work) if tables else {}
        return first | {
            name: _reranked(benchmarks[name], first[name], chosen[name], found.lines, second[name])
            for name, found in lists.items()
        }

    def describe(self) -> Mapping[str, Any]:
        return {**describe_members((self.dual, self.pair)), "k": self.k, "side": self.side}


def best_pairs(cases: Cases, scores: np.ndarray, k: int, side: str) -> np.ndarray:
    """Marks the pairs (flat) among the k best of their image, of their caption, or of either.

    Of equal scores the first are taken. What has no score is not marked.
    """
    marks = np.zeros(len(scores), dtype=bool)
    for start, shape in _blocks(cases):
        block = slice(start, start + shape[0] * shape[1])
        mine, found = marks[block].reshape(shape), scores[block].reshape(shape)
        if side != "captions":
            _mark_best(found, mine, k)
        if side != "images":
            _mark_best(found.T, mine.T, k)
    return marks & np.isfinite(scores)


def _mark_best(scores: np.ndarray, marks: np.ndarray, k: int) -> None:
    """Mark the k highest scores of each line, in place."""
    if k >= scores.shape[1]:
        marks[:] = True
        return
    step = max(1, _CELLS // scores.shape[1])
    for start in range(0, len(scores), step):
        lines = slice(start, start + step)
        order = np.argsort(-scores[lines], axis=1, kind="stable")[:, :k]  # NaN comes last
        some = marks[lines]
        some[np.arange(len(order))[:, None], order] = True


def _blocks(cases: Cases) -> Iterator[tuple[int, tuple[int, int]]]:
    """Where the scores of each case begin, and how many images and captions it has."""
    starts = cases.pair_offsets[:-1].tolist()
    shapes = zip(cases.image_counts.tolist(), cases.caption_counts.tolist(), strict=True)
    return zip(starts, shapes, strict=True)


class _Shortlists(NamedTuple):
    """Every image with its marked captions as a case of its own; `lines` are their row and image.

    Images without a marked caption are not in it.
    """

    cases: Cases
    lines: list[tuple[int, int]]


def _shortlists(cases: Cases, chosen: np.ndarray) -> _Shortlists:
    lines, images, captions = [], [], []
    refs_and_texts = cases.frame.select("images", "captions").iter_rows()
    for row, ((start, shape), (refs, texts)) in enumerate(
        zip(_blocks(cases), refs_and_texts, strict=True)
    ):
        marks = chosen[start : start + shape[0] * shape[1]].reshape(shape)
        for image in np.flatnonzero(marks.any(axis=1)).tolist():
            lines.append((row, image))
            images.append([refs[image]])
            captions.append([texts[i] for i in np.flatnonzero(marks[image]).tolist()])
    count = len(lines)
    columns = {
        "id": [str(number) for number in range(count)],
        "images": images,
        "captions": captions,
        "truth": [[0]] * count,
        "groups": [[]] * count,
        "cluster": [""] * count,
    }  # nothing is measured on this table
    return _Shortlists(Cases(pl.DataFrame(columns, schema=SCHEMA), cases.root), lines)


def _reranked(
    cases: Cases, first: Scored, chosen: np.ndarray, lines: list[tuple[int, int]], second: Scored
) -> Scored:
    """The pair scorer's scores; the other pairs, in the dual encoder's order, below them."""
    scores = first.scores.copy()
    scores[chosen] = second.scores
    for start, (images, captions) in _blocks(cases):
        block = slice(start, start + images * captions)
        mine, marks = scores[block], chosen[block]
        best, rest = mine[marks & np.isfinite(mine)], ~marks & np.isfinite(mine)
        if len(best) and rest.any():
            _put_below(mine, rest, best.min())
    lost = _lost(cases, lines, second)
    left_out, left_out_images = left_out_by_any([first, lost], cases.image_counts)
    for row in left_out:
        scores[cases.pair_offsets[row] : cases.pair_offsets[row + 1]] = np.nan
    for row, reasons in left_out_images.items():
        width = int(cases.caption_counts[row])
        for image in reasons:
            begin = int(cases.pair_offsets[row]) + image * width
            scores[begin : begin + width] = np.nan
    cut = first.cut_captions + second.cut_captions
    return Scored(scores, left_out, left_out_images, cut)


def _put_below(scores: np.ndarray, rest: np.ndarray, low: np.float32) -> None:
    """The marked scores in place by their ranks: the highest becomes the number next below `low`,
    and so on. A shift would make ties: float32 is coarser at -20 than at 0.2."""
    places = np.flatnonzero(rest)
    values = np.unique(scores[places])
    bits = int(low.view(np.int32))
    # Numbers in order of size: bits of negative ones fall with their size.
    start = bits if bits >= 0 else -(bits & _MAGNITUDE)
    numbers = np.arange(start - len(values), start, dtype=np.int64)
    levels = np.where(numbers < 0, -numbers | _SIGN, numbers).astype(np.uint32).view(np.float32)
    for first in range(0, len(places), _CELLS):
        some = places[first : first + _CELLS]
        scores[some] = levels[np.searchsorted(values, scores[some])]


def _lost(cases: Cases, lines: list[tuple[int, int]], second: Scored) -> Scored:
    """What the pair scorer left out, as cases and as images of galleries."""
    found, galleries = Scored(np.empty(0)), gallery_rows(cases)
    for line, why in sorted(second.left_out.items()):
        row, image = lines[line]
        if galleries[row]:
            found.left_out_images.setdefault(row, {})[image] = why
        else:
            found.left_out.setdefault(row, why)
    return found


def load_rerank(rest: str, options: LoadOptions) -> Reranker:
    """Two ids joined by `+`, with `?k=128` or `?k=128&side=images` behind them."""
    members, k, side = check_rerank(rest)
    dual, pair = (Member(id, load_model(id, options)) for id in members)
    return Reranker(dual, pair, k, side)


def check_rerank(rest: str) -> tuple[list[str], int, str]:
    """The two ids, k and the side, or a refusal."""
    ids, *text = _OWN.split(rest, 1)
    asked: dict[str, Any] = read_options("rerank", "".join(text), _RERANK)
    members = split(ids)
    if len(members) != 2:
        raise ModelError(
            "E-MODEL-ID-INVALID",
            f"rerank:{rest}: should be a dual encoder and a pair scorer joined by '+', as in "
            "rerank:blip-itc:ORG/REPO+blip-itm:ORG/REPO?k=128.",
        )
    for id in members:
        check_model(id)
    return members, asked["k"], asked["side"]
