"""A benchmark: its cases, its protocol, and what is known of the published files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np

from counterpoint.cases import Cases

Value = int | str
WITH_POSITIVES: Final = "+hp"  # the end of an id: hard positives are added
_CHANCE: Final = {
    "1 x 2": "50",
    "1 x 3": "50 original, 33.3 augmented, 33.3 brittleness",
    "1 x 5": "20",
    "2 x 2": "25 image-to-text, 25 text-to-image, 16.7 group",
}


@dataclass(frozen=True, slots=True)
class Options:
    """The data root, and the options in the id of a benchmark."""

    data: Path
    values: Mapping[str, Value] = field(default_factory=dict)

    def number(self, name: str) -> int:
        return int(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name])


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark. `defaults` names its options.

    `shape` is images x captions, `protocol` the official one, `images` what pictures it needs,
    `count` how many cases the published files hold, `ids` what its case ids are, `defects` what
    is wrong with some of its cases: a mark for each case. `files` says how many cases each of
    several files holds (of a gallery: images), by what the ids of its cases begin with; None where
    that is unknown. `training` has the training images of a linear probe, with the same classes.
    """

    id: str
    summary: str
    shape: str
    protocol: str
    cases: Callable[[Options], Cases]
    paper: str = ""
    licence: str = ""
    images: str = ""
    count: int | None = None
    ids: str = "row number from 0"
    defaults: Mapping[str, Value] = field(default_factory=dict)
    defects: Mapping[str, Callable[[Cases], np.ndarray]] = field(default_factory=dict)
    files: Callable[[Options], Mapping[str, int | None]] | None = None
    training: Callable[[Options], Cases] | None = None

    @property
    def chance(self) -> str:
        """In per cent, what guessing gives; where shapes vary, every table says it."""
        return _CHANCE.get(self.shape, "")


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """A benchmark with its cases. `name` is the id it was asked for by, options included."""

    name: str
    benchmark: Benchmark
    cases: Cases
    training: Cases | None = None

    def __iter__(self) -> Iterator[Any]:
        """`benchmark, cases = load_benchmark(id)`."""
        return iter((self.benchmark, self.cases))

    def __len__(self) -> int:
        return len(self.cases)
