"""Tables and plain loops to hold the engine against."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from models_for_tests import (
    choice,
    is_sentence,
    naive_vector,
    pixels,
    run_engine,
    write_images,
)

from counterpoint.cases import Case, Cases
from counterpoint.errors import ModelError
from counterpoint.scoring.pictures import Picture

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


def complaint(model: object, root: Path, **options: int) -> str:
    with pytest.raises(ModelError) as error:
        run_engine(model, {"bench": one_file(root)}, root / "store", **options)
    assert is_sentence(error.value)
    return str(error.value)
