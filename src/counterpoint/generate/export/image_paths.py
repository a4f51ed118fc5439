"""Where an exported file says its images are.

In a pairs file, `image` is a path under the input's image folder and `text_image` one under the
pairs file's own. A case file's images are found relative to its own folder. So a path is written
relative to the export's folder if the image is below it, and else in full, which works at once but
only on this machine. With `root`, paths are written relative to it, for a file that will lie there.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from counterpoint.cases import TEXT
from counterpoint.errors import DataError
from counterpoint.generate.pairs import read_about
from counterpoint.untrusted import shown

WORLD: Final = "world:"
PARQUET: Final = "parquet:"
SHUFFLE: Final = "shuffle-"


@dataclass(frozen=True, slots=True)
class ImagePaths:
    """Turns paths of a pairs file into paths of an exported one. Folders are named in full."""

    images: str
    text_images: str
    out: str
    root: str | None = None

    @classmethod
    def of(
        cls, pairs: Path, out: Path, *, images: Path | None = None, root: Path | None = None
    ) -> ImagePaths:
        """Of a pairs file whose images start from `images`, or where it says, or its own folder."""
        said = read_about(pairs).get("root")
        found = images or (Path(said) if isinstance(said, str) and said else pairs.parent)
        own, below = _full(pairs.parent), None if root is None else _full(root)
        return cls(_full(found), own, _full(out), below)

    def image(self, path: str) -> str:
        return self._moved(path, self.images)

    def text_image(self, path: str) -> str:
        return self._moved(path, self.text_images)

    def _moved(self, path: str, folder: str) -> str:
        if path.startswith((WORLD, TEXT)):
            return path
        if path.startswith(PARQUET):
            file, mark, cell = path.removeprefix(PARQUET).rpartition("#")
            return f"{PARQUET}{self._moved(file, folder)}{mark}{cell}"
        if path.startswith(SHUFFLE):
            how, seed, inner = [*path.split(":", 2), "", ""][:3]
            return f"{how}:{seed}:{self._moved(inner, folder)}"
        if ".." in path.split("/"):
            return path  # nobody opens it: a path may not lead out of its folder
        full = os.path.normpath(f"{folder}/{path}" if path[:1] != "/" else path)
        base = self.root or self.out
        if full.startswith(f"{base}/"):
            return full[len(base) + 1 :]
        if self.root is not None:
            raise DataError(
                f"image {shown(path)} is at {shown(full)}, which is not below {self.root!r}; "
                "name another folder with --root, or say with --images where the images are."
            )
        return full


def _full(path: Path) -> str:
    """In full but not resolved: links lead where their maker wants."""
    return os.path.abspath(path).rstrip("/")  # noqa: PTH100
