"""Batches that do not fit into memory are halved, and what fits is remembered."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from engine_support import ROUNDING, build
from errors import raises
from models_for_tests import Judge, Towers, choice, run_engine, write_images

from counterpoint._util.store import Store
from counterpoint.cases import Cases
from counterpoint.scoring import BatchSize

IMAGES = 11


class Tight(Towers):
    """Memory for so many items at a time."""

    room = 3

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def encode_images(self, images: Sequence[object]) -> np.ndarray:
        self._reserve(len(images))
        return super().encode_images(images)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        self._reserve(len(captions))
        return super().encode_captions(captions)

    def _reserve(self, items: int) -> None:
        self.sizes.append(items)
        if items > self.room:
            raise MemoryError("no room")


class TightJudge(Judge):
    def score_pairs(self, pictures: Sequence[object], captions: Sequence[str]) -> np.ndarray:
        if len(captions) > 3:
            raise MemoryError("no room")
        return super().score_pairs(pictures, captions)  # type: ignore[arg-type]


def cases(folder: Path) -> Cases:
    write_images(folder, *(f"{i}.png" for i in range(IMAGES)))
    rows = [choice(str(i), f"{i}.png", f"caption {i}", f"other {i}") for i in range(IMAGES)]
    return build(*rows, root=folder)


def test_what_does_not_fit_is_halved_and_remembered(tmp_path: Path) -> None:
    table = cases(tmp_path)
    model = Tight()
    found = run_engine(model, {"bench": table}, tmp_path / "tight", batch=16)["bench"]
    plain = run_engine(Towers(), {"bench": table}, tmp_path / "plain", batch=16)["bench"]
    np.testing.assert_allclose(found.scores, plain.scores, atol=ROUNDING)
    assert not found.left_out
    # 11 images fail, and 5 of them: 2 fit, and the rest is tried by twos. Captions have a size of
    # their own: 16, 8 and 4 fail.
    assert [size for size in model.sizes[: model.sizes.index(16)] if size > 3] == [11, 5]
    assert [size for size in model.sizes[model.sizes.index(16) :] if size > 3] == [16, 8, 4]
    assert max(model.sizes[-6:]) <= 2
    again = Tight()
    table = build(
        *(choice(f"n{i}", f"{i}.png", f"new {i}", f"newer {i}") for i in range(9)), root=tmp_path
    )
    run_engine(again, {"bench": table}, tmp_path / "tight", batch=16)
    assert again.sizes and max(again.sizes) <= 2


def test_pairs_are_halved_too(tmp_path: Path) -> None:
    table = cases(tmp_path)
    tight = run_engine(TightJudge(), {"bench": table}, tmp_path / "tight", batch=16)["bench"]
    plain = run_engine(Judge(), {"bench": table}, tmp_path / "plain", batch=16)["bench"]
    np.testing.assert_allclose(tight.scores, plain.scores, rtol=1e-6)


def test_a_single_item_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    class Full(Tight):
        room = 0

    with raises("E-OUT-OF-MEMORY"):
        run_engine(Full(), {"bench": cases(tmp_path)}, tmp_path / "store", batch=4)


def test_a_larger_wish_does_not_undo_what_is_known(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        BatchSize(64, store, "a model").halve(8, MemoryError())
        assert BatchSize(64, store, "a model").size == 4
        assert BatchSize(2, store, "a model").size == 2
        assert BatchSize(64, store, "another").size == 64
