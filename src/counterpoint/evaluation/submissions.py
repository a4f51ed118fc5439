"""Submissions to a board: a run folder with the numbers it claims, each computed again.

    run.json, cases.parquet, scores.parquet    a run folder
    results.json                               its numbers, as `rescore --json` prints them

Scores that were invented as a whole cannot be found without the model.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, Final

import polars as pl

from counterpoint._util.errors import CounterpointError, NotFoundError, RunError, reason
from counterpoint._util.untrusted import parse_json, read_regular, shown
from counterpoint.benchmarks import (
    BENCHMARKS,
    WITH_POSITIVES,
    absent_from,
    base_id,
    describe_absent,
    load_benchmark,
    unexplained,
    why_incomplete,
)
from counterpoint.cases import OPTIONAL, Cases, without_images
from counterpoint.evaluation.evaluating import hash_of, prepare
from counterpoint.metrics import METRICS, PROTOCOLS, RESAMPLES, PooledMetric, Protocol
from counterpoint.runs import (
    Part,
    Row,
    Run,
    as_json,
    find_runs,
    load_run,
    rows,
)

RESULTS: Final = "results.json"
_FILES: Final = ("cases.parquet", "scores.parquet", RESULTS)
_PLACE: Final = ("benchmark", "group", "metric")
_CLAIMS: Final = tuple(f.name for f in fields(Row) if f.name not in (*_PLACE, "model"))
_HUGE: Final = 1e300  # beyond this, a claim is no number of ours, and may be no float at all
_DIGITS: Final = 6  # significant ones, as `rescore --json` prints them
# What of a protocol a number depends on.
_DECIDING: Final = tuple(
    f.name for f in fields(Protocol) if f.compare and f.name not in ("name", "summary", "averages")
)


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
    """Compute every number of a submission again. With `data`, its cases are compared, too.

    Nothing that a submission says of itself decides what is compared: its protocols are those of
    their names, and its cases those of the data, one by one.
    """
    try:
        run = load_run(folder)
    except CounterpointError as error:
        return Submission(folder, "", 0, (f"{error} [{error.code}]",), ())
    differences: list[str] = []
    notes = [
        f"{part.benchmark}: {part.trained_on}." for part in run.parts.values() if part.trained_on
    ]
    for sent in run.parts.values():
        wrong = list(_other_protocol(folder, sent))
        differences += [*wrong, *_other_cases(folder, sent)]
        if wrong and sent.protocol.name not in PROTOCOLS:
            continue  # nothing says which of its cases should be there
        part = replace(sent, protocol=PROTOCOLS[sent.protocol.name])
        looks = [_lacking(folder, run, part)]
        looks += [] if data is None else [_beside_data(folder, run, part, data)]
        for hidden, told in looks:
            differences += hidden
            notes += told
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
        found = parse_json(read_regular(path), "it", RunError, once=True)
    except OSError as error:
        raise RunError(
            "E-FILE-UNREADABLE", f"{path}: cannot be read ({reason(error)}); {again}."
        ) from None
    except RunError as error:
        raise RunError("E-RESULTS-FORMAT", f"{path}: {error}; {again}.") from None
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
    places = Counter((row["benchmark"], row["group"], row["metric"]) for row in claims)
    lacking = [place for place in found if METRICS[place[-1]].main and not places[place]]
    if lacking:
        first = ", ".join(map(shown, lacking[0]))
        yield (
            f"{folder / RESULTS}: lacks {len(lacking):,} of the numbers of this run, the first is "
            f"{first}; write it again, with all of them."
        )
    for claim in claims:
        place = (claim["benchmark"], claim["group"], claim["metric"])
        where = f"{folder / RESULTS}: {', '.join(map(shown, place))}"
        if places[place] > 1:
            yield f"{where} is there {places[place]} times; write the file again."
            places[place] = 1
        row = found.get(place)
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


def _other_protocol(folder: Path, part: Part) -> Iterator[str]:
    """What a protocol says under an official name must be what that name stands for."""
    sent = part.protocol
    known = PROTOCOLS.get(sent.name)
    where = f"{folder}/run.json: {shown(part.benchmark)}"
    if known is None:
        yield f"{where} was scored under {shown(sent.name)}, which is no protocol of Counterpoint."
        return
    for name in _DECIDING:
        if getattr(sent, name) != getattr(known, name):
            yield (
                f"{where} has the protocol {sent.name!r} with {name} "
                f"{shown(_plain(getattr(sent, name)))}, which has "
                f"{shown(_plain(getattr(known, name)))}; evaluate again."
            )


def _plain(value: Any) -> Any:
    return sorted(value) if isinstance(value, frozenset) else value


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
    """Every case beside the benchmark's own, where its data are at hand."""
    where = f"{folder}: {shown(part.benchmark)}"
    if (
        base_id(part.benchmark) not in BENCHMARKS.names()
        or f"{WITH_POSITIVES}:" in part.benchmark  # it may name a file of positives
    ):
        # The id of a submission must not choose files of this machine to be read.
        return [], [f"{where} was not compared with the data: it is not a benchmark by its id."]
    try:
        loaded = load_benchmark(part.benchmark, data, protocol=part.protocol.name)
        asked = prepare(loaded.cases, part.protocol, _limit(run))
    except NotFoundError as error:
        return [f"{where} is no benchmark: {error}"], []
    except CounterpointError as error:
        return [], [f"{where} was not compared with the data: {error}"]
    here = absent_from(part.benchmark, loaded.cases, part.protocol)
    unlike, unknown, lacking = _against(part, asked)
    differences, notes = [], []
    again = f"the data in {data}; evaluate again on the published files"
    if unlike:
        differences.append(f"{where} has other cases than {again}: {_first(unlike)}.")
    if unknown and here:
        notes.append(
            f"{where} was not compared in full: the data in {data} lack {_first(unknown)}."
        )
    elif unknown:
        differences.append(f"{where} has cases that are not in {again}: {_first(unknown)}.")
    if lacking:
        said = f"{where} lacks cases that are in the data in {data}: {_first(lacking)}"
        stated = sum(len(lacking) if one.cases is None else one.cases for one in part.absent)
        if len(lacking) > stated:
            differences.append(f"{said}; run.json does not say so: evaluate again.")
        else:
            notes.append(f"{said}.")
    if not (unlike or unknown or lacking) and hash_of(asked, loaded.training) != part.data_hash:
        differences.append(f"{where} has another data_hash in run.json than {again}.")
    return differences, notes


def _against(part: Part, asked: Cases) -> tuple[list[str], list[str], list[str]]:
    """The ids of cases that differ from those asked for, are unknown, or are not accounted for."""
    sent, expected = _lines(part.cases), _lines(_without_lost(asked, part))
    unlike = [id for id, line in sent.items() if expected.get(id, line) != line]
    left_out = {id for id, _ in part.left_out}
    unlike += sorted(left_out & sent.keys())  # scored and left out
    unknown = [id for id in (*sent, *sorted(left_out)) if id not in expected]
    lacking = [id for id in expected if id not in sent and id not in left_out]
    return unlike, unknown, lacking


def _lines(cases: Cases) -> dict[str, str]:
    """Each case as a line of JSON, with all columns that a case may have."""
    frame = cases.frame.select(cases.columns.names())
    unused = {name: kind for name, kind in OPTIONAL.items() if name not in frame.columns}
    full = frame.with_columns(pl.lit(None, kind).alias(name) for name, kind in unused.items())
    return dict(zip(cases.ids, full.write_ndjson().split("\n"), strict=False))


def _without_lost(asked: Cases, part: Part) -> Cases:
    """The cases asked for without the images that galleries of the run say they have lost."""
    lost = Counter(id for id, _ in part.left_out_images)
    rows: dict[int, set[int]] = {}
    if lost:
        sent: Mapping[str, set[Any]] = {
            id: set(map(_reference, images))
            for id, images in part.cases.frame.select("id", "images")
            .filter(pl.col("id").is_in(list(lost)))
            .iter_rows()
        }
        for row, (id, images) in enumerate(asked.frame.select("id", "images").iter_rows()):
            there = sent.get(id, set())
            gone = {k for k, image in enumerate(images) if _reference(image) not in there}
            if len(gone) == lost[id] < len(images):  # if not, the case is another one
                rows[row] = gone
    return without_images(asked, rows).cases


def _reference(image: Mapping[str, Any]) -> tuple[Any, ...]:
    return image["path"], None if image["box"] is None else tuple(image["box"])


def _first(ids: Sequence[str]) -> str:
    return f"{len(ids):,}, the first is {shown(ids[0])}"
