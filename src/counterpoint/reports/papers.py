"""Published values beside measured ones, and human accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import polars as pl

from counterpoint._util.progress import Progress, Quiet
from counterpoint.evaluation import Check, Verdict, judge, published, published_model, verify
from counterpoint.reports.data import ReportData, ScoredPart
from counterpoint.reports.ranking import RankedRow, written

_HUMAN: Final = "Human"  # as published.csv calls them
_OTHER_AVERAGE: Final = "another average"
_FEW: Final = 2  # resamples: intervals are known already, only the value is wanted


@dataclass(frozen=True, slots=True)
class Papers:
    """Published values: `values` by label, benchmark, group and metric; `human` by the last three.

    The verdict of a value that is of another average than the table says so: of ours, no interval
    is known there.
    """

    values: dict[tuple[str, str, str, str], list[Check]]
    human: dict[tuple[str, str, str], Check]

    def main(self, number: RankedRow) -> Check | None:
        """The value to print beside a number: of the same protocol and average, and cases."""
        mine = self.values.get((number.model, number.benchmark, number.group, number.metric), [])
        unlike = (_OTHER_AVERAGE, "cannot be compared")
        return next((check for check in mine if check.verdict not in unlike), None)


def theirs(check: Check | None) -> str:
    """The published value as it is written."""
    known = check is not None and check.published is not None
    return written(check.metric, check.published) if known else ""  # type: ignore[union-attr, arg-type]


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
    values: dict[tuple[str, str, str, str], list[Check]] = {}
    for scored in parts:
        model = scored.run.model
        if scored.label in names or model in names or model in ids - {""}:
            for check in _found(scored, names.get(scored.label, names.get(model)), ours):
                key = (scored.label, check.benchmark, check.group, check.metric)
                values.setdefault(key, []).append(check)
        advance(1)
    return Papers(values, _human(material, ours))


def _human(
    material: ReportData, ours: Mapping[tuple[str, str, str, str], RankedRow]
) -> dict[tuple[str, str, str], Check]:
    theirs = published().filter(pl.col("model") == _HUMAN)
    names = set(theirs["benchmark"])
    found: dict[tuple[str, str, str], Check] = {}
    for benchmark, several in material.benchmarks.items():
        if benchmark.partition(":")[0] not in names:
            continue
        for check in _found(several[0], _HUMAN, ours):
            if check.verdict != _OTHER_AVERAGE:
                found.setdefault((check.benchmark, check.group, check.metric), check)
    return found


def _found(
    scored: ScoredPart, model: str | None, ours: Mapping[tuple[str, str, str, str], RankedRow]
) -> list[Check]:
    """Each published value once, with all tables that print it."""
    run = replace(scored.run, parts={scored.part.benchmark: scored.part})
    merged: dict[tuple[str, str, str, float], Check] = {}
    for check in verify(run, model, resamples=_FEW):
        if check.published is None:
            continue
        key = (check.group, check.metric, check.average, check.published)
        if key not in merged:
            # Judged by the interval of our number in the table, if that is of the same average.
            number = ours.get((scored.label, check.benchmark, check.group, check.metric))
            verdict: Verdict = check.verdict if check.why else _OTHER_AVERAGE
            if number is not None and abs(number.value - check.ours) < 1e-9:
                interval = (number.value, number.ci_low, number.ci_high)
                verdict = judge(*interval, check.published, check.rounding or 0.0, check.why)
            merged[key] = replace(check, verdict=verdict)
        elif check.source not in (known := merged[key]).source:
            merged[key] = replace(known, source=f"{known.source}; {check.source}")
    return list(merged.values())
