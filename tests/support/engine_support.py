"""Tables and plain loops to hold the engine against."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from models_for_tests import (
    choice,
    is_sentence,
    naive_pair,
    naive_vector,
    pixels,
    run_engine,
    write_images,
)
from support import classes, gallery

from counterpoint.cases.table import PROMPTS, Case, Cases
from counterpoint.images import Picture

ROUNDING = 5e-7  # float32 vectors of length one, compared with float64


def naive(cases: Cases, pair: Callable[[str, str], float]) -> list[float]:
    """Every pair in a plain loop; `pair` takes what the image shows and the caption."""
    found = []
    for row in range(len(cases)):
        case = cases.case(row)
        for image in case.images:
            shown = pixels(Picture(image, cases.root).open())
            found += [pair(shown, caption) for caption in case.captions]
    return found


def shares(cases: Cases) -> list[float]:
    """In plain loops: of the other captions, how many a caption beats."""
    found = []
    for row in range(len(cases)):
        case = cases.case(row)
        for image in case.images:
            shown = pixels(Picture(image, cases.root).open())
            values = [naive_pair(shown, caption) for caption in case.captions]
            for i, value in enumerate(values):
                others = values[:i] + values[i + 1 :]
                wins = [1.0 if value > other else 0.5 * (value == other) for other in others]
                found.append(sum(wins) / len(wins))
    return found


def cosine(shown: str, caption: str) -> float:
    return float(naive_vector(shown) @ naive_vector(caption))


def build(*cases: Case, root: Path | None = None) -> Cases:
    return Cases.build(cases, root=root, source="test")


def one_file(root: Path) -> Cases:
    """Four cases on two images."""
    write_images(root, "a.png", "b.png")
    names = ("a.png", "b.png", "a.png", "b.png")
    cases = (choice(str(n), name, f"yes {n}", f"no {n}") for n, name in enumerate(names))
    return build(*cases, root=root)


def complaint(code: str, model: object, root: Path, **options: int) -> str:
    """What the engine says of a model."""
    with raises(code) as error:
        run_engine(model, {"bench": one_file(root)}, root / "store", **options)
    assert is_sentence(error.value)
    return str(error.value)


@pytest.fixture(autouse=True)
def own_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def photos(root: Path, truth: np.ndarray, id: str = "photos", missing: str = "", broken: str = ""):
    """A gallery whose images are files `0.png`, ...; digits name those that are not right."""
    names = [f"{i}.png" for i in range(len(truth))]
    write_images(root, *(name for i, name in enumerate(names) if str(i) not in missing + broken))
    for digit in broken:
        (root / f"{digit}.png").write_bytes(b"this is no picture")
    texts = [f"caption {'x ' * (j % 4)}{j}" for j in range(truth.shape[1])]
    return gallery(truth, id, images=names, captions=texts)


def loop(cases: Cases, pair, caption_mean: bool = False) -> np.ndarray:
    """Every pair of what an image shows and a caption; images that are texts show themselves."""
    found = []
    for row in range(len(cases)):
        one = cases.case(row)
        for ref in one.images:
            text = ref.path.startswith("text:")
            shown = ref.path[5:] if text else pixels(Picture(ref, cases.root).open())
            for caption in one.captions:
                prompts = caption.split("\x1e")
                if caption_mean:
                    found.append(sum(pair(shown, p) for p in prompts) / len(prompts))
                else:
                    found.append(pair(shown, prompts))
    return np.array(found)


def prompted(root: Path, missing: str = "") -> Cases:
    """A classification of several prompts a class, some shared, and of unequal numbers."""
    templates = ["a photo of a {}", "a drawing of a {} with a hat", "{}", "the {}"]
    names = ["cat", "dog", "bird"]
    captions = [
        PROMPTS.join(template.replace("{}", name) for template in templates[: 2 + n])
        for n, name in enumerate(names)
    ]
    captions.append("a photo of a cat")  # one of the cat's own prompts, alone
    truth = classes([0, 1, 2, 2, 1, 3, 0], 4)
    one = photos(root, truth, "classes", missing=missing)
    return build(replace(one, captions=tuple(captions)), root=root)
