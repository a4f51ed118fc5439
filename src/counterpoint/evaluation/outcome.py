"""The effect of training: the start and the tuned model in one table, with paired verdicts.

Besides the main metrics of a benchmark, the table has the mean scores of originals, positives and
negatives: a model may rank captions better and still score every true caption lower than before.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal, cast

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.writing import whole_file
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.metrics import ALL, METRICS, RESAMPLES
from counterpoint.runs import (
    Difference,
    Row,
    Run,
    as_json,
    compare,
    paired_rows,
    rows,
)
from counterpoint.scoring import Model

OUTCOME_FILE: Final = "outcome.json"
FORMAT: Final = 1
ORIGINALS: Final = "mean_score_original"
MEAN_SCORES: Final = (ORIGINALS, "mean_score_positive", "mean_score_negative")

# Mean scores have no better side: they are higher or lower.
Judgement = Literal["better", "worse", "higher", "lower", "no difference shown", "depends on ties"]
Side = str | tuple[str, Model] | Run  # a model's id, its name and itself, or what it has scored


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of the start and of the tuned model, over the cases that both scored.

    `difference` is tuned - start, with its interval (see `metrics.paired`).
    """

    benchmark: str
    group: str
    metric: str
    start: float
    start_low: float
    start_high: float
    tuned: float
    tuned_low: float
    tuned_high: float
    difference: float
    ci_low: float
    ci_high: float
    p: float  # corrected over the groups of a benchmark, as `compare` does; mean scores are not
    n: int
    chance: float | None
    verdict: Judgement
    start_ties: int  # values that depend on a tie
    tuned_ties: int


@dataclass(frozen=True, slots=True)
class Outcome:
    """The table, and under it: `warnings` of lowered scores, `notes` of what is not in it."""

    start: str
    tuned: str
    changes: list[MetricChange]
    warnings: list[str]
    notes: list[str]


def evaluate_outcome(
    start: Side,
    tuned: Side,
    benchmarks: Sequence[str],
    out: str | Path,
    *,
    data: str | Path | None = None,
    limit: int | None = None,
    batch_size: int | Literal["auto"] = "auto",
    device: str = "auto",
    precision: str = "fp32",
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> Outcome:
    """Evaluate both models and write `out/start`, `out/tuned` and `out/outcome.json`.

    A side that is a run already is taken as it is: a loop that comes back every thousand steps
    scores the start once. What a model has in the store is not computed again.
    """
    runs = {}
    for name, side in (("start", start), ("tuned", tuned)):
        if isinstance(side, Run):
            runs[name] = side
            continue
        runs[name] = evaluate(
            side,
            benchmarks,
            data=data,
            out=Path(out) / name,
            limit=limit,
            batch_size=batch_size,
            device=device,
            precision=precision,
            store=store,
            progress=progress,
        )
    advance = (progress or Quiet()).start("resampling", 1)
    found = outcome(runs["start"], runs["tuned"])
    advance(1)
    write_outcome(found, Path(out) / OUTCOME_FILE)
    return found


def outcome(start: Run, tuned: Run, *, resamples: int = RESAMPLES) -> Outcome:
    """Start against tuned on every benchmark that both were evaluated on."""
    notes = _missing(start, tuned)
    one, two = _shared(start, tuned), _shared(tuned, start)
    empty = [name for name, part in one.parts.items() if not len(part.cases)]
    notes += [f"{name}: no case was scored by both models, so it is not shown." for name in empty]
    one, two = (
        replace(run, parts={n: p for n, p in run.parts.items() if n not in empty})
        for run in (one, two)
    )
    if not one.parts:
        raise RunError(
            "E-RUNS-DISJOINT",
            f"{start.model} and {tuned.model} have no scored case in common; "
            "evaluate both on the same benchmarks.",
        )
    gaps = {
        (d.benchmark, d.group, d.metric): d
        for d in compare(two, one, undirected=MEAN_SCORES, resamples=resamples)
        if d.metric not in MEAN_SCORES or d.group == ALL
    }
    levels = [
        {(row.benchmark, row.group, row.metric): row for row in rows(run, resamples=resamples)}
        for run in (one, two)
    ]
    keys = [key for key in levels[0] if key in gaps and key in levels[1]]
    changes = [_change(levels[0][key], levels[1][key], gaps[key]) for key in keys]
    return Outcome(start.model, tuned.model, changes, _warnings(changes, tuned.model), notes)


def write_outcome(found: Outcome, path: Path) -> None:
    """The outcome as JSON, in place of an older one."""
    values: dict[str, Any] = {
        "format": FORMAT,
        "start": found.start,
        "tuned": found.tuned,
        "warnings": found.warnings,
        "notes": found.notes,
        "changes": as_json(found.changes),
    }
    with whole_file(path) as partial:
        text = json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False)
        partial.write_text(text + "\n", encoding="utf-8")


# --- the cases of both -------------------------------------------------------------------------


def _missing(start: Run, tuned: Run) -> list[str]:
    """What one of the two lacks: never left out in silence."""
    alone = sorted(start.parts.keys() ^ tuned.parts.keys())
    notes = [f"{name}: only one of the models was evaluated on it." for name in alone]
    for name in (name for name in start.parts if name in tuned.parts):
        ids = [set(run.parts[name].cases.ids) for run in (start, tuned)]
        if apart := len(ids[0] ^ ids[1]):
            both = len(ids[0] & ids[1])
            notes.append(
                f"{name}: {apart:,} cases were scored by one model only, {both:,} by both."
            )
    for run in (start, tuned):
        seen = [part for part in run.parts.values() if part.trained_on]
        notes += [f"{part.benchmark}: {part.trained_on} ({run.model})." for part in seen]
    return notes


def _shared(run: Run, other: Run) -> Run:
    """A run with the benchmarks and cases that another run has too."""
    parts = {}
    for name, part in run.parts.items():
        if name in other.parts:
            parts[name] = part.keep(paired_rows(part.cases, other.parts[name].cases).rows >= 0)
    return replace(run, parts=parts)


# --- differences -------------------------------------------------------------------------------


def _change(start: Row, tuned: Row, gap: Difference) -> MetricChange:
    better, worse = ("better", "worse") if METRICS[gap.metric].better else ("higher", "lower")
    words = {"A is better": better, "B is better": worse}
    return MetricChange(
        start.benchmark,
        start.group,
        start.metric,
        start.value,
        start.ci_low,
        start.ci_high,
        tuned.value,
        tuned.ci_low,
        tuned.ci_high,
        gap.difference,
        gap.ci_low,
        gap.ci_high,
        gap.p_holm,
        gap.n,
        start.chance,
        cast(Judgement, words.get(gap.verdict, gap.verdict)),
        start.ties,
        tuned.ties,
    )


# --- lowered scores ----------------------------------------------------------------------------


def _warnings(changes: Sequence[MetricChange], tuned: str) -> list[str]:
    """A sentence for each benchmark whose originals score lower, by more than the interval."""
    found = []
    for change in changes:
        if change.metric == ORIGINALS and change.group == ALL and change.ci_high < 0:
            others = [
                f"{c.metric.removeprefix('mean_score_')}s {c.difference:+.3f}"
                for c in changes
                if c.benchmark == change.benchmark
                and c.metric in MEAN_SCORES[1:]
                and c.group == ALL
            ]
            found.append(
                f"{tuned} lowers the scores of true captions on {change.benchmark}: originals "
                f"{change.start:.3f} -> {change.tuned:.3f} ({change.difference:+.3f} "
                f"[{change.ci_low:+.3f}, {change.ci_high:+.3f}]), {', '.join(others)}."
            )
    return found
