"""The folder of `counterpoint publish`, written as a whole and replaced only by the same runs.

models/OWNER/NAME/model-card.md               metadata and a section for the model's card
models/OWNER/NAME/.eval_results/*.yaml        one file per benchmark that is on the Hub
every_eval_ever/data/BENCHMARK/OWNER/NAME/    UUID.json, UUID_samples.jsonl
wandb/RUN.table.json                          on request
published.json                                what is here

`.eval_results` follows the page "Evaluation Results" of the Hub's documentation
(commit e3bb58f of huggingface/hub-docs, "work in progress"), and huggingface_hub 2.4 reads it:
entries of a data set that the Hub knows as a Benchmark, each with one value for one task. The
metadata of the card (`model-index`) is older, is still shown, and needs no such data set.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CounterpointError, DataError
from counterpoint._util.untrusted import parse_json, yaml_text
from counterpoint._util.writing import whole_folder
from counterpoint.metrics import (
    ALL,
    LEVEL,
    METRIC_MEANINGS,
    PART_MARK,
    PART_NOTE,
    TIES_MARK,
    TIES_NOTE,
    depends_on_ties,
    heading,
    in_order,
)
from counterpoint.reports.formats import markdown_text
from counterpoint.reports.publishing.every_eval import SCHEMA_VERSION, write_every_eval
from counterpoint.reports.publishing.parts import (
    PublishedPart,
    PublishOptions,
    gather_parts,
    names_apart,
    safe_name,
)
from counterpoint.reports.ranking import one_line, written
from counterpoint.runs import Row, Run, as_json

_TASK: Final = {"type": "zero-shot-image-classification", "name": "Image-text matching"}


# --- .eval_results -------------------------------------------------------------------------------


def eval_results(published: PublishedPart) -> str:
    """The entries of one benchmark; empty if it has no data set on the Hub.

    A task that was named has the headline metric; else each main metric is a task.
    """
    source = published.options.source
    entries = [
        {
            "dataset": {"id": dataset, "task_id": task},
            "value": row.value,
            **({"date": published.created} if published.created else {}),
            **({"source": {"url": source, "name": "Counterpoint run"}} if source else {}),
            "notes": one_line(" ".join(_notes(published, row))),
        }
        for (dataset, task), row in tasks(published).items()
    ]
    return yaml_text(entries) if entries else ""


def tasks(published: PublishedPart) -> dict[tuple[str, str], Row]:
    """What has a value on the Hub, by data set and task.

    A task is called by its metric. What stands behind the slash of a benchmark, and a group that is
    not the whole, are a part of the name: one data set may hold several benchmarks.
    """
    hub = published.hub
    if hub is None:
        return {}
    if hub.task:
        first = published.headline
        return {} if first is None else {(hub.dataset, hub.task): first}
    _, _, subset = published.part.benchmark.partition("/")
    named: dict[tuple[str, str], Row] = {}
    for row in published.main:
        words = (subset, row.metric, "" if row.group == ALL else row.group)
        named[hub.dataset, ".".join(safe_name(word) for word in words if word)] = row
    return named


def _notes(published: PublishedPart, row: Row) -> Iterator[str]:
    where = "" if row.group == ALL else f" ({row.group})"
    yield (
        f"{row.metric}{where} of {row.benchmark}, as a fraction; {LEVEL:.0%} interval "
        f"{row.ci_low:.4f} to {row.ci_high:.4f}; n = {row.n}; protocol "
        f"{published.protocol.describe()}; data hash {published.data_hash}; "
        f"Counterpoint {published.version}."
    )
    if depends_on_ties(row):
        yield f"The value {TIES_NOTE}"
    yield from published.notes


# --- the card ------------------------------------------------------------------------------------


def model_card(parts: Sequence[PublishedPart]) -> str:
    """The metadata and the section of one model, with all that was published of it."""
    first = parts[0]
    results = [_index_entry(part) for part in parts if part.main]
    metadata = {"model-index": [{"name": first.model, "results": results}]}
    texts = [
        f"---\n{yaml_text(metadata)}---",
        "## Compositional evaluation",
        f"{markdown_text(f'{first.run.model}, evaluated with Counterpoint {first.version}')}. "
        f"Shares are in per cent, with {LEVEL:.0%} intervals (bootstrap over source images).",
        *(text for part in parts for text in _section(part)),
    ]
    metrics = in_order({row.metric for part in parts for row in part.main})
    meanings = [
        f"- **{heading(m)}**: {METRIC_MEANINGS[m]}" for m in metrics if m in METRIC_MEANINGS
    ]
    texts += ["### What the metrics mean", "\n".join(meanings)] if meanings else []
    if any(depends_on_ties(row) for part in parts for row in part.main):
        texts.append(f"{TIES_MARK} {TIES_NOTE}")
    if any(part.size for part in parts):
        texts.append(f"{PART_MARK} {PART_NOTE}")
    return "\n\n".join(texts) + "\n"


def _section(published: PublishedPart) -> Iterator[str]:
    yield f"### {markdown_text(published.part.benchmark)}"
    lines = ["| metric | value | interval | chance | n |", "|---|---:|---:|---:|---:|"]
    part = PART_MARK if published.size else ""
    for row in published.main:
        write = partial(written, row.metric)
        value = f"{write(row.value)}{TIES_MARK if depends_on_ties(row) else ''}"
        ends = f"{write(row.ci_low)} to {write(row.ci_high)}"
        chance = "" if row.chance is None else write(row.chance)
        cells = (markdown_text(_name(row)), value, ends, chance, f"{row.n:,}{part}")
        lines.append(f"| {' | '.join(cells)} |")
    yield "\n".join(lines)
    yield f"Protocol {markdown_text(published.protocol.describe())}."
    yield f"Data hash: {markdown_text(published.data_hash)}."
    if published.notes:
        yield f"**Not everything was scored as asked.** {markdown_text(' '.join(published.notes))}"
    commands = [published.made_with, f"{published.recompute}  # the run folder; needs no model"]
    text = "\n".join(one_line(command) for command in commands if command)
    fence = "`" * (3 + max(map(len, re.findall("`+", text)), default=0))
    yield f"{fence}sh\n{text}\n{fence}"


def _name(row: Row) -> str:
    return heading(row.metric) if row.group == ALL else f"{heading(row.metric)}, {row.group}"


def _index_entry(published: PublishedPart) -> dict[str, Any]:
    part, hub, source = published.part, published.hub, published.options.source
    return {
        "task": _TASK,
        "dataset": {
            "type": hub.dataset if hub else one_line(part.benchmark),
            "name": one_line(part.benchmark),
            "args": {
                "protocol": one_line(published.protocol.describe()),
                "data_hash": published.data_hash,
                "left_out": part.missing,
            },
        },
        "metrics": [
            {
                "type": row.metric,
                "value": row.value,
                "name": _name(row),
                "args": {"ci_low": row.ci_low, "ci_high": row.ci_high, "n": row.n},
            }
            for row in published.main
        ],
        **({"source": {"name": "Counterpoint run", "url": source}} if source else {}),
    }


# --- the folder -------------------------------------------------------------------------------


_MANIFEST: Final = "published.json"
_FORMAT: Final = 1


def publish(runs: Sequence[Run], folder: Path, options: PublishOptions) -> list[PublishedPart]:
    """Write runs as other programs read them; returns what was published."""
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
        files = (file for file in draft.rglob("*") if file.is_file())
        about = _manifest(parts, sorted(file.relative_to(draft).as_posix() for file in files))
        text = json.dumps(about, indent=2, ensure_ascii=False)
        (draft / _MANIFEST).write_text(text + "\n", encoding="utf-8")
    return parts


def _write_model(folder: Path, parts: Sequence[PublishedPart]) -> None:
    _refuse_two_values(parts)
    folder.mkdir(parents=True)
    (folder / "model-card.md").write_text(model_card(parts), encoding="utf-8")
    entries = [(part.part.benchmark, text) for part in parts if (text := eval_results(part))]
    if entries:
        results = folder / ".eval_results"
        results.mkdir()
        names = names_apart([safe_name(benchmark) for benchmark, _ in entries])
        for name, (_, text) in zip(names, entries, strict=True):
            (results / f"{name}.yaml").write_text(text, encoding="utf-8")


def _refuse_two_values(parts: Sequence[PublishedPart]) -> None:
    """Raise if two benchmarks or runs of one model would give a task of the Hub two values."""
    known: dict[tuple[str, str], PublishedPart] = {}
    for part in parts:
        for dataset, task in tasks(part):
            other = known.setdefault((dataset, task), part)
            if other is not part:
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
    manifest = folder / _MANIFEST
    try:
        about = parse_json(manifest.read_bytes(), manifest)
        known = {one["uuid"] for one in about["published"]} if about["format"] == _FORMAT else None
    except (OSError, DataError, KeyError, TypeError):
        known = None
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
