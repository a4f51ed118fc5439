"""The numbers of a run: every metric of every benchmark and group, with intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any, Final, TypeVar

import numpy as np

from counterpoint._util.errors import RunError
from counterpoint.cases import Cases
from counterpoint.metrics import (
    ALL,
    AVERAGES,
    SEED,
    WHOLE,
    AnyMetric,
    Averaging,
    Estimate,
    Pool,
    PooledMetric,
    Protocol,
    Tie,
    averages,
    estimate,
    members_of,
    misfit,
    nested,
    pool_value,
    prefixes,
    set_apart,
    summaries,
)
from counterpoint.runs.columns import Columns, columns_of, without_positives
from counterpoint.runs.part import Part

_SEEDS: Final = re.compile(r"[:,]seeds=\d+")


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
    sd: float | None = None  # over the seeds, where a benchmark is drawn with several


RowKind = TypeVar("RowKind", bound=Row)


@dataclass(frozen=True, eq=False)
class Measured:
    """One benchmark of a run under a protocol: every metric of every case."""

    part: Part
    protocol: Protocol
    columns: Columns

    @cached_property
    def members(self) -> dict[str, np.ndarray]:
        """The rows of each group."""
        return self.columns.members(members_in(self.part.cases, self.protocol))

    @cached_property
    def averaging(self) -> Averaging:
        return averaging_of(self.part, self.protocol)

    @cached_property
    def chances(self) -> dict[str, np.ndarray]:
        """The chance levels of each group: one per metric."""
        return self.means(self.columns.chance)

    def means(self, values: np.ndarray, pools: Sequence[Pool | None] = ()) -> dict[str, np.ndarray]:
        """The columns' means for each label, and the average asked for over all.

        `pools` has the columns that are numbers of all pairs.
        """
        points = {label: summaries(values, index) for label, index in self.members.items()}
        found = {label: nested(points, self.members, self.averaging, label) for label in points}
        for label, index in self.members.items():
            for column, pool in enumerate(pools):
                if pool is not None:
                    found[label][column] = pool_value(pool, index, self.columns.clusters)
        return found

    def metric(self, name: str) -> int | None:
        """The column of a metric, if the cases define it."""
        names = [metric.name for metric in self.columns.metrics]
        return names.index(name) if name in names else None

    def estimates(
        self,
        values: np.ndarray,
        *,
        shares: Sequence[bool],
        medians: Sequence[bool],
        pools: Sequence[Pool | None],
        resamples: int,
        members: dict[str, np.ndarray] | None = None,
    ) -> dict[str, list[Estimate]]:
        """Means of columns (rows, columns) for each label, with intervals.

        Columns are metrics of this run, or of other runs of the same cases. A column without a
        value in a label has n = 0 there.
        """
        return estimate(
            values,
            self.columns.clusters,
            self.members if members is None else members,
            self.averaging,
            shares=shares,
            medians=medians,
            pools=pools,
            resamples=resamples,
        )

    def row(
        self,
        model: str,
        label: str,
        metric: AnyMetric,
        found: Estimate,
        kind: type[RowKind],
    ) -> RowKind:
        """The number of one metric and label."""
        column = self.columns.metrics.index(metric)
        chance = float(self.chances[label][column])
        return kind(
            model,
            self.part.benchmark,
            label,
            metric.name,
            found.value,
            found.low,
            found.high,
            found.n,
            int(self.columns.ties[self.members[label], column].sum()),
            None if math.isnan(chance) else chance,
            float(self.spread[column]) if label == ALL and self.spread is not None else None,
        )

    @cached_property
    def spread(self) -> np.ndarray | None:
        """The standard deviation (n - 1) of each column's mean over the seeds of `seeds=...`.

        None if the benchmark was drawn with one seed.
        """
        drawn = [rows for label, rows in self.members.items() if label.startswith(SEED)]
        if len(drawn) < 2 or not _SEEDS.search(self.part.benchmark):
            return None
        means = [summaries(self.columns.values, rows, self.columns.medians) for rows in drawn]
        for column, pool in enumerate(self.columns.pools):
            for mean, rows in zip(means, drawn, strict=True):
                if pool is not None:
                    mean[column] = pool_value(pool, rows, self.columns.clusters)
        return np.std(means, axis=0, ddof=1)


def measure(part: Part, protocol: Protocol | None = None, tie: Tie | None = None) -> Measured:
    """Compute every metric of every case; `tie` instead of the protocol's."""
    used = fitting(part, protocol)
    return Measured(part, used, columns_of(part, tie or used.tie))


def fitting(part: Part, protocol: Protocol | None) -> Protocol:
    """The protocol to use for a part, if its scores were made from captions of that format."""
    if protocol is None:
        return part.protocol
    if protocol.caption_format != part.protocol.caption_format:
        raise RunError(
            "E-PROTOCOL-MISFIT",
            f"{part.benchmark} was scored with {part.protocol.caption_format!r} captions and the "
            f"protocol {protocol.name!r} wants {protocol.caption_format!r}; "
            f"evaluate again with --protocol {protocol.name}.",
        )
    if protocol != part.protocol and (other := misfit(protocol, part.cases)):
        raise RunError(
            "E-PROTOCOL-MISFIT",
            f"{part.benchmark} has cases of {other}, which the protocol {protocol.name!r} is not "
            f"for; it was scored under {part.protocol.name!r}, and 'strict' takes any.",
        )
    if not part.protocol.skip <= protocol.skip:
        raise RunError(
            "E-PROTOCOL-MISFIT",
            f"{part.benchmark} was scored under the protocol {part.protocol.name!r}, which does "
            f"not score every case that {protocol.name!r} counts; "
            f"evaluate again with --protocol {protocol.name}.",
        )
    return protocol


def averaging_of(part: Part, protocol: Protocol, average: str | None = None) -> Averaging:
    """An average over the first label of each case. Other labels are shown, not averaged over."""
    first = part.cases.frame["groups"].list.first().drop_nulls().unique()
    labels = frozenset(prefix for label in first for prefix in prefixes(label))
    levels = AVERAGES[average or protocol.average]
    return Averaging(levels, protocol.exclude, protocol.min_count, labels)


def members_in(cases: Cases, protocol: Protocol) -> dict[str, np.ndarray]:
    """The cases of each group, and of all that the protocol counts.

    If some cases have positives, those without are in separate labels, so that original accuracy,
    augmented accuracy and brittleness of a label are always of the same cases.
    """
    members = members_of(cases.frame["groups"], protocol.exclude | protocol.skip)
    return set_apart(members, without_positives(cases))


def part_rows(
    model: str,
    part: Part,
    protocol: Protocol | None,
    *,
    groups: bool,
    resamples: int,
    main: bool,
) -> Iterator[Row]:
    """Every metric of a benchmark, and of its groups if `groups`.

    With `main`, numbers of all pairs that no short table shows are not computed: they take longer
    than all others.
    """
    if not len(part.cases):
        return
    measured = measure(part, protocol)
    members, averaging, metrics = measured.members, measured.averaging, measured.columns.metrics
    skipped = [isinstance(m, PooledMetric) and main and not m.main for m in metrics]
    pools = [
        None if skip else pool for pool, skip in zip(measured.columns.pools, skipped, strict=True)
    ]
    if not groups:
        needed = averaging.needed(members)
        wanted = {*WHOLE, *needed}
        if averaging.levels and not needed:
            wanted = set(members)  # show that no group counts
        members = {label: index for label, index in members.items() if label in wanted}
    found = measured.estimates(
        measured.columns.values,
        shares=[metric.unit == "share" for metric in metrics],
        medians=measured.columns.medians,
        pools=pools,
        members=members,
        resamples=resamples,
    )
    for label in members if groups else (label for label in members if label in WHOLE):
        for metric, one, skip in zip(metrics, found[label], skipped, strict=True):
            if one.n and not skip and not undefined(metric, one.value):
                yield measured.row(model, label, metric, one, Row)


def undefined(metric: AnyMetric, value: float) -> bool:
    """Whether cases have part in a number of all pairs that they do not define."""
    return isinstance(metric, PooledMetric) and math.isnan(value)


def side_by_side(part: Part, protocol: Protocol | None = None) -> dict[str, dict[str, float]]:
    """All the averages in use for a benchmark: {average: {metric: value}}.

    A number of all pairs is no average, and has none.
    """
    measured = measure(part, protocol)
    used, metrics = measured.protocol, measured.columns.metrics
    kinds = {name: averaging_of(part, used, name) for name in used.averages}
    found = averages(measured.columns.values, measured.members, kinds, measured.columns.medians)
    return {
        name: {
            m.name: float(values[j])
            for j, m in enumerate(metrics)
            if not isinstance(m, PooledMetric)
        }
        for name, values in found.items()
    }


def as_json(found: Sequence[Any]) -> list[dict[str, Any]]:
    """Rows (or other dataclasses) as plain dictionaries; non-finite numbers are null.

    `sd` is there only where a benchmark was drawn with several seeds.
    """
    return [
        {
            name: None if isinstance(value, float) and not math.isfinite(value) else value
            for name, value in ((field.name, getattr(row, field.name)) for field in fields(row))
            if name != "sd" or value is not None
        }
        for row in found
    ]
