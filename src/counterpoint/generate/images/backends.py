"""What draws images: the question it is asked, the answers it may give, and how it is opened."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from counterpoint.generate.methods import Refusal
from counterpoint.scoring.store import digest

if TYPE_CHECKING:
    from counterpoint.scoring.work import Work

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


def open_backend(
    model: str,
    settings: Settings,
    *,
    folder: Path,
    root: Path,
    work: Work,
    device: str = "auto",
    precision: str = "auto",
) -> Backend:
    """`world`, or a diffusion model by name, hub id or folder, which writes into `folder`.

    `folder` lies below `root`, the folder of the pairs file, which paths start from.
    """
    if model == WORLD:
        from counterpoint.generate.images.world_backend import WorldBackend

        return WorldBackend(settings, work.progress)
    from counterpoint.generate.images.diffusion import Diffusion
    from counterpoint.generate.images.diffusion_opening import open_pipeline
    from counterpoint.generate.images.files import ImageFolder

    images = ImageFolder(folder, root)  # before a model is loaded in vain
    return Diffusion(open_pipeline(model, device, precision), settings, images, work)
