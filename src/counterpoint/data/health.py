"""Annotation files that are there and are not what was published."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from counterpoint.data.catalogue import catalogue
from counterpoint.data.download import sha256
from counterpoint.data.paths import inside
from counterpoint.data.sources import Files


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
