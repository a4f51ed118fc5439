"""Where a model's folder says what it was trained on: a file beside its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Final

TRAINED_ON: Final = "trained-on.parquet"


def records_in(folder: Path | str | None) -> tuple[str, ...]:
    """The path of the record in a folder; none if there is none."""
    if folder is None or not (path := Path(folder).expanduser() / TRAINED_ON).is_file():
        return ()
    return (str(path),)
