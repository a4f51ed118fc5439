"""A sweep of evaluations: models x benchmarks, with a results folder as its state.

    models: [world:base, blind:length]            plan.yaml
    benchmarks: [world-swap, world-replace]
    limit: 500                                    and data, precision, batch_size, protocol, devices

    RESULTS/settings.json                         the settings
    RESULTS/sweep.json                            what is done, failed and why, written at the end
    RESULTS/MODEL/cell.json                       what failed, if anything did
    RESULTS/MODEL/costs.json                      what the model has cost; no result depends on it
    RESULTS/MODEL/BENCHMARKS/                     a run folder

A cell is a model on a benchmark. It is done when a run folder holds it, and is then not run again.
All benchmarks of a model that are not done are evaluated together, so that shared images are
encoded once; if that fails, they are evaluated one by one, so that one does not cost the others.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from counterpoint._util.errors import (
    CounterpointError,
    DataError,
    RunError,
    explain,
    stop_status,
)
from counterpoint._util.progress import Progress
from counterpoint._util.registry import did_you_mean
from counterpoint._util.store import default_store, digest
from counterpoint._util.untrusted import parse_json, read_yaml, shortened, shown
from counterpoint._util.writing import clear_drafts, write_json
from counterpoint.benchmarks import LoadedBenchmark, load_benchmark
from counterpoint.evaluation.evaluating import evaluate, prepare, slug
from counterpoint.runs import Run, find_runs, read_manifest
from counterpoint.scoring import make_plan

_SWEEP: Final = "sweep.json"
_PLANNED: Final = "settings.json"
_CELL: Final = "cell.json"
_COSTS: Final = "costs.json"
_LISTS: Final = ("models", "benchmarks")
_SETTINGS: Final = {"data": str, "limit": int, "protocol": str, "precision": str, "batch_size": int}
State = Literal["done", "failed", "open"]


@dataclass(frozen=True, slots=True)
class EvalPlan:
    """What a sweep evaluates. `settings` are arguments of `evaluate`."""

    models: tuple[str, ...]
    benchmarks: tuple[str, ...]
    settings: Mapping[str, Any]
    devices: str = ""


class EvalCell(NamedTuple):
    """A model on a benchmark. `why` it failed; `left_out` cases of a run that is done."""

    model: str
    benchmark: str
    state: State
    why: str = ""
    left_out: int = 0
    folder: str = ""


class Cost(NamedTuple):
    """What an evaluation took: unique images and captions, pairs, and bytes on disk."""

    seconds: float
    images: int
    captions: int
    pairs: int
    stored: int  # bytes that the store grew by
    run: int  # bytes of the run folder


class CellJob(NamedTuple):
    """A model with the benchmarks that it lacks, as another process gets it."""

    model: str
    benchmarks: tuple[str, ...]
    folder: Path
    settings: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class EvalSweep:
    """All cells, model by model."""

    folder: Path
    cells: list[EvalCell]

    @property
    def failed(self) -> list[EvalCell]:
        return [cell for cell in self.cells if cell.state == "failed"]

    def as_json(self) -> list[dict[str, Any]]:
        return [cell._asdict() for cell in self.cells]


def read_plan(path: Path) -> EvalPlan:
    """A plan from a YAML file, with every model and benchmark once."""
    values = read_yaml(path, "plan")
    known = (*_LISTS, *_SETTINGS, "devices")
    if not isinstance(values, dict) or not all(name in values for name in _LISTS):
        raise _invalid(path, "a plan has models: [...] and benchmarks: [...]")
    for key in values:
        if key not in known:
            raise _invalid(path, did_you_mean("key of a plan", str(key), known).rstrip("."))
    for key in _LISTS:
        found = values[key]
        if not isinstance(found, list) or not found or not all(isinstance(x, str) for x in found):
            raise _invalid(path, f"{key} should be a list of ids, it is {shown(found)}")
    settings = {key: values[key] for key in _SETTINGS if values.get(key) is not None}
    for key, value in settings.items():
        if type(value) is not _SETTINGS[key] and value != "auto":
            raise _invalid(path, f"{key}: {shown(value)} is not {_SETTINGS[key].__name__}")
    devices = values.get("devices") or ""
    if isinstance(devices, list):
        devices = ",".join(map(str, devices))
    models, benchmarks = (tuple(dict.fromkeys(values[key])) for key in _LISTS)
    return EvalPlan(models, benchmarks, settings, str(devices))


def _invalid(path: Path, what: str) -> DataError:
    return DataError("E-PLAN-INVALID", f"{path}: {what}.")


def default_folder(path: Path, plan: EvalPlan) -> Path:
    """The same place for the same settings; models and benchmarks may be added to it."""
    name = f"sweep-{slug(path.stem)}"
    if plan.settings:
        name += f"-{digest(repr(sorted(plan.settings.items()))).hex()[:8]}"
    return Path("runs") / name


def open_sweep(plan: EvalPlan, folder: Path) -> None:
    """Reserve the folder for these settings. Raises if it holds a sweep with others."""
    clear_drafts(folder)
    path = folder / _PLANNED
    there = _read(path).get("settings") if path.is_file() else None
    if there is not None and there != dict(plan.settings):
        raise RunError(
            "E-OUTPUT-EXISTS",
            f"{folder} holds a sweep with the settings {shown(there)}, and this plan has "
            f"{shown(dict(plan.settings))}; choose another folder (--out).",
        )
    if there is None:
        write_json(path, {"settings": dict(plan.settings)}, RunError)


def close_sweep(plan: EvalPlan, folder: Path) -> EvalSweep:
    """The cells as they are now, also in `sweep.json`."""
    sweep = EvalSweep(folder, cells_in(plan, folder))
    write_json(folder / _SWEEP, {"cells": sweep.as_json()}, RunError)
    return sweep


def cells_in(plan: EvalPlan, folder: Path) -> list[EvalCell]:
    """What is done, what failed and why, and what is open."""
    return [
        cell
        for model in plan.models
        for cell in cells_at(model_folder(folder, model), model, plan.benchmarks)
    ]


def cells_at(place: Path, model: str, benchmarks: Sequence[str]) -> list[EvalCell]:
    """The cells of one model, in its folder."""
    cells = []
    done = _done(place, model)
    failed = _read(place / _CELL).get("failed", {})
    for name in benchmarks:
        if name in done:
            cells.append(done[name])
        elif name in failed:
            cells.append(EvalCell(model, name, "failed", str(failed[name])))
        else:
            cells.append(EvalCell(model, name, "open"))
    return cells


def jobs_of(plan: EvalPlan, folder: Path) -> list[CellJob]:
    """Every model with its benchmarks that are not done."""
    cells = cells_in(plan, folder)
    found = []
    for model in plan.models:
        names = tuple(c.benchmark for c in cells if c.model == model and c.state != "done")
        if names:
            place = model_folder(folder, model).absolute()
            found.append(CellJob(model, names, place, plan.settings))
    return found


def model_folder(folder: Path, model: str) -> Path:
    return folder / f"{slug(model)[:60]}-{digest(model).hex()[:6]}"


def _done(place: Path, model: str) -> dict[str, EvalCell]:
    found = {}
    try:
        folders = find_runs(place) if place.is_dir() else []
    except RunError:  # no run yet
        return {}
    for folder in folders:
        try:
            manifest = read_manifest(folder)
        except RunError:  # damaged: it is run again
            continue
        for name, about in manifest["benchmarks"].items():
            lost = about["left_out"], about.get("lost_images", []), about.get("absent", [])
            count = sum(map(len, lost))
            found[name] = EvalCell(model, name, "done", left_out=count, folder=str(folder))
    return found


def _read(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        found = parse_json(path.read_bytes(), path, RunError)
    except RunError:  # it is written as a whole, so this is damage: it is made again
        return {}
    return found if isinstance(found, dict) else {}


# --- one cell ------------------------------------------------------------------------------------


def run_cell(job: CellJob, device: str = "auto", progress: Progress | None = None) -> None:
    """Evaluate a model on the benchmarks that it lacks; what fails is recorded, not raised."""
    loaded: dict[str, LoadedBenchmark] = {}
    failed: dict[str, str] = {}
    for name in job.benchmarks:
        try:
            data, protocol = (job.settings.get(key) for key in ("data", "protocol"))
            loaded[name] = load_benchmark(name, data, protocol=protocol)
        except Exception as error:  # a plug-in may raise anything
            _refuse_stop(error)
            failed[name] = _why(error)
    groups = [tuple(loaded)] if loaded else []
    while groups:
        names = groups.pop(0)
        try:
            _evaluate(job, [loaded[name] for name in names], device, progress)
        except Exception as error:
            _refuse_stop(error)
            if len(names) > 1:
                groups += [(name,) for name in names]  # which of them is it?
            else:
                failed[names[0]] = _why(error)
    record(job, failed)


def _evaluate(
    job: CellJob, benchmarks: Sequence[LoadedBenchmark], device: str, progress: Progress | None
) -> None:
    settings = {key: value for key, value in job.settings.items() if key != "data"}
    names = [one.name for one in benchmarks]
    short = slug(names[0])[:60] if len(names) == 1 else f"{len(names)}-benchmarks"
    before, start = _size(default_store()), time.monotonic()
    run: Run = evaluate(
        job.model,
        benchmarks,
        out=job.folder / f"{short}-{digest(*names).hex()[:6]}",
        device=device,
        progress=progress,
        **settings,
    )
    seconds = time.monotonic() - start
    stored = _size(default_store()) - before
    plan = make_plan({name: part.cases for name, part in run.parts.items()})
    pairs = sum(len(part.scores) for part in run.parts.values())
    folder = 0 if run.folder is None else _size(run.folder)
    if stored > 0:  # else all of it was stored: this says nothing about the next model
        sizes = len(plan.pictures), len(plan.captions), pairs
        cost = Cost(seconds, *sizes, stored, folder)._asdict()
        path = job.folder / _COSTS
        write_json(path, {"costs": [*_read(path).get("costs", []), cost]}, RunError)


def record(job: CellJob, failed: Mapping[str, str]) -> None:
    """Write what failed beside the runs of the model: no file if nothing did."""
    path = job.folder / _CELL
    if failed:
        write_json(path, {"model": job.model, "failed": dict(failed)}, RunError)
    else:
        path.unlink(missing_ok=True)


def record_crash(job: CellJob, why: str) -> None:
    """The process of a cell ended before it could say why."""
    done = _done(job.folder, job.model)
    record(job, {name: why for name in job.benchmarks if name not in done})


def _refuse_stop(error: Exception) -> None:
    """Raise if this is how a Ctrl-C or SIGTERM came out of compiled code."""
    if stop_status(error):
        raise error


def _why(error: Exception) -> str:
    known = error if isinstance(error, CounterpointError) else explain(error)
    return f"{known} [{known.code}]" if known else f"{type(error).__name__}: {shortened(error)}"


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


# --- before it is run ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Forecast:
    """What the open cells of a model will need. Seconds and bytes are None if nothing is known."""

    model: str
    benchmarks: int
    images: int
    captions: int
    pairs: int
    seconds: float | None
    bytes: float | None

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


class Counts(NamedTuple):
    """The unique images and captions of a benchmark, and its pairs; or why it cannot be read."""

    benchmark: str
    images: int
    captions: int
    pairs: int
    failed: str = ""


def forecast(plan: EvalPlan, folder: Path) -> tuple[list[Counts], list[Forecast]]:
    """Counts of every benchmark, and the cost of what is open by that of what is done."""
    tables, counts = {}, []
    for name in plan.benchmarks:
        data, protocol, limit = (plan.settings.get(key) for key in ("data", "protocol", "limit"))
        try:
            loaded = load_benchmark(name, data, protocol=protocol)
            tables[name] = prepare(loaded.cases, loaded.read_by(protocol), limit)
        except Exception as error:  # as in `run_cell`
            counts.append(Counts(name, 0, 0, 0, _why(error)))
            continue
        one = make_plan({name: tables[name]})
        pairs = int(tables[name].pair_offsets[-1])
        counts.append(Counts(name, len(one.pictures), len(one.captions), pairs))
    known = {model: _costs(model_folder(folder, model)) for model in plan.models}
    everything = [cost for costs in known.values() for cost in costs]
    found = []
    for job in jobs_of(plan, folder):
        chosen = {name: tables[name] for name in job.benchmarks if name in tables}
        if chosen:
            shared = make_plan(chosen)
            sizes = len(shared.pictures), len(shared.captions)
            pairs = sum(int(table.pair_offsets[-1]) for table in chosen.values())
            needed = _scaled(known[job.model] or everything, sum(sizes), pairs)
            found.append(Forecast(job.model, len(chosen), *sizes, pairs, *needed))
    return counts, found


def _costs(place: Path) -> list[Cost]:
    try:
        return [Cost(**one) for one in _read(place / _COSTS).get("costs", [])]
    except TypeError:  # of another version
        return []


def _scaled(costs: Sequence[Cost], items: int, pairs: int) -> tuple[float | None, float | None]:
    """Seconds and stored bytes grow with images and captions, the run folder with pairs."""
    if not costs:
        return None, None
    before = sum(cost.images + cost.captions for cost in costs)
    seconds = sum(cost.seconds for cost in costs) / before * items
    stored = sum(cost.stored for cost in costs) / before * items
    written = sum(cost.run for cost in costs) / sum(cost.pairs for cost in costs) * pairs
    return seconds, stored + written
