"""The command line in this process, with a model and cases for it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
from PIL import Image

from counterpoint.cli.app import main
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.models.registry import FAMILIES, LoadOptions
from counterpoint.runs import Run

COLOURS = {"red": (255, 0, 0), "green": (0, 255, 0), "blue": (0, 0, 255)}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Command = Callable[..., Result]


@pytest.fixture(autouse=True)
def own_place(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("COUNTERPOINT_DATA", raising=False)
    monkeypatch.chdir(tmp_path)
    # Models with images by id, without torch: `colours:ANYTHING`.
    monkeypatch.setitem(FAMILIES.builtin, "colours", f"{__name__}:load_colours")


@pytest.fixture
def counterpoint(monkeypatch, capsys) -> Command:
    """Runs a command line in this process."""

    def run(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["counterpoint", *arguments])
        capsys.readouterr()
        with pytest.raises(SystemExit) as caught:
            main()
        captured = capsys.readouterr()
        return Result(int(caught.value.code or 0), captured.out, captured.err)

    return run


class Colours:
    """A dual encoder that knows three colours."""

    fingerprint = "colours of the command line 1"
    context_length = None

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return np.asarray(image, dtype=np.float32).mean(axis=(0, 1)) / 255

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        return np.stack(images)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.array([len(caption.split()) for caption in captions])

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        found = [[1.0 * (name in c) + 0.001 * len(c) for name in COLOURS] for c in captions]
        vectors = np.array(found, dtype=np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def describe(self) -> dict[str, list[str]]:
        return {"notes": ["knows [red] only :red_circle:"]}


def load_colours(rest: str, options: LoadOptions) -> Colours:
    del rest, options
    return Colours()


def write_cases(name: str, *, count: int = 60, missing: int = 0, before: str = "") -> str:
    """Cases of one image: the negative names another colour. Some images are not there."""
    names = list(COLOURS)
    lines = []
    for n in range(count):
        true, false = names[n % 3], names[(n + 1) % 3]
        image = f"{name}-{n}.png"
        if n >= missing:
            Image.new("RGB", (8, 8), COLOURS[true]).save(image)
        case = {
            "id": str(n),
            "images": [image],
            "captions": [f"{before}a {w} wall" for w in (true, f"bright {true}", false)],
            "truth": [[True, True, False]],
            "groups": [f"walls/{true}"],
        }
        lines.append(json.dumps(case))
    file = Path(f"{name}.jsonl")
    file.write_text("\n".join(lines))
    return str(file)


def run_folder(model: str, *benchmarks: str, out: str) -> Run:
    return evaluate(model, benchmarks, out=out)
