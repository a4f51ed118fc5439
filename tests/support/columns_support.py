"""A table of every kind of case, and its values one by one, in plain loops."""

from __future__ import annotations

import numpy as np
from engine_support import build
from hypothesis import strategies as st
from support import (
    case,
    classes,
    gallery,
    owned,
    part,
    random_scores,
    recalls,
    reference,
    run_of,
    square,
)

from counterpoint.cases import Cases
from counterpoint.metrics import METRICS, PROTOCOLS, Metric, Protocol, QueryMetric
from counterpoint.runs import Difference, Part, Row, Run

SEEDS = st.integers(0, 2**32 - 1)
STRICT = PROTOCOLS["strict"]
QUERIES = {name: m for name, m in METRICS.items() if isinstance(m, QueryMetric)}
LISTED = {name for name, m in QUERIES.items() if m.listed}  # of galleries that name their queries
RETRIEVAL = [name for name in QUERIES if "recall" in name]
CLASSES = ["accuracy@1", "accuracy@5"]


def zoo() -> Cases:
    """Every kind of case, in an order in which shapes alternate."""
    return build(
        case(0, group="captions/a"),
        gallery(owned(6, 2, 3), "photos", groups=("galleries/retrieval",)),
        square(1, group="pairs"),
        gallery(classes([2, 0, 2, 1, 1, 2, 0], 6), "classes", groups=("galleries/classes",)),
        case(2, group="captions/b"),
        gallery(owned(6, 2, 3), "more", groups=("galleries/retrieval",)),
        square(3, group="pairs"),
        gallery(classes([0, 1, 1], 2), "few", groups=("galleries/classes",)),
    )


def block(p: Part, row: int) -> tuple[np.ndarray, np.ndarray]:
    truth = np.array(p.cases.case(row).truth)
    start = p.cases.pair_offsets[row]
    return p.scores[start : start + truth.size].reshape(truth.shape), truth


def is_class(truth: np.ndarray) -> bool:
    return all(sum(line) == 1 for line in truth.tolist()) and max(truth.sum(axis=0)) > 1


def values_by_hand(p: Part, metric: str, tie: str = "wrong") -> dict[int, list[float]]:
    """The values of each case that defines a metric: one, or one for each query."""
    found = {}
    for row in range(len(p.cases)):
        scores, truth = block(p, row)
        k, m = truth.shape
        if k >= 5 or k > m:
            query = QUERIES.get(metric)
            enough = metric != "accuracy@5" or m >= 5
            if query is not None and is_class(truth) == (metric in CLASSES) and enough:
                found[row] = recalls(scores, truth, query.side, query.k, tie)
        elif metric not in QUERIES and _applies(metric, p, row, truth):
            found[row] = [reference(metric, scores.tolist(), truth.tolist(), tie)]
    return found


def _applies(name: str, p: Part, row: int, truth: np.ndarray) -> bool:
    metric = METRICS[name]
    asks = isinstance(metric, Metric) and metric.questions
    return asks == (p.cases.case(row).questions > 0) and bool(metric.applies(truth[None]))


def by_name(found: list[Row]) -> dict[tuple[str, str], Row]:
    return {(row.group, row.metric): row for row in found}


def differences(found: list[Difference]) -> dict[tuple[str, str], Difference]:
    return {(row.group, row.metric): row for row in found}


def zoo_run(seed: int, values: int = 50, protocol: Protocol | str = "strict") -> Run:
    cases = zoo()
    return run_of(part(cases, random_scores(cases, seed, values), protocol))
