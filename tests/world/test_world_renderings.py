"""Re-rendered scenes: what the captions say stays, and a change that breaks it is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import islice, product

import numpy as np
import pytest
from errors import raises

from counterpoint.world.drawing import draw
from counterpoint.world.edits import Edit, replacements, swaps
from counterpoint.world.grammar import holds, read
from counterpoint.world.renderings import CHANGES, keeps, rerender
from counterpoint.world.scenes import (
    COLOURS,
    GRID,
    JITTER,
    LOOKS,
    SHAPES,
    TEXTURES,
    Scene,
    Thing,
    cell_of,
    read_scene,
)

EDITS = [*islice(replacements(11), 80), *islice(swaps(11), 80)]
ALL_LOOKS = [look for looks in LOOKS.values() for look in looks]


def rerendered(name: str) -> list[tuple[Edit, Scene]]:
    rng = np.random.default_rng(5)
    return [(edit, rerender(edit, CHANGES[name], rng)) for edit in EDITS]


@pytest.mark.parametrize("name", CHANGES)
def test_a_rerendering_keeps_what_the_captions_say_and_is_another_scene(name: str) -> None:
    for edit, scene in rerendered(name):
        judged = [holds(read(t), scene) for t in (edit.original, edit.positive, edit.negative)]
        assert judged == [True, True, False]
        assert scene != edit.scene
        assert read_scene(scene.code()) == scene
        assert not np.array_equal(*draw([edit.scene, scene]))


def words(scene: Scene) -> list[tuple[str, ...]]:
    return [(t.shape, t.size, t.colour, t.texture) for t in scene.things]


def test_each_change_changes_its_own_side_alone() -> None:
    for name in CHANGES:
        for edit, scene in rerendered(name):
            before, places = edit.scene, [(t.x, t.y) for t in scene.things]
            kept = scene.things[: len(before.things)]
            assert words(replace(scene, things=kept)) == words(before)
            assert (kept == before.things) == (not name.startswith("place/"))
            assert (scene.ground == before.ground) == (name != "background")
            assert (scene.look != "") == (name in LOOKS)
            assert len(scene.things) == len(before.things) + (name == "objects")
            cells = [cell_of(t) for t in scene.things]
            assert len(set(cells)) == len(cells)  # so no two objects overlap
            if name == "place/jitter":
                assert cells == [cell_of(t) for t in before.things]
            middles = [((c % GRID + 0.5) / GRID, (c // GRID + 0.5) / GRID) for c in cells]
            assert np.abs(np.array(places) - middles).max() <= JITTER + 0.001


# --- changes that break a caption ----------------------------------------------------------------


def flipped(edit: Edit) -> Scene:
    things = tuple(t.at((round(1 - t.x, 3), t.y)) for t in edit.scene.things)
    return replace(edit.scene, things=things)


def turned_over(edit: Edit) -> Scene:
    things = tuple(t.at((t.x, round(1 - t.y, 3))) for t in edit.scene.things)
    return replace(edit.scene, things=things)


def recoloured(edit: Edit) -> Scene:
    """Every colour is the next one."""
    names = list(COLOURS)
    following = dict(zip(names, names[1:] + names[:1], strict=True))
    things = (t.with_value("colour", following[t.colour]) for t in edit.scene.things)
    return replace(edit.scene, things=tuple(things))


def without_the_first(edit: Edit) -> Scene:
    return replace(edit.scene, things=edit.scene.things[1:])


def with_what_the_negative_says(edit: Edit) -> Scene:
    """Objects of the negative's scene beside its own: the negative becomes true."""
    added = [t for t in edit.negative_scene.things if t not in edit.scene.things]
    return replace(edit.scene, things=(*edit.scene.things, *added))


def says(*parts: str) -> Callable[[Edit], bool]:
    return lambda edit: any(f" {part} " in f" {edit.original} " for part in parts)


BREAKING = {
    "a flip of left and right": (flipped, says("left of", "right of")),
    "a flip of above and below": (turned_over, says("above", "below", "beneath", "on top of")),
    "other colours": (recoloured, lambda e: e.group == "attributes/colour"),
    "an object taken away": (without_the_first, lambda e: e.group == "attributes/colour"),
    "an object that makes the negative true": (with_what_the_negative_says, lambda e: True),
    "the negative's own scene": (lambda e: e.negative_scene, lambda e: True),
}


@pytest.mark.parametrize("name", BREAKING)
def test_a_change_that_breaks_a_caption_is_refused(name: str) -> None:
    change, concerned = BREAKING[name]
    touched = [edit for edit in EDITS if concerned(edit)]
    # The other object may still make the caption true: the world's own judge says where it does.
    broken = [
        e
        for e in touched
        if not holds(read(e.original), change(e)) or holds(read(e.negative), change(e))
    ]
    assert len(broken) > 0.6 * len(touched) > 8
    assert not any(keeps(edit, change(edit)) for edit in broken)
    assert all(keeps(edit, edit.scene) for edit in EDITS)


def test_a_breaking_change_is_drawn_again_until_it_keeps_the_captions() -> None:
    edit = next(e for e in EDITS if says("left of")(e) and not keeps(e, flipped(e)))
    tries: list[Scene] = []

    def change(scene: Scene, rng: np.random.Generator) -> Scene:
        tries.append(flipped(edit) if len(tries) < 3 else replace(scene, ground=0.7))
        return tries[-1]

    assert rerender(edit, change, np.random.default_rng(0)).ground == 0.7
    assert len(tries) == 4


# --- looks ---------------------------------------------------------------------------------------


def nearest(pixel: np.ndarray) -> str:
    table = np.array(list(COLOURS.values()))
    return list(COLOURS)[int(np.square(table - pixel).sum(axis=1).argmin())]


@pytest.mark.parametrize("look", ALL_LOOKS)
def test_every_colour_stays_itself_under_every_look(look: str) -> None:
    """The mean of a solid square's inner pixels is nearest to the colour that its caption says."""
    for colour in COLOURS:
        for x, y in ((1 / 6, 1 / 6), (5 / 6, 5 / 6)):
            one = Thing("square", "large", colour, "solid", x, y)
            [picture] = draw([Scene((one,), 0.5, look)])
            column, row = int(64 * x), int(64 * y)
            inside = picture[row - 4 : row + 5, column - 4 : column + 5] / 255
            assert nearest(inside.mean(axis=(0, 1))) == colour, colour


@pytest.mark.parametrize("look", ALL_LOOKS)
def test_shapes_and_textures_can_be_told_apart_under_every_look(look: str) -> None:
    """Each picture is nearer to its own plain picture than to any other texture or shape."""
    both = product(SHAPES, TEXTURES)
    things = [Thing(shape, "large", "green", texture, 0.5, 0.5) for shape, texture in both]

    def vectors(look: str) -> np.ndarray:
        pictures = draw([Scene((one,), 0.5, look) for one in things]).reshape(len(things), -1)
        apart = pictures - pictures.mean(axis=1, keepdims=True)
        return apart / np.linalg.norm(apart, axis=1, keepdims=True)

    similarity = vectors(look) @ vectors("").T
    assert similarity.argmax(axis=1).tolist() == list(range(len(things)))


def test_an_unknown_look_is_refused() -> None:
    for look in ("", "neon", "dim,warm", "dim "):
        with raises("E-SCENE-INVALID"):
            read_scene(f"0.500,{look};large,red,solid,circle,0.500,0.500")
