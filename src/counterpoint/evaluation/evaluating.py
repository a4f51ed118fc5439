"""`evaluate`: models x benchmarks -> runs."""

from __future__ import annotations

import platform
import re
from collections.abc import Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

import numpy as np

from counterpoint._util.errors import CounterpointError
from counterpoint._util.progress import Named, Progress, shown
from counterpoint._util.store import Store, default_store, digest
from counterpoint._util.untrusted import recorded_command, shortened
from counterpoint.benchmarks import absent_from, counted, load_benchmark
from counterpoint.cases import Cases, formatted, smaller_galleries, unanswered, without_images
from counterpoint.metrics import Protocol, get_protocol
from counterpoint.models import LoadOptions, load_model
from counterpoint.runs import Part, Run, question, refuse_other, save_run
from counterpoint.scoring import Described, Model, Scored, Work, score

BATCH = 128


def evaluate(
    models: Sequence[str | tuple[str, Model]] | str,
    benchmarks: Sequence[str] | str,
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    protocol: str | None = None,
    batch_size: int = BATCH,
    device: str = "auto",
    precision: str = "fp32",
    trust_remote_code: bool = False,
    overwrite: bool = False,
    store: str | Path | None = None,
    progress: Progress | Literal["auto"] | None = "auto",
) -> list[Run]:
    """Score every model on every benchmark and write a run folder for each model.

    `models` are ids, or pairs of a name and an object of one of the kinds in `scoring.kinds`.
    `out` is the run folder itself for one model, and holds a folder per model for several; without
    it, runs go to `runs/`. A folder that holds a run of another question (model, benchmarks,
    protocol, limit, precision) is refused unless `overwrite` says so. `trust_remote_code` runs
    Python code that comes with the models and can do whatever you can do; the run records it.

    Cases that could not be scored are named in `Run.parts[...].left_out`, what the data lack of the
    published benchmark in `Run.parts[...].absent`. On a terminal and in a notebook, bars show what
    it does; `progress=None` shows nothing.
    """
    models = [models] if isinstance(models, str) else _each_once(models)
    benchmarks = [benchmarks] if isinstance(benchmarks, str) else list(dict.fromkeys(benchmarks))
    if not models or not benchmarks:
        raise CounterpointError(
            "E-ARGUMENT-MISSING", "evaluate needs at least one model and one benchmark."
        )
    if batch_size < 1 or (limit is not None and limit < 1):
        raise CounterpointError(
            "E-OPTION-INVALID",
            "batch size and limit must be at least 1.",
            batch_size=batch_size,
            limit=limit,
        )
    root = None if data is None else Path(data)
    found = {name: load_benchmark(name, root) for name in benchmarks}
    protocols = {
        name: get_protocol(protocol or benchmark.protocol) for name, (benchmark, _) in found.items()
    }
    tables = {name: prepare(cases, protocols[name], limit) for name, (_, cases) in found.items()}
    absent = {name: absent_from(name, cases, protocols[name]) for name, (_, cases) in found.items()}
    loading = LoadOptions(device, precision, trust_remote_code)
    options = {"limit": limit, "batch_size": batch_size, **asdict(loading)}
    names = [model if isinstance(model, str) else model[0] for model in models]
    asked = repr((benchmarks, options, str(data), sorted(p.name for p in protocols.values())))
    _refuse_shared_names(names)
    folders = _folders(names, None if out is None else Path(out), asked)
    used = {name: chosen.name for name, chosen in protocols.items()}
    for name, folder in zip(names, folders, strict=True):
        refuse_other(folder, question(name, used, options), overwrite=overwrite)
    hashes = {name: cases.content_hash() for name, cases in tables.items()}
    overlong = {name: chosen.overlong for name, chosen in protocols.items()}
    runs = []
    with shown(progress) as bars, Store(Path(store) if store else default_store()) as opened:
        for model, name, folder in zip(models, names, folders, strict=True):
            loaded = load_model(model, loading) if isinstance(model, str) else model[1]
            work = Work(opened, batch_size, Named(bars, name))
            scored = score(loaded, tables, overlong, work)
            parts = {
                key: replace(
                    _part(key, tables[key], scored[key], protocols[key], hashes[key]),
                    absent=absent[key],
                )
                for key in tables
            }
            manifest = _manifest(loaded, options, opened.notes())
            runs.append(save_run(Run(name, parts, manifest), folder, overwrite=overwrite))
    return runs


def _each_once(models: Sequence[str | tuple[str, Model]]) -> list[str | tuple[str, Model]]:
    """An object is the same model only if it is the same object: it need not be hashable."""
    keys = (model if isinstance(model, str) else (model[0], id(model[1])) for model in models)
    return list(dict(zip(keys, models, strict=True)).values())


def _refuse_shared_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise CounterpointError(
                "E-MODEL-REPEATED",
                f"{names.count(name)} models are called {shortened(name)}, and each writes a run; "
                "give every model a name of its own.",
                name=name,
            )


def prepare(cases: Cases, protocol: Protocol, limit: int | None) -> Cases:
    """The cases that the protocol scores, with their captions as it writes them."""
    chosen = counted(cases, protocol)
    if limit is not None:
        chosen = smaller_galleries(chosen.limit(limit), limit)
    return formatted(chosen, protocol.caption_format)


def _part(name: str, cases: Cases, scored: Scored, protocol: Protocol, data_hash: str) -> Part:
    kept = without_images(cases, {row: set(gone) for row, gone in scored.lost_images.items()})
    for row in np.flatnonzero(unanswered(kept.cases)).tolist():
        first = next(iter(scored.lost_images.pop(row).values()))
        scored.left_out[row] = f"no image with a caption of its own is left: {first}"
    lost = tuple(
        (cases.ids[row], why)
        for row, images in sorted(scored.lost_images.items())
        for _, why in sorted(images.items())
    )
    left_out = tuple((cases.ids[row], why) for row, why in sorted(scored.left_out.items()))
    rows = np.ones(len(cases), dtype=bool)
    rows[list(scored.left_out)] = False
    pairs = kept.pairs & np.repeat(rows, cases.image_counts * cases.caption_counts)
    scores = scored.scores if pairs.all() else scored.scores[pairs]
    cut = scored.cut_captions
    return Part(name, kept.cases.keep(rows), scores, protocol, left_out, cut, data_hash, lost)


def _folders(names: Sequence[str], out: Path | None, asked: str) -> list[Path]:
    """A run folder for each model; without `out`, one that is the same for the same question."""
    slugs = [slug(name) for name in names]
    # Two names may make one slug ("a/b" and "a:b"): these get a digest behind it.
    slugs = [
        f"{short}-{digest(name).hex()[:4]}" if slugs.count(short) > 1 else short
        for name, short in zip(names, slugs, strict=True)
    ]
    if out is not None:
        return [out] if len(names) == 1 else [out / short for short in slugs]
    return [
        Path("runs") / f"{short}-{digest(name, asked).hex()[:8]}"
        for name, short in zip(names, slugs, strict=True)
    ]


def slug(name: str) -> str:
    """A model's name as a folder's: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "model"


def _manifest(model: Model, options: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    info = dict(model.describe()) if isinstance(model, Described) else {}
    if notes:
        info["notes"] = [*info.get("notes", ()), *notes]
    packages = ("counterpoint", "numpy", "polars", "pillow", "scipy")
    return {
        "created": datetime.now(UTC).isoformat(timespec="microseconds"),
        "command": recorded_command(),
        "options": options,
        "fingerprint": model.fingerprint,
        "model_info": info,
        "versions": {
            "python": platform.python_version(),
            **{package: version(package) for package in packages},
        },
        "platform": platform.platform(),
    }
