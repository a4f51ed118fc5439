"""The data root, a folder with one sub-folder per data set, and which files of a source it has."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs

from counterpoint._util.untrusted import inside
from counterpoint.data.download import sha256
from counterpoint.data.sources import (
    ArchiveSource,
    FileSource,
    HubSource,
    ImageSource,
    ManualSource,
    Source,
    catalogue,
)


def data_root(given: str | Path | None = None) -> Path:
    """`given`, else `$COUNTERPOINT_DATA`, else a folder in the user's cache."""
    chosen = given or os.environ.get("COUNTERPOINT_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("counterpoint")) / "data"


@dataclass(frozen=True, slots=True)
class Presence:
    """`files` of `of` files are there (None: unknown); `complete` if none is missing."""

    files: int
    of: int | None
    complete: bool


def presence(source: Source, root: Path) -> Presence:
    """What of a source is in the data root. Only names are looked at; nothing is read."""
    folder = inside(root, source.target)
    if isinstance(source, FileSource):
        there = sum(inside(folder, file.name).exists() for file in source.files)
        return Presence(there, len(source.files), there == len(source.files))
    if isinstance(source, ImageSource):
        there = _count(folder)
        return Presence(there, None, there > 0)
    assert isinstance(source, ArchiveSource | HubSource | ManualSource)
    whole = all(_holds(folder, pattern) for pattern in source.holds)
    whole = whole and not begun(source, root).exists()
    return Presence(int(whole), 1, whole)


def begun(source: Source, root: Path) -> Path:
    """A marker file: an archive or a data set of the hub has been fetched only in part."""
    return inside(root, source.target) / f".{source.id}.partial"


def done(source: Source, root: Path) -> Path:
    """A marker file: such a source has been fetched completely. Missing images are not in it."""
    return inside(root, source.target) / f".{source.id}.done"


def _holds(folder: Path, pattern: str) -> bool:
    """Whether something in the folder fits the pattern, or one of its alternatives."""
    return any(any(folder.glob(one.strip())) for one in pattern.split("|"))


def _count(folder: Path) -> int:
    if not folder.is_dir():
        return 0
    with os.scandir(folder) as entries:
        names = [entry.name for entry in entries]
    return sum(name[0] != "." and not name.endswith((".part", ".from")) for name in names)


class Damage(NamedTuple):
    """A file and what is wrong with it."""

    file: str
    what: str


def damaged_files(benchmark: str, root: Path) -> tuple[Damage, ...]:
    """The benchmark's files whose size or sha256 is known and differs."""
    known = catalogue().benchmarks.get(benchmark)
    found = []
    for source in known.all() if known else ():
        for file in source.files if isinstance(source, FileSource) else ():
            path = inside(inside(root, source.target), file.name)
            if path.is_file() and file.sha256 and sha256(path) != file.sha256:
                where = path.relative_to(root).as_posix()
                found.append(Damage(where, "not the published file: its sha256 differs"))
    return tuple(found)
