"""Published values beside measured ones, and human accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import polars as pl

from counterpoint._util.progress import Progress, Quiet
from counterpoint.evaluation import Check, Verdict, judge, published, published_model, verify
from counterpoint.reports.gathering import ReportData, ScoredPart
from counterpoint.reports.numbers import RankedRow

_HUMAN: Final = "Human"  # as published.csv calls them
_FEW: Final = 2  # resamples: intervals are known already, only the value is wanted


@dataclass(frozen=True, slots=True)
class Beside:
    """A published value and ours, computed with the average that the paper used.

    `verdict` is empty where that is not the average of the table, of which intervals are known.
    """

    model: str
    benchmark: str
    group: str
    metric: str
    average: str
    ours: float
    published: float
    verdict: Verdict | Literal[""]
    called: str  # the model's name in the paper
    source: str
    note: str


@dataclass(frozen=True, slots=True)
class Papers:
    """`values` by label, benchmark, group and metric; `human` by benchmark, group and metric."""

    values: dict[tuple[str, str, str, str], list[Beside]]
    human: dict[tuple[str, str, str], Beside]

    def main(self, number: RankedRow) -> Beside | None:
        """The value to print beside a number: of the same protocol and average, and cases."""
        mine = self.values.get((number.model, number.benchmark, number.group, number.metric), [])
        unlike = ("", "cannot be compared")
        return next((found for found in mine if found.verdict not in unlike), None)

    def all(self) -> list[Beside]:
        return [found for several in self.values.values() for found in several]


def beside_papers(
    material: ReportData,
    numbers: Sequence[RankedRow],
    called: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Papers:
    """Look up every run's model (or what `called` says it is called in papers), and people."""
    names = {name: published_model(theirs) for name, theirs in (called or {}).items()}
    known = published()
    ids = set(known["id"]) | set(known["model"])
    parts = [scored for several in material.benchmarks.values() for scored in several]
    ours = {(n.model, n.benchmark, n.group, n.metric): n for n in numbers}
    advance = (progress or Quiet()).start("published values", len(parts))
    values: dict[tuple[str, str, str, str], list[Beside]] = {}
    for scored in parts:
        model = scored.run.model
        if scored.label in names or model in names or model in ids - {""}:
            for found in _found(scored, names.get(scored.label, names.get(model)), ours):
                key = (found.model, found.benchmark, found.group, found.metric)
                values.setdefault(key, []).append(found)
        advance(1)
    return Papers(values, _human(material, ours))


def _human(
    material: ReportData, ours: Mapping[tuple[str, str, str, str], RankedRow]
) -> dict[tuple[str, str, str], Beside]:
    theirs = published().filter(pl.col("model") == _HUMAN)
    names = set(theirs["benchmark"])
    found: dict[tuple[str, str, str], Beside] = {}
    for benchmark, several in material.benchmarks.items():
        if benchmark.partition(":")[0] not in names:
            continue
        for beside in _found(several[0], _HUMAN, ours):
            if beside.verdict:  # of the table's own protocol and average
                found.setdefault((beside.benchmark, beside.group, beside.metric), beside)
    return found


def _found(
    scored: ScoredPart, model: str | None, ours: Mapping[tuple[str, str, str, str], RankedRow]
) -> list[Beside]:
    """Each published value once, with all tables that print it."""
    run = replace(scored.run, parts={scored.part.benchmark: scored.part})
    merged: dict[tuple[str, str, str, float], Beside] = {}
    for check in verify(run, model, resamples=_FEW):
        if check.published is None:
            continue
        key = (check.group, check.metric, check.average, check.published)
        if key in merged:
            merged[key] = _also(merged[key], check)
        else:
            number = ours.get((scored.label, check.benchmark, check.group, check.metric))
            merged[key] = _beside(scored.label, check, number)
    return list(merged.values())


def _beside(label: str, check: Check, number: RankedRow | None) -> Beside:
    assert check.published is not None and check.rounding is not None
    verdict: Verdict | Literal[""] = ""
    if number is not None and abs(number.value - check.ours) < 1e-9:
        interval = (number.value, number.ci_low, number.ci_high)
        verdict = judge(*interval, check.published, check.rounding, check.why)
    elif check.why:
        verdict = check.verdict
    return Beside(
        label,
        check.benchmark,
        check.group,
        check.metric,
        check.average,
        check.ours,
        check.published,
        verdict,
        check.model,
        check.source,
        check.note,
    )


def _also(first: Beside, check: Check) -> Beside:
    if check.source in first.source:
        return first
    return replace(first, source=f"{first.source}; {check.source}")
