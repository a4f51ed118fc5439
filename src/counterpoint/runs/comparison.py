"""Comparison of two runs: paired differences, case by case, with verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace

import numpy as np

from counterpoint._util.errors import RunError
from counterpoint.metrics import (
    AnyMetric,
    PooledMetric,
    Protocol,
    Verdict,
    differences,
    holm_over_groups,
    mcnemar,
    ties_matter,
    verdict,
)
from counterpoint.runs.columns import gap
from counterpoint.runs.part import Part, paired_rows
from counterpoint.runs.results import fitting, measure, undefined


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of run A minus that of run B over the cases that both scored."""

    benchmark: str
    group: str
    metric: str
    a: float
    b: float
    difference: float
    ci_low: float  # of this number alone, as p is
    ci_high: float
    p: float  # randomisation test over source images
    p_holm: float  # the same, corrected over the groups
    p_mcnemar: float | None  # exact; treats cases as independent, is not corrected
    n: int
    verdict: Verdict
    ties_a: int  # values of A that depend on a tie
    ties_b: int
    margin: float | None = None  # "tied" means: the interval lies within it

    @property
    def reach(self) -> float:
        """The distance from the difference to the further end of its interval."""
        return max(self.ci_high - self.difference, self.difference - self.ci_low)


def part_differences(
    a: Part,
    b: Part,
    protocol: Protocol | None,
    *,
    undirected: Collection[str],
    resamples: int,
    main: bool,
    margin: float | None,
) -> Iterator[Difference]:
    """Paired differences of two runs on one benchmark; see `compare`."""
    chosen, other = fitting(a, protocol), fitting(b, protocol)
    if chosen != other:
        raise RunError(
            "E-PROTOCOLS-DIFFER",
            f"{a.benchmark}: the runs used the protocols {chosen.name!r} and {other.name!r}; "
            "choose one with --protocol.",
        )
    one, two = (measure(part, chosen) for part in _of_both(a, b))
    metrics = [
        metric
        for metric in one.columns.metrics
        # A difference of medians is not a mean over cases, so it cannot be tested here.
        if metric in two.columns.metrics
        and (metric.better or metric.name in undirected)
        and not metric.median
        and not (main and isinstance(metric, PooledMetric) and not metric.main)
    ]
    places = [[m.columns.metrics.index(metric) for metric in metrics] for m in (one, two)]
    left, right = (m.columns.values[:, mine] for m, mine in zip((one, two), places, strict=True))
    pools = [
        [m.columns.pools[place] for place in mine]
        for m, mine in zip((one, two), places, strict=True)
    ]
    both = [gap(a, b) for a, b in zip(*pools, strict=True)]
    gaps = differences(
        left - right,
        one.columns.clusters,
        one.members,
        one.averaging,
        shares=[metric.unit == "share" for metric in metrics],
        pools=both,
        resamples=resamples,
    )
    means = one.means(left, pools[0]), one.means(right, pools[1])
    for j, metric in enumerate(metrics):
        mine = {label: several[j] for label, several in gaps.items() if several[j].n}
        corrected = holm_over_groups({label: found.p for label, found in mine.items()})
        for label, found in mine.items():
            if undefined(metric, found.value):
                continue
            index = one.members[label]
            yield _with_verdict(
                Difference(
                    a.benchmark,
                    label,
                    metric.name,
                    float(means[0][label][j]),
                    float(means[1][label][j]),
                    found.value,
                    found.low,
                    found.high,
                    found.p,
                    corrected[label],
                    _exact(metric, left[index, j], right[index, j]),
                    found.n,
                    "no difference shown",
                    int(one.columns.ties[index, places[0][j]].sum()),
                    int(two.columns.ties[index, places[1][j]].sum()),
                    margin if metric.unit == "share" else None,
                ),
                metric,
            )


def _with_verdict(d: Difference, metric: AnyMetric) -> Difference:
    """Without a better side, "A is better" means higher."""
    on_ties = any(ties_matter(ties, d.n, d.reach) for ties in (d.ties_a, d.ties_b))
    bound = 0.0 if d.margin is None else d.margin / 100
    within = -bound <= d.ci_low <= d.ci_high <= bound and bound > 0
    better = metric.better or "higher"
    said = verdict(d.difference, d.p_holm, better, within=within, on_ties=on_ties)
    return replace(d, verdict=said)


def _exact(metric: AnyMetric, left: np.ndarray, right: np.ndarray) -> float | None:
    """McNemar's test where every case is right or wrong in both runs."""
    if isinstance(metric, PooledMetric):
        return None
    both = np.isfinite(left) & np.isfinite(right)
    left, right = left[both], right[both]
    if metric.unit != "share" or not np.isin([left, right], [0.0, 1.0]).all():
        return None
    return mcnemar(left, right)


def _of_both(a: Part, b: Part) -> tuple[Part, Part]:
    """The cases that both runs scored, in one order; their content must be the same."""
    found = paired_rows(a.cases, b.cases)
    shared = found.rows >= 0
    if not shared.any():
        raise RunError("E-RUNS-DISJOINT", f"{a.benchmark}: the two runs scored no case in common.")
    differing = a.cases.ids.filter(shared & ~found.alike)
    if len(differing):
        raise RunError(
            "E-CASES-DIFFER",
            f"{a.benchmark}: {len(differing)} cases differ between the runs, the first is "
            f"{differing[0]!r}; evaluate both on the same data.",
        )
    return a.keep(shared), b.take(found.rows[shared])
