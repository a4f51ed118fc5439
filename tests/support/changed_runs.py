"""Run folders that somebody changed after they were written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl

from counterpoint.runs import file_digest


def change_manifest(folder: Path, change: Callable[[Any], Any]) -> None:
    path = folder / "run.json"
    manifest = json.loads(path.read_text())
    change(manifest)
    path.write_text(json.dumps(manifest))


def change_table(folder: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a table, and let the manifest say that this is the one."""
    change(pl.read_parquet(folder / name)).write_parquet(folder / name)
    digest = file_digest(folder / name)
    change_manifest(folder, lambda manifest: manifest["files"].update({name: digest}))
