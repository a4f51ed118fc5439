"""Case tables that take long to make, kept in the cache folder under a digest of what they are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from counterpoint.case_files import read_cases, write_cases
from counterpoint.cases import Cases
from counterpoint.errors import CaseError
from counterpoint.scoring.store import default_store, digest


def remembered(what: str, source: Path, root: Path, build: Callable[[], Cases]) -> Cases:
    """The table made by `build`, which depends on `what` and on the bytes of `source` alone.

    `root` is where its images' paths start.
    """
    key = digest(what, source.read_bytes()).hex()
    path = default_store().parent / "cases" / f"{key}.parquet"
    with suppress(CaseError):  # not there, or damaged: made anew
        return Cases(read_cases(path).frame, root)
    cases = build()
    with suppress(CaseError):  # a full disk or a read-only cache costs time, not the result
        write_cases(cases, path)
    return cases
