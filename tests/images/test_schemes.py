"""Every kind of image reference, and what the other rooms ask of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from image_support import picture, store

import counterpoint
from counterpoint._util.store import Store
from counterpoint.cases import ImageRef
from counterpoint.images import (
    PLAIN,
    cell_reference,
    scene_of,
    scheme_of,
    shuffle_reference,
    world_reference,
)
from counterpoint.world import sample_scene

__all__ = ["store"]

SCENE = "world:0.5;small,red,solid,circle,0.1,0.1"
# reference: the path of the image file, and the reference with its path below `new/`
REFERENCES = {
    "a/b.jpg": ("a/b.jpg", "new/a/b.jpg"),
    "parquet:t.parquet#image/7": (None, "parquet:new/t.parquet#image/7"),
    "tar:a/t.tar#b/c.jpg": (None, "tar:new/a/t.tar#b/c.jpg"),
    "shuffle-rows:1:a.jpg": ("a.jpg", "shuffle-rows:1:new/a.jpg"),
    "shuffle-rows:1:shuffle-columns:2:a.jpg": (
        "a.jpg",
        "shuffle-rows:1:shuffle-columns:2:new/a.jpg",
    ),
    "shuffle-rows:1:parquet:t.parquet#image/7": (
        None,
        "shuffle-rows:1:parquet:new/t.parquet#image/7",
    ),
    SCENE: (None, SCENE),
    "text:a/b.jpg": (None, "text:a/b.jpg"),
}


@pytest.mark.parametrize("reference", REFERENCES)
def test_a_reference_knows_its_path(reference: str) -> None:
    path, moved = REFERENCES[reference]
    scheme = scheme_of(reference)
    assert scheme.image_path(reference) == path
    assert scheme.with_path(reference, lambda path: f"new/{path}") == moved
    assert (scheme is PLAIN) == (reference == "a/b.jpg")
    assert scheme.drawn == (reference == SCENE)
    assert scheme.in_file == (reference not in (SCENE, "text:a/b.jpg"))


@pytest.mark.parametrize("reference", ["shuffle-", "shuffle-rows", "shuffle-rows:1", "parquet:"])
def test_what_is_cut_short_names_no_image(reference: str) -> None:
    assert not scheme_of(reference).image_path(reference)


def test_references_are_made_as_they_are_read() -> None:
    scene = sample_scene(np.random.default_rng(0))
    assert scene_of(world_reference(scene)) == scene
    assert scene_of("a.jpg") is None and scene_of("world:nothing") is None
    assert cell_reference("t.parquet", "image", 7) == "parquet:t.parquet#image/7"
    assert shuffle_reference("rows", 1, "a.jpg") == "shuffle-rows:1:a.jpg"
    assert ImageRef("text:a b").text == "a b" and ImageRef("a.jpg").text is None


def test_keys_stay_what_they_were(store: Store) -> None:
    """Stores of earlier versions are found again."""
    assert picture(None, SCENE).key(store).hex() == "14a64c694f41524a6d8df91b14c9a95d"


def test_nothing_else_looks_at_how_a_reference_begins() -> None:
    source = Path(counterpoint.__file__).parent
    known = {source / "images" / "schemes.py", source / "cases" / "table.py"}
    looks = re.compile(r"startswith\(\(?(WORLD|PARQUET|SHUFFLE|TEXT|\"(world|parquet|text):)")
    found = [path for path in source.rglob("*.py") if looks.search(path.read_text())]
    assert set(found) <= known
