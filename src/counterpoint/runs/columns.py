"""Per-case values of every metric: the table that averages, intervals and tests are made from.

A row is a case or, for a gallery, one of its queries. Rows of one cluster are not independent.
Which metrics a case defines depends on its own truth only; ranks among a few captions are shown
beside ranks among many, and where all cases have a few captions they are not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint.cases import (
    Block,
    Cases,
    asked,
    gallery_rows,
    is_gallery,
    offsets,
    query_clusters,
)
from counterpoint.metrics import (
    METRICS,
    AnyMetric,
    Metric,
    PairPool,
    Pool,
    PooledMetric,
    QueryMetric,
    Tie,
    Weighted,
    both_standings,
)
from counterpoint.runs.part import Part


@dataclass(frozen=True, slots=True)
class Columns:
    """Values, ties and chance levels: (rows, metrics), NaN where a row does not define a metric.

    Of a pooled metric, the values only mark the rows that have part in it: its number is that of
    its pool.
    """

    metrics: list[AnyMetric]
    values: np.ndarray
    ties: np.ndarray
    chance: np.ndarray
    cases: np.ndarray  # the case of each row, ascending
    clusters: np.ndarray  # the number of each row's cluster
    pairs: AllPairs | None = None  # where a metric is pooled

    @property
    def pools(self) -> list[Pool | None]:
        """The pool of each metric that is a number of all pairs."""
        return [
            ColumnPool(metric, self.pairs, self.cases, self.values[:, column])
            if isinstance(metric, PooledMetric) and self.pairs is not None
            else None
            for column, metric in enumerate(self.metrics)
        ]

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
        return np.flatnonzero(chosen[self.cases]).astype(np.int32)


class AllPairs(NamedTuple):
    """Every pair of a table, flat: score, truth, grade, and its share of its query's weight."""

    starts: np.ndarray  # where the pairs of each case begin, with their number last
    scores: np.ndarray
    truth: np.ndarray
    grades: np.ndarray
    shares: np.ndarray


@dataclass(frozen=True, slots=True)
class ColumnPool:
    """The pairs of a pooled metric."""

    metric: PooledMetric
    pairs: AllPairs
    cases: np.ndarray  # of each row
    marks: np.ndarray  # NaN for rows that have no part in it

    def prepare(self, rows: np.ndarray, clusters: np.ndarray) -> Weighted:
        part = np.isfinite(self.marks[rows])
        if part.all() and len(rows) == len(self.pairs.starts) - 1:  # all cases: nothing is copied
            sizes, taken = np.diff(self.pairs.starts), self.pairs[1:]
            return self.metric.function(PairPool(np.repeat(clusters, sizes), *taken))
        cases = self.cases[rows[part]]
        first, sizes = self.pairs.starts[cases], np.diff(self.pairs.starts)[cases]
        places = np.repeat(first - offsets(sizes)[:-1], sizes) + np.arange(sizes.sum())
        found = (
            column[places] if any(column.strides) else np.broadcast_to(column[:1], len(places))
            for column in self.pairs[1:]
        )
        return self.metric.function(PairPool(np.repeat(clusters[part], sizes), *found))


@dataclass(frozen=True, slots=True)
class PoolGap:
    """The number of one pool minus that of another, of the same rows."""

    a: Pool
    b: Pool

    def prepare(self, rows: np.ndarray, clusters: np.ndarray) -> Weighted:
        one, two = self.a.prepare(rows, clusters), self.b.prepare(rows, clusters)
        return lambda weights: one(weights) - two(weights)


def gap(a: Pool | None, b: Pool | None) -> Pool | None:
    return None if a is None or b is None else PoolGap(a, b)


class _Values(NamedTuple):
    """A block's part of a table: the rows of its cases, in order."""

    cases: np.ndarray
    clusters: pl.Series
    values: np.ndarray
    ties: np.ndarray
    chance: np.ndarray


def columns_of(part: Part, tie: Tie) -> Columns:
    """Every metric that the cases' shapes define."""
    cases = part.cases
    metrics = _metrics_of(cases)
    pooled = any(isinstance(metric, PooledMetric) for metric in metrics)
    pairs = _all_pairs(part) if pooled else None
    found = [
        values
        for block in cases.blocks()
        for values in _block_values(cases, block, part.scores, metrics, tie)
    ]
    if len(found) == 1:  # in order, and not copied: a table of one shape may be large
        [whole] = found
    else:
        rows = np.concatenate([one.cases for one in found])
        order = np.argsort(rows, kind="stable")
        clusters = pl.concat([one.clusters for one in found]).gather(order)
        tables = (np.concatenate([one[n] for one in found])[order] for n in range(2, 5))
        whole = _Values(rows[order], clusters, *tables)
    values, ties, chance = whole.values, whole.ties, whole.chance
    return Columns(metrics, values, ties, chance, whole.cases, _numbers(whole.clusters), pairs)


def _metrics_of(cases: Cases) -> list[AnyMetric]:
    """The metrics that any case asks for."""
    found: set[str] = set()
    graded = cases.graded()
    for block in cases.blocks():
        others = (metric for name, metric in METRICS.items() if name not in found)
        found |= {metric.name for metric in others if _asks(metric, block, graded).any()}
    return [metric for name, metric in METRICS.items() if name in found]


def _numbers(clusters: pl.Series) -> np.ndarray:
    """Clusters numbered in the order of their names."""
    return (clusters.rank("dense").cast(pl.Int64()).to_numpy() - 1).astype(np.int32)


def _all_pairs(part: Part) -> AllPairs:
    starts, truth = part.cases.pair_offsets, part.cases.truth_flat()
    grades = part.cases.grades_flat()
    if grades is None:
        blank = np.broadcast_to(np.nan, len(truth))
        return AllPairs(starts, part.scores, truth, blank, blank)
    shares = np.repeat(_query_shares(part.cases), np.diff(starts))
    return AllPairs(starts, part.scores, truth, grades, shares)


def _query_shares(cases: Cases) -> np.ndarray:
    """Of each case, its share of its query's graded pairs: each query counts once.

    The query of a graded pair is its caption. Captions of one wording are one, unless the case
    says whose it is.
    """
    caption = pl.col("captions").list.first()
    named = pl.col("query") if "query" in cases.columns else pl.lit(None, pl.String())
    keys = (named, pl.when(named.is_null()).then(caption), pl.col("grades").is_null())
    found = cases.frame.select(key.alias(str(number)) for number, key in enumerate(keys))
    return found.select(1 / pl.len().over(found.columns)).to_series().to_numpy()


def _defines(metric: AnyMetric, block: Block, graded: np.ndarray) -> np.ndarray:
    """Which cases of a block define a metric."""
    if isinstance(metric, PooledMetric) and metric.graded:
        return metric.defined(block) & graded[block.rows]
    return metric.defined(block)


def _asks(metric: AnyMetric, block: Block, graded: np.ndarray) -> np.ndarray:
    """Which cases of a block make a table show the metric."""
    asks = True if metric.asked_by is None else metric.asked_by(block.truth)
    return _defines(metric, block, graded) & asks


def without_positives(cases: Cases) -> np.ndarray:
    """Marks cases without positives that share a metric with cases that have positives.

    Original accuracy over all cases next to augmented accuracy over some of them would mix two
    populations in one row.
    """
    metrics = [metric for metric in METRICS.values() if not isinstance(metric, PooledMetric)]
    found = _defined_codes(cases, metrics)
    codes = np.unique(found)
    defined = np.unpackbits(codes[:, None].view(np.uint8), axis=1)[:, : len(metrics)].astype(bool)
    reworded = defined[:, [metric.name for metric in metrics].index("augmented_accuracy")]
    shared = defined[reworded].any(axis=0)
    return np.isin(found, codes[~reworded & defined[:, shared].any(axis=1)])


def _defined_codes(cases: Cases, metrics: Sequence[AnyMetric]) -> np.ndarray:
    """A bit for each metric that a case defines, 0 for galleries."""
    rows = np.flatnonzero(~gallery_rows(cases))
    bits = np.zeros((len(cases), 8), dtype=np.uint8)
    chosen = cases.keep(~gallery_rows(cases))
    none = np.zeros(len(rows), dtype=bool)
    for block in chosen.blocks() if len(chosen) else ():
        defined = np.stack([_defines(metric, block, none) for metric in metrics], axis=1)
        packed = np.packbits(defined, axis=1)
        bits[rows[block.rows], : packed.shape[1]] = packed
    return bits.view(np.uint64)[:, 0]


def _block_values(
    cases: Cases,
    block: Block,
    scores: np.ndarray,
    metrics: list[AnyMetric],
    tie: Tie,
) -> Iterator[_Values]:
    if is_gallery(*block.truth.shape[1:]):
        for number, row in enumerate(block.rows.tolist()):
            one = slice(number, number + 1)
            alone = block._replace(rows=block.rows[one], truth=block.truth[one])
            yield _gallery_values(
                cases, row, alone, cases.scores_of(alone, scores)[0], metrics, tie
            )
        return
    mine, graded = cases.scores_of(block, scores), cases.graded()
    empty = _empty(len(block.rows), len(metrics))
    found = _Values(block.rows, cases.frame["cluster"].gather(block.rows), *empty)
    for j, metric in enumerate(metrics):
        mask = _defines(metric, block, graded)
        if isinstance(metric, PooledMetric):
            found.values[mask, j] = 0
            found.chance[mask, j] = np.nan if metric.expected is None else metric.expected
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
    metrics: list[AnyMetric],
    tie: Tie,
) -> _Values:
    """One row per image, then one row per caption."""
    images, captions = scores.shape
    clusters = pl.Series("cluster", query_clusters(cases, row), dtype=pl.String())
    empty = _empty(images + captions, len(metrics))
    found = _Values(np.full(images + captions, row), clusters, *empty)
    sides = both_standings(scores, block.truth[0], asked(cases, row) if block.listed else None)
    places = {"images": slice(0, images), "captions": slice(images, None)}
    for j, metric in enumerate(metrics):
        if not isinstance(metric, QueryMetric) or not _defines(metric, block, _NONE).any():
            continue
        rows, side = places[metric.side], sides[metric.side]
        found.values[rows, j] = metric.values(side, tie)
        found.ties[rows, j] = metric.ties(side)
        found.chance[rows, j] = metric.chance(side)
    return found


_NONE: Final = np.zeros(0, dtype=bool)  # a gallery has no grades


def _empty(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    values, chance = np.full((rows, columns), np.nan), np.full((rows, columns), np.nan)
    return values, np.zeros((rows, columns)), chance
