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
from typing import Any, Final, NamedTuple

import numpy as np

from counterpoint.cases import is_gallery
from counterpoint.metrics import (
    ALL,
    LEVEL,
    METRIC_MEANINGS,
    METRICS,
    WHOLE,
    AnyMetric,
    PooledMetric,
    heading,
)
from counterpoint.reports.data import without_folders
from counterpoint.reports.publishing.parts import PublishedPart, safe_name
from counterpoint.runs import Measured, Row, measure

SCHEMA_VERSION: Final = "0.3.0"
_SIGNED: Final = "rank_correlation"  # the one share that can be below 0
_BOUNDS: Final[dict[str, tuple[Any, Any]]] = {
    "share": (0, 1),
    "rank": (1, "Infinity"),
    "score": ("-Infinity", "Infinity"),
}
_UNITS: Final = {"share": "proportion", "rank": "rank", "score": "score"}
_OPEN: Final = ("open_clip", "hf")  # families whose weights can be had


def write_every_eval(published: PublishedPart, folder: Path) -> list[Path]:
    """`data/BENCHMARK/OWNER/NAME/UUID.json` below a folder, and `UUID_samples.jsonl` beside it."""
    place = Path("data", safe_name(published.part.benchmark), *published.model.split("/"))
    (folder / place).mkdir(parents=True, exist_ok=True)
    samples = place / f"{published.uuid}_samples.jsonl"
    count = _write_samples(published, folder / samples)
    about = _aggregate(published)
    written = [place / f"{published.uuid}.json"]
    if count:
        with (folder / samples).open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        about["detailed_evaluation_results"] = {
            "format": "jsonl",
            "file_path": samples.as_posix(),
            "hash_algorithm": "sha256",
            "checksum": digest,
            "total_rows": count,
        }
        written.append(samples)
    else:  # every main metric is a number of all pairs
        (folder / samples).unlink()
    text = json.dumps(about, indent=2, ensure_ascii=False, allow_nan=False)
    (folder / written[0]).write_text(text + "\n", encoding="utf-8")
    return written


# --- the aggregate -------------------------------------------------------------------------------


def _evaluation_id(published: PublishedPart) -> str:
    made = published.options.now.timestamp()
    return f"{safe_name(published.part.benchmark)}/{published.model}/{made}"


def _result_id(row: Row) -> str:
    return _joined_id(row.benchmark, row.group, row.metric)


def _joined_id(benchmark: str, group: str, metric: str) -> str:
    return f"{benchmark}/{group}/{metric}"


def _aggregate(published: PublishedPart) -> dict[str, Any]:
    options, manifest = published.options, published.run.manifest
    files = manifest.get("files") or {}
    how = {
        "command": published.made_with,
        "recompute": published.recompute,
        "run": published.folder,
        "model_fingerprint": str(manifest.get("fingerprint") or ""),
        **{f"sha256_of_{name}": str(digest) for name, digest in files.items()},
    }
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
        "model_info": _model_info(published),
        "evaluation_results": [_result(published, row) for row in published.rows if _finite(row)],
    }


def _finite(row: Row) -> bool:
    return math.isfinite(row.value)


def _model_info(published: PublishedPart) -> dict[str, Any]:
    family = published.run.model.partition(":")[0]
    return {
        "name": published.run.model,
        "id": published.model,
        "developer": published.model.partition("/")[0],
        "additional_details": {
            # Who runs the server of an API is not in the run.
            "deployment_type": "unknown" if family == "api" else "self_deployed",
            "model_availability": "open_weights" if family in _OPEN else "unknown",
        },
    }


def _result(published: PublishedPart, row: Row) -> dict[str, Any]:
    name = row.benchmark if row.group == ALL else f"{row.benchmark}/{row.group}"
    return {
        "evaluation_result_id": _result_id(row),
        "evaluation_name": name,
        "source_data": _source_data(published),
        "metric_config": _metric_config(published, METRICS[row.metric]),
        "score_details": {
            "score": row.value,
            "details": _details(row),
            "uncertainty": _uncertainty(published, row),
        },
        "generation_config": {"additional_details": {"protocol": published.protocol.describe()}},
    }


def _details(row: Row) -> dict[str, str]:
    found = {"group": row.group, "n": row.n, "ties": row.ties}
    found |= {} if row.chance is None else {"chance": row.chance}
    found |= {} if row.sd is None else {"standard_deviation_over_seeds": row.sd}
    return {name: str(value) for name, value in found.items()}


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


def _metric_config(published: PublishedPart, metric: AnyMetric) -> dict[str, Any]:
    low, high = _BOUNDS[metric.unit]
    meaning = METRIC_MEANINGS.get(metric.name)
    return {
        **({"evaluation_description": meaning} if meaning else {}),
        "metric_id": f"counterpoint.{metric.name}",
        "metric_name": heading(metric.name),
        "metric_unit": _UNITS[metric.unit],
        "metric_parameters": {
            "ties": published.protocol.tie,
            "average": published.protocol.average,
        },
        "lower_is_better": metric.better == "lower",
        "score_type": "continuous",
        "min_score": -1 if metric.name == _SIGNED else low,
        "max_score": high,
    }


def _source_data(published: PublishedPart) -> dict[str, Any]:
    part, hub = published.part, published.hub
    details = {
        "benchmark": part.benchmark,
        "data_hash": published.data_hash,
        "protocol": published.protocol.name,
        "scored_cases": str(len(part.cases)),
        "left_out": str(part.missing),
        **({"notes": " ".join(published.notes)} if published.notes else {}),
    }
    if hub is None:
        return {
            "dataset_name": part.benchmark,
            "source_type": "other",
            "additional_details": details,
        }
    return {
        "dataset_name": part.benchmark,
        "source_type": "hf_dataset",
        "hf_repo": hub.dataset,
        "samples_number": len(part.cases),
        "additional_details": details,
    }


# --- the lines -----------------------------------------------------------------------------------


class EvalSample(NamedTuple):
    """What was asked and answered: the part of a line that all metrics share, and its metadata."""

    line: dict[str, Any]
    metadata: dict[str, str]


def _write_samples(published: PublishedPart, path: Path) -> int:
    """One line per sample and main metric; returns how many. Some cases are in memory at a time."""
    count = 0
    with path.open("w", encoding="ascii", newline="\n") as file:
        for line in _lines(published):
            # Escaped: readers cut lines at characters that captions may hold.
            file.write(json.dumps(line, allow_nan=False) + "\n")
            count += 1
    return count


def _lines(published: PublishedPart) -> Iterator[dict[str, Any]]:
    measured = measure(published.part, published.protocol)
    metrics = [
        (column, metric)
        for column, metric in enumerate(measured.columns.metrics)
        if metric.main and not isinstance(metric, PooledMetric)
    ]
    if not metrics:
        return
    always = {
        "schema_version": SCHEMA_VERSION,
        "evaluation_id": _evaluation_id(published),
        "model_id": published.model,
    }
    for label, values, sample in _samples(measured, [column for column, _ in metrics]):
        benchmark = published.part.benchmark
        for (_, metric), value in zip(metrics, values, strict=True):
            if math.isfinite(value):
                yield {
                    **always,
                    "evaluation_name": benchmark if label == ALL else f"{benchmark}/{label}",
                    "evaluation_result_id": _joined_id(benchmark, label, metric.name),
                    **sample.line,
                    "evaluation": {"score": value, "is_correct": value == _best(metric)},
                    "metadata": {"metric": metric.name, **sample.metadata},
                }


def _samples(
    measured: Measured, columns: list[int]
) -> Iterator[tuple[str, list[float], EvalSample]]:
    """Every sample that counts, with its part of the whole and its values of some columns."""
    found = measured.columns
    part = np.full(len(found.cases), -1, dtype=np.int8)
    for number, label in enumerate(WHOLE):
        part[measured.members.get(label, [])] = number
    cases, scores, row = measured.part.cases, measured.part.scores, 0
    starts = cases.pair_offsets
    for number, case in enumerate(cases.frame.iter_rows(named=True)):
        shape = len(case["images"]), len(case["captions"])
        block = scores[starts[number] : starts[number + 1]].reshape(shape)
        for make in _makers(case, block):
            values = found.values[row, columns].tolist()
            if part[row] >= 0 and any(map(math.isfinite, values)):
                yield WHOLE[part[row]], values, make()
            row += 1


def _makers(case: dict[str, Any], scores: np.ndarray) -> Iterator[Callable[[], EvalSample]]:
    """A function for each sample of a case, in the order of the table of values."""
    images = [_reference(image) for image in case["images"]]
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
) -> EvalSample:
    """The scores of all pairs, image by image. True pairs of several images name the image."""
    captions = case["captions"]
    true = [
        captions[j] if len(images) == 1 else f"image {i}: {captions[j]}"
        for i, j in np.argwhere(truth).tolist()
    ]
    best = [captions[j] for j in scores.argmax(axis=1).tolist()]
    flat = scores.reshape(-1).astype(str).tolist()
    line = _sample_line(case["id"], "\n".join(images), true, captions, flat, best)
    return EvalSample(line, about)


def _query_line(
    name: str,
    query: str,
    candidates: list[str],
    scores: np.ndarray,
    truth: np.ndarray,
    about: dict[str, str],
) -> EvalSample:
    """The first answer only: every query has all other captions or images as candidates."""
    best = int(scores.argmax())
    true = [candidates[number] for number in np.flatnonzero(truth).tolist()]
    more = {**about, "score": str(scores[best]), "candidates": str(len(candidates))}
    first = candidates[best]
    return EvalSample(_sample_line(name, query, true, None, [first], [first]), more)


def _reference(image: dict[str, Any]) -> str:
    """The path of an image in its data set, with its box as a media fragment."""
    path = without_folders(image["path"])
    return path if image["box"] is None else f"{path}#xywh={','.join(map(str, image['box']))}"


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


def _best(metric: AnyMetric) -> float:
    """The value of a sample that is right. A main metric of samples is a share."""
    return 0.0 if metric.better == "lower" else 1.0
