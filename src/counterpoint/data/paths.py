"""Names that come from outside, as paths that cannot leave a folder."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from counterpoint.errors import DataError


def inside(folder: Path, name: str) -> Path:
    """`folder / name`, refused if it could lie elsewhere.

    Only the name is looked at: a folder of the data root may be a link to a bigger disk.
    """
    parts = PurePosixPath(name).parts
    odd = "\\" in name or "\0" in name or ":" in name.partition("/")[0]
    if not parts or odd or parts[0] == "/" or ".." in parts:
        raise DataError(f"{name!r} is not a name inside {folder}; it is refused.")
    return folder.joinpath(*parts)
