"""Benchmarks by id. Adding one is a row of `benchmarks.toml`, and a reader if its files need one.

An id may carry options, `world-swap:size=500,seed=3`, ask for positives to be added,
`sugarcrepe+hp`, name a folder of images, `classification/pets` or `probe/pets`, or be the path of a
case file, of WebDataset shards or of a table with images.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from importlib import import_module, resources
from pathlib import Path
from typing import Any, Final

from counterpoint._util.registry import Option, Registry, Value, read_options
from counterpoint.benchmarks.benchmark import (
    WITH_POSITIVES,
    Benchmark,
    LoadedBenchmark,
    Options,
    Size,
)
from counterpoint.benchmarks.shards import TAR, holds_shards, own_file
from counterpoint.cases import Cases

_HOME: Final = "counterpoint.benchmarks"
_OF_DATA_SET: Final = ("paper", "licence", "images", "untried")


def _function(name: str, arguments: Mapping[str, Any] | None = None) -> Callable[[Any], Any]:
    """The function `module:name` of this package, imported when it is called."""
    module, _, function = name.partition(":")

    def call(value: Any) -> Any:
        return getattr(import_module(f"{_HOME}.{module}"), function)(value, **(arguments or {}))

    return call


def _size(value: int | list[int]) -> Size | None:
    if isinstance(value, list):
        return Size(1, *value)
    return Size(value) if value else None


class _Benchmarks(Registry):
    """Those of `benchmarks.toml`, and plug-ins."""

    def __init__(self) -> None:
        file = resources.files(_HOME) / "benchmarks.toml"
        self._rows: dict[str, dict[str, Any]] = tomllib.loads(file.read_text("utf-8"))
        self._made: dict[str, Benchmark] = {}
        readers = {id: row["reader"] for id, row in self._rows.items()}
        super().__init__("benchmark", _HOME, readers)

    def get(self, name: str) -> Any:
        if name not in self._rows:
            return super().get(name)
        if name not in self._made:
            self._made[name] = self._benchmark(name, dict(self._rows[name]))
        return self._made[name]

    def _benchmark(self, id: str, row: dict[str, Any]) -> Benchmark:
        same = self._rows[row.pop("of", id)]
        row |= {name: same[name] for name in _OF_DATA_SET if name in same and name not in row}
        arguments = row.pop("with", {})
        cases = _function(row.pop("reader"), arguments)
        files: Any = row.pop("files", None)
        if "gallery" in row:
            files = {"": row.pop("gallery")}
        if isinstance(files, dict):
            sizes = {name: _size(value) for name, value in files.items()}
            known = [size.cases for size in sizes.values() if size and size.cases]
            if len(known) == len(sizes):
                row.setdefault("count", sum(known))
            row["files"] = lambda _: sizes
        elif files is not None:
            row["files"] = _function(files, arguments)
        row["defects"] = {what: _function(one) for what, one in row.pop("defects", {}).items()}
        return Benchmark(id, cases=cases, defaults=row.pop("options", {}), **row)


BENCHMARKS: Final = _Benchmarks()
_CASE_FILES: Final = (".parquet", ".jsonl", TAR)
_OTHER_FILES: Final = (".json", ".csv", ".tsv")  # are refused by `own_file`, which says why
_FOLDERS: Final = {  # any folder of images is a benchmark; the longest beginning counts
    "classification/vtab/": "classification:vtab_benchmark",
    "classification/": "classification:folder_benchmark",
    "probe/": "classification:probe_benchmark",
}


def base_id(id: str) -> str:
    """`sugarcrepe+hp:positives=FILE` is `sugarcrepe`."""
    return _split(id)[0].removesuffix(WITH_POSITIVES)


def _split(id: str) -> tuple[str, str]:
    """The name and the options behind it; the name of a case file may hold a colon."""
    name, _, options = id.partition(":")
    if WITH_POSITIVES in id:
        before, _, after = id.partition(f"{WITH_POSITIVES}:")
        return (before + WITH_POSITIVES, after) if after else (id, "")
    if id.endswith(_CASE_FILES) and name not in BENCHMARKS.names():
        return id, ""
    return name, options


def find_benchmark(id: str) -> Benchmark:
    """What is known of a benchmark, by id or by the path of a case file."""
    name, _ = _split(id)
    plain = name.removesuffix(WITH_POSITIVES)
    own = Benchmark(plain, "your own cases", "any", "strict", lambda _: own_file(plain))
    if plain.endswith((*_CASE_FILES, *_OTHER_FILES)):
        found = own
    elif plain.startswith(tuple(_FOLDERS)) and plain not in BENCHMARKS.names():
        maker = next(maker for begin, maker in _FOLDERS.items() if plain.startswith(begin))
        found = _function(maker)(plain)
    elif plain not in BENCHMARKS.names() and holds_shards(plain):
        found = own
    else:
        found = BENCHMARKS.get(plain)
    if plain == name:
        return found
    from counterpoint.benchmarks.positives import with_positives

    return with_positives(found)


def load_benchmark(
    id: str | Path, data: str | Path | None = None, *, protocol: str | None = None
) -> LoadedBenchmark:
    """A benchmark and its cases, by id or by the path of a case file.

        benchmark, cases = load_benchmark("world-swap:size=200")

    `protocol` matters to benchmarks that are read in another way for it: retrieval with the
    captions of `aro-retrieval`.
    """
    from counterpoint.data import data_root  # not for lists: downloads take long to import

    name = str(id)
    benchmark = find_benchmark(name)
    root = data_root(None if data is None else Path(data))
    followed = protocol if protocol in benchmark.loads else ""
    options = Options(root, _read_options(benchmark, _split(name)[1]), followed or "")
    training = None if benchmark.training is None else benchmark.training(options)
    cases = benchmark.cases(options)
    return LoadedBenchmark(name, benchmark, cases, options.protocol, training)


def own_cases(cases: Cases, name: str = "cases") -> LoadedBenchmark:
    """A case table of the user's own as a benchmark."""
    return LoadedBenchmark(
        name, Benchmark(name, "your own cases", "any", "strict", lambda _: cases), cases
    )


def list_benchmarks() -> list[str]:
    """The ids of all benchmarks, those of plug-ins included."""
    return BENCHMARKS.names()


def published_files(id: str, protocol: str = "") -> Mapping[str, Size]:
    """What a benchmark consists of: how much each file holds, by what the ids of its cases begin
    with.

    A benchmark of one file has the one key "". Nothing is known of case files.
    """
    benchmark = find_benchmark(id)
    if benchmark.files is None:
        return {} if benchmark.count is None else {"": Size(benchmark.count)}
    options = _read_options(benchmark, _split(id)[1])
    followed = protocol if protocol in benchmark.loads else ""
    sizes = benchmark.files(Options(Path(), options, followed))
    return {file: size if isinstance(size, Size) else Size(size) for file, size in sizes.items()}


def _read_options(benchmark: Benchmark, text: str) -> dict[str, Value]:
    known = {key: Option(value) for key, value in benchmark.defaults.items()}
    return read_options(benchmark.id, text, known, ",")
