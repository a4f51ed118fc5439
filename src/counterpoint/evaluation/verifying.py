"""The papers' numbers (`published.csv`), and a run's numbers beside them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Final, Literal

import polars as pl

from counterpoint._util.errors import NotFoundError, RunError
from counterpoint._util.registry import did_you_mean, near
from counterpoint.benchmarks import why_incomplete
from counterpoint.metrics import METRICS, RESAMPLES, get_protocol
from counterpoint.runs import Part, Row, Run, fitting, rows

Verdict = Literal[
    "same to the digit",
    "within the interval",
    "differs",
    "cannot be compared",
    "another average",
    "no value",
]
_UNSTATED: Final = ""
_NOT_PUBLISHED: Final = ("blind", "random", "world")  # families without published values
_OTHER: Final = "other/"  # printed in the papers, and no benchmark that a run could hold
HALF: Final = "fp16"  # in the note of a value that was probably measured so


@dataclass(frozen=True, slots=True)
class Check:
    """One of our numbers beside a published one. Values are fractions, as in `Row`.

    `same to the digit`: ours is the published value once it is rounded as that is. `within the
    interval`: the published value, give or take half of its last digit, lies within our interval.
    `cannot be compared`: `why` says that the run is not of the whole benchmark, or was scored in
    another way (then ours is NaN). `another average` is said in reports, whose table has one.
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
    verdict: Verdict = "no value"
    why: str = ""
    model: str = ""
    source: str = ""
    note: str = ""
    ties: int = 0  # values that depend on how ties are counted


def judge(
    ours: float, low: float, high: float, published: float, rounding: float, why: str = ""
) -> Verdict:
    """Our number, with its interval, beside a published one that was rounded."""
    if why:
        return "cannot be compared"
    if abs(ours - published) <= rounding * (1 + 1e-9):
        return "same to the digit"
    inside = low - rounding <= published <= high + rounding
    return "within the interval" if inside else "differs"


@cache
def published() -> pl.DataFrame:
    """All published values: model, id, benchmark, group, metric, protocol, average, value (a text,
    in per cent where it is a share), source, note.
    """
    file = resources.files("counterpoint.evaluation") / "published.csv"
    with file.open("rb") as stream:
        return pl.read_csv(stream, infer_schema=False).fill_null(_UNSTATED)


def published_model(name: str) -> str:
    """The published model of this name, or of this model id."""
    found = _named(name)
    if found.is_empty():
        names = published()["model"].value_counts(sort=True)["model"].to_list()
        ids = published()["id"].unique(maintain_order=True).to_list()
        raise NotFoundError(
            "E-MODEL-UNKNOWN", did_you_mean("published model", name, [*names, *filter(None, ids)])
        )
    return str(found["model"][0])


def _named(name: str) -> pl.DataFrame:
    """What is published of a model, by its name or id."""
    return published().filter(((pl.col("model") == name) | (pl.col("id") == name)) & (name != ""))


def near_models(name: str, run: Run) -> list[str]:
    """Models that have a published value on some benchmark of the run, and a name like this."""
    ids = {published_id(benchmark) for benchmark in run.parts}
    known = published().filter(pl.col("benchmark").is_in(ids))["model"]
    return near(name, known.value_counts(sort=True)["model"].to_list())


def not_the_model(run: Run, model: str) -> str:
    """Why the run is known not to be of the published model; empty if it may be."""
    claimed = published_model(model)
    if run.model.partition(":")[0] in _NOT_PUBLISHED:
        return f"this run is of {run.model}, not of {claimed}"
    own = _named(run.model)
    if not own.is_empty() and own["model"][0] != claimed:
        return f"this run is of {own['model'][0]}, not of {claimed}"
    return ""


def verify(run: Run, model: str | None = None, *, resamples: int = RESAMPLES) -> list[Check]:
    """Every number of the run beside what was published of `model` (else of the run's own id).

    Published values come with the average they are; ours is computed the same way. A number
    without a published value is there too, once, under the protocol's own average.
    """
    chosen = _named(run.model if model is None else published_model(model))
    chosen = chosen.filter(~pl.col("benchmark").str.starts_with(_OTHER))
    return [
        check
        for part in run.parts.values()
        if len(part.cases)
        for check in _part_checks(run, part, chosen, resamples)
    ]


def _part_checks(run: Run, part: Part, chosen: pl.DataFrame, resamples: int) -> Iterator[Check]:
    """Ours under the protocol and the average of each published value, where the run has them."""
    mine = chosen.filter(pl.col("benchmark") == published_id(part.benchmark))
    alone = replace(run, parts={part.benchmark: part})
    seen = set()
    for (protocol, average), values in mine.group_by("protocol", "average", maintain_order=True):
        for check in _beside(alone, part, str(protocol), str(average), values, resamples):
            seen.add((check.group, check.metric))
            yield check
    for row in rows(alone, resamples=resamples, main=True):
        if METRICS[row.metric].main and (row.group, row.metric) not in seen:
            yield _ours(row, part, part.protocol.average)


def _beside(
    alone: Run, part: Part, protocol: str, average: str, values: pl.DataFrame, resamples: int
) -> Iterator[Check]:
    try:
        used = replace(fitting(part, get_protocol(protocol)), average=average)
    except RunError as error:  # scored in a way that this protocol cannot be computed from
        for value in values.iter_rows(named=True):
            if value["metric"] in METRICS:
                of = part.benchmark, value["group"], value["metric"]
                none = Row("", *of, math.nan, math.nan, math.nan, 0, 0, None)
                yield _check(none, part, average, value, str(error))
        return
    why = why_incomplete(part, used, alone.manifest.get("options", {}))
    found = {
        (row.group, row.metric): row for row in rows(alone, used, resamples=resamples, main=True)
    }
    for value in values.iter_rows(named=True):
        row = found.get((value["group"], value["metric"]))
        if row is not None:
            yield _check(row, part, average, value, why)


def half_precision(run: Run, found: Sequence[Check]) -> str:
    """Which published values may differ because they were measured in fp16; empty if none may."""
    if run.manifest.get("options", {}).get("precision") == HALF:
        return ""
    off = {c.source: None for c in found if c.verdict == "differs" and HALF in c.note}
    if not off:
        return ""
    return (
        f"{'; '.join(off)}: the published values were probably measured in {HALF}, which may be "
        f"the difference; see --precision {HALF} of eval"
    )


def tied_captions(found: Sequence[Check]) -> str:
    """Which values differ in a digit that ties of a gallery may have made; empty if none do."""
    off = {
        f"{c.benchmark}, {c.metric}: {c.ties:,} of {c.n:,}": None
        for c in found
        if c.verdict in ("within the interval", "differs")
        and c.metric.startswith("image_to_text")
        and c.published is not None
        and 0 < c.published - c.ours <= c.ties / c.n + (c.rounding or 0)
    }
    if not off:
        return ""
    return (
        f"values that depend on ties ({'; '.join(off)}) may be the difference: images of a gallery "
        "that share a caption word for word tie for every model, and a tie is wrong here"
    )


def published_id(benchmark: str) -> str:
    """The id with the options that change what is measured.

    No seed, nothing that is as it is anyway, and no choice of tests, which have other metrics.
    """
    name, _, options = benchmark.partition(":")
    kept = [part for part in options.split(",") if part and not part.endswith("=plain")]
    kept = [part for part in kept if not part.startswith(("seed=", "seeds=", "tests="))]
    return f"{name}:{','.join(kept)}" if kept else name


def _ours(row: Row, part: Part, average: str) -> Check:
    return Check(
        row.benchmark,
        row.group,
        row.metric,
        average,
        row.value,
        row.ci_low,
        row.ci_high,
        row.n,
        part.missing,
        ties=row.ties,
    )


def _check(row: Row, part: Part, average: str, value: dict[str, str], why: str) -> Check:
    scale = 100 if METRICS[row.metric].unit == "share" else 1
    theirs = float(value["value"]) / scale
    rounding = 0.5 * 10 ** -len(value["value"].partition(".")[2]) / scale
    return replace(
        _ours(row, part, average),
        published=theirs,
        rounding=rounding,
        verdict=judge(row.value, row.ci_low, row.ci_high, theirs, rounding, why),
        why=why,
        model=value["model"],
        source=value["source"],
        note=value["note"],
    )
