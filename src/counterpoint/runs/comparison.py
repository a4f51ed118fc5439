"""Comparison of two runs: paired differences, case by case, with verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from counterpoint._util.errors import RunError
from counterpoint.cases import Cases, offsets
from counterpoint.metrics import (
    ALL,
    RESAMPLES,
    Estimate,
    Metric,
    Protocol,
    QueryMetric,
    Verdict,
    estimate,
    holm,
    mcnemar,
    verdict,
)
from counterpoint.runs.columns import columns_of
from counterpoint.runs.results import averaging_of, fitting, means_of, members_in

if TYPE_CHECKING:
    from counterpoint.runs.folders import Part, Run


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of run A minus that of run B over the cases that both scored."""

    benchmark: str
    group: str
    metric: str
    a: float
    b: float
    difference: float
    ci_low: float
    ci_high: float
    p: float  # paired cluster bootstrap
    p_holm: float  # the same, corrected over the groups
    p_mcnemar: float | None  # exact; treats cases as independent
    n: int
    verdict: Verdict
    ties_a: int  # values of A that depend on a tie
    ties_b: int

    @property
    def reach(self) -> float:
        """The distance from the difference to the further end of its interval."""
        return max(self.ci_high - self.difference, self.difference - self.ci_low)


@dataclass(frozen=True, slots=True)
class _Paired:
    """The same metrics of the same cases in two runs: (rows, metrics)."""

    members: dict[str, np.ndarray]
    clusters: np.ndarray
    metrics: list[Metric | QueryMetric]
    left: np.ndarray
    right: np.ndarray
    left_ties: np.ndarray
    right_ties: np.ndarray


def compare(
    a: Run, b: Run, protocol: Protocol | None = None, *, resamples: int = RESAMPLES
) -> list[Difference]:
    """Paired differences on the benchmarks and cases that both runs have."""
    shared = [name for name in a.parts if name in b.parts]
    if not shared:
        raise RunError(
            "E-RUNS-DISJOINT",
            f"{a.model} and {b.model} have no benchmark in common: "
            f"{', '.join(a.parts)} against {', '.join(b.parts)}.",
            models=(a.model, b.model),
        )
    return [
        difference
        for name in shared
        for difference in _differences(a.parts[name], b.parts[name], protocol, resamples)
    ]


def _differences(
    a: Part, b: Part, protocol: Protocol | None, resamples: int
) -> Iterator[Difference]:
    chosen, other = fitting(a, protocol), fitting(b, protocol)
    if chosen != other:
        raise RunError(
            "E-PROTOCOLS-DIFFER",
            f"{a.benchmark}: the runs used the protocols {chosen.name!r} and {other.name!r}; "
            "choose one with --protocol.",
            benchmark=a.benchmark,
            protocols=(chosen.name, other.name),
        )
    paired = _pair(a, b, chosen)
    members, averaging = paired.members, averaging_of(a, chosen)
    gaps = estimate(
        paired.left - paired.right, paired.clusters, members, averaging, resamples=resamples
    )
    means = [means_of(values, members, averaging) for values in (paired.left, paired.right)]
    for j, metric in enumerate(paired.metrics):
        for label, p_holm in _corrected(gaps, j).items():
            gap, index = gaps[label][j], members[label]
            yield Difference(
                a.benchmark,
                label,
                metric.name,
                float(means[0][label][j]),
                float(means[1][label][j]),
                gap.value,
                gap.low,
                gap.high,
                gap.p,
                p_holm,
                _exact(metric, paired.left[index, j], paired.right[index, j]),
                gap.n,
                verdict(gap.value, p_holm, metric.better or "higher"),
                int(paired.left_ties[index, j].sum()),
                int(paired.right_ties[index, j].sum()),
            )


def _corrected(gaps: dict[str, list[Estimate]], column: int) -> dict[str, float]:
    """p-values by label. Those of groups are Holm-corrected; that of the whole benchmark is not."""
    p = {label: found[column].p for label, found in gaps.items() if found[column].n}
    groups = [label for label in p if label != ALL]
    return {**p, **dict(zip(groups, holm([p[label] for label in groups]), strict=True))}


def _exact(metric: Metric | QueryMetric, left: np.ndarray, right: np.ndarray) -> float | None:
    """McNemar's test where every case is right or wrong in both runs."""
    both = np.isfinite(left) & np.isfinite(right)
    left, right = left[both], right[both]
    if metric.unit != "share" or not np.isin([left, right], [0.0, 1.0]).all():
        return None
    return mcnemar(left, right)


def _pair(a: Part, b: Part, protocol: Protocol) -> _Paired:
    """The cases that both runs scored, and the metrics that both have and that can be paired.

    A metric without a direction cannot, and a difference of medians is no mean over cases.
    """
    in_a, in_b = _shared_rows(a, b)
    left, right = _chosen(a, in_a), _chosen(b, in_b)
    one, two = columns_of(left, protocol.tie), columns_of(right, protocol.tie)
    metrics = [m for m in one.metrics if m in two.metrics and m.better is not None and not m.median]
    in_one, in_two = ([c.metrics.index(metric) for metric in metrics] for c in (one, two))
    return _Paired(
        one.members(members_in(left.cases.frame, protocol)),
        one.clusters,
        metrics,
        one.values[:, in_one],
        two.values[:, in_two],
        one.ties[:, in_one],
        two.ties[:, in_two],
    )


def _chosen(part: Part, rows: np.ndarray) -> Part:
    """A part with some of its cases, in the order given."""
    if np.array_equal(rows, np.arange(len(part.cases))):
        return part  # a gallery's scores are not copied
    starts, counts = part.cases.pair_offsets, np.diff(part.cases.pair_offsets)
    places = np.repeat(starts[rows] - offsets(counts[rows])[:-1], counts[rows])
    scores = part.scores[places + np.arange(len(places))]
    return replace(part, cases=Cases(part.cases.frame[rows], part.cases.root), scores=scores)


def _shared_rows(a: Part, b: Part) -> tuple[np.ndarray, np.ndarray]:
    """Where the cases that both runs scored stand in each; their content must be the same."""
    keys = ["id", "images", "captions", "truth"]
    left, right = (p.cases.frame.select(keys).with_row_index("row") for p in (a, b))
    both = left.join(right, on="id", suffix="_b", maintain_order="left")
    if both.is_empty():
        raise RunError(
            "E-RUNS-DISJOINT",
            f"{a.benchmark}: the two runs scored no case in common.",
            benchmark=a.benchmark,
        )
    unlike = [pl.col(key) != pl.col(f"{key}_b") for key in keys[1:]]
    differing = both.filter(pl.any_horizontal(unlike))
    if not differing.is_empty():
        raise RunError(
            "E-CASES-DIFFER",
            f"{a.benchmark}: {differing.height} cases differ between the runs, the first is "
            f"{differing['id'][0]!r}; evaluate both on the same data.",
            benchmark=a.benchmark,
            id=differing["id"][0],
            cases=differing.height,
        )
    return both["row"].to_numpy(), both["row_b"].to_numpy()
