"""From a run's scores to rows of numbers, and from two runs' scores to verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from counterpoint.errors import RunError
from counterpoint.metric_registry import METRICS, Metric
from counterpoint.metrics import Tie
from counterpoint.protocols import AVERAGES, Protocol
from counterpoint.runs import Part, Run
from counterpoint.statistics import (
    ALL,
    RESAMPLES,
    Averaging,
    Verdict,
    averages,
    estimate,
    holm,
    mcnemar,
    members_of,
    nan_mean,
    prefixes,
    verdict,
)


@dataclass(frozen=True, slots=True)
class Row:
    """One number: `value` and its interval are fractions (ranks and scores are as they are)."""

    model: str
    benchmark: str
    group: str
    metric: str
    value: float
    ci_low: float
    ci_high: float
    n: int
    ties: int
    chance: float | None


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
    p_mcnemar: float | None  # exact; takes cases as independent
    n: int
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Columns:
    """Per-case values of every metric that the cases' shapes define: (cases, metrics)."""

    metrics: list[Metric]
    values: np.ndarray
    ties: np.ndarray
    chance: np.ndarray


def _columns(part: Part, tie: Tie) -> _Columns:
    starts = part.cases.pair_offsets
    blocks = list(part.cases.blocks())
    metrics = [m for m in METRICS.values() if any(m.applies(b.truth) for b in blocks)]
    shape = (len(part.cases), len(metrics))
    values, chance = np.full(shape, np.nan), np.full(shape, np.nan)
    ties = np.zeros(shape)
    for block in blocks:
        cells = starts[block.rows, None] + np.arange(block.truth[0].size)
        scores = part.scores[cells].reshape(block.truth.shape)
        for j, metric in enumerate(metrics):
            if not metric.applies(block.truth):
                continue
            values[block.rows, j] = metric.values(scores, block.truth, tie)
            ties[block.rows, j] = metric.ties(scores, block.truth)
            if metric.chance is not None:
                chance[block.rows, j] = metric.chance(block.truth)
    return _Columns(metrics, values, ties, chance)


def rows(
    run: Run,
    protocol: Protocol | None = None,
    *,
    groups: bool = True,
    resamples: int = RESAMPLES,
) -> list[Row]:
    """Every metric of every benchmark of a run, and of each group unless told not to."""
    return [
        row
        for part in run.parts.values()
        if len(part.cases)
        for row in _part_rows(run.model, part, fitting(part, protocol), groups, resamples)
    ]


def fitting(part: Part, protocol: Protocol | None) -> Protocol:
    """The protocol to use for a part, if its scores were made from captions of that format."""
    if protocol is None:
        return part.protocol
    if protocol.caption_format != part.protocol.caption_format:
        raise RunError(
            f"{part.benchmark} was scored with {part.protocol.caption_format!r} captions and the "
            f"protocol {protocol.name!r} wants {protocol.caption_format!r}; "
            f"evaluate again with --protocol {protocol.name}."
        )
    return protocol


def _averaging(part: Part, protocol: Protocol, average: str | None = None) -> Averaging:
    """An average over the first label of each case: others are shown, but no average uses them."""
    first = part.cases.frame["groups"].list.first().drop_nulls().unique()
    labels = frozenset(prefix for label in first for prefix in prefixes(label))
    levels = AVERAGES[average or protocol.average]
    return Averaging(levels, protocol.exclude, protocol.min_count, labels)


def _members(frame: pl.DataFrame, protocol: Protocol) -> dict[str, np.ndarray]:
    return members_of(frame["groups"].to_list(), protocol.exclude)


def _part_rows(
    model: str, part: Part, protocol: Protocol, groups: bool, resamples: int
) -> Iterator[Row]:
    columns = _columns(part, protocol.tie)
    averaging = _averaging(part, protocol)
    members = _members(part.cases.frame, protocol)
    if not groups and not averaging.levels:
        members = {ALL: members[ALL]}  # no average needs the groups: resample less
    found = estimate(
        columns.values,
        _clusters(part.cases.frame),
        members,
        averaging,
        shares=[metric.unit == "share" for metric in columns.metrics],
        resamples=resamples,
    )
    chances = _chances(columns.chance, members, averaging)
    for label, index in members.items() if groups else [(ALL, members[ALL])]:
        for j, metric in enumerate(columns.metrics):
            e = found[label][j]
            if e.n == 0:
                continue
            chance = float(chances[label][j])
            yield Row(
                model,
                part.benchmark,
                label,
                metric.name,
                e.value,
                e.low,
                e.high,
                e.n,
                int(columns.ties[index, j].sum()),
                None if math.isnan(chance) else chance,
            )


def _chances(
    chance: np.ndarray, members: dict[str, np.ndarray], averaging: Averaging
) -> dict[str, np.ndarray]:
    found = {label: nan_mean(chance[index]) for label, index in members.items()}
    found[ALL] = averages(chance, members, {ALL: averaging})[ALL]
    return found


def _clusters(frame: pl.DataFrame) -> np.ndarray:
    return np.unique(frame["cluster"].to_numpy(), return_inverse=True)[1].reshape(-1)


def side_by_side(part: Part, protocol: Protocol | None = None) -> dict[str, dict[str, float]]:
    """All the averages in use for a benchmark: {average: {metric: value}}."""
    chosen = fitting(part, protocol)
    columns = _columns(part, chosen.tie)
    members = _members(part.cases.frame, chosen)
    kinds = {name: _averaging(part, chosen, name) for name in chosen.averages}
    found = averages(columns.values, members, kinds)
    return {
        name: {m.name: float(values[j]) for j, m in enumerate(columns.metrics)}
        for name, values in found.items()
    }


def compare(
    a: Run, b: Run, protocol: Protocol | None = None, *, resamples: int = RESAMPLES
) -> list[Difference]:
    """Paired differences on the benchmarks and cases that both runs have."""
    shared = [name for name in a.parts if name in b.parts]
    if not shared:
        raise RunError(
            f"{a.model} and {b.model} have no benchmark in common: "
            f"{', '.join(a.parts)} against {', '.join(b.parts)}."
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
            f"{a.benchmark}: the runs used the protocols {chosen.name!r} and {other.name!r}; "
            "choose one with --protocol."
        )
    in_a, in_b = _shared_rows(a, b)
    one, two = _columns(a, chosen.tie), _columns(b, chosen.tie)
    metrics = [metric for metric in one.metrics if metric in two.metrics]
    left = one.values[in_a][:, [one.metrics.index(metric) for metric in metrics]]
    right = two.values[in_b][:, [two.metrics.index(metric) for metric in metrics]]
    frame = a.cases.frame[in_a]
    members, clusters = _members(frame, chosen), _clusters(frame)
    averaging = _averaging(a, chosen)
    gaps = estimate(left - right, clusters, members, averaging, resamples=resamples)
    means = [averages(values, members, {ALL: averaging})[ALL] for values in (left, right)]
    for j, metric in enumerate(metrics):
        if metric.better is None:
            continue
        groups = [label for label in members if label != ALL and gaps[label][j].n]
        corrected = holm([gaps[label][j].p for label in groups])
        # The whole benchmark is one question of its own; the groups are many, and pay for it.
        p_values = {ALL: gaps[ALL][j].p, **dict(zip(groups, corrected, strict=True))}
        for label, p_holm in p_values.items():
            gap, index = gaps[label][j], members[label]
            x, y = left[index, j], right[index, j]
            at = [m[j] for m in means] if label == ALL else [np.nanmean(x), np.nanmean(y)]
            binary = metric.unit == "share" and bool(np.isin([x, y], [0.0, 1.0]).all())
            yield Difference(
                a.benchmark,
                label,
                metric.name,
                float(at[0]),
                float(at[1]),
                gap.value,
                gap.low,
                gap.high,
                gap.p,
                p_holm,
                mcnemar(x, y) if binary else None,
                gap.n,
                verdict(gap.value, p_holm, metric.better),
            )


def _shared_rows(a: Part, b: Part) -> tuple[np.ndarray, np.ndarray]:
    """Where the cases that both runs scored stand in each; their content must be the same."""
    keys = ["id", "images", "captions", "truth"]
    left, right = (p.cases.frame.select(keys).with_row_index("row") for p in (a, b))
    both = left.join(right, on="id", suffix="_b", maintain_order="left")
    if both.is_empty():
        raise RunError(f"{a.benchmark}: the two runs scored no case in common.")
    unlike = [pl.col(key) != pl.col(f"{key}_b") for key in keys[1:]]
    differing = both.filter(pl.any_horizontal(unlike))
    if not differing.is_empty():
        raise RunError(
            f"{a.benchmark}: {differing.height} cases differ between the runs, the first is "
            f"{differing['id'][0]!r}; evaluate both on the same data."
        )
    return both["row"].to_numpy(), both["row_b"].to_numpy()


def as_json(found: Sequence[Row] | Sequence[Difference]) -> list[dict[str, Any]]:
    """Rows as plain dictionaries; what is not a number is null."""
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in ((n, getattr(row, n)) for n in row.__dataclass_fields__)
        }
        for row in found
    ]
