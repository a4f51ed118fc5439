"""Images by reference: a key for each content, RGB whatever the file, a sentence for the rest."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from errors import raises
from hypothesis import given, strategies as st
from image_support import Box, encoded, picture, refused, shown, store
from models_for_tests import is_sentence, noise
from support import FEW

from counterpoint._util.errors import ImageError
from counterpoint._util.store import Store
from counterpoint.images import schemes
from counterpoint.world import drawing
from counterpoint.world.scenes import Scene, sample_scene

__all__ = ["store"]  # a fixture


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A data folder with one picture, and another picture outside of it."""
    folder = tmp_path / "data"
    folder.mkdir()
    noise(0).save(folder / "a.png")
    noise(1).save(tmp_path / "outside.png")
    return folder


def scene(seed: int) -> Scene:
    return sample_scene(np.random.default_rng(seed))


# --- keys --------------------------------------------------------------------------------------


def test_the_key_is_of_the_content_and_not_of_the_path(root: Path, store: Store) -> None:
    (root / "deep").mkdir()
    shutil.copy(root / "a.png", root / "deep" / "b.png")
    keys = {
        picture(root, "a.png").key(store),
        picture(root, "deep/b.png").key(store),
        picture(root / "deep", "b.png").key(store),
        picture(None, str(root / "a.png")).key(store),
    }
    assert len(keys) == 1
    noise(1).save(root / "c.png")
    assert picture(root, "c.png").key(store) not in keys


def test_a_file_that_changes_has_another_key(root: Path, store: Store) -> None:
    file = root / "a.png"
    data = file.read_bytes()
    before = picture(root, "a.png").key(store)
    changed = data[:-1] + bytes([data[-1] ^ 1])
    file.write_bytes(changed)  # as long as before
    after = picture(root, "a.png").key(store)
    assert after != before
    file.unlink()
    file.write_bytes(data)
    assert picture(root, "a.png").key(store) == before


def test_an_unchanged_file_is_read_once(
    root: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    read, seen = schemes.read_file, []

    def counted(path: Path) -> bytes:
        seen.append(path)
        return read(path)

    monkeypatch.setattr(schemes, "read_file", counted)
    for box in (None, (0, 0, 2, 2), None):
        picture(root, "a.png", box).key(store)
    assert len(seen) == 1
    os.utime(root / "a.png", (1, 1))
    picture(root, "a.png").key(store)
    assert len(seen) == 2


def test_a_scene_has_its_own_key(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [f"world:{scene(seed).code()}" for seed in range(20)]
    keys = [picture(None, path).key(store) for path in paths]
    assert len(set(keys)) == len(keys)
    assert [picture(Path("anywhere"), path).key(store) for path in paths] == keys
    monkeypatch.setattr("counterpoint.world.VERSION", drawing.VERSION + 1)
    assert set(keys).isdisjoint(picture(None, path).key(store) for path in paths)


# --- what cannot be read -----------------------------------------------------------------------


@pytest.mark.slow
@FEW
@given(st.sampled_from(["JPEG", "PNG", "WEBP", "BMP", "GIF", "PPM"]), st.data())
def test_bytes_that_are_off_give_an_image_or_a_sentence(
    tmp_path_factory: pytest.TempPathFactory, format: str, data: st.DataObject
) -> None:
    spoilt = bytearray(encoded(noise(3), format))
    for place in data.draw(st.lists(st.integers(len(spoilt) // 3, len(spoilt) - 1), max_size=4)):
        spoilt[place] = data.draw(st.integers(0, 255))
    root = tmp_path_factory.mktemp("data")
    (root / "a.jpg").write_bytes(spoilt)
    try:
        assert picture(root, "a.jpg").open().mode == "RGB"
    except ImageError as error:
        assert is_sentence(error) and "a.jpg" in str(error)


def test_a_name_that_is_too_long_is_refused(root: Path) -> None:
    with raises("E-IMAGE-UNREADABLE") as error:
        picture(root, "n" * 300 + ".jpg").open()
    assert is_sentence(error.value)


@pytest.mark.parametrize("relative", [True, False])
def test_a_name_with_a_null_character_is_refused(root: Path, store: Store, relative: bool) -> None:
    wrong = picture(root if relative else None, "a\0.png")
    for use in (lambda: wrong.key(store), wrong.open):
        with raises("E-IMAGE-UNREADABLE") as error:
            use()
        assert is_sentence(error.value)


def test_a_link_to_itself_is_refused(root: Path, store: Store) -> None:
    (root / "loop.png").symlink_to("loop.png")
    refused(root, "loop.png")
    with raises("E-IMAGE-UNREADABLE"):
        picture(root, "loop.png").key(store)


@pytest.mark.parametrize("path", ["../outside.png", "deep/../../outside.png", "../data-2/a.png"])
def test_a_path_out_of_the_root_is_refused(root: Path, path: str) -> None:
    shutil.copytree(root, root.with_name("data-2"))  # a name that starts like the root's
    assert refused(root, path) == "E-PATH-OUTSIDE"


def test_links_in_the_root_lead_where_their_maker_wants(root: Path, store: Store) -> None:
    (root / "link.png").symlink_to("../outside.png")
    (root / "inside.png").symlink_to("a.png")
    (root / "folder").symlink_to(root.parent)
    assert (shown(root, "inside.png") == np.asarray(noise(0))).all()
    for path in ("link.png", "folder/outside.png"):
        assert (shown(root, path) == np.asarray(noise(1))).all()
        outside = picture(None, str(root.parent / "outside.png"))
        assert picture(root, path).key(store) == outside.key(store)


@pytest.mark.parametrize("path", ["deep/../a.png", "link/../a.png", "a/.."])
def test_two_dots_are_refused_even_where_they_stay_inside(
    root: Path, store: Store, path: str
) -> None:
    """Behind a link they would lead somewhere else than they seem to."""
    (root / "deep").mkdir()
    (root / "link").symlink_to(root.parent)
    assert refused(root, path) == "E-PATH-OUTSIDE"
    with raises("E-PATH-OUTSIDE"):
        picture(root, path).key(store)


# --- crops -------------------------------------------------------------------------------------


@pytest.mark.parametrize("box", [(0, 0, 9, 7), (2, 1, 3, 4), (8, 6, 1, 1)])
def test_a_crop_inside_is_those_pixels(root: Path, box: Box) -> None:
    x, y, width, height = box
    assert (shown(root, "a.png", box) == np.asarray(noise(0))[y : y + height, x : x + width]).all()


@pytest.mark.parametrize("box", [(-2, -3, 6, 6), (7, 5, 6, 6), (-5, -5, 30, 30)])
def test_a_crop_partly_outside_is_black_there(root: Path, box: Box) -> None:
    x, y, width, height = box
    expected = np.pad(np.asarray(noise(0)), ((50, 50), (50, 50), (0, 0)))
    expected = expected[50 + y : 50 + y + height, 50 + x : 50 + x + width]
    assert (shown(root, "a.png", box) == expected).all()


@pytest.mark.parametrize("box", [(9, 0, 2, 2), (0, 7, 2, 2), (-2, 0, 2, 2), (0, -2, 2, 2)])
def test_a_crop_outside_is_refused(root: Path, box: Box) -> None:
    assert refused(root, "a.png", box) == "E-CROP-OUTSIDE"


@pytest.mark.parametrize("box", [(0, 0, 100_000, 100_000), (1, 1, 2**31 - 1, 3)])
def test_a_crop_that_would_fill_the_memory_is_refused(root: Path, box: Box) -> None:
    assert refused(root, "a.png", box) == "E-CROP-TOO-LARGE"


# --- formats -----------------------------------------------------------------------------------


# --- the world ---------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(5))
def test_a_scene_is_drawn_as_the_world_draws_it(seed: int) -> None:
    drawn = drawing.draw([scene(seed)])[0]
    path = f"world:{scene(seed).code()}"
    assert (shown(None, path) == drawn).all()
    assert (shown(None, path, (10, 20, 30, 40)) == drawn[20:60, 10:40]).all()


BROKEN = ["", "0.5", "half;small,red,solid,circle,0.5,0.5", "0.5;small,red", "0.5;a,b,c,d,0.5,0.5"]


@pytest.mark.parametrize("code", [*BROKEN, "0.5;small,red,solid,circle,nan,0.5", "0.5\n;x"])
def test_a_broken_code_is_refused(code: str) -> None:
    with raises("E-IMAGE-REFERENCE") as error:
        picture(None, f"world:{code}").open()
    assert "\n" not in str(error.value) and repr(code) in str(error.value)
