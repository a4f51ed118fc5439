"""The numbers of a run: every metric of every benchmark and group, with intervals."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import polars as pl

from counterpoint._util.errors import RunError
from counterpoint.cases import Cases
from counterpoint.metrics import (
    ALL,
    AVERAGES,
    RESAMPLES,
    SEED,
    WHOLE,
    Averaging,
    Protocol,
    averages,
    estimate,
    members_of,
    nan_mean,
    nested,
    prefixes,
    set_apart,
    summaries,
)
from counterpoint.runs.columns import Columns, columns_of, without_positives

if TYPE_CHECKING:
    from counterpoint.runs.folders import Part, Run

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


def rows(
    run: Run,
    protocol: Protocol | None = None,
    *,
    groups: bool = True,
    resamples: int = RESAMPLES,
) -> list[Row]:
    """Every metric of every benchmark of a run, and of its groups if `groups`."""
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
            "E-PROTOCOL-MISFIT",
            f"{part.benchmark} was scored with {part.protocol.caption_format!r} captions and the "
            f"protocol {protocol.name!r} wants {protocol.caption_format!r}; "
            f"evaluate again with --protocol {protocol.name}.",
            benchmark=part.benchmark,
            protocol=protocol.name,
        )
    if not part.protocol.skip <= protocol.skip:
        raise RunError(
            "E-PROTOCOL-MISFIT",
            f"{part.benchmark} was scored under the protocol {part.protocol.name!r}, which does "
            f"not score every case that {protocol.name!r} counts; "
            f"evaluate again with --protocol {protocol.name}.",
            benchmark=part.benchmark,
            protocol=protocol.name,
        )
    return protocol


def averaging_of(part: Part, protocol: Protocol, average: str | None = None) -> Averaging:
    """An average over the first label of each case. Other labels are shown, not averaged over."""
    first = part.cases.frame["groups"].list.first().drop_nulls().unique()
    labels = frozenset(prefix for label in first for prefix in prefixes(label))
    levels = AVERAGES[average or protocol.average]
    return Averaging(levels, protocol.exclude, protocol.min_count, labels)


def members_in(frame: pl.DataFrame, protocol: Protocol) -> dict[str, np.ndarray]:
    """The cases of each group, and of all that the protocol counts.

    If some cases have positives, those without are in separate labels, so that original accuracy,
    augmented accuracy and brittleness of a label are always of the same cases.
    """
    members = members_of(frame["groups"].to_list(), protocol.exclude | protocol.skip)
    return set_apart(members, without_positives(Cases(frame)))


def _part_rows(
    model: str, part: Part, protocol: Protocol, groups: bool, resamples: int
) -> Iterator[Row]:
    columns = columns_of(part, protocol.tie)
    averaging = averaging_of(part, protocol)
    members = columns.members(members_in(part.cases.frame, protocol))
    spread = spread_over_seeds(part, columns, members)
    if not groups:
        needed = averaging.needed(members)
        wanted = {*WHOLE, *needed}
        if averaging.levels and not needed:
            wanted = set(members)  # show that no group counts
        members = {label: index for label, index in members.items() if label in wanted}
    found = estimate(
        columns.values,
        columns.clusters,
        members,
        averaging,
        shares=[metric.unit == "share" for metric in columns.metrics],
        medians=columns.medians,
        resamples=resamples,
    )
    chances = means_of(columns.chance, members, averaging)
    for label, index in members.items():
        if not groups and label not in WHOLE:
            continue
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
                float(spread[j]) if label == ALL and spread is not None else None,
            )


def spread_over_seeds(
    part: Part, columns: Columns, members: dict[str, np.ndarray]
) -> np.ndarray | None:
    """The standard deviation (n - 1) of each column's mean over the seeds of `seeds=...`.

    None if the benchmark was drawn with one seed.
    """
    if not _SEEDS.search(part.benchmark):
        return None
    drawn = [rows for label, rows in members.items() if label.startswith(SEED)]
    if len(drawn) < 2:
        return None
    means = [summaries(columns.values[rows], columns.medians) for rows in drawn]
    return np.std(means, axis=0, ddof=1)


def means_of(
    values: np.ndarray, members: dict[str, np.ndarray], averaging: Averaging
) -> dict[str, np.ndarray]:
    """The columns' means for each label, and the average asked for over all."""
    points = {label: nan_mean(values[index]) for label, index in members.items()}
    return {label: nested(points, members, averaging, label) for label in members}


def side_by_side(part: Part, protocol: Protocol | None = None) -> dict[str, dict[str, float]]:
    """All the averages in use for a benchmark: {average: {metric: value}}."""
    chosen = fitting(part, protocol)
    columns = columns_of(part, chosen.tie)
    members = columns.members(members_in(part.cases.frame, chosen))
    kinds = {name: averaging_of(part, chosen, name) for name in chosen.averages}
    found = averages(columns.values, members, kinds, columns.medians)
    return {
        name: {m.name: float(values[j]) for j, m in enumerate(columns.metrics)}
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
