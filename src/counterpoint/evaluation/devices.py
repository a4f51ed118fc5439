"""Where and how exactly a model computes: here, on several devices, on Ray; and in which precision.

`auto` is what a careful engineer would choose: float32 on a CPU; on a GPU the fastest setting with
which the verdict of at most one case in 500 of a sample of the run changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from counterpoint._util.errors import CounterpointError, ModelError
from counterpoint._util.processes import check_engine, ray_cluster, working_folder
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.store import Store, default_store
from counterpoint._util.untrusted import shown
from counterpoint.cases import Cases, smaller_galleries
from counterpoint.metrics import PooledMetric, Protocol
from counterpoint.models import LoadOptions, is_device, load_model, load_remembered
from counterpoint.runs import Part, columns_of
from counterpoint.scoring import (
    Described,
    Model,
    Processes,
    RayWorkers,
    Scored,
    Work,
    distributed,
    score,
)


def device_names(text: str) -> list[str]:
    """`0,1` is cuda:0 and cuda:1; `all` is every GPU; a name may stand twice: `cpu,cpu`."""
    if text == "all":
        import torch

        return [f"cuda:{n}" for n in range(torch.cuda.device_count())] or ["cpu"]
    names = [f"cuda:{part}" if part.isdecimal() else part for part in text.split(",") if part]
    for name in names:
        if not is_device(name):
            raise CounterpointError(
                "E-OPTION-INVALID",
                f"devices: {shown(name)} is no device; as in 0,1 or all or cpu,cpu.",
            )
    return names


@dataclass(frozen=True, slots=True)
class Place:
    """Where models are loaded. Without devices and with the engine `local`, it is this process.

    On Ray, `workers` is the number of actors: by default one for each GPU, else one for each CPU.
    """

    devices: tuple[str, ...] = ()
    engine: str = "local"
    address: str = "local"
    workers: int | None = None

    def __post_init__(self) -> None:
        check_engine(self.engine)

    @contextmanager
    def cluster(self) -> Iterator[Any]:
        """The module `ray`, joined to the cluster; None if none is needed."""
        if self.engine != "ray":
            yield None
            return
        with ray_cluster(self.address, self.workers) as ray:
            yield ray

    @contextmanager
    def loaded(self, name: str, options: LoadOptions, work: Work, ray: Any) -> Iterator[Model]:
        """The model. One that has to be in one place is loaded here: a blind model that is fitted
        to a benchmark, an ensemble."""
        alone = replace(options, device=self.devices[0]) if self.devices else options
        if ray is None and len(self.devices) < 2:
            yield load_remembered(name, alone, work.store)
            return
        workers: Any
        if ray is not None:
            resources = ray.cluster_resources()
            gpus = int(resources.get("GPU", 0))
            count = self.workers or gpus or max(1, int(resources.get("CPU", 1)))
            load = partial(load_model, name, options)
            workers = RayWorkers(ray, load, count, int(gpus > 0), working_folder())
        else:
            placed = (replace(options, device=device) for device in self.devices)
            workers = Processes([partial(load_model, name, one) for one in placed])
        with closing(workers):
            model = distributed(workers)
            if model is None:
                workers.close()  # or it would be loaded twice
            yield model or load_model(name, alone)


# --- precision: the same cases scored in it and in float32 ------------------------------------


AUTO: Final = "auto"
SAMPLE: Final = 500  # cases of each benchmark
_AT_LEAST: Final = 2_000  # cases of all benchmarks together, as far as there are so many
MOST_CHANGED: Final = 0.002  # of the cases of the sample
# The fastest first. On a GPU fp16 is as fast as bf16 and rounds to an eighth of its steps; bf16 is
# for models whose values leave the range of fp16.
_PRECISIONS: Final = ("fp16", "bf16", "tf32", "fp32")
_DECODERS: Final = ("gpu", "exact")
Tables = Mapping[str, tuple[Cases, Protocol]]


@dataclass(frozen=True, slots=True)
class Flips:
    """How many verdicts of a sample other settings change."""

    model: str
    benchmark: str
    precision: str
    verdicts: int
    flipped: int
    largest: float  # difference of two scores
    cases: int
    changed: int  # cases with a verdict that flipped
    decode: str = "exact"


def check_precision(
    model: str,
    tables: Tables,
    options: LoadOptions,
    *,
    batch_size: int | None = None,
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> list[Flips]:
    """Score a sample of each table with `options` and in fp32, and compare verdicts.

    A verdict is a metric of a case that is right or wrong. A variant of an ONNX export is compared
    with the export itself.
    """
    if not tables:
        return []
    with Store(Path(store) if store else default_store()) as opened:
        sample = _CaseSample(model, tables, Work(opened, batch_size, progress or Quiet()))
        if not model.startswith("onnx:"):
            return sample.flips(options, sample.score(exactly(options)))
        plain, _, variant = model.partition("?")
        flips = sample.flips(options, sample.score(options, load_model(plain, options)))
        return [replace(flip, precision=variant or flip.precision) for flip in flips]


@dataclass(frozen=True, slots=True)
class Choice:
    """The settings that were chosen, and what was counted on the way."""

    options: LoadOptions
    flips: tuple[Flips, ...]
    notes: tuple[str, ...]


def choose(model: str, tables: Tables, options: LoadOptions, work: Work) -> Choice:
    """Settings in place of `auto`, for a model of the registry."""
    if AUTO not in (options.precision, options.decode):
        return Choice(options, (), ())
    precisions = _PRECISIONS if options.precision == AUTO else (options.precision,)
    decoders = _DECODERS if options.decode == AUTO else (options.decode,)
    # The most exact of what was asked for, with which the others are compared.
    plain = replace(options, precision=precisions[-1], decode=decoders[-1])
    reference = load_model(model, plain)
    said = reference.describe() if isinstance(reference, Described) else {}
    if not str(said.get("device")).startswith("cuda") or not tables:
        return Choice(plain, (), ())
    if "decoder" not in said:  # a family that leaves all decoding to Pillow
        decoders = decoders[-1:]
    tried = [
        replace(options, precision=precision, decode=decode)
        for precision in precisions
        for decode in decoders
    ]
    sample = _CaseSample(model, tables, work)
    expected = sample.score(plain, reference)
    del reference  # its memory
    notes: list[str] = []
    for one in tried[:-1]:
        try:
            flips = sample.flips(one, expected)
        except ModelError as error:  # values beyond fp16, a tower that cannot be cast
            notes.append(f"{_named(one)} cannot be used: {str(error).rstrip('.')}.")
            continue
        cases, changed = (sum(getattr(f, n) for f in flips) for n in ("cases", "changed"))
        counted = f"changes the verdict of {changed:,} of {cases:,} cases against {_named(plain)}"
        if changed <= MOST_CHANGED * cases:
            return Choice(one, tuple(flips), (*notes, f"{_named(one)} {counted}, so it is used."))
        notes.append(f"{_named(one)} {counted}, so it is not used.")
    return Choice(plain, (), (*notes, f"{_named(plain)} is used."))


def exactly(options: LoadOptions) -> LoadOptions:
    return replace(options, precision="fp32", decode="exact")


def _named(options: LoadOptions) -> str:
    decoder = " with JPEGs decoded on the GPU" if options.decode == "gpu" else ""
    return f"{options.precision}{decoder}"


class _CaseSample:
    """Some cases of every table, and what a model says of them."""

    def __init__(self, model: str, tables: Tables, work: Work) -> None:
        self.model, self.work = model, work
        size = max(SAMPLE, _AT_LEAST // len(tables))
        self.tables = {
            name: (smaller_galleries(table.limit(size), size), protocol)
            for name, (table, protocol) in tables.items()
        }

    def score(self, options: LoadOptions, loaded: Model | None = None) -> dict[str, Scored]:
        cases = {name: table for name, (table, _) in self.tables.items()}
        overlong = {name: protocol.overlong for name, (_, protocol) in self.tables.items()}
        return score(loaded or load_model(self.model, options), cases, overlong, self.work)

    def flips(self, options: LoadOptions, expected: Mapping[str, Scored]) -> list[Flips]:
        low = self.score(options)
        found = []
        for name, (table, protocol) in self.tables.items():
            kept = np.ones(len(table), dtype=bool)
            kept[[*low[name].left_out, *expected[name].left_out]] = False
            both = (low[name].scores, expected[name].scores)
            one, two = (Part(name, table, scores, protocol).keep(kept) for scores in both)
            values = [_verdicts(part) for part in (one, two)]
            changed = np.abs(values[0] - values[1]) > 0
            found.append(
                Flips(
                    self.model,
                    name,
                    options.precision,
                    int(np.isfinite(values[0]).sum()),
                    int(changed.sum()),
                    float(np.abs(one.scores - two.scores).max(initial=0)),
                    len(values[0]),
                    int(changed.any(axis=1).sum()) if changed.size else 0,
                    options.decode,
                )
            )
        return found


def _verdicts(part: Part) -> np.ndarray:
    """The main metrics of every case, as far as they are shares."""
    if not len(part.cases):
        return np.zeros((0, 0))
    columns = columns_of(part, part.protocol.tie)
    chosen = [
        m.main and m.unit == "share" and not isinstance(m, PooledMetric) for m in columns.metrics
    ]
    return columns.values[:, chosen]
