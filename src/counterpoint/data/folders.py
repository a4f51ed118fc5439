"""The data root: one folder that holds every data set, each in its own sub-folder."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def data_root(given: str | Path | None = None) -> Path:
    """`given`, else `$COUNTERPOINT_DATA`, else a folder in the user's cache."""
    chosen = given or os.environ.get("COUNTERPOINT_DATA")
    if chosen:
        return Path(chosen).expanduser()
    return Path(platformdirs.user_cache_dir("counterpoint")) / "data"
