"""What draws images: the question it is asked, and the answers it may give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

from counterpoint.generate.methods import Refusal
from counterpoint.scoring.store import digest

WORLD: Final = "world"
DEFAULT: Final = "sdxl-dpo"
SUFFIX: Final = ", high resolution, professional, 4k, highly detailed"  # as BiVLC's authors have it
MOST: Final = 4  # candidates for a text
_SEED_BYTES: Final = 4  # other programs that draw take no larger seeds


@dataclass(frozen=True, slots=True)
class Settings:
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


class Made(NamedTuple):
    """An image: a path below the folder of the pairs file, or a reference like `world:CODE`."""

    path: str
    seed: int


Drawn = Made | Refusal


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
