"""`rerank:DUAL+PAIR?k=128`: a pair scorer puts the best k answers of a dual encoder in order.

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
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import ModelError
from counterpoint._util.progress import Named
from counterpoint._util.registry import Option, read_options
from counterpoint._util.store import digest
from counterpoint.cases import SCHEMA, Cases, gallery_rows
from counterpoint.metrics import Overlong
from counterpoint.models.ensemble import Member, describe_members, left_out_by_any, split
from counterpoint.models.registry import LoadOptions, check_model, load_model
from counterpoint.scoring import DualEncoder, PairScorer, Scored, Work, score

K: Final = 128
SIDES: Final = ("both", "images", "captions")
_OPTIONS: Final = {"k": Option(K, least=1), "side": Option(SIDES[0], SIDES)}
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
        first = self._score(self.dual, benchmarks, overlong, work)
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
        second = self._score(self.pair, tables, overlong, work) if tables else {}
        return first | {
            name: _reranked(benchmarks[name], first[name], chosen[name], found.lines, second[name])
            for name, found in lists.items()
        }

    def _score(
        self,
        member: Member,
        benchmarks: Mapping[str, Cases],
        overlong: Mapping[str, Overlong],
        work: Work,
    ) -> dict[str, Scored]:
        shown = replace(work, progress=Named(work.progress, member.name))
        return score(member.model, benchmarks, overlong, shown)

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
        "truth": [[0]] * count,  # nothing is measured on this table
        "groups": [[]] * count,
        "cluster": [""] * count,
    }
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


def load(rest: str, options: LoadOptions) -> Reranker:
    """Two ids joined by `+`, with `?k=128` or `?k=128&side=images` behind them."""
    members, k, side = read_id(rest)
    dual, pair = (Member(id, load_model(id, options)) for id in members)
    return Reranker(dual, pair, k, side)


def read_id(rest: str) -> tuple[list[str], int, str]:
    """The two ids, k and the side, or a refusal."""
    ids, *text = _OWN.split(rest, 1)
    asked: dict[str, Any] = read_options("rerank", "".join(text), _OPTIONS)
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
