"""Run folders: one model, one or more benchmarks, everything needed to compute any number again.

    run.json         configuration, protocol, versions, device, hashes, counts, what was left out
    cases.parquet    the cases that were scored, captions as the model saw them
    scores.parquet   the raw score of every pair: benchmark, case_id, image, caption, score

A folder is written as a draft and renamed, so it is never incomplete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import RunError, reason
from counterpoint._util.tables import ParquetGroups, parquet_frames
from counterpoint._util.untrusted import parse_json, read_regular, shortened, shown
from counterpoint._util.writing import left_by_kills, recover, whole_folder
from counterpoint.cases import CHUNK, OPTIONAL, Absent, Cases, columns_in
from counterpoint.metrics import Protocol
from counterpoint.runs.checks import refuse_cases, refuse_manifest, refuse_table
from counterpoint.runs.part import Part, TrainedOn
from counterpoint.runs.score_files import ScoreWriter, read_scores

FORMAT: Final = 1
_WAIT: Final = 600  # seconds that another process may take to write its run to the same folder
_GROUP: Final = 1 << 16  # cases that are a group of rows in the file
_MANIFEST, _CASES, _SCORES = "run.json", "cases.parquet", "scores.parquet"


class OtherFormatError(RunError):
    """A run folder of another version of Counterpoint."""


class Question(NamedTuple):
    """What was evaluated: a model, benchmarks with their protocols, and options."""

    model: str
    protocols: Mapping[str, str]  # by benchmark
    options: Mapping[str, Any]

    def key(self) -> str:
        """The same for equal questions, in whatever order their benchmarks are given."""
        return repr((self.model, sorted(self.protocols.items()), sorted(self.options.items())))

    def __str__(self) -> str:
        told = [f"{self.model} on {', '.join(self.protocols)}"]
        told += [f"{name}={value}" for name, value in self.options.items() if value is not None]
        return ", ".join(told)


def question(model: str, protocols: Mapping[str, str], options: Mapping[str, Any]) -> Question:
    """The question of a run, with the options that change its scores."""
    names = ("limit", "precision", "decode")
    return Question(model, protocols, {name: options.get(name) for name in names})


# --- writing ------------------------------------------------------------------------------------


def write_folder(
    folder: Path,
    model: str,
    parts: Mapping[str, Part],
    manifest: Mapping[str, Any],
    *,
    overwrite: bool = False,
) -> dict[str, Any]:
    """Write a run; it replaces an older one of the same question. Returns what `run.json` says."""
    protocols = {name: part.protocol.name for name, part in parts.items()}
    asked = question(model, protocols, manifest.get("options", {}))
    columns = {name for part in parts.values() for name in part.cases.columns}
    with whole_folder(folder, RunError, wait=_WAIT) as draft:
        refuse_other(folder, asked, overwrite=overwrite)  # hours may have gone by
        _write_cases(draft / _CASES, parts, columns_in(columns))
        with ScoreWriter(draft / _SCORES) as scores:
            for name, part in parts.items():
                scores.add_scores(name, part.cases, part.scores)
        told = {
            **manifest,
            "format": FORMAT,
            "model": model,
            "benchmarks": {name: _describe(part) for name, part in parts.items()},
            "files": {name: file_digest(draft / name) for name in (_CASES, _SCORES)},
        }
        text = json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False)
        (draft / _MANIFEST).write_text(text + "\n", encoding="utf-8")
    return told


def _write_cases(path: Path, parts: Mapping[str, Part], columns: pl.Schema) -> None:
    schema = pl.Schema({"benchmark": pl.String(), **columns})
    with ParquetGroups(path, schema, _GROUP) as table:
        for name, part in parts.items():
            own = {column: pl.col(column) for column in part.cases.columns}
            values = {"benchmark": pl.lit(name), **own}
            table.add(
                part.cases.frame.select(
                    values.get(column, pl.lit(None, kind)).alias(column)
                    for column, kind in schema.items()
                )
            )


def refuse_other(folder: Path, asked: Question, *, overwrite: bool = False) -> None:
    """Raise if the folder holds something else than a run, or a run of another question."""
    if folder.is_dir():
        other = any(folder.iterdir()) and not (folder / _MANIFEST).is_file()
    else:
        other = folder.exists()
    if other:
        raise RunError(
            "E-OUTPUT-EXISTS", f"{folder} exists and is not a run folder; choose another folder."
        )
    if overwrite or not (folder / _MANIFEST).is_file():
        return
    try:
        manifest = read_manifest(folder)
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
            f"{shortened(asked)}; choose another folder, or overwrite it (--overwrite).",
        )


def _describe(part: Part) -> dict[str, Any]:
    return {
        "protocol": part.protocol.plain(),
        "cases": len(part.cases) + len(part.left_out),
        "scored": len(part.cases),
        "pairs": len(part.scores),
        "cut_captions": part.cut_captions,
        "left_out": _reasons(part.left_out),
        "lost_images": _reasons(part.left_out_images),
        "absent": [one._asdict() for one in part.absent],
        "whole": part.whole,
        "data_hash": part.data_hash or part.cases.content_hash(),
        "root": None if part.cases.root is None else str(part.cases.root),
        **({} if part.trained_on is None else {"trained_on": part.trained_on._asdict()}),
    }


def _reasons(left_out: tuple[tuple[str, str], ...]) -> list[dict[str, str]]:
    return [{"case_id": case, "reason": why} for case, why in left_out]


# --- reading ------------------------------------------------------------------------------------


def find_runs(path: Path) -> list[Path]:
    """The run folders at or below a path, in the order in which they were made, then by name."""
    for folder in (path, *left_by_kills(path)):
        recover(folder)
    if (path / _MANIFEST).is_file():
        return [path]
    found = sorted(file.parent for file in path.glob(f"**/{_MANIFEST}") if file.is_file())
    found = [folder for folder in found if not folder.name.startswith(".")]
    if not found:
        raise RunError("E-RUN-MISSING", f"{path}: no run folder there (no {_MANIFEST}).")
    return sorted(found, key=_created)


def _created(folder: Path) -> str:
    """When a run was made; empty for a damaged run, which raises when it is loaded."""
    try:
        return str(read_manifest(folder).get("created", ""))
    except RunError:
        return ""


class RunContent(NamedTuple):
    """What a run folder holds."""

    model: str
    parts: dict[str, Part]
    manifest: dict[str, Any]
    folder: Path


def read_folder(path: Path) -> RunContent:
    """Read the one run folder at or below a path; what is damaged is refused."""
    folders = find_runs(path)
    if len(folders) > 1:
        names = ", ".join(str(folder) for folder in folders[:4])
        raise RunError(
            "E-RUN-AMBIGUOUS",
            f"{path} holds {len(folders)} runs; name one of them: {names} ...",
        )
    [folder] = folders
    manifest = read_manifest(folder)
    described = manifest["benchmarks"]
    cases = _read_cases(_checked(folder, _CASES, manifest), described)
    scores = read_scores(_checked(folder, _SCORES, manifest), cases.items())
    parts = {
        name: _part(name, about, cases[name], scores[name]) for name, about in described.items()
    }
    return RunContent(manifest["model"], parts, manifest, folder)


def read_manifest(folder: Path) -> dict[str, Any]:
    """What `run.json` says, checked; the tables are not read. Raises a RunError."""
    path = folder / _MANIFEST
    try:
        manifest = parse_json(read_regular(path), "it", RunError, once=True)
    except RunError as error:
        raise RunError(
            "E-RUN-DAMAGED", f"{path} is damaged ({error}); run the evaluation again."
        ) from None
    except OSError as error:
        raise RunError("E-FILE-UNREADABLE", f"{path}: cannot be read: {reason(error)}.") from None
    version = manifest.get("format", FORMAT) if isinstance(manifest, dict) else FORMAT
    if version != FORMAT:
        raise OtherFormatError(
            "E-RUN-FORMAT",
            f"{folder} has run format {shown(version)}, this version reads {FORMAT}.",
        )
    refuse_manifest(manifest, path)
    return dict(manifest)


def _checked(folder: Path, name: str, manifest: dict[str, Any]) -> Path:
    """The path of a run's file, if it is the file that the manifest describes."""
    path = folder / name
    if not path.is_file():
        raise RunError(
            "E-RUN-DAMAGED", f"{folder} is damaged: {name} is missing; run the evaluation again."
        )
    if file_digest(path) != manifest["files"].get(name):
        raise RunError(
            "E-RUN-DAMAGED",
            f"{path} is not the file that {_MANIFEST} describes; run the evaluation again.",
        )
    return path


def _read_cases(path: Path, described: Mapping[str, Any]) -> dict[str, Cases]:
    """The cases of each benchmark."""
    frames: dict[str, list[pl.DataFrame]] = {name: [] for name in described}
    for frame in parquet_frames(path, RunError, rows=CHUNK):
        refuse_table(frame, described, path)
        for name, mine in frames.items():
            mine.append(frame.filter(pl.col("benchmark") == name).drop("benchmark"))
    cases = {}
    for name, about in described.items():
        frame = pl.concat(frames.pop(name))
        # Columns that other benchmarks of the run have, and this one does not.
        frame = frame.select(column for column in frame if not _unused(column))
        root = about["root"]
        cases[name] = Cases(frame, None if root is None else Path(root))
        refuse_cases(cases[name], name, about, path)
    return cases


def _unused(column: pl.Series) -> bool:
    return column.name in OPTIONAL and column.null_count() == len(column)


def _part(name: str, about: dict[str, Any], cases: Cases, scores: np.ndarray) -> Part:
    return Part(
        name,
        cases,
        scores,
        Protocol.read(about["protocol"]),
        _as_pairs(about["left_out"]),
        about["cut_captions"],
        about["data_hash"],
        _as_pairs(about.get("lost_images", [])),
        tuple(Absent(**one) for one in about.get("absent", [])),
        TrainedOn(**about["trained_on"]) if "trained_on" in about else None,
        about.get("whole"),
    )


def _as_pairs(reasons: list[dict[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((row["case_id"], row["reason"]) for row in reasons)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
