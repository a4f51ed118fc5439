"""Intervals and tests that respect clusters: cases of one image are not independent.

The cluster bootstrap draws whole clusters with replacement, as many as there are, and recomputes
every number. Differences of two runs are resampled in pairs: both runs see the same draw.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal, NamedTuple

import numpy as np
from scipy import stats

from counterpoint.protocols import DEEPEST

RESAMPLES: Final = 10_000
LEVEL: Final = 0.95
ALL: Final = "all"
_CELLS: Final = 20_000_000  # resample x cluster weights held at a time

Verdict = Literal["A is better", "B is better", "tied"]


class Estimate(NamedTuple):
    """The mean of one column over the cases of one label."""

    value: float
    low: float
    high: float
    p: float  # two-sided, against a mean of 0
    n: int


class Averaging(NamedTuple):
    """A nested average over group labels (see `protocols.AVERAGES`)."""

    levels: tuple[int, ...]
    exclude: frozenset[str] = frozenset()
    min_count: int = 0


def draw_weights(clusters: int, resamples: int, seed: int) -> Iterator[np.ndarray]:
    """How often each cluster is drawn in each resample: chunks of (resamples, clusters)."""
    rng = np.random.default_rng(seed)
    rows = max(1, _CELLS // max(clusters, 1))
    for start in range(0, resamples, rows):
        count = min(rows, resamples - start)
        drawn = rng.integers(0, clusters, (count, clusters), dtype=np.int32)
        drawn += np.arange(count, dtype=np.int32)[:, None] * clusters
        weights = np.bincount(drawn.reshape(-1), minlength=count * clusters)
        yield weights.reshape(count, clusters).astype(np.float32)


def members_of(groups: Sequence[Sequence[str]]) -> dict[str, np.ndarray]:
    """The rows of each label and of each of its prefixes, `all` first: {"replace": ..., ...}."""
    rows: dict[str, list[int]] = {}
    for row, labels in enumerate(groups):
        for label in {prefix for label in labels for prefix in _prefixes(label)}:
            rows.setdefault(label, []).append(row)
    found = {label: np.array(rows[label], dtype=np.int64) for label in sorted(rows)}
    return {ALL: np.arange(len(groups)), **found}


def _prefixes(label: str) -> Iterator[str]:
    parts = label.split("/")
    for depth in range(1, len(parts) + 1):
        yield "/".join(parts[:depth])


def estimate(
    values: np.ndarray,
    clusters: np.ndarray,
    members: Mapping[str, np.ndarray],
    averaging: Averaging = Averaging(()),
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> dict[str, list[Estimate]]:
    """Means of the columns of `values` (cases, columns) for each label, with 95 % intervals.

    `clusters` numbers each case's cluster from 0. A NaN is left out of its column. The number of
    `all` follows `averaging`; every other label is a plain mean over its cases.
    """
    sums = {label: _cluster_sums(values, clusters, rows) for label, rows in members.items()}
    points = {label: _ratio(s.total.sum(0), s.count.sum(0)) for label, s in sums.items()}
    samples = _resampled(sums, int(clusters.max()) + 1, resamples, seed)
    points[ALL] = _nested(points, members, averaging)
    samples[ALL] = _nested(samples, members, averaging)
    return {
        label: [
            _summary(points[label][j], samples[label][:, j], values[rows, j], sums[label].rows.size)
            for j in range(values.shape[1])
        ]
        for label, rows in members.items()
    }


def averages(
    values: np.ndarray, members: Mapping[str, np.ndarray], kinds: Mapping[str, Averaging]
) -> dict[str, np.ndarray]:
    """The averages in use for one benchmark, side by side (no intervals)."""
    points = {label: nan_mean(values[rows]) for label, rows in members.items()}
    return {name: _nested(points, members, averaging) for name, averaging in kinds.items()}


class _Sums(NamedTuple):
    rows: np.ndarray  # the clusters that hold a case of the label
    total: np.ndarray  # (clusters, columns)
    count: np.ndarray


def _cluster_sums(values: np.ndarray, clusters: np.ndarray, rows: np.ndarray) -> _Sums:
    found, codes = np.unique(clusters[rows], return_inverse=True)
    chosen = values[rows]
    counted = np.isfinite(chosen)
    total, count = (np.zeros((len(found), values.shape[1])) for _ in range(2))
    np.add.at(total, codes, np.where(counted, chosen, 0))
    np.add.at(count, codes, counted)
    return _Sums(found, total, count)


def _resampled(
    sums: Mapping[str, _Sums], clusters: int, resamples: int, seed: int
) -> dict[str, np.ndarray]:
    """The labels' means in every resample: (resamples, columns) each."""
    parts: dict[str, list[np.ndarray]] = {label: [] for label in sums}
    for weights in draw_weights(clusters, resamples, seed):
        for label, s in sums.items():
            drawn = weights if len(s.rows) == clusters else weights[:, s.rows]
            both = drawn @ np.hstack([s.total, s.count]).astype(np.float32)
            parts[label].append(_ratio(*np.hsplit(both, 2)))
    return {label: np.concatenate(found) for label, found in parts.items()}


def _ratio(total: np.ndarray, count: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.where(count > 0, total / count, np.nan)


def _nested(
    means: Mapping[str, np.ndarray], members: Mapping[str, np.ndarray], averaging: Averaging
) -> np.ndarray:
    """Follow an average's levels down the labels; means are points or resamples alike."""

    def below(prefix: str, levels: tuple[int, ...]) -> np.ndarray:
        labels = _labels_at(members, prefix, levels[0], averaging) if levels else []
        if not labels:
            return means[prefix or ALL]
        return nan_mean([below(label, levels[1:]) for label in labels])

    return below("", averaging.levels)


def _labels_at(
    members: Mapping[str, np.ndarray], prefix: str, depth: int, averaging: Averaging
) -> list[str]:
    labels = [label for label in members if label != ALL and label.startswith(prefix)]
    if depth == DEEPEST:
        parents = {label.rpartition("/")[0] for label in labels}
        labels = [label for label in labels if label not in parents]
    else:
        labels = [label for label in labels if label.count("/") == depth - 1]
    return [
        label
        for label in labels
        if label != prefix
        and label not in averaging.exclude
        and len(members[label]) >= averaging.min_count
    ]


def nan_mean(parts: list[np.ndarray] | np.ndarray) -> np.ndarray:
    """The mean over the first axis without NaN; NaN, and no warning, where there is nothing else."""
    stacked = np.asarray(parts)
    return _ratio(np.nansum(stacked, axis=0), np.isfinite(stacked).sum(axis=0))


def _summary(value: float, samples: np.ndarray, cases: np.ndarray, clusters: int) -> Estimate:
    n = int(np.isfinite(cases).sum())
    samples = samples[np.isfinite(samples)]
    if n == 0 or samples.size == 0:
        return Estimate(float("nan"), float("nan"), float("nan"), float("nan"), n)
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(samples, [tail, 1 - tail])
    if np.ptp(samples) == 0 and value in (0.0, 1.0):
        low, high = _all_alike(value, clusters)
    below, above = (samples <= 0).sum(), (samples >= 0).sum()
    p = min(1.0, 2 * (min(below, above) + 1) / (samples.size + 1))
    return Estimate(float(value), float(min(low, value)), float(max(high, value)), float(p), n)


def _all_alike(value: float, clusters: int) -> tuple[float, float]:
    """Clopper-Pearson on clusters: a bootstrap of cases that are all alike has no width."""
    bound = float(stats.beta.ppf((1 - LEVEL) / 2, clusters, 1))
    return (bound, 1.0) if value == 1.0 else (0.0, 1 - bound)


def mcnemar(a: np.ndarray, b: np.ndarray) -> float:
    """Exact two-sided McNemar test on the cases where only one of two runs is right."""
    only_a, only_b = int((a > b).sum()), int((b > a).sum())
    if only_a + only_b == 0:
        return 1.0
    return float(stats.binomtest(only_a, only_a + only_b, 0.5).pvalue)


def holm(p: Sequence[float]) -> list[float]:
    """Holm's correction: p-values that may be read as if there were one test."""
    order = np.argsort(p)
    adjusted = np.empty(len(p))
    running = 0.0
    for place, index in enumerate(order):
        running = max(running, min(1.0, p[index] * (len(p) - place)))
        adjusted[index] = running
    return [float(value) for value in adjusted]


def verdict(difference: float, p: float, better: Literal["higher", "lower"]) -> Verdict:
    """In plain words: `difference` is A minus B, `p` its corrected p-value."""
    if not p < 1 - LEVEL:
        return "tied"
    return "A is better" if (difference > 0) == (better == "higher") else "B is better"
