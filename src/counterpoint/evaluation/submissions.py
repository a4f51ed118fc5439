"""Submissions to a board: a run folder with the numbers it claims, each computed again.

    run.json, cases.parquet, scores.parquet    a run folder
    results.json                               its numbers, as `rescore --json` prints them

Scores that were invented as a whole cannot be found without the model.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CounterpointError, RunError, reason
from counterpoint._util.untrusted import parse_json, shown
from counterpoint.benchmarks import (
    BENCHMARKS,
    absent_from,
    base_id,
    describe_absent,
    load_benchmark,
    unexplained,
    why_incomplete,
)
from counterpoint.evaluation.evaluating import prepare
from counterpoint.metrics import METRICS, RESAMPLES, PooledMetric
from counterpoint.runs import Part, Row, Run, as_json, find_runs, load_run, rows

RESULTS: Final = "results.json"
_FILES: Final = ("cases.parquet", "scores.parquet", RESULTS)
_PLACE: Final = ("benchmark", "group", "metric")
_CLAIMS: Final = tuple(f.name for f in fields(Row) if f.name not in (*_PLACE, "model"))
_HUGE: Final = 1e300  # beyond this, a claim is no number of ours, and may be no float at all
_DIGITS: Final = 6  # significant ones, as `rescore --json` prints them


@dataclass(frozen=True, slots=True)
class Submission:
    """What was found of a run folder. It is refused if it has differences; notes are no faults."""

    folder: Path
    model: str
    numbers: int  # that were computed again
    differences: tuple[str, ...]
    notes: tuple[str, ...]


def write_results(found: Sequence[Row], folder: Path) -> None:
    """The numbers of a run beside its scores."""
    names = [*(field.name for field in fields(Row))]
    lines = [
        json.dumps({key: row[key] for key in names if key in row}, ensure_ascii=False)
        for row in as_json(found)
    ]
    text = "[\n" + ",\n".join(lines) + "\n]\n"
    (folder / RESULTS).write_text(text, encoding="utf-8")


def find_submissions(path: Path) -> list[Path]:
    """The run folders at or below a path, and folders with some of a run's files but no run.json.

    A run whose run.json is gone must not be passed over.
    """
    left = {file.parent for name in _FILES for file in path.glob(f"**/{name}")}
    left = {
        folder
        for folder in left
        if not (folder / "run.json").is_file() and not folder.name.startswith(".")  # a draft
    }
    if left and not any(path.glob("**/run.json")):
        return sorted(left)
    return list(dict.fromkeys([*find_runs(path), *sorted(left)]))


def check_submission(
    folder: Path, *, data: Path | None = None, resamples: int = RESAMPLES
) -> Submission:
    """Compute every number of a submission again. With `data`, its cases are compared, too."""
    try:
        run = load_run(folder)
    except CounterpointError as error:
        return Submission(folder, "", 0, (f"{error} [{error.code}]",), ())
    differences, notes = [], []
    for part in run.parts.values():
        hidden, told = _lacking(folder, run, part)
        differences += [*hidden, *_other_cases(folder, part)]
        notes += told
        if data is not None:
            wrong, unknown = _beside_data(folder, run, part, data)
            differences += wrong
            notes += unknown
    try:
        claims = _read_claims(folder)
        differences += _compared(folder, run, claims, resamples)
    except RunError as error:
        claims = []
        differences.append(f"{error} [{error.code}]")
    return Submission(folder, run.model, len(claims), tuple(differences), tuple(notes))


# --- the numbers ---------------------------------------------------------------------------------


def _read_claims(folder: Path) -> list[dict[str, Any]]:
    path = folder / RESULTS
    again = f"write it with: counterpoint rescore {folder} --json > {path}"
    try:
        found = parse_json(path.read_bytes(), "it", RunError)
    except OSError as error:
        raise RunError(
            "E-FILE-UNREADABLE", f"{path}: cannot be read ({reason(error)}); {again}.", path=path
        ) from None
    except RunError as error:
        raise RunError("E-RESULTS-FORMAT", f"{path}: {error}; {again}.", path=path) from None
    if (
        not isinstance(found, list)
        or not found
        or not all(
            isinstance(row, dict) and all(isinstance(row.get(key), str) for key in _PLACE)
            for row in found
        )
    ):
        raise RunError(
            "E-RESULTS-FORMAT",
            f"{path}: should be a list of rows with {', '.join(_PLACE)}; {again}.",
            path=path,
        )
    return found


def _compared(
    folder: Path, run: Run, claims: Sequence[dict[str, Any]], resamples: int
) -> Iterator[str]:
    """One sentence for each number that is not the one that the scores give."""
    claimed = {METRICS[row["metric"]] for row in claims if row["metric"] in METRICS}
    short = not any(isinstance(m, PooledMetric) and not m.main for m in claimed)  # they take long
    found = {
        (row["benchmark"], row["group"], row["metric"]): row
        for row in as_json(rows(run, resamples=resamples, main=short))
    }
    for claim in claims:
        where = f"{folder / RESULTS}: {', '.join(shown(claim[key]) for key in _PLACE)}"
        row = found.get((claim["benchmark"], claim["group"], claim["metric"]))
        if row is None:
            yield f"{where} does not follow from the scores of this run; remove it."
            continue
        if claim.get("model", run.model) != run.model:
            yield f"{where} is of {shown(claim['model'])}, and the run of {run.model}; correct it."
        unlike = [key for key in _CLAIMS if not _same(claim.get(key), row.get(key))]
        if unlike:
            said = ", ".join(
                f"{key} is {shown(claim.get(key))}, the scores give {shown(_rounded(row.get(key)))}"
                for key in unlike
            )
            yield f"{where}: {said}; write the file again, or send the scores it was made from."


def _same(claimed: Any, found: Any) -> bool:
    """Whether two numbers agree to the last of the digits: rounding, and sums on other machines."""
    if not all(isinstance(x, int | float) and not isinstance(x, bool) for x in (claimed, found)):
        return claimed is None and found is None
    if isinstance(found, int) or not found or not abs(claimed) < _HUGE:
        return bool(claimed == found)
    unit = 10.0 ** (math.floor(math.log10(abs(found))) - _DIGITS + 1)
    return abs(claimed - found) <= unit


def _rounded(value: Any) -> Any:
    return float(f"{value:.{_DIGITS}g}") if isinstance(value, float) else value


# --- the cases -----------------------------------------------------------------------------------


def _other_cases(folder: Path, part: Part) -> Iterator[str]:
    """The hash is of all cases that were asked for: it can be made again if none was left out."""
    if part.left_out or part.left_out_images or part.benchmark.startswith("probe/"):
        return
    if part.cases.content_hash() != part.data_hash:
        yield (
            f"{folder}/cases.parquet: the cases of {shown(part.benchmark)} are not those of the "
            "data_hash in run.json; send the run as it was made, or evaluate again."
        )


def _lacking(folder: Path, run: Run, part: Part) -> tuple[list[str], list[str]]:
    """What a run lacks of the published benchmark: what it hides, and what run.json says."""
    limit = _limit(run)
    try:
        why = why_incomplete(part, part.protocol, {"limit": limit})
        hidden = limit is None and unexplained(part, part.protocol) > 0
        absent = absent_from(part.benchmark, part.cases, part.protocol) if why else ()
    except CounterpointError:  # a case file of the user, or an option that is unknown here
        return [], []
    if not why:
        return [], []
    said = f"; absent: {describe_absent(absent)}" if absent else ""
    where = f"{folder}: {shown(part.benchmark)} is not the whole benchmark: {why}{said}"
    if hidden:
        return [f"{where}; run.json does not say so: evaluate all of it, or with --limit."], []
    return [], [f"{where}."]


def _limit(run: Run) -> int | None:
    limit = run.manifest.get("options", {}).get("limit")
    return limit if type(limit) is int and limit > 0 else None


def _beside_data(folder: Path, run: Run, part: Part, data: Path) -> tuple[list[str], list[str]]:
    """The hash of the cases beside that of the benchmark's own, where its data are at hand."""
    where = f"{folder}: {shown(part.benchmark)}"
    if base_id(part.benchmark) not in BENCHMARKS.names() or "+" in part.benchmark:
        # The id of a submission must not choose files of this machine to be read.
        return [], [f"{where} was not compared with the data: it is not a benchmark by its id."]
    try:
        loaded = load_benchmark(part.benchmark, data, protocol=part.protocol.name)
        cases = prepare(loaded.cases, part.protocol, _limit(run))
    except CounterpointError as error:
        return [], [f"{where} was not compared with the data: {error}"]
    if loaded.training is not None or cases.content_hash() == part.data_hash:
        return [], []
    return [
        f"{where} has other cases than the data in {data}; evaluate again on the published files."
    ], []
