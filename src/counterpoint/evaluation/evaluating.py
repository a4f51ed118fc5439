"""`evaluate`: models x benchmarks -> runs."""

from __future__ import annotations

import platform
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal, TypedDict, Unpack, overload

import numpy as np

from counterpoint._util.errors import CounterpointError, NotFoundError
from counterpoint._util.progress import Named, Progress, shown
from counterpoint._util.store import Store, default_store, digest
from counterpoint._util.untrusted import recorded_command, shortened
from counterpoint.benchmarks import (
    LoadedBenchmark,
    absent_from,
    counted,
    load_benchmark,
    own_cases,
    whole_size,
)
from counterpoint.cases import (
    Absent,
    Cases,
    formatted,
    smaller_galleries,
    unanswered,
    without_images,
)
from counterpoint.evaluation.devices import AUTO, Place, choose, device_names
from counterpoint.evaluation.trained_on import overlap, paths_of_records, read_records
from counterpoint.metrics import Overlong, Protocol
from counterpoint.models import LoadOptions, check_model
from counterpoint.runs import Part, Run, question, refuse_empty, refuse_other, save_run
from counterpoint.scoring import (
    Described,
    Model,
    Probed,
    Scored,
    Work,
    check_kind,
    score,
    score_probe,
)

OneModel = str | Model | tuple[str, Model]
OneBenchmark = str | Path | Cases | LoadedBenchmark


class EvaluateOptions(TypedDict, total=False):
    """What `evaluate` may be told besides models and benchmarks."""

    data: str | Path | None
    out: str | Path | None
    limit: int | None
    protocol: str | None
    batch_size: int | Literal["auto"]
    device: str
    precision: str
    decode: str
    devices: str
    engine: str
    ray_address: str
    workers: int | None
    trust_remote_code: bool
    overwrite: bool
    store: str | Path | None
    progress: Progress | Literal["auto"] | None


@overload
def evaluate(  # type: ignore[overload-overlap]  # a str is a sequence of str, too
    models: OneModel,
    benchmarks: OneBenchmark | Sequence[OneBenchmark],
    **options: Unpack[EvaluateOptions],
) -> Run: ...
@overload
def evaluate(
    models: Sequence[OneModel],
    benchmarks: OneBenchmark | Sequence[OneBenchmark],
    **options: Unpack[EvaluateOptions],
) -> list[Run]: ...
def evaluate(
    models: OneModel | Sequence[OneModel],
    benchmarks: OneBenchmark | Sequence[OneBenchmark],
    *,
    data: str | Path | None = None,
    out: str | Path | None = None,
    limit: int | None = None,
    protocol: str | None = None,
    batch_size: int | Literal["auto"] = "auto",
    device: str = "auto",
    precision: str = "fp32",
    decode: str = "exact",
    devices: str = "",
    engine: str = "local",
    ray_address: str = "local",
    workers: int | None = None,
    trust_remote_code: bool = False,
    overwrite: bool = False,
    store: str | Path | None = None,
    progress: Progress | Literal["auto"] | None = "auto",
) -> Run | list[Run]:
    """Score models on benchmarks. Every model gives a run: a folder with every raw score.

        run = evaluate("world:base", "world-swap")
        runs = evaluate(["world:base", my_model], ["world-swap", "my_cases.jsonl"])

    A model is an id, an object of one of the kinds (`DualEncoder`, `PairScorer`, ...), or a pair of
    a name and such an object. One model gives a run, a list gives a list of runs. A benchmark is an
    id, the path of a case file, a `Cases` table, or what `load_benchmark` returned.

    `out` is the run folder itself for one model, and holds one folder per model for several;
    without it, runs go to `runs/`. A folder that holds a run of another question (model,
    benchmarks, protocol, limit, precision) is refused unless `overwrite` is set.
    `batch_size="auto"` finds a size that is fast on the device. `precision="auto"` and
    `decode="auto"` take, on a GPU, the fastest setting that changes the verdicts of at most 0.2 %
    of a sample of the cases. `devices="0,1"` computes in a process for each GPU, `engine="ray"` on
    a cluster; the scores are the same. A script that does so has its calls below
    `if __name__ == "__main__":`.

    `trust_remote_code` runs Python code that comes with the models and can do whatever you can do;
    the run records it.

    Cases that could not be scored are named in `run.parts[...].left_out`, cases of the published
    benchmark that are not in the data in `run.parts[...].absent`. Progress bars are shown on a
    terminal and in a notebook; `progress=None` shows none.
    """
    batch = None if batch_size == AUTO else int(batch_size)
    if (batch is not None and batch < 1) or (limit is not None and limit < 1):
        raise CounterpointError("E-OPTION-INVALID", "batch size and limit must be at least 1.")
    one = isinstance(models, str | tuple) or not isinstance(models, Sequence)
    chosen = _each_once([models] if one else models)  # type: ignore[arg-type, list-item]
    for name, loaded in chosen:
        if loaded is None:
            check_model(name)  # a large benchmark takes a minute to load
    tables = _Tables(_loaded(benchmarks, data, protocol), protocol, limit)
    if not chosen or not tables.cases:
        raise CounterpointError(
            "E-ARGUMENT-MISSING", "evaluate needs at least one model and one benchmark."
        )
    loading = LoadOptions(device, precision, trust_remote_code, decode)
    options: dict[str, Any] = {
        "limit": limit,
        "batch_size": batch_size,
        "device": device,
        "precision": precision,
        "trust_remote_code": trust_remote_code,
    }
    if decode != "exact":  # as before there was a choice
        options["decode"] = decode
    place = Place(tuple(device_names(devices)), engine, ray_address, workers)
    used = {name: protocol.name for name, protocol in tables.protocols.items()}
    names = [name for name, _ in chosen]
    _refuse_shared_names(names)
    questions = {name: question(name, used, options) for name in names}
    where = None if data is None else str(Path(data).absolute())
    asked = [repr((where, questions[name].key())) for name in names]
    folders = _folders(names, None if out is None else Path(out), asked)
    for name, folder in zip(names, folders, strict=True):
        refuse_other(folder, questions[name], overwrite=overwrite)
    overlong = {name: protocol.overlong for name, protocol in tables.protocols.items()}
    runs = []
    with (
        shown(progress) as bars,
        Store(Path(store) if store else default_store()) as opened,
        place.cluster() as cluster,
    ):
        for (name, model), folder in zip(chosen, folders, strict=True):
            work = Work(opened, batch, Named(bars, name))
            notes: list[str] = []
            with ExitStack() as stack:
                if model is None:
                    settings = choose(name, tables.unprobed(), loading, work)
                    notes += (f"{name}: {note}" for note in settings.notes)
                    model = stack.enter_context(place.loaded(name, settings.options, work, cluster))
                    said = _said_of(model)
                    if settings.options.decode == "gpu" and said.get("decoder") != "GPU":
                        notes.append(f"{name}: JPEGs are decoded by Pillow, not on the GPU.")
                scored, probes = tables.score(model, overlong, work)
                parts = tables.parts(model, scored, probes)
                notes += [probe.describe(on) for on, probe in probes.items()]
                manifest = _manifest(model, options, [*opened.notes(), *notes])
            run = Run(name, parts, manifest)
            refuse_empty(run)
            runs.append(save_run(run, folder, overwrite=overwrite))
    return runs[0] if one else runs


def _loaded(
    benchmarks: OneBenchmark | Sequence[OneBenchmark],
    data: str | Path | None,
    protocol: str | None,
) -> list[LoadedBenchmark]:
    """Each benchmark once, in the order given."""
    single = isinstance(benchmarks, str) or not isinstance(benchmarks, Sequence)
    asked: Any = [benchmarks] if single else benchmarks
    found: dict[str, LoadedBenchmark] = {}
    for one in asked:
        match one:
            case str() | Path():
                if str(one) not in found:
                    found[str(one)] = load_benchmark(one, data, protocol=protocol)
            case Cases():
                found["cases"] = own_cases(one)
            case LoadedBenchmark():
                found[one.name] = one
            case _:
                raise CounterpointError(
                    "E-BENCHMARK-INVALID",
                    f"{type(one).__name__} is not a benchmark; give an id, the path of a case "
                    "file, a Cases table, or what load_benchmark returned.",
                )
    return list(found.values())


class _Tables:
    """The benchmarks of an evaluation: their cases as the protocols score them."""

    def __init__(
        self, found: Sequence[LoadedBenchmark], protocol: str | None, limit: int | None
    ) -> None:
        self.protocols = {one.name: one.read_by(protocol) for one in found}
        self.cases = {
            one.name: prepare(one.cases, self.protocols[one.name], limit) for one in found
        }
        self._absent = {one.name: self._lacking(one) for one in found}
        self._whole = {
            one.name: whole_size(
                one.name, one.cases, self.protocols[one.name], self._absent[one.name]
            )
            for one in found
        }
        self._training = {one.name: one.training for one in found if one.training is not None}
        self._hashes = {
            name: hash_of(cases, self._training.get(name)) for name, cases in self.cases.items()
        }

    def _lacking(self, one: LoadedBenchmark) -> tuple[Absent, ...]:
        try:
            return absent_from(one.name, one.cases, self.protocols[one.name])
        except NotFoundError:  # a table of the user's own: nothing is known of it
            return one.cases.absent

    def unprobed(self) -> dict[str, tuple[Cases, Protocol]]:
        """The benchmarks that are not scored by a linear probe, with their protocols."""
        names = [name for name in self.cases if name not in self._training]
        return {name: (self.cases[name], self.protocols[name]) for name in names}

    def score(
        self, model: Model, overlong: Mapping[str, Overlong], work: Work
    ) -> tuple[dict[str, Scored], dict[str, Probed]]:
        """The scores of all benchmarks, and what is known of those by a linear probe."""
        plain = {name: cases for name, (cases, _) in self.unprobed().items()}
        scored = score(model, plain, overlong, work) if plain else {}
        probes = {
            name: score_probe(model, name, training, self.cases[name], work)
            for name, training in self._training.items()
        }
        return scored | {name: probe.scored for name, probe in probes.items()}, probes

    def parts(
        self, model: Model, scored: Mapping[str, Scored], probes: Mapping[str, Probed]
    ) -> dict[str, Part]:
        record, parts = read_records(paths_of_records(_said_of(model))), dict[str, Part]()
        for name, cases in self.cases.items():
            part = _part(name, cases, scored[name], self.protocols[name], self._hashes[name])
            lost = probes[name].left_out if name in probes else ()
            parts[name] = replace(
                part,
                absent=self._absent[name],
                trained_on=None if record is None else overlap(record, cases),
                whole=self._whole[name],
                left_out_images=(*part.left_out_images, *(("training images", w) for w in lost)),
            )
        return parts


def _each_once(models: Sequence[OneModel]) -> list[tuple[str, Model | None]]:
    """Names and models; None for a model that is loaded by its name.

    An object is the same model only if it is the same object: it need not be hashable.
    """
    found: dict[object, tuple[str, Model | None]] = {}
    for model in models:
        if isinstance(model, str):
            found.setdefault(model, (model, None))
            continue
        name, loaded = model if isinstance(model, tuple) else (_name_of(model), model)
        check_kind(loaded)
        found.setdefault((name, id(loaded)), (name, loaded))
    return list(found.values())


def _name_of(model: object) -> str:
    name = getattr(model, "name", None)
    return name if isinstance(name, str) else type(model).__name__


def _refuse_shared_names(names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise CounterpointError(
                "E-MODEL-REPEATED",
                f"{names.count(name)} models are called {shortened(name)}, and each writes a run; "
                "give every model a name of its own.",
            )


def prepare(cases: Cases, protocol: Protocol, limit: int | None) -> Cases:
    """The cases that the protocol scores, with their captions as it writes them."""
    chosen = counted(cases, protocol)
    if limit is not None:
        chosen = smaller_galleries(chosen.limit(limit), limit)
    return formatted(chosen, protocol.caption_format)


def hash_of(cases: Cases, training: Cases | None) -> str:
    """A digest of all cases that are asked for, and of those that a probe is fitted to."""
    found = cases.content_hash()
    return found if training is None else digest(found, training.content_hash()).hex()


def _part(name: str, cases: Cases, scored: Scored, protocol: Protocol, data_hash: str) -> Part:
    kept = without_images(cases, {row: set(gone) for row, gone in scored.left_out_images.items()})
    for row in np.flatnonzero(unanswered(kept.cases)).tolist():
        first = next(iter(scored.left_out_images.pop(row).values()))
        scored.left_out[row] = f"no image with a caption of its own is left: {first}"
    ids = cases.ids
    lost = tuple(
        (ids[row], why)
        for row, images in sorted(scored.left_out_images.items())
        for _, why in sorted(images.items())
    )
    left_out = tuple((ids[row], why) for row, why in sorted(scored.left_out.items()))
    rows = np.ones(len(cases), dtype=bool)
    rows[list(scored.left_out)] = False
    scores = scored.scores if kept.pairs.all() else scored.scores[kept.pairs]
    cut = scored.cut_captions
    part = Part(name, kept.cases, scores, protocol, left_out, cut, data_hash, lost)
    return part.keep(rows)


def _folders(names: Sequence[str], out: Path | None, asked: Sequence[str]) -> list[Path]:
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
        Path("runs") / f"{short}-{digest(said).hex()[:8]}"
        for said, short in zip(asked, slugs, strict=True)
    ]


def slug(name: str) -> str:
    """A model's name as a folder's: letters, digits, dots and dashes."""
    return re.sub(r"[^A-Za-z0-9._]+", "-", name).strip("-.") or "model"


def _said_of(model: Model) -> dict[str, Any]:
    return dict(model.describe()) if isinstance(model, Described) else {}


def _manifest(model: Model, options: dict[str, Any], notes: Sequence[str]) -> dict[str, Any]:
    info = _said_of(model)
    if notes:
        info["notes"] = [*info.get("notes", ()), *notes]
    packages = ("counterpoint", "numpy", "pillow", "polars", "pyarrow")
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
