"""Comparison of two runs: paired differences, case by case, with verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from counterpoint._util.errors import CounterpointError, RunError
from counterpoint.cases import Cases, offsets
from counterpoint.metrics import (
    RESAMPLES,
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
from counterpoint.runs.packed import difference, only_columns
from counterpoint.runs.results import fitting, measure, undefined

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


def compare(
    a: Run,
    b: Run,
    protocol: Protocol | None = None,
    *,
    undirected: Collection[str] = (),
    resamples: int = RESAMPLES,
    main: bool = False,
    margin: float | None = None,
) -> list[Difference]:
    """Paired differences on the benchmarks and cases that both runs have.

    Metrics have to have a better side, besides those that `undirected` names. `main` as in `rows`.
    `margin`, in points of per cent, is a difference of shares that does not matter: two runs are
    tied where the whole interval lies within it, and nowhere else.
    """
    if margin is not None and not 0 < margin < 100:
        raise CounterpointError(
            "E-OPTION-INVALID",
            f"a margin of {margin:g} points says nothing; give a number between 0 and 100.",
        )
    shared = [name for name in a.parts if name in b.parts]
    if not shared:
        raise RunError(
            "E-RUNS-DISJOINT",
            f"{a.model} and {b.model} have no benchmark in common: "
            f"{', '.join(a.parts)} against {', '.join(b.parts)}.",
        )
    return [
        difference
        for name in shared
        for difference in _differences(
            a.parts[name], b.parts[name], protocol, undirected, resamples, main, margin
        )
    ]


def _differences(
    a: Part,
    b: Part,
    protocol: Protocol | None,
    undirected: Collection[str],
    resamples: int,
    main: bool,
    margin: float | None,
) -> Iterator[Difference]:
    chosen, other = fitting(a, protocol), fitting(b, protocol)
    if chosen != other:
        raise RunError(
            "E-PROTOCOLS-DIFFER",
            f"{a.benchmark}: the runs used the protocols {chosen.name!r} and {other.name!r}; "
            "choose one with --protocol.",
        )
    in_a, in_b = _shared_rows(a, b)
    one, two = measure(_chosen(a, in_a), chosen), measure(_chosen(b, in_b), chosen)
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
    left, right = (
        only_columns(m.columns.values, mine) for m, mine in zip((one, two), places, strict=True)
    )
    pools = [
        [m.columns.pools[place] for place in mine]
        for m, mine in zip((one, two), places, strict=True)
    ]
    both = [gap(a, b) for a, b in zip(*pools, strict=True)]
    gaps = differences(
        difference(left, right),
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
    if len(a.cases) and _alike(a.cases, b.cases, keys):
        return np.arange(len(a.cases)), np.arange(len(b.cases))
    left, right = (p.cases.frame.select(keys).with_row_index("row") for p in (a, b))
    both = left.join(right, on="id", suffix="_b", maintain_order="left")
    if both.is_empty():
        raise RunError("E-RUNS-DISJOINT", f"{a.benchmark}: the two runs scored no case in common.")
    unlike = [pl.col(key) != pl.col(f"{key}_b") for key in keys[1:]]
    differing = both.filter(pl.any_horizontal(unlike))
    if not differing.is_empty():
        raise RunError(
            "E-CASES-DIFFER",
            f"{a.benchmark}: {differing.height} cases differ between the runs, the first is "
            f"{differing['id'][0]!r}; evaluate both on the same data.",
        )
    return both["row"].to_numpy(), both["row_b"].to_numpy()


def _alike(a: Cases, b: Cases, keys: Sequence[str]) -> bool:
    """Whether two tables have the same cases in the same order; they are compared in pieces."""
    pieces = zip(a.frames(*keys), b.frames(*keys), strict=False)
    return len(a) == len(b) and all(one.equals(two) for one, two in pieces)
