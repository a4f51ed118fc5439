"""Protocols: the choices that move a published number, pinned as named values.

A protocol says what a tie is worth, how cases are averaged, how captions are written, which groups
are left out and what happens to captions that do not fit the model. It is stored with every run.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, Self

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.cases import Cases, gallery_rows
from counterpoint.metrics.definitions import Tie

DEEPEST: Final = -1
# An average is a nested mean over the levels of the group label (`replace/obj` has two levels):
# () is over cases; (1,) over the first level's means; (1, DEEPEST) over the first level's means of
# their subgroups' means. All four are used for SugarCrepe, and differ by several points.
AVERAGES: Final[dict[str, tuple[int, ...]]] = {
    "micro": (),
    "macro": (DEEPEST,),
    "types": (1,),
    "types-macro": (1, DEEPEST),
    "nested": (1, 2, 3, DEEPEST),
}

# Labels that loaders give to cases which an official protocol does not count.
FIRST_ROWS: Final = 1_000  # rows of a file
BEYOND_FIRST: Final = "beyond the first 1,000"
NO_IMAGE: Final = "no image"  # and the next row of the file takes its place
SEED: Final = "seed "  # and its number: the cases that were drawn with it

Overlong = Literal["leave out", "cut"]
CaseKind = Literal["one image", "several images", "galleries"]


@dataclass(frozen=True, slots=True)
class Protocol:
    """How scores become a number.

    `exclude` names groups that are scored and not counted, `skip` groups that are not scored,
    `min_count` the number of cases that a group needs to enter an average. `overlong` says whether
    a caption beyond the model's context is cut (and counted) or its case is left out (and named).
    `only` is the kind of case that the official protocol of a paper is for; others take any. They
    are in `protocols.toml`.
    """

    name: str
    summary: str
    tie: Tie = "wrong"
    average: str = "micro"
    averages: tuple[str, ...] = ("micro", "macro")
    caption_format: str = "raw"
    exclude: frozenset[str] = field(default_factory=frozenset)
    skip: frozenset[str] = field(default_factory=frozenset)
    min_count: int = 0
    overlong: Overlong = "leave out"
    only: CaseKind | None = field(default=None, compare=False)  # a run does not record it

    @classmethod
    def read(cls, values: Mapping[str, Any]) -> Self:
        """From plain values, as files have them."""
        kinds = {"averages": tuple, "exclude": frozenset, "skip": frozenset}
        return cls(**{key: kinds.get(key, lambda x: x)(value) for key, value in values.items()})

    def plain(self) -> dict[str, Any]:
        """What a run records."""
        values = asdict(self)
        del values["only"]
        return {**values, "exclude": sorted(self.exclude), "skip": sorted(self.skip)}

    def most_of(self, count: int | None) -> int | None:
        """How many cases of a file are scored, if it holds `count`; None if that is unknown."""
        return min(count, FIRST_ROWS) if count is not None and BEYOND_FIRST in self.skip else count

    def describe(self) -> str:
        parts = [f"ties {self.tie}", f"{self.average} average", f"{self.caption_format} captions"]
        if self.exclude:
            parts.append(f"{len(self.exclude)} groups excluded")
        if self.skip:
            parts.append(f"only cases outside of {', '.join(sorted(self.skip))}")
        if self.min_count:
            parts.append(f"groups of at least {self.min_count}")
        parts.append(f"overlong captions {'cut' if self.overlong == 'cut' else 'left out'}")
        return f"{self.name}: " + ", ".join(parts)


_FILE: Final = Path(__file__).with_name("protocols.toml")
PROTOCOLS: Final[dict[str, Protocol]] = {
    name: Protocol.read({"name": name, **told})
    for name, told in tomllib.loads(_FILE.read_text(encoding="utf-8")).items()
}
UNCOUNTED_RELATIONS: Final = PROTOCOLS["vg-relation"].exclude


def misfit(protocol: Protocol, cases: Cases) -> str:
    """Which cases a protocol is not for, of those that are there; empty if it is for all."""
    galleries, single = gallery_rows(cases), cases.image_counts == 1
    kinds = {
        "galleries": galleries,
        "one image": ~galleries & single,
        "several images": ~galleries & ~single,
    }
    there = [kind for kind, rows in kinds.items() if rows.any()]
    return " and ".join(kind for kind in there if protocol.only not in (None, kind))


def get_protocol(name: str | Protocol) -> Protocol:
    """A protocol by its name; a protocol itself is returned as it is."""
    if isinstance(name, Protocol):
        return name
    if name not in PROTOCOLS:
        raise NotFoundError("E-PROTOCOL-UNKNOWN", did_you_mean("protocol", name, PROTOCOLS))
    return PROTOCOLS[name]
