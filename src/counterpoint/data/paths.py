"""Names that come from outside, as paths that cannot leave a folder."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Final

from counterpoint.errors import DataError
from counterpoint.untrusted import shown

_DEPTH: Final = 100  # folders of a name; some programs cannot remove what is nested much deeper


def inside(folder: Path, name: str) -> Path:
    """`folder / name`, refused if it could lie elsewhere on any operating system.

    Only the name is looked at: a folder of the data root may be a link to a bigger disk.
    """
    path = PurePosixPath(name)
    outside = path.is_absolute() or ".." in path.parts or PureWindowsPath(name).anchor
    odd = not 0 < len(path.parts) <= _DEPTH or "\\" in name or ":" in path.parts[0]
    if outside or odd or "\0" in name or not _is_encodable(name):
        raise DataError(f"{shown(name)} is not a name inside {folder}; it is refused.")
    return folder / path


def _is_encodable(name: str) -> bool:
    try:
        os.fsencode(name)
    except UnicodeEncodeError:  # half of a surrogate pair
        return False
    return True
