"""What draws images: the interface of a backend, and the folder of drawn images.

An image that is complete in the folder is not drawn again.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from counterpoint._util.errors import DataError
from counterpoint._util.store import digest
from counterpoint._util.writing import whole_file
from counterpoint.generation.pairs import Rejection

if TYPE_CHECKING:
    from PIL import Image


WORLD: Final = "world"
DEFAULT: Final = "sdxl-dpo"
SUFFIX: Final = ", high resolution, professional, 4k, highly detailed"  # as in BiVLC
MOST: Final = 4  # candidates per text
_SEED_BYTES: Final = 4  # other programs accept no larger seeds


@dataclass(frozen=True, slots=True)
class DrawSettings:
    """How images are drawn. `steps`, `side`: None means the pipeline's own.

    An image is drawn with `side` x `side` pixels; a larger one is made `saved` x `saved`.
    """

    candidates: int = 1
    seed: int = 0
    steps: int | None = None
    guidance: float = 5.0
    side: int | None = None
    saved: int = 512  # as in BiVLC
    suffix: str = SUFFIX


class Want(NamedTuple):
    """A text to draw, the caption that should be false of the image, and the caption's image.

    `box` is the part of that image which the caption is about, `source` the caption's id.
    """

    text: str
    caption: str
    image: str | None = None
    box: tuple[int, int, int, int] | None = None
    source: str = ""


class DrawnImage(NamedTuple):
    """An image: a path below the folder of the pairs file, or a reference like `world:CODE`."""

    path: str
    seed: int


Drawn = DrawnImage | Rejection


class Backend(Protocol):
    """Something that draws. The same wants give the same images, whatever was drawn before."""

    fingerprint: str

    def draw(self, wants: Sequence[Want]) -> list[list[Drawn]]:
        """The candidates of every want, in order; a rejection for each that cannot be drawn."""

    def describe(self) -> Mapping[str, Any]:
        """What is recorded: model, settings, versions, counts of what was drawn and cut."""


def seed_of(seed: int, text: str, candidate: int) -> int:
    """The seed of one image. It does not depend on what else is drawn."""
    key = digest("image seed", str(seed), text, str(candidate))
    return int.from_bytes(key[:_SEED_BYTES], "little")


_START: Final = b"\x89PNG\r\n\x1a\n"
_END: Final = b"\0\0\0\0IEND\xaeB`\x82"


class ImageFolder:
    """PNG files by name. Paths are relative to `root`, so that it can be moved as a whole."""

    def __init__(self, folder: Path, root: Path) -> None:
        # Links are not resolved: large folders are often links to another disk.
        below = Path(os.path.relpath(folder, root))
        if ".." in below.parts or below.is_absolute():
            raise DataError(
                "E-PATH-OUTSIDE",
                f"{folder}: images must lie below {root}, the folder of the result.",
            )
        self.folder, self.prefix = folder, below.as_posix()

    def find(self, name: str) -> str | Rejection | None:
        """The reference of a complete image, or why it was rejected, or None."""
        rejected = self._place(name, ".refused")
        if rejected.is_file():
            return Rejection(rejected.read_text(encoding="utf-8"))
        return self._reference(name) if _is_whole(self._place(name, ".png")) else None

    def keep(self, name: str, image: Image.Image) -> str:
        with whole_file(self._place(name, ".png")) as draft:
            image.save(draft, format="PNG")
        return self._reference(name)

    def reject(self, name: str, rejection: Rejection) -> Rejection:
        """Remember a rejection, so that a second run does not draw the image again."""
        with whole_file(self._place(name, ".refused")) as draft:
            draft.write_text(rejection.reason, encoding="utf-8")
        return rejection

    def _place(self, name: str, suffix: str) -> Path:
        return self.folder / name[:2] / f"{name}{suffix}"

    def _reference(self, name: str) -> str:
        parts = [] if self.prefix == "." else [self.prefix]
        return "/".join([*parts, name[:2], f"{name}.png"])


def _is_whole(path: Path) -> bool:
    """Whether a PNG is complete: after a power cut a renamed file may be empty."""
    try:
        with path.open("rb") as file:
            if file.read(len(_START)) != _START:
                return False
            file.seek(-len(_END), os.SEEK_END)
            return file.read() == _END
    except OSError:
        return False
