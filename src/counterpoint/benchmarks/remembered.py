"""Case tables that take long to make, kept in the cache folder under a digest of what they are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import polars as pl

from counterpoint.case_files import write_cases
from counterpoint.cases import SCHEMA, Cases
from counterpoint.errors import CaseError
from counterpoint.scoring.store import default_store, digest


def remembered(what: str, source: Path, root: Path, build: Callable[[], Cases]) -> Cases:
    """The table made by `build`, which depends on `what` and on the bytes of `source` alone.

    `root` is where its images' paths start.
    """
    key = digest(what, source.read_bytes()).hex()
    path = default_store().parent / "cases" / f"{key}.parquet"
    try:
        frame = pl.read_parquet(path)
        if dict(frame.schema) == dict(SCHEMA):
            return Cases(frame, root)
    except (OSError, pl.exceptions.PolarsError):
        pass  # not there, or damaged: made anew
    cases = build()
    with suppress(CaseError):  # a full disk or a read-only cache costs time, not the result
        write_cases(cases, path)
    return cases
