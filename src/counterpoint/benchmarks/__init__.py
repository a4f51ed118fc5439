"""Benchmarks by id. Adding one is a file with a `Benchmark` and a line here.

An id may carry options, `world-swap:size=500,seed=3`, or be the path of a case file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from counterpoint.case_files import read_cases
from counterpoint.cases import Cases
from counterpoint.errors import NotFoundError
from counterpoint.registry import Registry, did_you_mean

BENCHMARKS: Final = Registry(
    "benchmark",
    "counterpoint.benchmarks",
    {
        "world-replace": "counterpoint.benchmarks.world:REPLACE",
        "world-swap": "counterpoint.benchmarks.world:SWAP",
        "world-bi": "counterpoint.benchmarks.world:BI",
    },
)


@dataclass(frozen=True, slots=True)
class Options:
    """What a benchmark may be asked: where its data is, and the options in its id."""

    data: Path | None
    values: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Benchmark:
    """What a benchmark is, and its cases. `defaults` names its options."""

    id: str
    summary: str
    shape: str
    protocol: str
    cases: Callable[[Options], Cases]
    paper: str = ""
    licence: str = ""
    defaults: Mapping[str, int] | None = None


def load_benchmark(id: str, data: Path | None = None) -> tuple[Benchmark, Cases]:
    """A benchmark and its cases, by id or by the path of a case file."""
    if id.endswith((".parquet", ".jsonl")):
        benchmark = Benchmark(id, "your own cases", "any", "strict", lambda _: read_cases(Path(id)))
        return benchmark, benchmark.cases(Options(data, {}))
    name, _, rest = id.partition(":")
    benchmark = BENCHMARKS.get(name)
    return benchmark, benchmark.cases(Options(data, _read_options(benchmark, rest)))


def _read_options(benchmark: Benchmark, text: str) -> dict[str, int]:
    values = dict(benchmark.defaults or {})
    for part in filter(None, text.split(",")):
        key, _, value = part.partition("=")
        if key not in values:
            raise NotFoundError(did_you_mean(f"option of {benchmark.id}", key, values))
        if not value.isdecimal():
            raise NotFoundError(f"{benchmark.id}:{part}: {key} must be a whole number.")
        values[key] = int(value)
    return values
