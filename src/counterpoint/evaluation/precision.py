"""What a lower precision changes: the same cases scored in it and in float32.

`auto` is what a careful engineer would choose: float32 on a CPU; on a GPU the fastest setting with
which the verdict of at most one case in 500 of a sample of the run changes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint._util.errors import ModelError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.store import Store, default_store
from counterpoint.cases import Cases, smaller_galleries
from counterpoint.metrics import PooledMetric, Protocol
from counterpoint.models import LoadOptions, load_model
from counterpoint.runs import Part, columns_of
from counterpoint.scoring import Described, Model, Scored, Work, score

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

    A verdict is a metric of a case that is right or wrong.
    """
    if not tables:
        return []
    with Store(Path(store) if store else default_store()) as opened:
        sample = _CaseSample(model, tables, Work(opened, batch_size, progress or Quiet()))
        return sample.flips(options, sample.score(exactly(options)))


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
