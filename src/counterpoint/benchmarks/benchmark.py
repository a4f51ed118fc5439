"""A benchmark: its cases, its protocol, and what is known of the published files."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import polars as pl

from counterpoint._util.errors import CounterpointError, NotFoundError
from counterpoint.cases import BEFORE_SHUFFLES, Cases
from counterpoint.metrics import SEED, Protocol, get_protocol, misfit

Value = int | str
NOT_TRIED: Final = "not run on the real file"
WITH_POSITIVES: Final = "+hp"  # the end of an id: hard positives are added
_CHANCE: Final = {
    "1 x 2": "50",
    "1 x 3": "50 original, 33.3 augmented, 33.3 brittleness",
    "1 x 4": "25",
    "1 x 4, two true": "33.3 original, 16.7 augmented, 33.3 brittleness",
    "1 x 5": "20",
    "2 x 1": "50",
    "10 x 1": "10",
    "3 x 3": "16.7 original group, 1.3 augmented group, 33.3 image brittleness",
    "2 x 4, two questions": "50 answers, 25 questions, 25 images, 6.2 all answers",
    "2 x 2": "25 image-to-text, 25 text-to-image, 16.7 group",
}


class Size(NamedTuple):
    """How much a published file holds; None where that is unknown.

    A gallery is one case: it has images, captions and, if it names them, queries.
    """

    cases: int | None = 1
    images: int | None = None
    captions: int | None = None
    queries: int | None = None


Sizes = Mapping[str, Size | int | None]  # a number is one of cases


@dataclass(frozen=True, slots=True)
class Options:
    """The data root, the options in the id of a benchmark, and the protocol asked for."""

    data: Path
    values: Mapping[str, Value] = field(default_factory=dict)
    protocol: str = ""

    def number(self, name: str) -> int:
        return int(self.values[name])

    def text(self, name: str) -> str:
        return str(self.values[name])

    @property
    def seeds(self) -> range:
        """`seed`, or as many seeds from it on as `seeds` says."""
        first, count = self.number("seed"), self.number("seeds")
        if count < 1:
            raise NotFoundError("E-OPTION-INVALID", "seeds must be at least 1.")
        return range(first, first + count)

    def files(self, size: Size | int) -> Sizes:
        """The files of a benchmark of this size that is drawn once per seed."""
        return {"": size} if len(self.seeds) == 1 else {str(seed): size for seed in self.seeds}


def over_seeds(options: Options, draw: Callable[[int], Cases]) -> Cases:
    """The cases of one seed; of several, the cases of all, each seed in a group of its own."""
    if len(options.seeds) == 1:
        return draw(options.seeds[0])
    frames = [
        draw(seed).frame.with_columns(
            id=pl.format("{}/{}", pl.lit(seed), "id"),
            groups=pl.col("groups").list.concat(pl.lit([f"{SEED}{seed}"])),
        )
        for seed in options.seeds
    ]
    return Cases(pl.concat(frames), options.data)


@dataclass(frozen=True, slots=True)
class Benchmark:
    """A benchmark. `defaults` names its options.

    `shape` is images x captions, `protocol` the official one, `images` what pictures it needs,
    `count` how many cases the published files hold, `ids` what its case ids are, `defects` what
    is wrong with some of its cases: a mark for each case. `files` says how much each of several
    files holds, by what the ids of its cases begin with. `loads` names the protocols that the
    loader itself follows. `training` has the training images of a linear probe, with the same
    classes. `numbered`: an id that ends in a number ends in that of a row, and not in that of an
    image. `untried` marks a loader that was written from the paper and public code: it was never
    run on the published files.
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
    files: Callable[[Options], Sizes] | None = None
    loads: tuple[str, ...] = ()
    training: Callable[[Options], Cases] | None = None
    numbered: bool = True
    untried: bool = False

    @property
    def note(self) -> str:
        """What a user should know before trusting a number; empty for most."""
        return NOT_TRIED if self.untried else ""

    @property
    def chance(self) -> str:
        """In per cent, what guessing gives; where shapes vary, every table says it."""
        return _CHANCE.get(self.shape, "")


@dataclass(frozen=True, slots=True)
class LoadedBenchmark:
    """A benchmark with its cases. `name` is the id it was asked for by, options included.

    `protocol` is the one that the loader followed, if it follows one.
    """

    name: str
    benchmark: Benchmark
    cases: Cases
    protocol: str = ""
    training: Cases | None = None

    def __iter__(self) -> Iterator[Any]:
        """`benchmark, cases = load_benchmark(id)`."""
        return iter((self.benchmark, self.cases))

    def __len__(self) -> int:
        return len(self.cases)

    def read_by(self, protocol: str | None) -> Protocol:
        """The protocol of this name, else the benchmark's own, if the cases were read for it."""
        chosen = get_protocol(protocol or self.protocol or self.benchmark.protocol)
        by_loader = self.protocol or chosen.caption_format == BEFORE_SHUFFLES
        if by_loader and self.protocol != chosen.name:
            raise CounterpointError(
                "E-PROTOCOL-MISFIT",
                f"{self.name} was not read for the protocol {chosen.name!r}, which "
                + (
                    "needs other captions: load it with this protocol."
                    if chosen.name in (*self.benchmark.loads, self.benchmark.protocol)
                    else "it does not know."
                ),
            )
        own = (self.protocol, self.benchmark.protocol, *self.benchmark.loads)
        if chosen.name not in own and (other := misfit(chosen, self.cases)):
            raise CounterpointError(
                "E-PROTOCOL-MISFIT",
                f"{self.name} has cases of {other}, which the protocol {chosen.name!r} is not for; "
                f"its own is {own[0] or own[1]!r}, and 'strict' takes any.",
            )
        return chosen
