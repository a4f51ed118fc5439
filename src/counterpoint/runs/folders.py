"""Run folders: one model, one or more benchmarks, everything needed to compute any number again.

    run.json         configuration, protocol, versions, device, hashes, counts, what was left out
    cases.parquet    the cases that were scored, captions as the model saw them
    scores.parquet   the raw score of every pair: benchmark, case_id, image, caption, score

A folder is written beside its place and renamed into it, so it is never half there.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import numpy as np
import polars as pl

from counterpoint._util.errors import CaseError, RunError, reason
from counterpoint._util.tables import parquet_frames
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint._util.writing import left_by_kills, recover, whole_folder
from counterpoint.cases import (
    CAPTION_FORMATS,
    EMPTY_CAPTION,
    SCHEMA,
    Absent,
    Cases,
    refuse_duplicates,
    refuse_malformed,
)
from counterpoint.metrics import AVERAGES, Overlong, Protocol, Tie
from counterpoint.runs.score_files import read_scores, write_scores

# --- What makes a run folder malformed although its files are those that it describes -----------
#
# Runs are sent from one person to another, so nothing in them is taken on trust: every field has
# the
# type that the rest of the program expects, and counts agree with the tables.


# A shape is a type, a tuple of values, a list of one shape, or an object: shapes by name ("?" marks
# a field that may be missing), and under `...` the shape of fields of any other name.
_ANYTHING: Final = {...: object}
_REASONS: Final = [{"case_id": str, "reason": str}]
_PROTOCOL: Final = {
    "name": str,
    "summary": str,
    "tie": get_args(Tie),
    "average": tuple(AVERAGES),
    "averages": [tuple(AVERAGES)],
    "caption_format": tuple(CAPTION_FORMATS),
    "exclude": [str],
    "?skip": [str],  # not in the first runs
    "min_count": int,
    "overlong": get_args(Overlong),
}
_BENCHMARK: Final = {
    "protocol": _PROTOCOL,
    "cases": int,
    "scored": int,
    "pairs": int,
    "cut_captions": int,
    "left_out": _REASONS,
    "?lost_images": _REASONS,  # not in the first runs
    "?absent": [{"what": str, "reason": str, "cases": int | None}],  # not in the first runs
    "data_hash": str,
    "root": str | None,
    ...: object,
}
_RUN: Final = {
    "format": int,
    "model": str,
    "files": {...: str},
    "benchmarks": {...: _BENCHMARK},
    "?created": str,
    "?command": [str],
    "?options": _ANYTHING,
    "?fingerprint": str,
    "?model_info": {"?notes": [str], ...: object},
    "?versions": {...: str},
    "?platform": str,
    ...: object,
}
_CASE_COLUMNS: Final = pl.Schema({"benchmark": pl.String(), **SCHEMA})


def refuse_manifest(manifest: Any, where: object) -> None:
    """Raise a RunError that names the first field that is missing or of another type."""
    wrong = _misfit(manifest, _RUN, "")
    if wrong is not None:
        raise RunError(
            "E-RUN-DAMAGED", f"{where} is damaged ({wrong}); run the evaluation again.", path=where
        )


def _misfit(value: Any, shape: Any, name: str) -> str | None:
    """What does not fit; None if all does."""
    if isinstance(shape, Mapping):
        return _misfit_object(value, shape, name)
    if isinstance(shape, list) and isinstance(value, list):
        found = (_misfit(item, shape[0], f"an item of {name}") for item in value)
        return next((wrong for wrong in found if wrong is not None), None)
    if isinstance(shape, list):
        fits = False
    elif isinstance(shape, tuple):
        fits = isinstance(value, str) and value in shape
    else:
        fits = isinstance(value, shape)
        if isinstance(value, int) and shape is not object:  # a count, which true is not
            fits = fits and type(value) is int and 0 <= value < 2**63
    return None if fits else f"{name or 'it'} is {shown(value)}"


def _misfit_object(value: Any, shape: Mapping[Any, Any], name: str) -> str | None:
    if not isinstance(value, dict):
        return f"{name or 'it'} is {shown(value)}"
    named = {key.removeprefix("?"): key for key in shape if key is not ...}
    missing = [key for key, said in named.items() if key == said and key not in value]
    if missing:
        return f"{missing[0]} is missing" + (f" from {name}" if name else "")
    for key, item in value.items():
        if key not in named and ... not in shape:
            return f"{name} has an unknown field {shown(key)}"
        wrong = _misfit(item, shape[named.get(key, ...)], key if key in named else shown(key))
        if wrong is not None:
            return wrong
    return None


def refuse_table(table: pl.DataFrame, described: Mapping[str, Any], where: object) -> None:
    """Raise unless the table has the columns of a run's cases, and no other benchmarks."""
    if table.schema != _CASE_COLUMNS:
        raise RunError(
            "E-RUN-DAMAGED",
            f"{where}: should have the columns {', '.join(_CASE_COLUMNS)} of their types.",
            path=where,
        )
    if table["benchmark"].null_count() or set(table["benchmark"].unique()) - set(described):
        raise RunError(
            "E-RUN-DAMAGED",
            f"{where}: has cases of a benchmark that the run does not name.",
            path=where,
        )


def refuse_cases(cases: Cases, about: Mapping[str, Any], where: str) -> None:
    """Raise unless the cases are well-formed, and as many as the run says."""
    try:
        # A protocol that rewrites captions may leave nothing of one.
        refuse_malformed(cases.frame, 0, where, allowed=EMPTY_CAPTION)
        refuse_duplicates(cases.ids, where)
    except CaseError as error:
        raise RunError("E-RUN-DAMAGED", str(error), cause=error.code, **error.data) from None
    pairs = int(cases.pair_offsets[-1])
    found = {"scored": len(cases), "cases": len(cases) + len(about["left_out"]), "pairs": pairs}
    for name, count in found.items():
        if about[name] != count:
            raise RunError(
                "E-RUN-DAMAGED",
                f"{where}: the run says {name!r} is {about[name]:,}, its tables have {count:,}.",
                source=where,
                field=name,
            )


FORMAT: Final = 1
_WAIT: Final = 600  # seconds that another process may take to write its run to the same folder
_MANIFEST, _CASES, _SCORES = "run.json", "cases.parquet", "scores.parquet"


@dataclass(frozen=True, slots=True)
class Part:
    """One benchmark of a run: its scored cases and their scores, flat as `Cases.pair_offsets`."""

    benchmark: str
    cases: Cases
    scores: np.ndarray
    protocol: Protocol
    left_out: tuple[tuple[str, str], ...] = ()  # case id and reason
    cut_captions: int = 0
    data_hash: str = ""  # of all cases asked for, those left out too
    lost_images: tuple[tuple[str, str], ...] = ()  # of galleries: case id and reason
    absent: tuple[Absent, ...] = ()  # of the published benchmark: not in the data

    @property
    def missing(self) -> int:
        """How many cases, and images of galleries, the published benchmark has beyond the scores.

        A file with an unknown number of cases counts as one.
        """
        absent = sum(1 if one.cases is None else one.cases for one in self.absent)
        return len(self.left_out) + len(self.lost_images) + absent


@dataclass(frozen=True, slots=True)
class Run:
    """A model's scores on some benchmarks."""

    model: str
    parts: dict[str, Part]
    manifest: dict[str, Any]
    folder: Path | None = None

    @property
    def left_out(self) -> int:
        """How many cases, and images of galleries, were not scored or are not in the data."""
        return sum(part.missing for part in self.parts.values())


class OtherFormatError(RunError):
    """A run folder of another version of Counterpoint."""


class Question(NamedTuple):
    """What a run asks: which model, on what, how. Its answers are the scores."""

    model: str
    protocols: Mapping[str, str]  # by benchmark
    options: Mapping[str, Any]

    def __str__(self) -> str:
        told = [f"{self.model} on {', '.join(self.protocols)}"]
        told += [f"{name}={value}" for name, value in self.options.items() if value is not None]
        return ", ".join(told)


def question(model: str, protocols: Mapping[str, str], options: Mapping[str, Any]) -> Question:
    """Of all options, those that change what is asked."""
    return Question(model, protocols, {name: options.get(name) for name in ("limit", "precision")})


def save_run(run: Run, folder: Path, *, overwrite: bool = False) -> Run:
    """Write a run folder, in place of an older one that asks the same question."""
    protocols = {name: part.protocol.name for name, part in run.parts.items()}
    asked = question(run.model, protocols, run.manifest.get("options", {}))
    with whole_folder(folder, RunError, wait=_WAIT) as draft:
        refuse_other(folder, asked, overwrite=overwrite)  # again: hours may have gone by
        _case_table(run).write_parquet(draft / _CASES)
        parts = ((name, part.cases, part.scores) for name, part in run.parts.items())
        write_scores(draft / _SCORES, parts)
        manifest = {
            **run.manifest,
            "format": FORMAT,
            "model": run.model,
            "benchmarks": {name: _describe(part) for name, part in run.parts.items()},
            "files": {name: file_digest(draft / name) for name in (_CASES, _SCORES)},
        }
        text = json.dumps(manifest, indent=2, ensure_ascii=False, allow_nan=False)
        (draft / _MANIFEST).write_text(text + "\n", encoding="utf-8")
    return Run(run.model, run.parts, manifest, folder)


def refuse_other(folder: Path, asked: Question, *, overwrite: bool = False) -> None:
    """Raise if something else stands where a run should go, or a run that asks something else."""
    if folder.is_dir():
        other = any(folder.iterdir()) and not (folder / _MANIFEST).is_file()
    else:
        other = folder.exists()
    if other:
        raise RunError(
            "E-OUTPUT-EXISTS",
            f"{folder} exists and is no run folder; choose another --out.",
            path=folder,
        )
    if overwrite or not (folder / _MANIFEST).is_file():
        return
    try:
        manifest = _read_manifest(folder)
    except OtherFormatError:
        raise  # another version can read it
    except RunError:
        return  # a damaged run holds nothing that could be lost
    protocols = {name: about["protocol"]["name"] for name, about in manifest["benchmarks"].items()}
    there = question(manifest["model"], protocols, manifest.get("options", {}))
    if there != asked:
        raise RunError(
            "E-OUTPUT-EXISTS",
            f"{folder} holds a run of {shortened(there)}, and this one would be of "
            f"{shortened(asked)}; choose another --out, or say --overwrite.",
            path=folder,
        )


def _describe(part: Part) -> dict[str, Any]:
    return {
        "protocol": {
            **asdict(part.protocol),
            "exclude": sorted(part.protocol.exclude),
            "skip": sorted(part.protocol.skip),
        },
        "cases": len(part.cases) + len(part.left_out),
        "scored": len(part.cases),
        "pairs": len(part.scores),
        "cut_captions": part.cut_captions,
        "left_out": _reasons(part.left_out),
        "lost_images": _reasons(part.lost_images),
        "absent": [one._asdict() for one in part.absent],
        "data_hash": part.data_hash or part.cases.content_hash(),
        "root": None if part.cases.root is None else str(part.cases.root),
    }


def _case_table(run: Run) -> pl.DataFrame:
    tables = [
        part.cases.frame.select(pl.lit(name).alias("benchmark"), *SCHEMA.names())
        for name, part in run.parts.items()
    ]
    return pl.concat(tables)


def _reasons(left_out: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"case_id": case, "reason": why} for case, why in left_out]


def find_runs(path: Path) -> list[Path]:
    """The run folders at or below a path, in the order in which they were made, then by name."""
    for folder in (path, *left_by_kills(path)):
        recover(folder)
    if (path / _MANIFEST).is_file():
        return [path]
    found = sorted(file.parent for file in path.glob(f"**/{_MANIFEST}") if file.is_file())
    found = [folder for folder in found if not folder.name.startswith(".")]
    if not found:
        raise RunError("E-RUN-MISSING", f"{path}: no run folder there (no {_MANIFEST}).", path=path)
    return sorted(found, key=_created)


def _created(folder: Path) -> str:
    """When a run was made; whoever loads a damaged one is told."""
    try:
        return str(_read_manifest(folder).get("created", ""))
    except RunError:
        return ""


def load_run(path: str | Path) -> Run:
    """Read a run folder; what is damaged is refused."""
    folders = find_runs(Path(path))
    if len(folders) > 1:
        names = ", ".join(str(folder) for folder in folders[:4])
        raise RunError(
            "E-RUN-AMBIGUOUS",
            f"{path} holds {len(folders)} runs; name one of them: {names} ...",
            path=path,
            runs=folders,
        )
    [folder] = folders
    manifest = _read_manifest(folder)
    described = manifest["benchmarks"]
    table = pl.concat(parquet_frames(_checked(folder, _CASES, manifest), RunError))
    refuse_table(table, described, folder / _CASES)
    cases = {
        name: _read_cases(name, about, table, f"{folder / _CASES}: {shortened(name)}")
        for name, about in described.items()
    }
    scores = read_scores(_checked(folder, _SCORES, manifest), cases.items())
    parts = {
        name: _part(name, about, cases[name], scores[name]) for name, about in described.items()
    }
    return Run(manifest["model"], parts, manifest, folder)


def _read_manifest(folder: Path) -> dict[str, Any]:
    path = folder / _MANIFEST
    try:
        manifest = parse_json(path.read_bytes(), "it", RunError)
    except RunError as error:
        raise RunError(
            "E-RUN-DAMAGED", f"{path} is damaged ({error}); run the evaluation again.", path=path
        ) from None
    except OSError as error:
        raise RunError(
            "E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.", path=path
        ) from None
    version = manifest.get("format", FORMAT) if isinstance(manifest, dict) else FORMAT
    if version != FORMAT:
        raise OtherFormatError(
            "E-RUN-FORMAT",
            f"{folder} has run format {shown(version)}, this version reads {FORMAT}.",
            path=folder,
            format=version,
        )
    refuse_manifest(manifest, path)
    return dict(manifest)


def _checked(folder: Path, name: str, manifest: dict[str, Any]) -> Path:
    """The path of a run's file, if it is the file that the manifest describes."""
    path = folder / name
    if not path.is_file():
        raise RunError(
            "E-RUN-DAMAGED",
            f"{folder} is damaged: {name} is missing; run the evaluation again.",
            path=path,
        )
    if file_digest(path) != manifest["files"].get(name):
        raise RunError(
            "E-RUN-DAMAGED",
            f"{path} is not the file that {_MANIFEST} describes; run the evaluation again.",
            path=path,
        )
    return path


def _read_cases(name: str, about: dict[str, Any], table: pl.DataFrame, where: str) -> Cases:
    root = about["root"]
    chosen = table.filter(pl.col("benchmark") == name).drop("benchmark")
    cases = Cases(chosen, None if root is None else Path(root))
    refuse_cases(cases, about, where)
    return cases


def _part(name: str, about: dict[str, Any], cases: Cases, scores: np.ndarray) -> Part:
    protocol = about["protocol"]
    return Part(
        name,
        cases,
        scores,
        Protocol(
            **{
                **protocol,
                "exclude": frozenset(protocol["exclude"]),
                "skip": frozenset(protocol.get("skip", ())),  # not in the first runs
                "averages": tuple(protocol["averages"]),
            }
        ),
        _as_pairs(about["left_out"]),
        about["cut_captions"],
        about["data_hash"],
        _as_pairs(about.get("lost_images", [])),
        tuple(Absent(**one) for one in about.get("absent", [])),
    )


def _as_pairs(reasons: list[dict[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((row["case_id"], row["reason"]) for row in reasons)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
