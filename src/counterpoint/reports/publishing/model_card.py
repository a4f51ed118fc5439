"""For a model's repository on the Hugging Face Hub: `.eval_results/*.yaml` and a part of its card.

`.eval_results` follows the page "Evaluation Results" of the Hub's documentation
(commit e3bb58f of huggingface/hub-docs, "work in progress"), and huggingface_hub 2.4 reads it:
entries of a data set that the Hub knows as a Benchmark, each with one value for one task. The
metadata of the card (`model-index`) is older, is still shown, and needs no such data set.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from counterpoint._util.yaml_files import yaml_text
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
from counterpoint.reports.numbers import one_line, written
from counterpoint.reports.publishing.material import PublishedPart, safe_name
from counterpoint.runs import Row

_TASK: Final = {"type": "zero-shot-image-classification", "name": "Image-text matching"}


# --- .eval_results -------------------------------------------------------------------------------


def eval_results(published: PublishedPart) -> str:
    """The entries of one benchmark; empty if it has no data set on the Hub.

    A task that was named has the headline metric; else each main metric is a task.
    """
    entries = [
        _entry(published, row, dataset, task) for (dataset, task), row in tasks(published).items()
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


def _entry(published: PublishedPart, row: Row, dataset: str, task: str) -> dict[str, Any]:
    source = published.options.source
    return {
        "dataset": {"id": dataset, "task_id": task},
        "value": row.value,
        **({"date": published.created} if published.created else {}),
        **({"source": {"url": source, "name": "Counterpoint run"}} if source else {}),
        "notes": one_line(" ".join(_notes(published, row))),
    }


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
    texts = [
        f"---\n{yaml_text(_model_index(parts))}---",
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
    rows = (f"| {' | '.join(_cells(row, published.size))} |" for row in published.main)
    yield "\n".join([*lines, *rows])
    yield f"Protocol {markdown_text(published.protocol.describe())}."
    yield f"Data hash: {markdown_text(published.data_hash)}."
    if published.notes:
        yield f"**Not everything was scored as asked.** {markdown_text(' '.join(published.notes))}"
    commands = [published.made_with, f"{published.recompute}  # the run folder; needs no model"]
    yield _code([command for command in commands if command])


def _cells(row: Row, part: str) -> tuple[str, ...]:
    ends = " to ".join(written(row.metric, end) for end in (row.ci_low, row.ci_high))
    mark = TIES_MARK if depends_on_ties(row) else ""
    chance = "" if row.chance is None else written(row.metric, row.chance)
    value = f"{written(row.metric, row.value)}{mark}"
    n = f"{row.n:,}{PART_MARK if part else ''}"
    return markdown_text(_name(row)), value, ends, chance, n


def _name(row: Row) -> str:
    return heading(row.metric) if row.group == ALL else f"{heading(row.metric)}, {row.group}"


def _code(lines: Sequence[str]) -> str:
    text = "\n".join(one_line(line) for line in lines)
    fence = "`" * (3 + max(map(len, re.findall("`+", text)), default=0))
    return f"{fence}sh\n{text}\n{fence}"


def _model_index(parts: Sequence[PublishedPart]) -> dict[str, Any]:
    results = [_index_entry(part) for part in parts if part.main]
    return {"model-index": [{"name": parts[0].model, "results": results}]}


def _index_entry(published: PublishedPart) -> dict[str, Any]:
    part, hub, source = published.part, published.hub, published.options.source
    found = {
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
    }
    return found | ({"source": {"name": "Counterpoint run", "url": source}} if source else {})
