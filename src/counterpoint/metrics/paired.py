"""Tests of paired differences: random halves of the clusters, with their signs flipped.

A difference of two runs over the same cases is a sum of what its clusters add. If neither run is
better, each cluster might as well have had the opposite sign. p is how often, of all patterns of
signs, the sum is as far from 0 as it was found, on either side (a randomisation test). Where few
clusters differ, all patterns are counted: of k clusters that differ, p is at least 2 ** (1 - k), so
one case proves nothing; and where every cluster is one case, right or wrong, it is McNemar's exact
test. Otherwise patterns are drawn, each with its opposite, and p is never 0.

The interval is the test turned round. Suppose a difference and take it from every case: flipping
some clusters then leaves a sum beyond the one found exactly if the mean of those clusters is on the
other side of the supposed difference. So the interval is that of the means of random halves
("typical values", Hartigan 1969), and 0 lies outside it exactly if p < 0.05.

A number of all pairs is not a sum over clusters. Its halves are computed, and read in the same way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np

from counterpoint.metrics.pooled import ratio
from counterpoint.metrics.statistics import (
    ALL,
    LEVEL,
    MICRO,
    POOLED,
    RESAMPLES,
    Averaging,
    ClusterSums,
    Pools,
    clopper_pearson,
    cluster_sums,
    nested,
    of_clusters,
    pool_samples,
)

Verdict = Literal["A is better", "B is better", "no difference shown", "tied", "depends on ties"]

_TAIL: Final = (1 - LEVEL) / 2
_CELLS: Final = 20_000_000  # of halves, or of their sums, that are held at a time
_ZERO: Final = 1e-6  # of what all clusters add: sums nearer to 0 than that are 0


class DifferenceEstimate(NamedTuple):
    """An estimate of a difference, and p against 0: two-sided."""

    value: float
    low: float
    high: float
    n: int
    p: float


def draw_halves(clusters: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """Random halves of the clusters, 1 for those inside: chunks of (halves, clusters).

    The rest of each half is a half, too: there are half as many as `resamples`.
    """
    bits = np.random.default_rng(seed).bit_generator
    words, count = -(-clusters // 64), max(1, resamples // 2)
    rows = max(1, _CELLS // max(clusters, 1))
    for start in range(0, count, rows):
        some = min(rows, count - start)
        raw = bits.random_raw(some * words).astype("<u8").view(np.uint8).reshape(some, -1)
        yield np.unpackbits(raw, axis=1)[:, :clusters].astype(np.float32)


class _Column(NamedTuple):
    """One column of one label, and the same of random halves of its clusters."""

    value: float
    n: int
    clusters: int  # that have a value
    halves: np.ndarray  # NaN where a half has no value
    added: np.ndarray | None  # what each cluster adds; None for a number of all pairs
    flipped: np.ndarray  # with the signs of the halves turned: what chance would have given


def differences(
    values: np.ndarray,
    clusters: np.ndarray,
    members: Mapping[str, np.ndarray],
    averaging: Averaging = MICRO,
    *,
    shares: Sequence[bool] | None = None,
    pools: Pools | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[DifferenceEstimate]]:
    """Means of columns of differences for each label, tested against 0; see `estimate`.

    `shares` marks differences of shares. Where no half is on one side of 0 and p is not below
    0.05, their interval reaches as far to that side as what no cluster shows may be common.
    """
    share = [False] * values.shape[1] if shares is None else shares
    labels = list(members)
    found = _halves(values, clusters, members, labels, averaging, pools, resamples, seed)
    return {
        label: [_tested(c, s, resamples) for c, s in zip(columns, share, strict=True)]
        for label, columns in found
    }


def _tested(column: _Column, share: bool, resamples: int) -> DifferenceEstimate:
    value, halves = column.value, np.sort(column.halves[np.isfinite(column.halves)])
    nan = float("nan")
    if column.n == 0 or halves.size == 0 or math.isnan(value):
        return DifferenceEstimate(nan, nan, nan, column.n, nan)
    p, draws = _p(column, resamples), len(column.halves)
    # So many halves may be below 0 with p < 0.05: the next is the end of the interval.
    below = math.ceil(_TAIL * (draws + 2)) - 2
    place = max(0, below - (draws - len(halves)))
    low, high = float(halves[place]), float(halves[-1 - place])
    if p >= 1 - LEVEL:
        rare = clopper_pearson(0, column.clusters)[1] if share else 0.0
        low = min(low, 0.0 if halves[0] < 0 else -rare)
        high = max(high, 0.0 if halves[-1] > 0 else rare)
    elif value > 0:
        low = max(low, float(halves[halves > 0].min(initial=value)))
    else:
        high = min(high, float(halves[halves < 0].max(initial=value)))
    return DifferenceEstimate(value, min(low, value), max(high, value), column.n, p)


def _p(column: _Column, resamples: int) -> float:
    """Over all patterns of signs, if they are no more than the draws; else over the draws."""
    if column.added is not None:
        edge = _ZERO * float(np.abs(column.added).sum())
        added = column.added[np.abs(column.added) > edge]
        if 2 ** len(added) <= resamples:
            sums = np.zeros(1)
            for one in added:
                sums = np.concatenate([sums, sums + one])
            return float(min(1.0, 2 * min((sums <= edge).mean(), (sums >= -edge).mean())))
    none = np.isnan(column.halves)  # on both sides of 0
    sides = ((column.halves <= 0) | none).sum(), ((column.halves >= 0) | none).sum()
    return float(min(1.0, 2 * (min(sides) + 1) / (len(column.halves) + 2)))


def against_best(
    values: np.ndarray,
    clusters: np.ndarray,
    members: Mapping[str, np.ndarray],
    contests: Mapping[str, Sequence[Sequence[int]]],
    averaging: Averaging = MICRO,
    *,
    pools: Pools | None = None,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[list[float]]]:
    """Which models cannot be told from the best: for each label and contest, a p for each column.

    A contest is the columns of its models, the best first. All models see the same flips, and the
    best is known only from the data, so a difference from it has to be larger than chance makes the
    largest one among all pairs of the models that are left (a step-down test of the maximum, each
    difference in units of its own spread). If all models are equal, any of them has p < 0.05 in 5 %
    of tables, however many models there are.
    """
    found = _halves(values, clusters, members, list(contests), averaging, pools, resamples, seed)
    return {
        label: [
            _contest([columns[place] for place in contest], resamples)
            for contest in contests[label]
        ]
        for label, columns in found
    }


def _contest(models: list[_Column], resamples: int) -> list[float]:
    if len(models) == 2:
        return [1.0, _p(_minus(*models), resamples)]
    value = np.array([model.value for model in models])
    drawn = np.column_stack([model.flipped for model in models])
    patterns = np.concatenate([[value, -value], drawn])  # the one that was found is one of them

    def units(gaps: np.ndarray) -> np.ndarray:
        """Of their spread. Where a half has no value, anything may be."""
        known = np.isfinite(gaps)
        spread = np.sqrt(ratio(np.where(known, gaps**2, 0).sum(axis=0), known.sum(axis=0)))
        sizes = np.divide(np.abs(gaps), spread, out=np.zeros_like(gaps), where=spread > 0)
        return np.where(known, sizes, np.inf)

    apart = units(patterns[:, [0]] - patterns)[0]
    largest, p = np.zeros(len(patterns)), np.ones(len(models))
    nearest_first = [0, *(model for model in np.argsort(apart, kind="stable") if model)]
    for place, model in enumerate(nearest_first[1:], start=1):
        gaps = patterns[:, [model]] - patterns[:, nearest_first[:place]]
        largest = np.maximum(largest, units(gaps).max(axis=1))
        p[model] = (largest >= apart[model] * (1 - _ZERO)).mean()
    farthest_first = nearest_first[:0:-1]
    p[farthest_first] = np.maximum.accumulate(p[farthest_first])
    return [float(one) for one in p]


def _minus(a: _Column, b: _Column) -> _Column:
    added = None if a.added is None or b.added is None else a.added - b.added
    return a._replace(value=a.value - b.value, halves=a.halves - b.halves, added=added)


def _halves(
    values: np.ndarray,
    clusters: np.ndarray,
    members: Mapping[str, np.ndarray],
    labels: Sequence[str],
    averaging: Averaging,
    pools: Pools | None,
    resamples: int,
    seed: int,
) -> Iterator[tuple[str, list[_Column]]]:
    count = int(clusters.max(initial=-1)) + 1
    sums = {
        label: cluster_sums(values, clusters, rows, (), count) for label, rows in members.items()
    }
    points = {label: ratio(s.total, s.counted) for label, s in sums.items()}
    pooled = {j: pool for j, pool in enumerate(pools or ()) if pool is not None}

    def with_rests() -> Iterator[np.ndarray]:
        for halves in draw_halves(count, min(resamples, POOLED), seed):
            yield halves
            yield 1 - halves

    wanted = {label: members[label] for label in labels}
    of_pools = pool_samples(pooled, clusters, wanted, with_rests) if pooled else {}
    some = max(1, _CELLS // max(1, resamples * values.shape[1]))
    for chosen in (labels[start : start + some] for start in range(0, len(labels), some)):
        added = {label: _added(label, sums, points, members, averaging) for label in chosen}
        drawn: dict[str, list[np.ndarray]] = {label: [] for label in chosen}
        for halves in draw_halves(count, resamples, seed):
            for label, (mine, both) in added.items():
                drawn[label].append(of_clusters(halves, mine) @ both)
        for label, (_, both) in added.items():
            point = nested(points, members, averaging, label)
            sampled = np.concatenate(drawn.pop(label))
            columns = [
                _of_pool(*of_pools[label, column])
                if column in pooled
                else _linear(float(point[column]), both[:, pair], sampled[:, pair])
                for column, pair in enumerate(np.arange(both.shape[1]).reshape(2, -1).T)
            ]
            counted = zip(columns, sums[label].counted, sums[label].having, strict=True)
            yield label, [c._replace(n=int(n), clusters=having) for c, n, having in counted]


def _linear(value: float, clusters: np.ndarray, halves: np.ndarray) -> _Column:
    """From what each cluster adds and weighs, and the halves of the clusters together."""
    total = clusters.sum(axis=0, dtype=float)
    sides = np.concatenate([halves, total - halves])
    edges = _ZERO * np.abs(clusters).sum(axis=0, dtype=float)
    adds, weighs = np.where(np.abs(sides) > edges, sides, 0).T
    flipped = (total[0] - 2 * adds) / total[1] if total[1] else np.full_like(adds, np.nan)
    return _Column(value, 0, 0, ratio(adds, weighs), clusters[:, 0].astype(float), flipped)


def _of_pool(value: float, halves: np.ndarray) -> _Column:
    return _Column(value, 0, 0, halves, None, halves - value)


def _added(
    label: str,
    sums: Mapping[str, ClusterSums],
    points: Mapping[str, np.ndarray],
    members: Mapping[str, np.ndarray],
    averaging: Averaging,
) -> tuple[np.ndarray, np.ndarray]:
    """The clusters of a label, and what each adds to its average and weighs in it.

    An average over groups is a sum over clusters as well: a group's share of the average is what
    the average is if the group has 1 and all others 0.
    """
    basis = list(dict.fromkeys([label, *averaging.needed(members)]))
    alone = np.eye(len(basis))[:, :, None]
    means = {
        one: np.where(np.isfinite(points[one]), alone[place], np.nan)
        for place, one in enumerate(basis)
    }
    shares = np.nan_to_num(nested(means, members, averaging, label))
    counted = np.stack([sums[one].counted for one in basis])
    units = np.nan_to_num(ratio(shares, counted))
    units /= np.where(units.any(axis=0), units.max(axis=0), 1)  # whole numbers stay whole
    parts = [place for place in range(len(basis)) if units[place].any()] or [0]
    found = sums[basis[parts[0]]].clusters
    for place in parts[1:]:
        found = np.union1d(found, sums[basis[place]].clusters)
    both = np.zeros((len(found), 2 * units.shape[1]), dtype=np.float32)
    for place in parts:
        one = sums[basis[place]]
        both[np.searchsorted(found, one.clusters)] += one.both * np.tile(units[place], 2)
    return found, both


# --- p-values and verdicts ---------------------------------------------------------------------


def mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    """Exact two-sided McNemar test on the cases where only one of two runs is right."""
    only_a, only_b = int((a > b).sum()), int((b > a).sum())
    return _sign_test(min(only_a, only_b), only_a + only_b)


def _sign_test(fewer: int, n: int) -> float:
    """How likely `n` fair coins show one side at most `fewer` times, whichever side it is."""
    places = np.arange(fewer)
    logs = np.concatenate([[0.0], np.cumsum(np.log((n - places) / (places + 1)))])  # log C(n, k)
    return float(min(1.0, 2 * np.exp(np.logaddexp.reduce(logs) - n * np.log(2))))


def holm(p: Sequence[float]) -> list[float]:
    """p-values with Holm's correction for several tests."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, p[index] * (len(p) - place)))
        adjusted[index] = running
    return [float(value) for value in adjusted]


def holm_over_groups(p: Mapping[str, float]) -> dict[str, float]:
    """p-values by label. The whole benchmark is one question; its groups are many."""
    groups = [label for label in p if label != ALL]
    return {**p, **dict(zip(groups, holm([p[label] for label in groups]), strict=True))}


def verdict(
    difference: float,
    p: float,
    better: Literal["higher", "lower"],
    *,
    within: bool = False,
    on_ties: bool = False,
) -> Verdict:
    """The result in words: `difference` is A minus B, `p` its corrected p-value.

    `within` says that the whole interval lies within the margin that was asked for, `on_ties` that
    one of the two values depends on how ties are counted.
    """
    if on_ties:
        return "depends on ties"
    if within:
        return "tied"
    if not p < 1 - LEVEL:
        return "no difference shown"
    return "A is better" if (difference > 0) == (better == "higher") else "B is better"
