"""Drawn images as files, each whole or not there: what is there is not drawn again."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from counterpoint.errors import DataError
from counterpoint.generate.methods import Refusal
from counterpoint.writing import whole_file

if TYPE_CHECKING:
    from PIL import Image

_START: Final = b"\x89PNG\r\n\x1a\n"
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"


class ImageFolder:
    """PNG files by name. Paths are told relative to `root`, so that it can be moved as a whole."""

    def __init__(self, folder: Path, root: Path) -> None:
        # Links are left as they are: people put large folders elsewhere and link them.
        below = Path(os.path.relpath(folder, root))
        if ".." in below.parts or below.is_absolute():
            raise DataError(f"{folder}: images must lie below {root}, the folder of the result.")
        self.folder, self.prefix = folder, below.as_posix()

    def find(self, name: str) -> str | Refusal | None:
        """The reference of an image that is whole, or why it was refused, or nothing."""
        refused = self._place(name, ".refused")
        if refused.is_file():
            return Refusal(refused.read_text(encoding="utf-8"))
        return self._reference(name) if _is_whole(self._place(name, ".png")) else None

    def keep(self, name: str, image: Image.Image) -> str:
        with whole_file(self._place(name, ".png")) as draft:
            image.save(draft, format="PNG")
        return self._reference(name)

    def refuse(self, name: str, refusal: Refusal) -> Refusal:
        """Remember that nothing comes of it, or a second run would draw it again."""
        with whole_file(self._place(name, ".refused")) as draft:
            draft.write_text(refusal.reason, encoding="utf-8")
        return refusal

    def _place(self, name: str, suffix: str) -> Path:
        return self.folder / name[:2] / f"{name}{suffix}"

    def _reference(self, name: str) -> str:
        parts = [] if self.prefix == "." else [self.prefix]
        return "/".join([*parts, name[:2], f"{name}.png"])


def _is_whole(path: Path) -> bool:
    """A PNG from its first to its last bytes: a power cut may leave a renamed file empty."""
    try:
        with path.open("rb") as file:
            if file.read(len(_START)) != _START:
                return False
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:
        return False
