"""The papers' numbers (`published.csv`), and a run's numbers beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final, Literal

import polars as pl

from counterpoint.benchmarks import base_id
from counterpoint.errors import NotFoundError
from counterpoint.metric_registry import METRICS
from counterpoint.protocols import Protocol
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
    mine = chosen.filter(pl.col("benchmark") == _published_id(part.benchmark))
    alone = replace(run, parts={part.benchmark: part})
    own = rows(alone, resamples=resamples)
    averages = {part.protocol.average: {(row.group, row.metric): row for row in own}}
    seen = set()
    for value in mine.iter_rows(named=True):
        average = value["average"]
        if average not in averages:
            protocol = _averaged(part, average)
            averages[average] = {
                (row.group, row.metric): row for row in rows(alone, protocol, resamples=resamples)
            }
        row = averages[average].get((value["group"], value["metric"]))
        if row is not None:
            seen.add((row.group, row.metric))
            yield _check(row, part, average, value)
    for row in own:
        if METRICS[row.metric].main and (row.group, row.metric) not in seen:
            yield _check(row, part, part.protocol.average, None)


def _published_id(benchmark: str) -> str:
    """The id with the options that change what is measured; a seed does not."""
    name, _, options = benchmark.partition(":")
    kept = [part for part in options.split(",") if part and not part.startswith("seed=")]
    return f"{name}:{','.join(kept)}" if kept else base_id(name) if "+" not in name else name


def _averaged(part: Part, average: str) -> Protocol:
    return replace(fitting(part, None), average=average)


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
