"""The papers' numbers (`published.csv`), and a run's numbers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final, Literal

import polars as pl

from counterpoint.errors import NotFoundError, RunError
from counterpoint.metric_registry import METRICS
from counterpoint.protocols import get_protocol
from counterpoint.registry import did_you_mean
from counterpoint.results import Row, fitting, rows
from counterpoint.runs import Part, Run
from counterpoint.statistics import RESAMPLES

Agreement = Literal["agrees", "differs", "no value"]
_UNSTATED: Final = ""


@dataclass(frozen=True, slots=True)
class Check:
    """One of our numbers beside a published one. Values are fractions, as in `Row`.

    `agrees` means that the published value, give or take half of its last digit, lies within our
    interval.
    """

    benchmark: str
    group: str
    metric: str
    average: str
    ours: float
    ci_low: float
    ci_high: float
    n: int
    left_out: int
    published: float | None = None
    rounding: float | None = None
    verdict: Agreement = "no value"
    model: str = ""
    source: str = ""
    note: str = ""


@cache
def published() -> pl.DataFrame:
    """All published values: model, id, benchmark, group, metric, protocol, average, value (a text,
    in per cent where it is a share), source, note.
    """
    file = resources.files("counterpoint") / "published.csv"
    with file.open("rb") as stream:
        return pl.read_csv(stream, infer_schema=False).fill_null(_UNSTATED)


def published_model(name: str) -> str:
    """The published model of this name, or of this model id."""
    table = published()
    found = table.filter((pl.col("model") == name) | ((pl.col("id") == name) & (name != "")))
    if found.is_empty():
        raise NotFoundError(did_you_mean("published model", name, set(table["model"])))
    return str(found["model"][0])


def verify(run: Run, model: str | None = None, *, resamples: int = RESAMPLES) -> list[Check]:
    """Every number of the run beside what was published of `model` (else of the run's own id).

    Published values come with the average they are; ours is computed the same way. A number
    without a published value is there too, once, under the protocol's own average.
    """
    known = published()
    if model is None:
        chosen = known.filter((pl.col("id") == run.model) | (pl.col("model") == run.model))
    else:
        chosen = known.filter(pl.col("model") == published_model(model))
    return [
        check
        for part in run.parts.values()
        if len(part.cases)
        for check in _part_checks(run, part, chosen, resamples)
    ]


def _part_checks(run: Run, part: Part, chosen: pl.DataFrame, resamples: int) -> Iterator[Check]:
    """Ours under the protocol and the average of each published value, where the run has them."""
    mine = chosen.filter(pl.col("benchmark") == _published_id(part.benchmark))
    alone = replace(run, parts={part.benchmark: part})
    seen = set()
    for (protocol, average), values in mine.group_by("protocol", "average", maintain_order=True):
        for value, row in _beside(alone, part, str(protocol), str(average), values, resamples):
            seen.add((row.group, row.metric))
            yield _check(row, part, str(average), value)
    for row in rows(alone, resamples=resamples):
        if METRICS[row.metric].main and (row.group, row.metric) not in seen:
            yield _check(row, part, part.protocol.average, None)


def _beside(
    alone: Run, part: Part, protocol: str, average: str, values: pl.DataFrame, resamples: int
) -> Iterator[tuple[dict[str, str], Row]]:
    try:
        used = replace(fitting(part, get_protocol(protocol)), average=average)
    except RunError:  # scored in a way that this protocol cannot be computed from
        return
    found = {(row.group, row.metric): row for row in rows(alone, used, resamples=resamples)}
    for value in values.iter_rows(named=True):
        row = found.get((value["group"], value["metric"]))
        if row is not None:
            yield value, row


def _published_id(benchmark: str) -> str:
    """The id with the options that change what is measured: no seed, and nothing as it is."""
    name, _, options = benchmark.partition(":")
    kept = [part for part in options.split(",") if part and not part.startswith("seed=")]
    kept = [part for part in kept if not part.endswith("=plain")]
    return f"{name}:{','.join(kept)}" if kept else name


def _check(row: Row, part: Part, average: str, value: dict[str, str] | None) -> Check:
    ours = Check(
        row.benchmark,
        row.group,
        row.metric,
        average,
        row.value,
        row.ci_low,
        row.ci_high,
        row.n,
        len(part.left_out) + len(part.lost_images),
    )
    if value is None:
        return ours
    scale = 100 if METRICS[row.metric].unit == "share" else 1
    theirs = float(value["value"]) / scale
    rounding = 0.5 * 10 ** -len(value["value"].partition(".")[2]) / scale
    inside = row.ci_low - rounding <= theirs <= row.ci_high + rounding
    return replace(
        ours,
        published=theirs,
        rounding=rounding,
        verdict="agrees" if inside else "differs",
        model=value["model"],
        source=value["source"],
        note=value["note"],
    )
