"""Intervals that respect clusters: cases of one image are not independent.

The cluster bootstrap draws whole clusters with replacement, as many as there are, and recomputes
every number. Differences of runs are tested in `paired`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Final, NamedTuple, Protocol

import numpy as np
import polars as pl

from counterpoint.metrics.pooled import Weighted, ratio
from counterpoint.metrics.protocols import DEEPEST

RESAMPLES: Final = 10_000
POOLED: Final = 1_000  # of them for a number of all pairs, which is computed again in each
LEVEL: Final = 0.95
ALL: Final = "all"
WITHOUT_POSITIVES: Final = (
    "without positives"  # cases that cannot stand in the rows of those with positives
)
WHOLE: Final = (ALL, WITHOUT_POSITIVES)  # what is shown without its groups
_LABELS: Final = 200  # whose resamples are held at a time
_CELLS: Final = 20_000_000  # resample x cluster weights held at a time
_DRAWN: Final = 1_000_000  # clusters drawn at a time: these take eight times the memory
_ROWS: Final = 250_000  # whose values are in memory at a time
_FEW: Final = 20  # clusters, below which the interval of a share is at least the exact one
_NO_ROWS: Final = np.zeros(0, dtype=np.int32)


class Estimate(NamedTuple):
    """The mean of one column over the cases of one label."""

    value: float
    low: float
    high: float
    n: int


class Pool(Protocol):
    """A number of all pairs of some rows, where it is not a mean over the rows."""

    def prepare(self, rows: np.ndarray, clusters: np.ndarray) -> Weighted:
        """The number of some rows, whose clusters are numbered from 0, by the clusters' weights."""


Pools = Sequence[Pool | None]  # one per column; None where the column's mean is taken


def pool_value(pool: Pool, rows: np.ndarray, clusters: np.ndarray) -> float:
    """The number of some rows, by the clusters of all rows."""
    found, codes = _renumbered(clusters[rows], int(clusters.max(initial=-1)) + 1)
    return float(pool.prepare(rows, codes)(np.ones((1, len(found))))[0])


class Averaging(NamedTuple):
    """A nested average over group labels (see `protocols.AVERAGES`).

    It does not count groups in `exclude`, with all groups below them, groups of fewer than
    `min_count` cases, and labels that are not in `labels`, if that is given.
    """

    levels: tuple[int, ...]
    exclude: frozenset[str] = frozenset()
    min_count: int = 0
    labels: frozenset[str] | None = None

    def needed(self, members: Mapping[str, np.ndarray]) -> list[str]:
        """The labels that the average over everything is made from."""
        if not self.levels:
            return []
        return [label for label in members if self.knows(label) and _counts(label, members, self)]

    def knows(self, label: str) -> bool:
        """Whether a label is one of the groups that averages are made from."""
        _, group = split_label(label)
        return bool(group) and (self.labels is None or group in self.labels)

    def below(self, label: str) -> tuple[int, ...]:
        """The levels left for the mean of one label: those deeper than the label itself."""
        _, group = split_label(label)
        if not group:
            return self.levels
        if not self.knows(label):
            return ()
        depth = len(prefixes(group))
        return tuple(level for level in self.levels if level == DEEPEST or level > depth)


MICRO: Final = Averaging(())


def draw_weights(clusters: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each cluster is drawn in each resample: chunks of (resamples, clusters)."""
    rng = np.random.default_rng(seed)
    rows, few = (max(1, cells // max(clusters, 1)) for cells in (_CELLS, _DRAWN))
    for start in range(0, resamples, rows):
        weights = np.empty((min(rows, resamples - start), clusters), dtype=np.float32)
        for part in (weights[i : i + few] for i in range(0, len(weights), few)):
            drawn = rng.integers(0, clusters, part.shape, dtype=np.int32)
            drawn += np.arange(len(part), dtype=np.int32)[:, None] * clusters
            part[:] = np.bincount(drawn.reshape(-1), minlength=part.size).reshape(part.shape)
        yield weights


def members_of(
    groups: Sequence[Sequence[str]] | pl.Series, exclude: frozenset[str] = frozenset()
) -> dict[str, np.ndarray]:
    """The rows of each label and of each of its prefixes: {"all": ..., "replace": ..., ...}.

    `all` comes first. A row in an excluded group is in that group, and in no other.
    """
    rows: dict[str, list[np.ndarray]] = {ALL: []}
    column = pl.Series("groups", groups, dtype=pl.List(pl.String()))
    alike = column.to_frame().with_row_index("row").group_by("groups").agg("row")
    for labels, some in zip(alike["groups"].to_list(), alike["row"], strict=True):
        mine = {prefix for label in labels for prefix in prefixes(label)}
        if mine & exclude:
            mine = {label for label in mine if not exclude.isdisjoint(prefixes(label))}
        else:
            mine.add(ALL)
        for label in mine:
            rows.setdefault(label, []).append(some.to_numpy().astype(np.int32))
    order = [ALL, *sorted(label for label in rows if label != ALL)]
    return {label: np.sort(np.concatenate([_NO_ROWS, *rows[label]])) for label in order}


def prefixes(label: str) -> list[str]:
    """`a/b/c` is in the groups `a`, `a/b` and `a/b/c`."""
    parts = label.split("/")
    return ["/".join(parts[:depth]) for depth in range(1, len(parts) + 1)]


def split_label(label: str) -> tuple[str, str]:
    """A label as the set of cases it belongs to, `all` or `without positives`, and its group.

    `replace/obj` is (`all`, `replace/obj`); `without positives/replace` is the group `replace` of
    the cases without positives.
    """
    if label in WHOLE:
        return label, ""
    group = label.removeprefix(f"{WITHOUT_POSITIVES}/")
    return (ALL if group == label else WITHOUT_POSITIVES), group


def set_apart(members: Mapping[str, np.ndarray], rest: np.ndarray) -> dict[str, np.ndarray]:
    """The labels without the rows marked in `rest`; those rows get labels of their own.

    Nothing changes if no row is marked. A label without rows is dropped.
    """
    if not rest.any():
        return dict(members)
    kept = {label: rows[~rest[rows]] for label, rows in members.items()}
    apart = {
        WITHOUT_POSITIVES if label == ALL else f"{WITHOUT_POSITIVES}/{label}": rows[rest[rows]]
        for label, rows in members.items()
    }
    return {label: rows for label, rows in (kept | apart).items() if len(rows) or label == ALL}


def estimate(
    values: np.ndarray,
    clusters: np.ndarray,
    members: Mapping[str, np.ndarray],
    averaging: Averaging = MICRO,
    *,
    shares: Sequence[bool] | None = None,
    medians: Sequence[bool] | None = None,
    pools: Pools | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[Estimate]]:
    """Means of the columns of `values` (cases, columns) for each label, with 95 % intervals.

    `clusters` is the number of each case's cluster, from 0. NaN is not counted. The value of `all`,
    and of labels that hold whole groups, follows `averaging`; other labels are plain means over
    their cases. `shares` marks the columns that are shares of cases: their intervals have a width
    even if all cases are equal. `medians` marks those whose median is taken instead of the mean.
    `pools` has the columns that are numbers of all pairs: their value is that of the label's own
    pairs, whatever the average, and their interval comes from the first resamples.
    """
    share = [False] * values.shape[1] if shares is None else shares
    half = np.flatnonzero([False] * values.shape[1] if medians is None else medians).tolist()
    pooled = {j: pool for j, pool in enumerate(pools or ()) if pool is not None}
    count = int(clusters.max(initial=-1)) + 1
    sums = {
        label: cluster_sums(values, clusters, rows, half, count) for label, rows in members.items()
    }
    points = {label: ratio(s.total, s.counted) for label, s in sums.items()}
    for label, rows in members.items() if half else ():
        points[label][half] = [_median(values[rows, column]) for column in half]
    draw = _Resampling(count, resamples, seed)
    of_pools = pool_samples(
        pooled, clusters, members, lambda: draw_weights(count, min(resamples, POOLED), seed)
    )
    whole = (label for label in WHOLE if label in members)
    needed = dict.fromkeys([*whole, *averaging.needed(members)])
    others = [label for label in members if label not in needed]

    def summary(label: str, samples: Mapping[str, np.ndarray]) -> list[Estimate]:
        point = nested(points, members, averaging, label)
        sample = nested(samples, members, averaging, label)
        mine = sums[label]
        drawn = {column: sample[:, column] for column in range(len(point))}
        for column in pooled:
            point[column], drawn[column] = of_pools[label, column]
        alike = [n if is_share else 0 for n, is_share in zip(mine.having, share, strict=True)]
        return [
            _summary(point[j], drawn[j], int(mine.counted[j]), alike[j]) for j in range(len(point))
        ]

    held: dict[str, np.ndarray] = {}
    found: dict[str, list[Estimate]] = {}
    for start in range(0, max(len(others), 1), _LABELS):
        some = [*others[start : start + _LABELS], *(needed if not start else ())]
        samples = held | _resampled({label: sums[label] for label in some}, draw)
        held = {label: samples[label] for label in needed}
        found |= {label: summary(label, samples) for label in some}
    return {label: found[label] for label in members}


def summaries(
    values: np.ndarray, rows: np.ndarray, medians: Sequence[bool] | None = None
) -> np.ndarray:
    """The mean of each column over some rows, or its median; NaN is not counted."""
    total, counted = (np.zeros(values.shape[1]) for _ in range(2))
    for start in range(0, len(rows), _ROWS):
        some = values[rows[start : start + _ROWS]]
        total, counted = total + np.nansum(some, axis=0), counted + np.isfinite(some).sum(axis=0)
    found = ratio(total, counted)
    for column in np.flatnonzero(medians or []).tolist():
        found[column] = _median(values[rows, column])
    return found


def _median(values: np.ndarray) -> float:
    counted = values[np.isfinite(values)]
    return float(np.median(counted)) if len(counted) else np.nan


def averages(
    values: np.ndarray,
    members: Mapping[str, np.ndarray],
    kinds: Mapping[str, Averaging],
    medians: Sequence[bool] | None = None,
) -> dict[str, np.ndarray]:
    """The averages in use for one benchmark, side by side (no intervals)."""
    points = {label: summaries(values, rows, medians) for label, rows in members.items()}
    return {name: nested(points, members, kind) for name, kind in kinds.items()}


class ClusterSums(NamedTuple):
    clusters: np.ndarray  # those that hold a case of the label
    both: np.ndarray  # (clusters, 2 x columns): the sums of values, then how many they are
    total: np.ndarray  # of all clusters, for each column
    counted: np.ndarray
    having: list[int]  # how many clusters have a value
    # Of each column whose median is taken: its distinct values, and how often a cluster has them.
    counts: dict[int, tuple[np.ndarray, np.ndarray]]


def cluster_sums(
    values: np.ndarray, clusters: np.ndarray, rows: np.ndarray, medians: Sequence[int], count: int
) -> ClusterSums:
    """`count` clusters in all. One column at a time, since they are many."""
    found, codes = _renumbered(clusters[rows], count)
    columns = values.shape[1]
    both = np.zeros((len(found), 2 * columns), dtype=np.float32)
    totals, counted, having, counts = np.zeros(columns), np.zeros(columns), [0] * columns, {}
    for column in range(columns):
        chosen = values[rows, column]
        there = np.isfinite(chosen)
        where = codes
        if not there.all():
            chosen, where = chosen[there], codes[there]
        total = np.bincount(where, chosen, len(found))
        number = np.bincount(where, minlength=len(found))
        both[:, column], both[:, columns + column] = total, number
        totals[column] = np.add.accumulate(total)[-1] if len(found) else 0.0
        counted[column], having[column] = number.sum(), int((number > 0).sum())
        if column in medians:
            distinct, which = np.unique(chosen, return_inverse=True)
            table = np.zeros((len(found), len(distinct)), dtype=np.float32)
            np.add.at(table, (where, which), 1)
            counts[column] = distinct, table
    return ClusterSums(found, both, totals, counted, having, counts)


def _renumbered(numbers: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The different ones of numbers below `count`, and each number's place among them."""
    there = np.zeros(count, dtype=bool)
    there[numbers] = True
    places = np.cumsum(there, dtype=np.int32) - 1
    return np.flatnonzero(there), places[numbers]


def pool_samples(
    pools: Mapping[int, Pool],
    clusters: np.ndarray,
    members: Mapping[str, np.ndarray],
    draws: Callable[[], Iterator[np.ndarray]],
) -> dict[tuple[str, int], tuple[float, np.ndarray]]:
    """Numbers of all pairs, by label and column: of the cases, and of every draw.

    Those of few cases are prepared together, those of many one by one.
    """
    found: dict[tuple[str, int], tuple[float, np.ndarray]] = {}
    waiting = [(label, column) for label in members for column in pools]
    while waiting:
        sizes = np.cumsum([len(members[label]) for label, _ in waiting])
        some = max(1, int(np.searchsorted(sizes, _ROWS, "right")))
        ready = {}
        for label, column in waiting[:some]:
            mine, codes = _renumbered(clusters[members[label]], int(clusters.max()) + 1)
            ready[label, column] = mine, pools[column].prepare(members[label], codes)
        samples: dict[tuple[str, int], list[np.ndarray]] = {key: [] for key in ready}
        for weights in draws():
            for key, (mine, pool) in ready.items():
                drawn = of_clusters(weights, mine)
                samples[key].append(pool(drawn))
        for key, (mine, pool) in ready.items():
            [point] = pool(np.ones((1, len(mine))))
            found[key] = float(point), np.concatenate(samples[key], dtype=np.float32)
        waiting = waiting[some:]
    return found


class _Resampling(NamedTuple):
    clusters: int
    resamples: int
    seed: int


def _resampled(sums: Mapping[str, ClusterSums], draw: _Resampling) -> dict[str, np.ndarray]:
    """The labels' means in every resample: (resamples, columns) each."""
    parts: dict[str, list[np.ndarray]] = {label: [] for label in sums}
    for weights in draw_weights(*draw):
        for label, s in sums.items():
            drawn = of_clusters(weights, s.clusters)
            means = ratio(*np.hsplit(drawn @ s.both, 2))
            for column, (distinct, table) in s.counts.items():
                means[:, column] = _medians(distinct, drawn @ table)
            parts[label].append(means)
    return {label: np.concatenate(found) for label, found in parts.items()}


def of_clusters(weights: np.ndarray, clusters: np.ndarray) -> np.ndarray:
    """The columns of some clusters. `take` is several times as fast as an index."""
    return weights if len(clusters) == weights.shape[1] else np.take(weights, clusters, axis=1)


def _medians(values: np.ndarray, times: np.ndarray) -> np.ndarray:
    """The median of `values` (ascending), each drawn as often as a line of `times` says."""
    if not len(values):
        return np.full(len(times), np.nan)
    below = times.cumsum(axis=1)
    half = below[:, -1:] / 2
    lower, upper = (below < half).sum(axis=1), (below <= half).sum(axis=1)
    found = (values[lower] + values[np.minimum(upper, len(values) - 1)]) / 2
    return np.where(half[:, 0] > 0, found, np.nan)


def nested(
    means: Mapping[str, np.ndarray],
    members: Mapping[str, np.ndarray],
    averaging: Averaging,
    label: str = ALL,
) -> np.ndarray:
    """Follow an average's levels down from a label; means are points or resamples alike."""

    def below(prefix: str, levels: tuple[int, ...]) -> np.ndarray:
        labels = _labels_at(members, prefix, levels[0], averaging) if levels else []
        if not labels:  # no deeper labels
            return means[prefix]
        counted = [label for label in labels if _counts(label, members, averaging)]
        if not counted:
            return np.full_like(means[prefix], np.nan)
        return nan_mean([below(label, levels[1:]) for label in counted])

    inside = _whole_groups(label, members, averaging)
    if inside:
        return nan_mean([means[group] for group in inside])
    return below(label, averaging.below(label))


def _whole_groups(label: str, members: Mapping[str, np.ndarray], averaging: Averaging) -> list[str]:
    """The groups that a further label of cases is made of, if it is made of whole ones.

    ARO's spatial relations are averaged over relations, as all relations are.
    """
    if averaging.levels != (DEEPEST,) or label in WHOLE or averaging.knows(label):
        return []
    groups = _labels_at(members, split_label(label)[0], DEEPEST, averaging)
    inside = [group for group in groups if np.isin(members[group], members[label]).all()]
    if sum(len(members[group]) for group in inside) < len(members[label]):
        return []
    return [group for group in inside if _counts(group, members, averaging)]


def _labels_at(
    members: Mapping[str, np.ndarray], prefix: str, depth: int, averaging: Averaging
) -> list[str]:
    """The labels below `prefix` at a depth, or those with nothing below them."""
    whole, above = split_label(prefix)
    labels = {}  # by their group
    for label in filter(averaging.knows, members):
        part, group = split_label(label)
        if part == whole and (not above or group.startswith(f"{above}/")):
            labels[group] = label
    if depth == DEEPEST:
        parents = {group.rpartition("/")[0] for group in labels}
        return [label for group, label in labels.items() if group not in parents]
    return [label for group, label in labels.items() if group.count("/") == depth - 1]


def _counts(label: str, members: Mapping[str, np.ndarray], averaging: Averaging) -> bool:
    excluded = not averaging.exclude.isdisjoint(prefixes(split_label(label)[1]))
    return not excluded and len(members[label]) >= averaging.min_count


def nan_mean(parts: list[np.ndarray] | np.ndarray) -> np.ndarray:
    """The mean over the first axis without NaN; NaN (and no warning) if there is nothing else."""
    stacked = np.asarray(parts)
    return ratio(np.nansum(stacked, axis=0), np.isfinite(stacked).sum(axis=0))


def _summary(value: float, samples: np.ndarray, n: int, share_of: int) -> Estimate:
    """Percentiles of the resamples; `share_of` is the number of clusters of a share, else 0."""
    samples = samples[np.isfinite(samples)]
    if n == 0 or samples.size == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), n)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    # A bootstrap of few clusters is too sure, and of equal cases its interval would have no width.
    if share_of and (share_of < _FEW or (np.ptp(samples) == 0 and value in (0.0, 1.0))):
        fewest, most = (math.floor(value * share_of + 1e-6), math.ceil(value * share_of - 1e-6))
        low = min(low, clopper_pearson(fewest, share_of)[0])
        high = max(high, clopper_pearson(most, share_of)[1])
    return Estimate(float(value), float(min(low, value)), float(max(high, value)), n)


@cache
def clopper_pearson(right: int, n: int) -> tuple[float, float]:
    """The exact interval of a share of which `right` of `n` were found."""

    def highest(right: int) -> float:
        """The share of which as few as `right` are found with a chance of half a tail."""
        low, high = 0.0, 1.0
        for _ in range(50):
            share = (low + high) / 2
            terms = (math.comb(n, k) * share**k * (1 - share) ** (n - k) for k in range(right + 1))
            low, high = (share, high) if sum(terms) > (1 - LEVEL) / 2 else (low, share)
        return high

    return (0.0 if right == 0 else 1 - highest(n - right)), (1.0 if right == n else highest(right))
