"""Hard positives of images: a scene changed without a change of what its captions say.

A change is drawn again until the captions are what they were: the original and its rewording true,
the negative false. Objects move within their cells or to other cells, the background, the light or
the style is another, or an object is added that no caption names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np

from counterpoint.world.edits import Edit
from counterpoint.world.grammar import holds, read
from counterpoint.world.scenes import (
    GRID,
    LOOKS,
    Scene,
    cell_of,
    free_places,
    place_in,
    sample_scene,
)

Change = Callable[[Scene, np.random.Generator], Scene]
# Brightness of backgrounds: darker or lighter than those of `sample_scene`, from 0.42 to 0.62.
_OTHER_GROUNDS: Final = ((0.30, 0.38), (0.66, 0.74))


def keeps(edit: Edit, scene: Scene) -> bool:
    """Whether the captions of an edit are as true and false of a scene as of its own."""
    said = [holds(read(text), scene) for text in (edit.original, edit.positive, edit.negative)]
    return said == [True, True, False]


def rerender(edit: Edit, change: Change, rng: np.random.Generator) -> Scene:
    """The first changed scene that keeps what the captions say."""
    while True:
        scene = change(edit.scene, rng)
        if scene != edit.scene and keeps(edit, scene):
            return scene


def _jittered(scene: Scene, rng: np.random.Generator) -> Scene:
    return _placed(scene, [cell_of(thing) for thing in scene.things], rng)


def _moved(scene: Scene, rng: np.random.Generator) -> Scene:
    return _placed(scene, rng.permutation(GRID**2).tolist(), rng)


def _placed(scene: Scene, cells: list[int], rng: np.random.Generator) -> Scene:
    things = (
        thing.at(place_in(cell, rng)) for thing, cell in zip(scene.things, cells, strict=False)
    )
    return replace(scene, things=tuple(things))


def _with_ground(scene: Scene, rng: np.random.Generator) -> Scene:
    low, high = _OTHER_GROUNDS[rng.integers(2)]
    return replace(scene, ground=round(float(rng.uniform(low, high)), 3))


def _with_look(kind: str) -> Change:
    def change(scene: Scene, rng: np.random.Generator) -> Scene:
        return replace(scene, look=LOOKS[kind][rng.integers(len(LOOKS[kind]))])

    return change


def _with_object(scene: Scene, rng: np.random.Generator) -> Scene:
    added = sample_scene(rng, objects=1).things[0].at(free_places(scene, rng)[0])
    return replace(scene, things=(*scene.things, added))


CHANGES: Final[dict[str, Change]] = {
    "place/jitter": _jittered,
    "place/cells": _moved,
    "background": _with_ground,
    "lighting": _with_look("lighting"),
    "style": _with_look("style"),
    "objects": _with_object,
}
