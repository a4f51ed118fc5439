"""The folder of `counterpoint publish`: written as a whole, and replaced only by the same runs.

models/OWNER/NAME/model-card.md               metadata and a section for the model's card
models/OWNER/NAME/.eval_results/*.yaml        one file per benchmark that is on the Hub
every_eval_ever/data/BENCHMARK/OWNER/NAME/    UUID.json, UUID_samples.jsonl
wandb/RUN.table.json                          on request
published.json                                what is here
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CounterpointError, DataError
from counterpoint._util.untrusted import parse_json
from counterpoint._util.writing import whole_folder
from counterpoint.reports.publishing.every_eval import SCHEMA_VERSION, write_every_eval
from counterpoint.reports.publishing.material import (
    PublishedPart,
    PublishOptions,
    gather_parts,
    names_apart,
    safe_name,
)
from counterpoint.reports.publishing.model_card import eval_results, model_card, tasks
from counterpoint.runs import Row, Run, as_json

_MANIFEST: Final = "published.json"
_FORMAT: Final = 1


def publish(
    runs: Sequence[Run], folder: Path, options: PublishOptions | None = None
) -> list[PublishedPart]:
    """Write runs as other programs read them; returns what was published."""
    options = options or PublishOptions()
    parts = gather_parts(runs, options)
    _refuse_other(folder, parts, options.overwrite)
    advance = options.progress.start("publishing", len(parts))
    models = {part.model: [p for p in parts if p.model == part.model] for part in parts}
    with whole_folder(folder) as draft:
        _refuse_other(folder, parts, options.overwrite)  # it is locked now
        for part in parts:
            write_every_eval(part, draft / "every_eval_ever")
            advance(1)
        for model, several in models.items():
            _write_model(draft / "models" / Path(*model.split("/")), several)
        if options.wandb:
            _write_tables(draft / "wandb", parts)
        files = sorted(file.relative_to(draft).as_posix() for file in _files(draft))
        text = json.dumps(_manifest(parts, files), indent=2, ensure_ascii=False)
        (draft / _MANIFEST).write_text(text + "\n", encoding="utf-8")
    return parts


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file()]


def _write_model(folder: Path, parts: Sequence[PublishedPart]) -> None:
    _refuse_two_values(parts)
    folder.mkdir(parents=True)
    (folder / "model-card.md").write_text(model_card(parts), encoding="utf-8")
    entries = {part.uuid: text for part in parts if (text := eval_results(part))}
    if not entries:
        return
    results = folder / ".eval_results"
    results.mkdir()
    named = [part for part in parts if part.uuid in entries]
    names = names_apart([safe_name(part.part.benchmark) for part in named])
    for name, part in zip(names, named, strict=True):
        (results / f"{name}.yaml").write_text(entries[part.uuid], encoding="utf-8")


def _refuse_two_values(parts: Sequence[PublishedPart]) -> None:
    """Raise if two benchmarks or runs of one model would give a task of the Hub two values."""
    known: dict[tuple[str, str], PublishedPart] = {}
    for part in parts:
        for place in tasks(part):
            other = known.setdefault(place, part)
            if other is not part:
                dataset, task = place
                raise CounterpointError(
                    "E-TASK-REPEATED",
                    f"{part.model}: {other.part.benchmark} of {other.folder} and "
                    f"{part.part.benchmark} of {part.folder} both give the task {task} of "
                    f"{dataset} a value; publish them to folders of their own, or give each a "
                    "task (--dataset BENCHMARK=OWNER/NAME:TASK).",
                )


def _write_tables(folder: Path, parts: Sequence[PublishedPart]) -> None:
    """A table of numbers per model, as W&B stores one: `{"columns": [...], "data": [[...]]}`."""
    folder.mkdir()
    columns = [field.name for field in fields(Row)]
    columns += ["protocol", "data_hash", "left_out"]
    rows: dict[str, list[list[Any]]] = {}
    for part in parts:
        beside = {
            "protocol": part.protocol.describe(),
            "data_hash": part.data_hash,
            "left_out": part.part.missing,
        }
        for row in as_json(part.rows):
            known = {**row, **beside}
            rows.setdefault(part.model, []).append([known.get(name) for name in columns])
    names = names_apart([model.replace("/", "_") for model in rows])
    for name, data in zip(names, rows.values(), strict=True):
        text = json.dumps({"columns": columns, "data": data}, ensure_ascii=False, allow_nan=False)
        (folder / f"{name}.table.json").write_text(text + "\n", encoding="utf-8")


def _manifest(parts: Sequence[PublishedPart], files: list[str]) -> dict[str, Any]:
    return {
        "format": _FORMAT,
        "counterpoint": version("counterpoint"),
        "every_eval_ever": SCHEMA_VERSION,
        "published": [
            {
                "uuid": part.uuid,
                "model": part.run.model,
                "called": part.model,
                "benchmark": part.part.benchmark,
                "run": part.folder,
                "protocol": part.protocol.name,
                "left_out": part.part.missing,
            }
            for part in parts
        ],
        "files": files,
    }


def _refuse_other(folder: Path, parts: Sequence[PublishedPart], overwrite: bool) -> None:
    """Raise if the folder holds something else than these runs, published before.

    What `publish` did not write is never replaced.
    """
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    known = _published(folder / _MANIFEST)
    if known is None:
        raise DataError(
            "E-OUTPUT-EXISTS",
            f"{folder} exists and was not written by publish; choose another folder.",
        )
    if not overwrite and known != {part.uuid for part in parts}:
        raise DataError(
            "E-OUTPUT-EXISTS",
            f"{folder} holds other published runs; choose another folder, or replace them "
            "(--overwrite).",
        )


def _published(manifest: Path) -> set[str] | None:
    """The ids of what a folder holds; None if it is not a folder of `publish`."""
    try:
        about = parse_json(manifest.read_bytes(), manifest)
        if about["format"] == _FORMAT:
            return {one["uuid"] for one in about["published"]}
    except (OSError, DataError, KeyError, TypeError):
        pass
    return None
