"""Pictures of world scenes as a model's input, drawn on its device."""

from __future__ import annotations

from typing import Final

import numpy as np
import torch
from PIL import Image

from counterpoint.train.data import Preprocess
from counterpoint.train.loading import seeded
from counterpoint.train.sampling import fold, key, uniforms
from counterpoint.train.world_scenes import SCENE_DRAWS, Scenes, draw_scenes
from counterpoint.world.draw import PIXELS, paint

_LEVEL: Final = 1 / 255
_BLOCK: Final = 64  # scenes that NumPy paints at once: as many as stay in a core's cache


class WorldPictures:
    """The model's preprocessing for pictures of the world, as a few tensor operations.

    What it does to a black and a white picture gives size, mean and deviation; whether that is all
    is tried on scenes. If it is not (it augments, say), `on_device` is False, and pictures go
    through `preprocess` one by one.
    """

    def __init__(self, preprocess: Preprocess) -> None:
        self.preprocess = preprocess
        with seeded() as seed:  # what augments draws, and must not change training's chance
            seed(0)
            black, white = (
                preprocess(Image.new("RGB", (PIXELS, PIXELS), c)) for c in ("black", "white")
            )
            self.side = black.shape[-1]
            self.low = black.mean(dim=(1, 2))
            self.gain = white.mean(dim=(1, 2)) - self.low
            self.on_device = black.shape == (3, self.side, self.side) and self._agrees()

    def tensors(self, things: torch.Tensor, grounds: torch.Tensor) -> torch.Tensor:
        """Scenes as `world.draw.tabulate` gives them to (n, 3, side, side), on their device."""
        pictures = paint(things, grounds, pixels=PIXELS, xp=torch).permute(0, 3, 1, 2)
        return self._scaled(pictures)

    def prepared(self, scenes: Scenes) -> torch.Tensor:
        """The same on the CPU."""
        pictures = np.concatenate(
            [
                paint(*scenes[start : start + _BLOCK].table(), pixels=PIXELS, xp=np)
                for start in range(0, len(scenes.counts), _BLOCK)
            ]
        )
        if self.on_device:
            return self._scaled(torch.from_numpy(pictures).permute(0, 3, 1, 2))
        return torch.stack([self.preprocess(Image.fromarray(picture)) for picture in pictures])

    def _scaled(self, pictures: torch.Tensor) -> torch.Tensor:
        values = pictures.float()
        if self.side != PIXELS:
            # As Pillow does: across, then down, in whole levels after each.
            for size in ((PIXELS, self.side), (self.side, self.side)):
                values = torch.nn.functional.interpolate(
                    values, size=size, mode="bicubic", antialias=True
                )
                values = values.clamp(0, 255).round()
        low, gain = (v.to(values.device)[:, None, None] for v in (self.low, self.gain))
        return (values * _LEVEL * gain + low).contiguous()

    def _agrees(self) -> bool:
        scenes = draw_scenes(uniforms(fold(key(0), np.arange(8)), SCENE_DRAWS))
        pictures = paint(*scenes.table(), pixels=PIXELS, xp=np)
        wanted = torch.stack([self.preprocess(Image.fromarray(picture)) for picture in pictures])
        found = self._scaled(torch.from_numpy(pictures).permute(0, 3, 1, 2))
        # Pillow scales in whole numbers: a level or two of 255, here and there, are its rounding.
        allowed = 1e-4 if self.side == PIXELS else 2.5 * _LEVEL
        return bool(((wanted - found).abs() / self.gain.abs()[:, None, None]).max() < allowed)
