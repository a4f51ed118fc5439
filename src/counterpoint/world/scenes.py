"""Scenes of the synthetic world: two to four objects with a shape, attributes and a place.

The words of the world, and which of them mean the same, are in `words.toml`. Objects stand in the
cells of a 3 x 3 grid, with a jitter smaller than half of the distance that a relation needs: every
relation is clearly true or clearly false.
"""

from __future__ import annotations

import tomllib
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from counterpoint._util.errors import CounterpointError
from counterpoint._util.untrusted import shown

_WORDS: Final[dict[str, Any]] = tomllib.loads(
    Path(__file__).with_name("words.toml").read_text(encoding="utf-8")
)
COLOURS: Final[dict[str, tuple[float, ...]]] = {
    name: tuple(levels) for name, levels in _WORDS["colours"].items()
}
SHAPES: Final[tuple[str, ...]] = tuple(_WORDS["shapes"])
SIZES: Final[dict[str, float]] = _WORDS["sizes"]
TEXTURES: Final[tuple[str, ...]] = tuple(_WORDS["textures"])
CONVERSE: Final[dict[str, str]] = _WORDS["converse"]
RELATIONS: Final = tuple(CONVERSE)
ATTRIBUTES: Final[dict[str, tuple[str, ...]]] = {
    "size": tuple(SIZES),
    "colour": tuple(COLOURS),
    "texture": TEXTURES,
}
SYNONYMS: Final[dict[str, str]] = _WORDS["synonyms"]
CANONICAL: Final[dict[str, str]] = {
    **{word: word for word in (*SHAPES, *SIZES, *COLOURS, *TEXTURES, *RELATIONS)},
    **{synonym: word for word, synonym in SYNONYMS.items()},
}
LOOKS: Final[dict[str, tuple[str, ...]]] = {
    name: tuple(looks) for name, looks in _WORDS["looks"].items()
}
_LOOKS: Final = tuple(look for looks in LOOKS.values() for look in looks)

GRID: Final = 3
JITTER: Final = 0.02  # of the image's width, to either side
RELATION_MARGIN: Final = 0.2  # two cells are at least 1/3 - 2 * JITTER = 0.29 apart

Attribute = Literal["size", "colour", "texture"]
KINDS: Final[tuple[Attribute, ...]] = ("size", "colour", "texture")  # in the order of English
_SIZES, _COLOURS = tuple(SIZES), tuple(COLOURS)
_MOST: Final = GRID**2  # objects of a scene


class SceneCodeError(CounterpointError):
    """A text that should describe a scene does not."""


@dataclass(frozen=True, slots=True)
class Thing:
    """One object. `x` and `y` are its centre, from 0 to 1, y downwards."""

    shape: str
    size: str
    colour: str
    texture: str
    x: float
    y: float

    def with_value(self, attribute: Attribute, value: str) -> Thing:
        changed: dict[str, Any] = {attribute: value}
        return replace(self, **changed)

    def value(self, attribute: Attribute) -> str:
        return str(getattr(self, attribute))

    def at(self, place: tuple[float, float]) -> Thing:
        return replace(self, x=place[0], y=place[1])


@dataclass(frozen=True, slots=True)
class Scene:
    """Objects on a grey background of brightness `ground`; `look` is one of LOOKS, or plain."""

    things: tuple[Thing, ...]
    ground: float
    look: str = ""

    def code(self) -> str:
        """The scene as one line of text, from which it can be drawn again to the pixel."""
        things = ";".join(
            f"{t.size},{t.colour},{t.texture},{t.shape},{t.x:.3f},{t.y:.3f}" for t in self.things
        )
        look = f",{self.look}" if self.look else ""
        return f"{self.ground:.3f}{look};{things}"

    def replaced(self, index: int, thing: Thing) -> Scene:
        things = (*self.things[:index], thing, *self.things[index + 1 :])
        return replace(self, things=things)


def read_scene(code: str) -> Scene:
    """The inverse of `Scene.code`."""
    try:
        first, *rows = code.split(";", _MOST + 1)
        ground, mark, look = first.partition(",")
        if not 1 <= len(rows) <= _MOST:
            raise ValueError(f"it should have 1 to {_MOST} objects")
        if mark and look not in _LOOKS:
            raise ValueError(f"unknown look {shown(look)}")
        return Scene(tuple(_read_thing(row) for row in rows), _read_share(ground), look)
    except ValueError as error:
        raise SceneCodeError(
            "E-SCENE-INVALID", f"{shown(code)} is not the code of a world scene: {error}."
        ) from None


def _read_thing(row: str) -> Thing:
    size, colour, texture, shape, x, y = row.split(",")
    for word, words in ((size, SIZES), (colour, COLOURS), (texture, TEXTURES), (shape, SHAPES)):
        if word not in words:
            raise ValueError(f"unknown word {shown(word)}")
    return Thing(shape, size, colour, texture, _read_share(x), _read_share(y))


def _read_share(text: str) -> float:
    with suppress(ValueError):
        if 0 <= (value := float(text)) <= 1:  # a NaN is neither
            return value
    raise ValueError(f"{shown(text)} is not a number between 0 and 1")


def related(first: Thing, relation: str, second: Thing) -> bool:
    """Whether `first` is `relation` `second` in the picture."""
    dx, dy = second.x - first.x, second.y - first.y
    distance = {"left of": dx, "right of": -dx, "above": dy, "below": -dy}[relation]
    return distance >= RELATION_MARGIN


def free_places(scene: Scene, rng: np.random.Generator) -> list[tuple[float, float]]:
    """A jittered place in every cell that holds no object, in random order."""
    taken = {cell_of(t) for t in scene.things}
    return [place_in(cell, rng) for cell in rng.permutation(GRID**2).tolist() if cell not in taken]


def cell_of(thing: Thing) -> int:
    return int(thing.x * GRID) + GRID * int(thing.y * GRID)


def place_in(cell: int, rng: np.random.Generator) -> tuple[float, float]:
    """A jittered place in a cell."""
    dx, dy = rng.uniform(-JITTER, JITTER, 2).tolist()
    return round((cell % GRID + 0.5) / GRID + dx, 3), round((cell // GRID + 0.5) / GRID + dy, 3)


def sample_scene(rng: np.random.Generator, objects: int | None = None) -> Scene:
    """A scene of `objects` objects, two to four by default, with independent uniform attributes.

    Independence matters: if a colour went with a shape, a blind model could find a replaced colour
    because it is unusual.
    """
    cells = rng.permutation(GRID**2)[: objects or rng.integers(2, 5)].tolist()
    words = rng.integers(0, (len(SHAPES), len(SIZES), len(COLOURS), len(TEXTURES)), (len(cells), 4))
    things = tuple(
        Thing(SHAPES[a], _SIZES[b], _COLOURS[c], TEXTURES[d], *place_in(cell, rng))
        for cell, (a, b, c, d) in zip(cells, words.tolist(), strict=True)
    )
    return Scene(things, round(float(rng.uniform(0.42, 0.62)), 3))
