"""Run folders: one model, one or more benchmarks, everything needed to compute any number again.

    run.json         configuration, protocol, versions, device, hashes, counts, what was left out
    cases.parquet    the cases that were scored, captions as the model saw them
    scores.parquet   the raw score of every pair: benchmark, case_id, image, caption, score

A folder is written as a draft and renamed, so it is never incomplete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Container, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import numpy as np
import polars as pl

from counterpoint._util.errors import RunError, reason
from counterpoint._util.tables import ParquetGroups, parquet_frames
from counterpoint._util.untrusted import parse_json, read_regular, shortened, shown
from counterpoint._util.writing import left_by_kills, recover, whole_folder
from counterpoint.cases import (
    CHUNK,
    OPTIONAL,
    SCHEMA,
    SURPLUS,
    Absent,
    Cases,
    SpillingTable,
    columns_in,
)
from counterpoint.metrics import RESAMPLES, Protocol, count_reasons, get_protocol
from counterpoint.runs.checks import refuse_cases, refuse_manifest, refuse_table
from counterpoint.runs.comparison import compare
from counterpoint.runs.overlap import TrainedOn
from counterpoint.runs.results import rows
from counterpoint.runs.score_files import ScoreWriter, read_scores
from counterpoint.runs.tables import Comparison, Results, left_out_notes, part_sizes

FORMAT: Final = 1
_WAIT: Final = 600  # seconds that another process may take to write its run to the same folder
_GROUP: Final = 1 << 16  # cases that are a group of rows in the file
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
    left_out_images: tuple[tuple[str, str], ...] = ()  # of galleries: case id and reason
    absent: tuple[Absent, ...] = ()  # of the published benchmark: not in the data
    trained_on: TrainedOn | None = None  # where the model's record says that some of it was
    whole: int | None = None  # cases of the whole benchmark, or images of a gallery, if known

    def __repr__(self) -> str:
        missing = f", {self.missing:,} left out" if self.missing else ""
        return f"{self.benchmark}: {len(self.cases):,} cases{missing}"

    @property
    def missing(self) -> int:
        """How many cases, and images of galleries, the published benchmark has beyond the scores.

        A file with an unknown number of cases counts as one.
        """
        lacking = [one.cases for one in self.absent if one.reason != SURPLUS]
        absent = sum(1 if count is None else count for count in lacking)
        return len(self.left_out) + len(self.left_out_images) + absent

    @property
    def surplus(self) -> int:
        """How many cases, images and captions there are beyond the published benchmark."""
        return sum(one.cases or 0 for one in self.absent if one.reason == SURPLUS)


@dataclass(frozen=True, slots=True, repr=False)
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

    @property
    def surplus(self) -> int:
        """How many cases are beyond the published benchmarks."""
        return sum(part.surplus for part in self.parts.values())

    def results(
        self,
        *,
        groups: bool = False,
        protocol: str | Protocol | None = None,
        resamples: int = RESAMPLES,
    ) -> Results:
        """Every metric of every benchmark with its interval, and of every group if asked for.

        `protocol` counts the same scores in another way: a tie, an average, an exclusion.
        """
        chosen = None if protocol is None else get_protocol(protocol)
        found = rows(self, chosen, groups=groups, resamples=resamples)
        return Results(found, left_out_notes(self), part_sizes([self]))

    def compare(
        self,
        other: Run | str | Path,
        *,
        protocol: str | Protocol | None = None,
        resamples: int = RESAMPLES,
        margin: float | None = None,
    ) -> Comparison:
        """This run (A) against another (B), paired case by case. A path is read as a run folder.

        `margin` is a difference that does not matter, in points of per cent: with it, runs whose
        difference lies within it with its whole interval are tied.
        """
        b = load_run(other)
        chosen = None if protocol is None else get_protocol(protocol)
        found = compare(self, b, chosen, resamples=resamples, margin=margin)
        notes = [*left_out_notes(self), *left_out_notes(b)]
        return Comparison(found, self.model, b.model, notes)

    def __repr__(self) -> str:
        parts = self.parts.values()
        counts = ", ".join(map(repr, parts))
        return f"Run({self.model!r}, {counts}, folder={str(self.folder)!r})"

    def _repr_html_(self) -> str:
        """For a notebook: the results."""
        return self.results()._repr_html_()


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


def save_run(run: Run, folder: Path, *, overwrite: bool = False) -> Run:
    """Write a run folder; it replaces an older run of the same question."""
    protocols = {name: part.protocol.name for name, part in run.parts.items()}
    asked = question(run.model, protocols, run.manifest.get("options", {}))
    columns = {name for part in run.parts.values() for name in part.cases.columns}
    with RunWriter(folder, asked, columns, overwrite=overwrite) as writer:
        writer.add(*run.parts.values())
        saved = writer.finish(run.manifest)
    return replace(saved, parts=run.parts)


class RunWriter:
    """Writes a run, some cases at a time, to a draft.

    From the first cases on, the folder is locked for other writers. `columns` are those of all its
    case tables.
    """

    def __init__(
        self, folder: Path, asked: Question, columns: Container[str], *, overwrite: bool = False
    ) -> None:
        self._folder, self._asked, self._overwrite = folder, asked, overwrite
        self._schema = pl.Schema({"benchmark": pl.String(), **columns_in(columns)})
        self._draft: Path | None = None
        self._parts: dict[str, _GrowingPart] = {}
        self._folders, self._files = ExitStack(), ExitStack()
        self._failure: Exception | None = None  # while the folder was written

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self._folders.close()
            return
        with suppress(_AbandonedError), self._folders:  # which says why it cannot be written
            with suppress(Exception):
                self._files.close()
            raise self._failure or _AbandonedError

    def add(self, *parts: Part) -> None:
        """Some cases of benchmarks, which come one after the other."""
        with self._writing():
            for part in parts:
                known = self._parts.setdefault(part.benchmark, _GrowingPart(part))
                start = 0
                for piece in part.cases.pieces():
                    stop = start + int(piece.pair_offsets[-1])
                    self._cases.add(self._rows(part.benchmark, piece))
                    self._scores.add_scores(part.benchmark, piece, part.scores[start:stop])
                    start = stop
                known.add(part)

    @contextmanager
    def _writing(self) -> Iterator[Path]:
        try:
            if self._draft is None:
                self._draft = self._open()
            yield self._draft
        except Exception as error:
            self._failure = error
            raise

    def _open(self) -> Path:
        draft = self._folders.enter_context(whole_folder(self._folder, RunError, wait=_WAIT))
        refuse_other(self._folder, self._asked, overwrite=self._overwrite)  # hours may have gone by
        cases = ParquetGroups(draft / _CASES, self._schema, _GROUP)
        self._cases = self._files.enter_context(cases)
        self._scores = self._files.enter_context(ScoreWriter(draft / _SCORES))
        return draft

    def _rows(self, benchmark: str, cases: Cases) -> pl.DataFrame:
        columns = {name: pl.lit(None, kind) for name, kind in self._schema.items()}
        columns |= {"benchmark": pl.lit(benchmark)} | {name: pl.col(name) for name in cases.columns}
        return cases.frame.select(column.alias(name) for name, column in columns.items())

    def refuse_empty(self) -> None:
        """Raise if not one case was scored: there is no number to show."""
        parts = [part for known in self._parts.values() for part in known.parts]
        lost = [one for part in parts for one in (*part.left_out, *part.left_out_images)]
        if lost and not any(len(part.scores) for part in parts):
            case, why = lost[0]
            raise RunError(
                "E-RUN-EMPTY",
                f"{shortened(self._asked.model)}: no case could be scored ({count_reasons(lost)}), "
                "so no run is written, and what the model has computed is kept for the next one; "
                f"the first case is {case!r}: {why}",
            )

    def finish(self, manifest: Mapping[str, Any]) -> Run:
        """The run; its folder takes its place at the end of the `with` statement."""
        with self._writing() as draft:
            self._files.close()
            parts = {name: part.whole() for name, part in self._parts.items()}
            told = {
                **manifest,
                "format": FORMAT,
                "model": self._asked.model,
                "benchmarks": {name: _describe(part) for name, part in parts.items()},
                "files": {name: file_digest(draft / name) for name in (_CASES, _SCORES)},
            }
            text = json.dumps(told, indent=2, ensure_ascii=False, allow_nan=False)
            (draft / _MANIFEST).write_text(text + "\n", encoding="utf-8")
        return Run(self._asked.model, parts, told, self._folder)


class _AbandonedError(Exception):
    """The draft is not needed: something else than writing it has failed."""


class _GrowingPart:
    """One benchmark of a run, put together from cases that come one after the other."""

    def __init__(self, first: Part) -> None:
        self.first, self.rows = first, SpillingTable()
        self.parts: list[Part] = []

    def add(self, part: Part) -> None:
        for piece in part.cases.pieces():
            self.rows.add(piece.frame)
        self.parts.append(replace(part, cases=_NO_CASES))

    def whole(self) -> Part:
        def all_of(name: str) -> tuple[Any, ...]:
            return tuple(one for part in self.parts for one in getattr(part, name))

        return replace(
            self.first,
            cases=Cases(self.rows, self.first.cases.root),
            scores=np.concatenate([part.scores for part in self.parts]),
            cut_captions=sum(part.cut_captions for part in self.parts),
            left_out=all_of("left_out"),
            left_out_images=all_of("left_out_images"),
        )


_NO_CASES: Final = Cases(pl.DataFrame(schema=SCHEMA))


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
        "lost_images": _reasons(part.left_out_images),
        "absent": [one._asdict() for one in part.absent],
        "whole": part.whole,
        "data_hash": part.data_hash or part.cases.content_hash(),
        "root": None if part.cases.root is None else str(part.cases.root),
        **({} if part.trained_on is None else {"trained_on": part.trained_on._asdict()}),
    }


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
        raise RunError("E-RUN-MISSING", f"{path}: no run folder there (no {_MANIFEST}).")
    return sorted(found, key=_created)


def _created(folder: Path) -> str:
    """When a run was made; empty for a damaged run, which raises when it is loaded."""
    try:
        return str(read_manifest(folder).get("created", ""))
    except RunError:
        return ""


def load_run(path: str | Path | Run) -> Run:
    """Read a run folder; what is damaged is refused. A run is returned as it is."""
    if isinstance(path, Run):
        return path
    folders = find_runs(Path(path))
    if len(folders) > 1:
        names = ", ".join(str(folder) for folder in folders[:4])
        raise RunError(
            "E-RUN-AMBIGUOUS", f"{path} holds {len(folders)} runs; name one of them: {names} ..."
        )
    [folder] = folders
    manifest = read_manifest(folder)
    described = manifest["benchmarks"]
    cases = _read_cases(_checked(folder, _CASES, manifest), described)
    scores = read_scores(_checked(folder, _SCORES, manifest), cases.items())
    parts = {
        name: _part(name, about, cases[name], scores[name]) for name, about in described.items()
    }
    return Run(manifest["model"], parts, manifest, folder)


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
    rows = {name: SpillingTable() for name in described}
    for frame in parquet_frames(path, RunError, rows=CHUNK):
        refuse_table(frame, described, path)
        for name, table in rows.items():
            chosen = frame.filter(pl.col("benchmark") == name).drop("benchmark")
            # Columns that other benchmarks of the run have, and this one does not.
            table.add(chosen.select(column for column in chosen if not _unused(column)))
    cases = {}
    for name, about in described.items():
        root = about["root"]
        cases[name] = Cases(rows[name], None if root is None else Path(root))
        refuse_cases(cases[name], name, about, path)
    return cases


def _unused(column: pl.Series) -> bool:
    return column.name in OPTIONAL and column.null_count() == len(column)


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
        TrainedOn(**about["trained_on"]) if "trained_on" in about else None,
        about.get("whole"),
    )


def _as_pairs(reasons: list[dict[str, str]]) -> tuple[tuple[str, str], ...]:
    return tuple((row["case_id"], row["reason"]) for row in reasons)


def file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
