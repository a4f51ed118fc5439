"""What of a source lies in the data root already, however it came there."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from counterpoint.data.paths import inside
from counterpoint.data.sources import Archive, Files, Hub, Images, Manual, Source


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
