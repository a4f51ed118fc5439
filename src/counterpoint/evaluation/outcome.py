"""The effect of training: the start and the tuned model in one table, with paired verdicts.

Besides the main metrics of a benchmark, the table has the mean scores of originals, positives and
negatives: a model may rank captions better and still score every true caption lower than before.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.writing import whole_file
from counterpoint.cases import is_gallery
from counterpoint.evaluation.evaluating import BATCH, evaluate
from counterpoint.metrics import ALL, LEVEL, METRICS, RESAMPLES, Metric, estimate
from counterpoint.runs import Part, Row, Run, as_json, averaging_of, compare, members_in, rows
from counterpoint.scoring import Model

OUTCOME_FILE: Final = "outcome.json"
FORMAT: Final = 1
ORIGINALS: Final = "mean_score_original"
MEAN_SCORES: Final = (ORIGINALS, "mean_score_positive", "mean_score_negative")

# Mean scores have no better side: they are higher or lower.
Judgement = Literal["better", "worse", "higher", "lower", "tied"]
Side = str | tuple[str, Model] | Run  # a model's id, its name and itself, or what it has scored


@dataclass(frozen=True, slots=True)
class MetricChange:
    """One metric of the start and of the tuned model, over the cases that both scored.

    `difference` is tuned - start, with the interval of the paired bootstrap over source images.
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
    start_ties: int  # values that hang on a tie
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
    batch_size: int = BATCH,
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
            start=start.model,
            tuned=tuned.model,
        )
    gaps = {**_directed(one, two, resamples), **_of_scores(one, two, resamples)}
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
    return notes


def _shared(run: Run, other: Run) -> Run:
    """A run with the benchmarks and cases that another run has too."""
    parts = {}
    for name, part in run.parts.items():
        if name in other.parts:
            parts[name] = _with_cases(part, set(other.parts[name].cases.ids))
    return replace(run, parts=parts)


def _with_cases(part: Part, ids: set[str]) -> Part:
    kept = np.array([id in ids for id in part.cases.ids], dtype=bool)
    if kept.all():
        return part  # a gallery's scores are not copied
    pairs = np.repeat(kept, np.diff(part.cases.pair_offsets))
    return replace(part, cases=part.cases.keep(kept), scores=part.scores[pairs])


# --- differences -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Gap:
    value: float
    low: float
    high: float
    p: float
    n: int
    verdict: Judgement


Key = tuple[str, str, str]  # benchmark, group, metric


def _directed(start: Run, tuned: Run, resamples: int) -> dict[Key, _Gap]:
    """The metrics that have a better side."""
    words: dict[str, Judgement] = {"A is better": "better", "B is better": "worse", "tied": "tied"}
    return {
        (d.benchmark, d.group, d.metric): _Gap(
            d.difference, d.ci_low, d.ci_high, d.p_holm, d.n, words[d.verdict]
        )
        for d in compare(tuned, start, resamples=resamples)
    }


def _of_scores(start: Run, tuned: Run, resamples: int) -> dict[Key, _Gap]:
    return {
        (name, ALL, metric): gap
        for name, part in start.parts.items()
        for metric, gap in _score_gaps(part, tuned.parts[name], resamples)
    }


def _score_gaps(start: Part, tuned: Part, resamples: int) -> Iterator[tuple[str, _Gap]]:
    """Paired differences of the mean scores, averaged as the benchmark's protocol averages."""
    place = {id: row for row, id in enumerate(tuned.cases.ids)}
    order = np.array([place[id] for id in start.cases.ids])
    gaps = _scores(tuned)[order] - _scores(start)
    clusters = np.unique(start.cases.frame["cluster"].to_numpy(), return_inverse=True)[1]
    members = members_in(start.cases.frame, start.protocol)
    averaging = averaging_of(start, start.protocol)
    wanted = {label: members[label] for label in (ALL, *averaging.needed(members))}
    found = estimate(gaps, clusters.reshape(-1), wanted, averaging, resamples=resamples)[ALL]
    for metric, e in zip(MEAN_SCORES, found, strict=True):
        if e.n:
            side: Judgement = "higher" if e.value > 0 else "lower"
            yield (
                metric,
                _Gap(e.value, e.low, e.high, e.p, e.n, side if e.p < 1 - LEVEL else "tied"),
            )


def _scores(part: Part) -> np.ndarray:
    """Each case's mean scores, (cases, 3); NaN where it has none."""
    found = np.full((len(part.cases), len(MEAN_SCORES)), np.nan)
    for block in part.cases.blocks():
        if block.texts or is_gallery(*block.truth.shape[1:]):
            continue
        scores = part.cases.scores_of(block, part.scores)
        for column, name in enumerate(MEAN_SCORES):
            metric = METRICS[name]
            if isinstance(metric, Metric):
                mask = metric.applies(block.truth)
                values = metric.values(scores[mask], block.truth[mask], "wrong")
                found[block.rows[mask], column] = values
    return found


def _change(start: Row, tuned: Row, gap: _Gap) -> MetricChange:
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
        gap.value,
        gap.low,
        gap.high,
        gap.p,
        gap.n,
        start.chance,
        gap.verdict,
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
