"""Opening what draws images, by its name; each kind is imported when it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from counterpoint.generation.images.backends import WORLD, Backend, DrawSettings, ImageFolder

if TYPE_CHECKING:
    from counterpoint.scoring import Work


def open_backend(
    model: str,
    settings: DrawSettings,
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
        from counterpoint.generation.images.world import WorldBackend

        return WorldBackend(settings, work.progress)
    from counterpoint.generation.images.diffusion import Diffusion, open_pipeline

    images = ImageFolder(folder, root)  # before a model is loaded in vain
    return Diffusion(open_pipeline(model, device, precision), settings, images, work)
