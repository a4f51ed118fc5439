"""Refinement against blind models that are fitted to the pairs themselves, in rounds.

A model is fitted to the negatives that are left, cross-fitted by image, and its gaps are balanced
with those of the other models. What a model finds afterwards is asked of a fresh one, whose folds
no round has used. Rounds go on until it is at its goal in every group, or nothing more changes.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint._util.progress import Progress
from counterpoint._util.untrusted import shown
from counterpoint.generation.refinement.negatives import (
    BINS,
    BY,
    ZERO_BINS,
    Negatives,
    Scale,
    balanced,
    changed,
    pieces,
    scaled,
)
from counterpoint.generation.refinement.scores import SIDES
from counterpoint.models.blind import FITTED, Differences

ROUNDS: Final = 20
FEWEST: Final = 0.1  # of a group's pairs: if fewer are left, the group cannot be balanced
_PIECE: Final = 20_000
_WORDS: Final = 2  # that are named as giving a group away
_TELLING: Final = 0.1  # of the pairs at least
GOAL: Final = 0.55  # of models that are fitted to the pairs


@dataclass(frozen=True, slots=True)
class RefineSettings:
    """How to refine. Blind models are named as in scores.py."""

    blind: tuple[str, ...]  # balanced against
    watch: tuple[str, ...] = ()  # only reported
    select: tuple[str, ...] = ()  # used for `top`; else the blind ones
    top: float | None = None
    balance: bool = True
    bins: int = BINS
    zero_bins: int = ZERO_BINS
    scale: Scale = "max"  # of gaps that are not of probabilities
    by: tuple[str, ...] = BY
    seed: int = 0
    unique: bool = False  # every text once, and none that is a caption of the file
    sentences: bool = False  # no question, and no text without a final mark
    goal: float = GOAL  # the most that a fresh fit of a fitted model may find, in every group


@dataclass(frozen=True, slots=True)
class Round:
    """What models that were fitted anew say of the negatives that were left by then."""

    pairs: int
    accuracy: dict[str, float | None]  # by model, over all groups
    above: tuple[str, ...]  # the groups in which one of them is above the goal


def accuracy(gaps: np.ndarray) -> float | None:
    """The share of gaps above 0, with half of those that are 0."""
    return float((np.sign(gaps) / 2 + 0.5).mean()) if len(gaps) else None


class FittedScores:
    """A model of `FITTED` on the negatives of a file.

    Pairs are put in the order of their keys, so that the order of the file has no say, not even in
    the last bit.
    """

    def __init__(self, name: str, id: str, path: Path, negatives: Negatives) -> None:
        self.name = name
        self.differences = Differences.of(FITTED[id.partition(":")[2]].grams, _texts(path))
        if len(self.differences.clusters) != len(negatives):
            raise changed(path)
        self.order = np.argsort(negatives.keys, kind="stable")

    def gaps(self, kept: np.ndarray, seed: int) -> np.ndarray:
        """Of all negatives, fitted to those that are kept; NaN for the others."""
        mine = self.order[kept[self.order]]
        found = np.full(len(kept), np.nan)
        found[mine] = self.differences.only(mine).gaps(seed)
        return found


def _texts(path: Path) -> Iterator[tuple[list[str], list[str], list[str]]]:
    """Captions, texts, and images; a caption without an image stands for itself."""
    image = pl.coalesce("image", "source")
    for frame in pieces(path):
        for part in frame.iter_slices(_PIECE):
            caption, text, images = part.select(*SIDES, image.alias("of")).get_columns()
            yield caption.to_list(), text.to_list(), images.to_list()


def refine_in_rounds(
    models: Sequence[FittedScores],
    static: np.ndarray,
    candidates: np.ndarray,
    negatives: Negatives,
    settings: RefineSettings,
    progress: Progress,
) -> tuple[np.ndarray, list[Round], dict[str, np.ndarray]]:
    """Which candidates are kept, what each round found, and the gaps of the last, fresh fit.

    `static` has the scaled gaps (n, D) of the models that are not fitted. Where every fitted model
    is at its goal, the first round balances these alone, and later rounds leave the group as it is.
    """
    kept, rounds = candidates.copy(), []
    advance = progress.start("rounds", ROUNDS + 1)
    for number in range(ROUNDS + 1):
        gaps = {one.name: one.gaps(kept, settings.seed + number) for one in models}
        groups = negatives.groups[kept]
        above = _above(gaps, kept, groups, len(negatives.names), settings.goal)
        rounds.append(_round(gaps, kept, above, negatives.names))
        advance(1)
        if number == ROUNDS:
            break
        columns = [
            np.where(above[groups], scaled(found[kept], groups, settings.scale), 0)
            for found in gaps.values()
        ]
        stay = balanced(
            np.column_stack([static[kept], *columns]),
            negatives.keys[kept],
            groups,
            bins=settings.bins,
            zero_bins=settings.zero_bins,
        )
        if number:
            stay |= ~above[groups]
        if stay.all():
            break
        kept[kept] = stay
    advance(ROUNDS + 1 - len(rounds))
    return kept, rounds, gaps


def _above(
    gaps: Mapping[str, np.ndarray], kept: np.ndarray, groups: np.ndarray, count: int, goal: float
) -> np.ndarray:
    """Which groups have a model above the goal."""
    found = np.zeros(count, dtype=bool)
    sizes = np.bincount(groups, minlength=count)
    for mine in gaps.values():
        right = np.bincount(groups, np.sign(mine[kept]) / 2 + 0.5, minlength=count)
        found |= right > goal * sizes + 1e-9
    return found


def _round(
    gaps: Mapping[str, np.ndarray], kept: np.ndarray, above: np.ndarray, names: Sequence[str]
) -> Round:
    return Round(
        int(kept.sum()),
        {name: accuracy(found[kept]) for name, found in gaps.items()},
        tuple(name for name, high in zip(names, above, strict=True) if high),
    )


def stuck_groups(
    path: Path, negatives: Negatives, kept: np.ndarray, rounds: Sequence[Round]
) -> dict[str, str]:
    """The groups that refinement cannot balance, each with a sentence that says why."""
    before = np.bincount(negatives.groups, minlength=len(negatives.names))
    after = np.bincount(negatives.groups[kept], minlength=len(negatives.names))
    above = rounds[-1].above if rounds else ()
    found = {}
    for number, name in enumerate(negatives.names):
        few = after[number] < FEWEST * before[number]
        if few or name in above:
            left = f"{after[number]:,} of {before[number]:,} pairs are left"
            what = left if few else f"{left}, and a fresh fit is still above the goal"
            words = _telling(path, negatives.groups == number)
            found[name] = f"{what}; refinement cannot balance this group{words}."
    return found


def _telling(path: Path, mine: np.ndarray) -> str:
    """The words that the fewest captions and the most texts have, or the other way round."""
    counts, start = [Counter[str](), Counter[str]()], 0
    for frame in pieces(path):
        chosen = frame.filter(pl.Series(mine[start : start + len(frame)]))
        start += len(frame)
        for count, side in zip(counts, SIDES, strict=True):
            for text in chosen[side]:
                count.update(set(re.findall(r"[\w']+", text.lower())))
    total = int(mine.sum())
    words = sorted(
        counts[0].keys() | counts[1].keys(), key=lambda w: (-abs(counts[1][w] - counts[0][w]), w)
    )
    named = [
        f"{shown(word)} is in {counts[1][word] / total:.0%} of its texts and "
        f"{counts[0][word] / total:.0%} of its captions"
        for word in words[:_WORDS]
        if abs(counts[1][word] - counts[0][word]) >= _TELLING * total
    ]
    return f": {', '.join(named)}" if named else ""
