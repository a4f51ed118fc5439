"""Per-case values of every metric: the table that averages, intervals and tests are made from.

A row is a case or, for a gallery, one of its queries. Rows of one cluster are not independent.
Which metrics a case defines depends on its own truth only; ranks among a few captions are shown
beside ranks among many, and where all cases have a few captions they are not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from counterpoint.cases import Block, Cases, gallery_rows, is_gallery, query_clusters
from counterpoint.metrics import METRICS, Metric, QueryMetric, Tie, both_standings

if TYPE_CHECKING:
    from counterpoint.runs.folders import Part


@dataclass(frozen=True, slots=True)
class Columns:
    """Values, ties and chance levels: (rows, metrics), NaN where a row does not define a metric."""

    metrics: list[Metric | QueryMetric]
    values: np.ndarray
    ties: np.ndarray
    chance: np.ndarray
    cases: np.ndarray  # the case of each row, ascending
    clusters: np.ndarray  # the number of each row's cluster

    @property
    def medians(self) -> list[bool]:
        return [metric.median for metric in self.metrics]

    def members(self, rows: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Groups of cases as groups of rows."""
        return {label: self.rows_of(cases) for label, cases in rows.items()}

    def rows_of(self, cases: np.ndarray) -> np.ndarray:
        """The rows of some cases, given in ascending order."""
        chosen = np.zeros(int(self.cases.max(initial=-1)) + 1, dtype=bool)
        chosen[cases] = True
        return np.flatnonzero(chosen[self.cases])


class _Values(NamedTuple):
    """A block's part of a table: the rows of its cases, in order."""

    cases: np.ndarray
    clusters: pl.Series
    values: np.ndarray
    ties: np.ndarray
    chance: np.ndarray


def columns_of(part: Part, tie: Tie) -> Columns:
    """Every metric that the cases' shapes define."""
    blocks = list(part.cases.blocks())
    metrics = [m for m in METRICS.values() if any(_asks(m, block).any() for block in blocks)]
    found = [
        piece
        for block in blocks
        for piece in _block_values(part.cases, block, part.scores, metrics, tie)
    ]
    clusters = (
        pl.concat([piece.clusters for piece in found]).rank("dense").cast(pl.Int64()).to_numpy() - 1
    )
    if len(found) == 1:  # in order, and not copied: a table of one shape may be large
        [only] = found
        return Columns(metrics, only.values, only.ties, only.chance, only.cases, clusters)
    cases = np.concatenate([piece.cases for piece in found])
    order = np.argsort(cases, kind="stable")
    return Columns(
        metrics,
        np.concatenate([piece.values for piece in found])[order],
        np.concatenate([piece.ties for piece in found])[order],
        np.concatenate([piece.chance for piece in found])[order],
        cases[order],
        clusters[order],
    )


def _defines(metric: Metric | QueryMetric, block: Block) -> np.ndarray:
    """Which cases of a block define a metric. Texts can be classified as images are."""
    if isinstance(metric, QueryMetric):
        return metric.applies(block.truth) & (metric.texts or not block.texts)
    return metric.applies(block.truth) & (metric.texts == block.texts)


def _asks(metric: Metric | QueryMetric, block: Block) -> np.ndarray:
    """Which cases of a block make a table show the metric."""
    asks = True if metric.asked_by is None else metric.asked_by(block.truth)
    return _defines(metric, block) & asks


def without_positives(cases: Cases) -> np.ndarray:
    """Marks cases without positives that share a metric with cases that have positives.

    Original accuracy over all cases next to augmented accuracy over some of them would mix two
    populations in one row.
    """
    marks = np.zeros(len(cases), dtype=bool)
    rows = np.flatnonzero(~gallery_rows(cases))
    chosen = cases.keep(np.isin(np.arange(len(cases)), rows))
    defined = np.zeros((len(chosen), len(METRICS)), dtype=bool)
    for block in chosen.blocks() if len(chosen) else ():
        found = [_defines(metric, block) for metric in METRICS.values()]
        defined[block.rows] = np.stack(found, axis=1)
    reworded = defined[:, list(METRICS).index("augmented_accuracy")]
    shared = defined[reworded].any(axis=0)
    marks[rows] = ~reworded & defined[:, shared].any(axis=1)
    return marks


def _block_values(
    cases: Cases, block: Block, scores: np.ndarray, metrics: list[Metric | QueryMetric], tie: Tie
) -> Iterator[_Values]:
    if is_gallery(*block.truth.shape[1:]):
        for number, row in enumerate(block.rows.tolist()):
            alone = Block(block.rows[number : number + 1], block.truth[number : number + 1])
            yield _gallery_values(
                cases, row, alone, cases.scores_of(alone, scores)[0], metrics, tie
            )
        return
    mine = cases.scores_of(block, scores)
    empty = _empty(len(block.rows), len(metrics))
    found = _Values(block.rows, cases.frame["cluster"].gather(block.rows), *empty)
    for j, metric in enumerate(metrics):
        mask = _defines(metric, block)
        if not isinstance(metric, Metric) or not mask.any():
            continue
        scores_there, truth_there = mine[mask], block.truth[mask]
        found.values[mask, j] = metric.values(scores_there, truth_there, tie)
        found.ties[mask, j] = metric.ties(scores_there, truth_there)
        if metric.chance is not None:
            found.chance[mask, j] = metric.chance(truth_there)
    yield found


def _gallery_values(
    cases: Cases,
    row: int,
    block: Block,
    scores: np.ndarray,
    metrics: list[Metric | QueryMetric],
    tie: Tie,
) -> _Values:
    """One row per image, then one row per caption."""
    images, captions = scores.shape
    clusters = pl.Series("cluster", query_clusters(cases, row), dtype=pl.String())
    empty = _empty(images + captions, len(metrics))
    found = _Values(np.full(images + captions, row), clusters, *empty)
    sides = both_standings(scores, block.truth[0])
    places = {"images": slice(0, images), "captions": slice(images, None)}
    for j, metric in enumerate(metrics):
        if not isinstance(metric, QueryMetric) or not _defines(metric, block).any():
            continue
        rows, side = places[metric.side], sides[metric.side]
        found.values[rows, j] = metric.values(side, tie)
        found.ties[rows, j] = metric.ties(side)
        found.chance[rows, j] = metric.chance(side)
    return found


def _empty(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, chance = np.full((rows, columns), np.nan), np.full((rows, columns), np.nan)
    return values, np.zeros((rows, columns)), chance
