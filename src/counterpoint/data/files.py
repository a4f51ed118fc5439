"""The data root: one folder that holds every data set, each in its own sub-folder."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import platformdirs

from counterpoint._util.untrusted import inside
from counterpoint.data.download import sha256
from counterpoint.data.sources import Archive, Files, Hub, Images, Manual, Source, catalogue


def data_root(given: str | Path | None = None) -> Path:
    """`given`, else `$COUNTERPOINT_DATA`, else a folder in the user's cache."""
    chosen = given or os.environ.get("COUNTERPOINT_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("counterpoint")) / "data"


# --- What of a source lies in the data root already, however it came there ----------------------


@dataclass(frozen=True, slots=True)
class Presence:
    """`files` that are there, `of` so many (None: nobody knows); `complete` if nothing lacks."""

    files: int
    of: int | None
    complete: bool


def presence(source: Source, root: Path) -> Presence:
    """Looks at names only; nothing is read."""
    folder = inside(root, source.target)
    if isinstance(source, Files):
        there = sum(inside(folder, file.name).exists() for file in source.files)
        return Presence(there, len(source.files), there == len(source.files))
    if isinstance(source, Images):
        there = _count(folder)
        return Presence(there, None, there > 0)
    assert isinstance(source, Archive | Hub | Manual)
    whole = all(_holds(folder, pattern) for pattern in source.holds)
    whole = whole and not begun(source, root).exists()
    return Presence(int(whole), 1, whole)


def begun(source: Source, root: Path) -> Path:
    """A file that is there while an archive or a set of the hub has come only in part."""
    return inside(root, source.target) / f".{source.id}.partial"


def done(source: Source, root: Path) -> Path:
    """A file that says that such a source came whole: what it lacks, it will not bring."""
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


# --- Annotation files that are there and are not what was published -----------------------------


class Damage(NamedTuple):
    """A file and what is wrong with it."""

    file: str
    what: str


def damaged_files(benchmark: str, root: Path) -> tuple[Damage, ...]:
    """The benchmark's files whose size or sha256 is known and differs."""
    known = catalogue().benchmarks.get(benchmark)
    found = []
    for source in known.all() if known else ():
        for file in source.files if isinstance(source, Files) else ():
            path = inside(inside(root, source.target), file.name)
            if path.is_file() and file.sha256 and sha256(path) != file.sha256:
                where = path.relative_to(root).as_posix()
                found.append(Damage(where, "not the published file: its sha256 differs"))
    return tuple(found)
