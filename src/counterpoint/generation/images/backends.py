"""What draws images: the question it is asked, and the answers it may give."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from counterpoint._util.errors import DataError
from counterpoint._util.store import digest
from counterpoint._util.writing import whole_file
from counterpoint.generation.registry import Rejection

if TYPE_CHECKING:
    from PIL import Image


WORLD: Final = "world"
DEFAULT: Final = "sdxl-dpo"
SUFFIX: Final = ", high resolution, professional, 4k, highly detailed"  # as BiVLC's authors have it
MOST: Final = 4  # candidates for a text
_SEED_BYTES: Final = 4  # other programs that draw take no larger seeds


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How images are drawn. `steps` of None are as many as the pipeline takes by itself."""

    candidates: int = 1
    seed: int = 0
    steps: int | None = None
    guidance: float = 5.0
    side: int = 512
    suffix: str = SUFFIX


class Want(NamedTuple):
    """A text to draw, the caption that should be false of the drawing, and the caption's image."""

    text: str
    caption: str
    image: str | None = None


class DrawnImage(NamedTuple):
    """An image: a path below the folder of the pairs file, or a reference like `world:CODE`."""

    path: str
    seed: int


Drawn = DrawnImage | Rejection


class Backend(Protocol):
    """Something that draws. The same wants get the same images, whatever was asked before."""

    fingerprint: str

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        """Every want's candidates, in order; what cannot be drawn has its reason instead."""

    def describe(self) -> Mapping[str, Any]:
        """What should be recorded: model, settings, versions, what was drawn and cut."""


def seed_of(seed: int, text: str, candidate: int) -> int:
    """The seed of one image: it depends on what is drawn, not on what is drawn beside it."""
    found = digest("image seed", str(seed), text, str(candidate))
    return int.from_bytes(found[:_SEED_BYTES], "little")


# --- Drawn images as files, each whole or not there: what is there is not drawn again -----------


_START: Final = b"\x89PNG\r\n\x1a\n"
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"


class ImageFolder:
    """PNG files by name. Paths are told relative to `root`, so that it can be moved as a whole."""

    def __init__(self, folder: Path, root: Path) -> None:
        # Links are left as they are: people put large folders elsewhere and link them.
        below = Path(os.path.relpath(folder, root))
        if ".." in below.parts or below.is_absolute():
            raise DataError(
                "E-PATH-OUTSIDE",
                f"{folder}: images must lie below {root}, the folder of the result.",
                path=folder,
                root=root,
            )
        self.folder, self.prefix = folder, below.as_posix()

    def find(self, name: str) -> str | Rejection | None:
        """The reference of an image that is whole, or why it was refused, or nothing."""
        refused = self._place(name, ".refused")
        if refused.is_file():
            return Rejection(refused.read_text(encoding="utf-8"))
        return self._reference(name) if _is_whole(self._place(name, ".png")) else None

    def keep(self, name: str, image: Image.Image) -> str:
        with whole_file(self._place(name, ".png")) as draft:
            image.save(draft, format="PNG")
        return self._reference(name)

    def refuse(self, name: str, refusal: Rejection) -> Rejection:
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
