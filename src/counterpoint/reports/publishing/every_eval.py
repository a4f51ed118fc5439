"""Every Eval Ever: a JSON file of aggregate results, and one line per sample and metric beside it.

The schema is that of the package `every-eval-ever` 0.3.0 (`eval.schema.json` and
`instance_level_eval.schema.json`); its validator is run in the tests. Values must be texts wherever
the schema has no field of its own.

A sample is a case or, of a gallery, one of its queries. Cases that were left out have no line: the
aggregate says how many there are and why.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from counterpoint.cases import is_gallery
from counterpoint.metrics import ALL, LEVEL, METRIC_MEANINGS, METRICS, WHOLE, PooledMetric, heading
from counterpoint.reports.data import without_folders
from counterpoint.reports.publishing.parts import PublishedPart, safe_name
from counterpoint.runs import Measured, Row, measure

SCHEMA_VERSION: Final = "0.3.0"
_SIGNED: Final = "rank_correlation"  # the one share that can be below 0
_UNITS: Final[dict[str, tuple[str, Any, Any]]] = {  # with the bounds of their values
    "share": ("proportion", 0, 1),
    "rank": ("rank", 1, "Infinity"),
    "score": ("score", "-Infinity", "Infinity"),
}
_OPEN: Final = ("open_clip", "hf")  # families whose weights can be had


def write_every_eval(published: PublishedPart, folder: Path) -> None:
    """`data/BENCHMARK/OWNER/NAME/UUID.json` below a folder, and `UUID_samples.jsonl` beside it."""
    place = Path("data", safe_name(published.part.benchmark), *published.model.split("/"))
    (folder / place).mkdir(parents=True, exist_ok=True)
    samples = place / f"{published.uuid}_samples.jsonl"
    about, count = _aggregate(published), 0
    with (folder / samples).open("w", encoding="ascii", newline="\n") as file:
        for line in _lines(published):
            # Escaped: readers cut lines at characters that captions may hold.
            file.write(json.dumps(line, allow_nan=False) + "\n")
            count += 1
    if count:
        with (folder / samples).open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        about["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": samples.as_posix(),
            "hash_algorithm": "sha256",
            "checksum": digest,
            "total_rows": count,
        }
    else:  # every main metric is a number of all pairs
        (folder / samples).unlink()
    text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / place / f"{published.uuid}.json").write_text(text + "\n", encoding="utf-8")


# --- the aggregate -------------------------------------------------------------------------------


def _evaluation_id(published: PublishedPart) -> str:
    made = published.options.now.timestamp()
    return f"{safe_name(published.part.benchmark)}/{published.model}/{made}"


def _result_names(benchmark: str, group: str, metric: str) -> dict[str, str]:
    return {
        "evaluation_result_id": f"{benchmark}/{group}/{metric}",
        "evaluation_name": benchmark if group == ALL else f"{benchmark}/{group}",
    }


def _aggregate(published: PublishedPart) -> dict[str, Any]:
    options, manifest = published.options, published.run.manifest
    how = {
        "command": published.made_with,
        "recompute": published.recompute,
        "run": published.folder,
        "model_fingerprint": str(manifest.get("fingerprint") or ""),
    }
    files = manifest.get("files") or {}
    how |= {f"sha256_of_{name}": str(digest) for name, digest in files.items()}
    family = published.run.model.partition(":")[0]
    return {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(published),
        **({"evaluation_timestamp": published.created} if published.created else {}),
        "retrieved_timestamp": str(options.now.timestamp()),
        "source_metadata": {
            "source_name": "Counterpoint",
            "source_type": "evaluation_run",
            "source_organization_name": options.organization,
            "evaluator_relationship": options.relationship,
            **({"additional_details": {"source": options.source}} if options.source else {}),
        },
        "eval_library": {
            "name": "counterpoint",
            "version": published.version,
            "additional_details": {name: value for name, value in how.items() if value},
        },
        "model_info": {
            "name": published.run.model,
            "id": published.model,
            "developer": published.model.partition("/")[0],
            "additional_details": {
                # Who runs the server of an API is not in the run.
                "deployment_type": "unknown" if family == "api" else "self_deployed",
                "model_availability": "open_weights" if family in _OPEN else "unknown",
            },
        },
        "evaluation_results": [
            _result(published, row) for row in published.rows if math.isfinite(row.value)
        ],
    }


def _result(published: PublishedPart, row: Row) -> dict[str, Any]:
    details = {"group": row.group, "n": row.n, "ties": row.ties}
    details |= {} if row.chance is None else {"chance": row.chance}
    details |= {} if row.sd is None else {"standard_deviation_over_seeds": row.sd}
    return {
        **_result_names(row.benchmark, row.group, row.metric),
        "source_data": _source_data(published),
        "metric_config": _metric_config(published, row.metric),
        "score_details": {
            "score": row.value,
            "details": {name: str(value) for name, value in details.items()},
            "uncertainty": _uncertainty(published, row),
        },
        "generation_config": {"additional_details": {"protocol": published.protocol.describe()}},
    }


def _uncertainty(published: PublishedPart, row: Row) -> dict[str, Any]:
    found: dict[str, Any] = {"num_samples": row.n}
    if math.isfinite(row.ci_low) and math.isfinite(row.ci_high):
        found["confidence_interval"] = {
            "lower": row.ci_low,
            "upper": row.ci_high,
            "confidence_level": LEVEL,
            "method": "bootstrap over source images",
        }
    if not isinstance(METRICS[row.metric], PooledMetric):  # which take the first of them only
        found["num_bootstrap_samples"] = published.options.resamples
    return found


def _metric_config(published: PublishedPart, name: str) -> dict[str, Any]:
    metric, protocol = METRICS[name], published.protocol
    unit, low, high = _UNITS[metric.unit]
    meaning = METRIC_MEANINGS.get(name)
    return {
        **({"evaluation_description": meaning} if meaning else {}),
        "metric_id": f"counterpoint.{name}",
        "metric_name": heading(name),
        "metric_unit": unit,
        "metric_parameters": {"ties": protocol.tie, "average": protocol.average},
        "lower_is_better": metric.better == "lower",
        "score_type": "continuous",
        "min_score": -1 if name == _SIGNED else low,
        "max_score": high,
    }


def _source_data(published: PublishedPart) -> dict[str, Any]:
    part, hub = published.part, published.hub
    place: dict[str, Any] = {"source_type": "other"}
    if hub is not None:
        place = {"source_type": "hf_dataset", "hf_repo": hub.dataset}
        place["samples_number"] = len(part.cases)
    details = {
        "benchmark": part.benchmark,
        "data_hash": published.data_hash,
        "protocol": published.protocol.name,
        "scored_cases": str(len(part.cases)),
        "left_out": str(part.missing),
        **({"notes": " ".join(published.notes)} if published.notes else {}),
    }
    return {"dataset_name": part.benchmark, **place, "additional_details": details}


# --- the lines -----------------------------------------------------------------------------------


Sample = tuple[dict[str, Any], dict[str, str]]  # what all metrics share of a line, and its metadata


def _lines(published: PublishedPart) -> Iterator[dict[str, Any]]:
    """One per sample and main metric. Some cases are in memory at a time."""
    measured = measure(published.part, published.protocol)
    metrics = {
        column: metric
        for column, metric in enumerate(measured.columns.metrics)
        if metric.main and not isinstance(metric, PooledMetric)
    }
    always = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(published),
        "model_id": published.model,
    }
    for label, values, (line, metadata) in _samples(measured, list(metrics)):
        for metric, value in zip(metrics.values(), values, strict=True):
            if math.isfinite(value):
                names = _result_names(published.part.benchmark, label, metric.name)
                right = 0.0 if metric.better == "lower" else 1.0  # a main one of samples is a share
                yield {
                    **always,
                    "evaluation_name": names["evaluation_name"],
                    "evaluation_result_id": names["evaluation_result_id"],
                    **line,
                    "evaluation": {"score": value, "is_correct": value == right},
                    "metadata": {"metric": metric.name, **metadata},
                }


def _samples(measured: Measured, columns: list[int]) -> Iterator[tuple[str, list[float], Sample]]:
    """Every sample that counts, with its part of the whole and its values of some columns."""
    found = measured.columns
    part = np.full(len(found.cases), -1, dtype=np.int8)
    for number, label in enumerate(WHOLE):
        part[measured.members.get(label, [])] = number
    cases, scores, row = measured.part.cases, measured.part.scores, 0
    starts = cases.pair_offsets
    for number, case in enumerate(cases.frame.iter_rows(named=True) if columns else ()):
        shape = len(case["images"]), len(case["captions"])
        block = scores[starts[number] : starts[number + 1]].reshape(shape)
        for make in _makers(case, block):
            values = found.values[row, columns].tolist()
            if part[row] >= 0 and any(map(math.isfinite, values)):
                yield WHOLE[part[row]], values, make()
            row += 1


def _makers(case: dict[str, Any], scores: np.ndarray) -> Iterator[Callable[[], Sample]]:
    """A function for each sample of a case, in the order of the table of values."""
    images = []
    for image in case["images"]:  # the path in the data set, with the box as a media fragment
        box = "" if image["box"] is None else f"#xywh={','.join(map(str, image['box']))}"
        images.append(f"{without_folders(image['path'])}{box}")
    truth = np.zeros(scores.shape, dtype=bool)
    truth.reshape(-1)[case["truth"]] = True
    about = {"groups": "; ".join(case["groups"]), "cluster": without_folders(case["cluster"])}
    if not is_gallery(*scores.shape):
        yield partial(_case_line, case, images, scores, truth, about)
        return
    captions = case["captions"]
    for number, image in enumerate(images):
        name = f"{case['id']}/image/{number}"
        yield partial(_query_line, name, image, captions, scores[number], truth[number], about)
    for number, caption in enumerate(captions):
        name = f"{case['id']}/caption/{number}"
        column = scores[:, number], truth[:, number]
        yield partial(_query_line, name, caption, images, *column, about)


def _case_line(
    case: dict[str, Any],
    images: list[str],
    scores: np.ndarray,
    truth: np.ndarray,
    about: dict[str, str],
) -> Sample:
    """The scores of all pairs, image by image. True pairs of several images name the image."""
    captions = case["captions"]
    true = [
        captions[j] if len(images) == 1 else f"image {i}: {captions[j]}"
        for i, j in np.argwhere(truth).tolist()
    ]
    best = [captions[j] for j in scores.argmax(axis=1).tolist()]
    flat = scores.reshape(-1).astype(str).tolist()
    return _sample_line(case["id"], "\n".join(images), true, captions, flat, best), about


def _query_line(
    name: str,
    query: str,
    candidates: list[str],
    scores: np.ndarray,
    truth: np.ndarray,
    about: dict[str, str],
) -> Sample:
    """The first answer only: every query has all other captions or images as candidates."""
    best = int(scores.argmax())
    true = [candidates[number] for number in np.flatnonzero(truth).tolist()]
    more = {**about, "score": str(scores[best]), "candidates": str(len(candidates))}
    first = [candidates[best]]
    return _sample_line(name, query, true, None, first, first), more


def _sample_line(
    id: str,
    raw: str,
    reference: list[str],
    choices: list[str] | None,
    output: list[str],
    answers: list[str],
) -> dict[str, Any]:
    """In the words of the schema."""
    return {
        "sample_id": id,
        "sample_hash": hashlib.sha256((raw + "".join(reference)).encode()).hexdigest(),
        "interaction_type": "single_turn",
        "input": {"raw": raw, "reference": reference, "choices": choices},
        "output": {"raw": output},
        "answer_attribution": [
            {
                "turn_idx": 0,
                "source": "output.raw",
                "extracted_value": answer,
                "extraction_method": "highest score, the first of equal ones",
                "is_terminal": True,
            }
            for answer in answers
        ],
    }
