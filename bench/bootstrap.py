"""How long the intervals of a large benchmark take, against a bootstrap in plain loops.

    PYTHONPATH=src python bench/bootstrap.py

10,000 resamples of 30,000 cases in 10,000 clusters (three cases to an image), four metrics. The
naive bootstrap draws clusters and adds up their cases one by one; it is timed on a few resamples
and its time for all of them is extrapolated, since it is the same work each time.

Metrics of all pairs are computed again in each resample, of many resamples at once. For small
groups, the time is compared with that of one resample after the other.
"""

from __future__ import annotations

import argparse
import random
import time

import numpy as np

from counterpoint.metrics import METRICS, PairPool, PooledMetric
from counterpoint.metrics.statistics import (
    POOLED,
    RESAMPLES,
    Estimate,
    draw_weights,
    estimate,
    members_of,
)

GROUPS = ("add/att", "add/obj", "replace/att", "replace/obj", "replace/rel", "swap/att", "swap/obj")


def naive_means(
    values: list[list[float]], by_cluster: list[list[int]], resamples: int
) -> list[list[float]]:
    """The mean of every column in every resample, case by case."""
    rng, clusters, columns = random.Random(0), len(by_cluster), range(len(values[0]))
    means = []
    for _ in range(resamples):
        total, count = [0.0 for _ in columns], 0
        for _ in range(clusters):
            for case in by_cluster[rng.randrange(clusters)]:
                count += 1
                for j in columns:
                    total[j] += values[case][j]
        means.append([t / count for t in total])
    return means


def check(found: Estimate, values: np.ndarray, clusters: np.ndarray) -> None:
    """Refuse to time an interval that a direct computation with the same draws does not give."""
    size = int(clusters.max()) + 1
    sums, counts = (np.bincount(clusters, weights) for weights in (values, np.ones(len(values))))
    draws = np.concatenate(list(draw_weights(size, 200, 0)))
    means = (draws @ sums) / (draws @ counts)
    expected = np.quantile(means, [0.025, 0.975])
    if not np.allclose([found.low, found.high], expected, atol=1e-5):
        raise SystemExit(
            f"{found.low, found.high} is not the interval {expected}: time means nothing"
        )


def pooled_times(metric: PooledMetric, pairs: int, rng: np.random.Generator) -> tuple[float, float]:
    """Seconds for the resamples of one metric: at once, and one after the other."""
    clusters = np.arange(pairs) // 3
    scores, grades = rng.normal(size=(2, pairs))
    pool = PairPool(clusters, scores, np.arange(pairs) % 3 == 0, grades, np.ones(pairs))
    value = metric.function(pool)
    draws = np.concatenate([*draw_weights(int(clusters[-1]) + 1, POOLED, 0)])
    start = time.perf_counter()
    together = value(draws)
    middle = time.perf_counter()
    one_by_one = np.concatenate([value(one) for one in draws[:, None]])
    end = time.perf_counter()
    if not np.allclose(together, one_by_one, equal_nan=True):
        raise SystemExit(f"{metric.name} depends on how many draws there are: time means nothing")
    return middle - start, end - middle


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds for the intervals of a large benchmark")
    parser.add_argument("--cases", type=int, default=30_000)
    parser.add_argument("--clusters", type=int, default=10_000)
    parser.add_argument("--columns", type=int, default=4, help="metrics")
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    parser.add_argument("--naive", type=int, default=10, help="resamples of the naive bootstrap")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    rng = np.random.default_rng(args.seed)
    clusters = np.arange(args.cases) % args.clusters
    values = (rng.random((args.cases, args.columns)) < 0.7).astype(float)
    everything = members_of([()] * args.cases)
    check(estimate(values, clusters, everything, resamples=200)["all"][0], values[:, 0], clusters)

    start = time.perf_counter()
    estimate(values, clusters, everything, resamples=args.resamples)
    fast = time.perf_counter() - start

    in_groups = members_of([(GROUPS[i % len(GROUPS)],) for i in range(args.cases)])
    start = time.perf_counter()
    estimate(values, clusters, in_groups, resamples=args.resamples)
    grouped = time.perf_counter() - start

    by_cluster: list[list[int]] = [[] for _ in range(args.clusters)]
    for case, cluster in enumerate(clusters.tolist()):
        by_cluster[cluster].append(case)
    start = time.perf_counter()
    naive_means(values.tolist(), by_cluster, args.naive)
    slow = (time.perf_counter() - start) * args.resamples / args.naive

    print(
        f"{args.resamples:,} resamples of {args.cases:,} cases in {args.clusters:,} clusters, "
        f"{args.columns} metrics"
    )
    print(f"{'all cases':28}{fast:10.2f} s")
    print(f"{f'with {len(in_groups) - 1} group labels':28}{grouped:10.2f} s")
    print(f"{'naive loops, extrapolated':28}{slow:10.1f} s  (from {args.naive} resamples)")
    print(f"{'ratio to naive':28}{slow / fast:10.1f}")
    print(f"{POOLED:,} resamples of metrics of all pairs, against one after the other")
    for pairs in (60, 600, 60_000):
        for metric in METRICS.values():
            if isinstance(metric, PooledMetric):
                together, one_by_one = pooled_times(metric, pairs, rng)
                name = f"{metric.name}, {pairs:,} pairs"
                print(f"{name:36}{together:8.3f} s{one_by_one / together:8.1f} times as fast")


if __name__ == "__main__":
    main()
