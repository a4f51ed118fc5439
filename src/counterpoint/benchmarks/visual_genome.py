"""Where a Visual Genome image is: the data set came in two archives, and an id does not say which.

Unpacked, they are visual_genome/VG_100K and visual_genome/VG_100K_2.
"""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

FOLDERS: Final = ("VG_100K", "VG_100K_2")


class VisualGenome:
    """Lists both folders once, since asking the disk for each of a million rows takes minutes."""

    def __init__(self, root: Path) -> None:
        self._files = {name: _listing(root / "visual_genome" / name) for name in FOLDERS}

    def find(self, image_id: int | str) -> str | None:
        """The path of an image that is there; None if it is in neither folder."""
        file = _file_name(image_id)
        folder = next((name for name in FOLDERS if file in self._files[name]), None)
        return f"visual_genome/{folder}/{file}" if folder else None

    def path(self, image_id: int | str) -> str:
        """The path of an image; that of the first folder if it is in neither."""
        return self.find(image_id) or f"visual_genome/{FOLDERS[0]}/{_file_name(image_id)}"


def _listing(folder: Path) -> frozenset[str]:
    if not folder.is_dir():
        return frozenset()
    with os.scandir(folder) as entries:
        return frozenset(entry.name for entry in entries)


def _file_name(image_id: int | str) -> str:
    """`2.jpg` from 2, "2", "2.0" (a column that was once floats), "2.jpg" or "VG_100K/2.jpg"."""
    name = PurePosixPath(str(image_id).strip()).name.removesuffix(".jpg").removesuffix(".0")
    return f"{name}.jpg"
