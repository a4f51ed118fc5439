"""Images in pieces: every piece once, in an order of its seed, or a sentence."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, strategies as st
from image_support import HOW, nothing_held, picture, refusal, shown, store, write_table
from models_for_tests import noise
from PIL import Image
from support import FEW

from counterpoint._util.store import Store
from counterpoint.images import PIECES
from counterpoint.images.schemes import shuffled

__all__ = ["nothing_held", "store"]  # fixtures


def cut(square: np.ndarray, how: str) -> list[bytes]:
    """The pieces of a square, from left to right and top to bottom."""
    down, across = {"rows": (4, 1), "columns": (1, 4), "patches": (3, 3)}[how]
    height, width = len(square) // down, len(square) // across
    return [
        square[i * height : (i + 1) * height, j * width : (j + 1) * width].tobytes()
        for i in range(down)
        for j in range(across)
    ]


def middle(image: Image.Image) -> np.ndarray:
    """The square from the middle of a picture."""
    width, height = image.size
    side = min(width, height)
    x, y = (width - side) // 2, (height - side) // 2
    return np.asarray(image)[y : y + side, x : x + side]


@pytest.mark.parametrize("how", HOW)
@FEW
@given(st.integers(0, 1000), st.integers(9, 40), st.integers(9, 40))
def test_the_pieces_are_those_of_the_middle_square(
    how: str, seed: int, width: int, height: int
) -> None:
    image = noise(seed, (width, height))
    found = np.asarray(shuffled(image, how, seed))
    square = middle(image)
    assert found.shape == square.shape and found.dtype == np.uint8
    assert sorted(cut(found, how)) == sorted(cut(square, how))
    # What does not divide is black, and nothing else is changed.
    down, across = PIECES[how]
    side = len(square)
    assert not found[side // down * down :].any() and not found[:, side // across * across :].any()


@pytest.mark.parametrize("how", HOW)
def test_a_seed_is_an_order(how: str) -> None:
    image = noise(3, (24, 24))
    first, again = (np.asarray(shuffled(image, how, 5)) for _ in range(2))
    assert (first == again).all()
    orders = {np.asarray(shuffled(image, how, seed)).tobytes() for seed in range(30)}
    assert len(orders) > 15  # of 24 orders, or of 9!
    # The order is the seed's, whatever the picture shows.
    other = noise(4, (24, 24))
    places = [
        cut(np.asarray(other), how).index(p) for p in cut(np.asarray(shuffled(other, how, 5)), how)
    ]
    assert [cut(np.asarray(image), how)[i] for i in places] == cut(first, how)


@pytest.mark.parametrize("how", HOW)
def test_a_shuffle_is_a_reference_like_any_other(tmp_path: Path, how: str) -> None:
    noise(8, (31, 20)).save(tmp_path / "a.png")
    write_table(tmp_path / "t.parquet", [8])
    reference = f"shuffle-{how}:7:a.png"
    expected = np.asarray(shuffled(noise(8, (31, 20)), how, 7))
    assert (shown(tmp_path, reference) == expected).all()
    assert (shown(tmp_path, reference, (3, 2, 9, 8)) == expected[2:10, 3:12]).all()
    inside = np.asarray(shuffled(noise(8), how, 7))
    assert (shown(tmp_path, f"shuffle-{how}:7:parquet:t.parquet#image/0") == inside).all()
    twice = np.asarray(shuffled(shuffled(noise(8, (31, 20)), "rows", 1), how, 7))
    assert (shown(tmp_path, f"shuffle-{how}:7:shuffle-rows:1:a.png") == twice).all()
    assert picture(tmp_path, reference).file() == tmp_path / "a.png"
    inner = picture(tmp_path, f"shuffle-{how}:7:parquet:t.parquet#image/0")
    assert inner.file() == tmp_path / "t.parquet"


def test_a_world_can_be_shuffled(store: Store) -> None:
    from counterpoint.world.scenes import sample_scene

    code = f"world:{sample_scene(np.random.default_rng(0)).code()}"
    plain, mixed = picture(None, code), picture(None, f"shuffle-patches:1:{code}")
    expected = np.asarray(shuffled(plain.open(), "patches", 1))
    assert (np.asarray(mixed.open()) == expected).all()
    assert plain.key(store) != mixed.key(store) and mixed.file() is None


def test_a_malformed_shuffle_is_refused(tmp_path: Path, store: Store) -> None:
    noise(0).save(tmp_path / "a.png")
    rows = ("", ":", ":1", ":1:", "::a.png", ":x:a.png", ":-1:a.png", ":1.5:a.png")
    others = ("", ":1:a.png", "pixels:1:a.png", "Rows:1:a.png", "rows:1:shuffle-pixels:1:a.png")
    for end in (*(f"rows{end}" for end in rows), *others):
        assert refusal(tmp_path, f"shuffle-{end}", store) == "E-IMAGE-REFERENCE"


def test_a_shuffle_of_nothing_is_refused(tmp_path: Path, store: Store) -> None:
    for inner, code in {
        "gone.png": "E-IMAGE-MISSING",
        "../a.png": "E-PATH-OUTSIDE",
        "parquet:gone.parquet#image/0": "E-IMAGE-MISSING",
        "parquet:a.png": "E-IMAGE-REFERENCE",
    }.items():
        assert refusal(tmp_path, f"shuffle-rows:1:{inner}", store) == code
