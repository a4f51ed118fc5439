"""Heads, and an encoder that sees what a detector is to find."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from models_for_tests import Judge, Towers, pixels
from PIL import Image

from counterpoint.models.detector.adapter import DetectorHeads, LinearHead
from counterpoint.models.registry import FAMILIES, LoadOptions

IDENTITY = np.eye(2, dtype=bool)
WIDTH = 16
RNG = np.random.default_rng(3)
HEADS = DetectorHeads(
    *(LinearHead(RNG.normal(size=WIDTH).astype(np.float32), np.float32([b])) for b in (0.1, -0.2))
)


def save_noise(path: Path, seed: int, low: int = 0, high: int = 256) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    values = np.random.default_rng(seed).integers(low, high, (4, 4, 3)).astype(np.uint8)
    Image.fromarray(values).save(path)


class Lantern(Towers):
    """Sees the light of an image and the word "fake" in a caption, beside much noise."""

    def preprocess(self, image: Image.Image) -> str:
        return f"{pixels(image)} {np.asarray(image).mean()}"

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        vectors = super()._encode(contents)
        vectors[:, 0] = [self.signal(content) for content in contents]
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    @staticmethod
    def signal(content: str) -> float:
        try:
            return 2.0 if float(content.split()[-1]) > 128 else -2.0
        except ValueError:
            return 2.0 if "fake" in content else -2.0


def load_lantern(rest: str, options: LoadOptions) -> object:
    """`lantern:NAME`, or `lantern:judge`, which is no encoder."""
    return Judge() if rest == "judge" else Lantern(f"lantern {rest} {options.precision}")


@pytest.fixture(autouse=True)
def families(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    detector = "counterpoint.models.detector.adapter:load"
    ours = {"lantern": f"{__name__}:load_lantern", "detector": detector}
    monkeypatch.setattr(FAMILIES, "builtin", {**FAMILIES.builtin, **ours})
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
