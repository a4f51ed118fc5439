"""Pictures of scenes: anti-aliased signed-distance shapes, many scenes at once.

Each object is painted in a square patch just large enough for it. Objects never overlap (see
`scenes`), so all patches of a batch go onto the canvases in one step. The functions take the array
library as `xp`: NumPy here, torch where training draws on its device.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import ModuleType
from typing import Any, Final

import numpy as np

from counterpoint.world.arrays import Scenes
from counterpoint.world.scenes import COLOURS, SHAPES, SIZES, TEXTURES, Scene

VERSION: Final = 1  # part of every picture's content key: raise it when any pixel changes
PIXELS: Final = 64
_BATCH: Final = 64  # scenes that fit into a core's cache: twice as fast as a thousand

Array = Any  # a NumPy array or a torch tensor


def draw(scenes: Sequence[Scene], pixels: int = PIXELS) -> np.ndarray:
    """The pictures of `scenes`, (n, pixels, pixels, 3) uint8."""
    batches = [scenes[start : start + _BATCH] for start in range(0, len(scenes), _BATCH)]
    pictures = [paint(*Scenes.of(batch).table(), pixels=pixels, xp=np) for batch in batches]
    if not pictures:
        return np.zeros((0, pixels, pixels, 3), np.uint8)
    drawn = np.concatenate(pictures)
    for number, scene in enumerate(scenes):
        if scene.look:
            drawn[number] = _to_bytes(_seen(drawn[number] / 255, scene.look) * 255 + 0.5, np)
    return drawn


def _seen(picture: np.ndarray, look: str) -> np.ndarray:
    """A picture under another light or in another style: mild, so that every colour stays itself.

    Lighting multiplies: `dim` everywhere, `warm` by colour, `shade` from one corner to the other.
    """
    side = len(picture)
    if look == "dim":
        changed = picture * 0.85
    elif look == "warm":
        changed = picture * np.array([1.0, 0.93, 0.8])
    elif look == "shade":
        slope = np.add.outer(np.arange(side), np.arange(side)) / (2 * side - 2)
        changed = picture * (0.85 + 0.3 * slope)[..., None]
    elif look == "grain":
        changed = picture + np.random.default_rng(0).normal(0, 0.06, (side, side, 1))
    else:
        padded = np.pad(picture, ((1, 1), (1, 1), (0, 0)), mode="edge")
        rows = (padded[:-2] + 2 * padded[1:-1] + padded[2:]) / 4
        soft = (rows[:, :-2] + 2 * rows[:, 1:-1] + rows[:, 2:]) / 4
        changed = soft if look == "soft" else picture + 2 * (picture - soft)  # sharp
    return np.asarray(_clip01(changed))


def paint(things: Array, grounds: Array, *, pixels: int, xp: ModuleType) -> Array:
    """Pictures from rows of (scene, shape, radius, colour, texture, x, y)."""
    canvas = xp.broadcast_to(grounds[:, None, None, None], (len(grounds), pixels, pixels, 3))
    canvas = _copy(canvas, xp)
    half = math.ceil(max(SIZES.values()) * pixels) + 2  # one pixel for the edge, one for rounding
    offsets = _arange(2 * half, things, xp) - half
    number, shape, texture = (_index(things[:, k], xp) for k in (0, 1, 4))
    centre_x, centre_y = things[:, 5] * pixels, things[:, 6] * pixels
    left, top = _index(xp.floor(centre_x), xp), _index(xp.floor(centre_y), xp)
    columns, rows = left[:, None] + offsets, top[:, None] + offsets
    dx = (columns - centre_x[:, None] + 0.5)[:, None, :]
    dy = (rows - centre_y[:, None] + 0.5)[:, :, None]
    radius = (things[:, 2] * pixels)[:, None, None]

    alpha = _clip01(0.5 - _distances(shape, dx / radius, dy / radius, xp) * radius)[..., None]
    colour = _colours(_index(things[:, 3], xp), _patterns(texture, dx, dy, xp), things, xp)
    place = (number[:, None, None], rows[:, :, None], columns[:, None, :])
    inside_rows, inside_columns = (rows >= 0) & (rows < pixels), (columns >= 0) & (columns < pixels)
    # Patches of neighbours may overlap at their empty margins, so painting must not overwrite:
    # only pixels that an object touches are written.
    touched = (alpha[..., 0] > 0) & inside_rows[:, :, None] & inside_columns[:, None, :]
    place = tuple(xp.broadcast_to(p, touched.shape)[touched] for p in place)
    alpha, colour = alpha[touched], colour[touched]
    canvas[place] = canvas[place] * (1 - alpha) + colour * alpha
    return _to_bytes(canvas * 255 + 0.5, xp)


def _distances(shape: Array, u: Array, v: Array, xp: ModuleType) -> Array:
    """Signed distance to each object's outline in units of its radius, negative inside."""
    shape_of_patches = (len(u), v.shape[1], u.shape[2])
    u, v = xp.broadcast_to(u, shape_of_patches), xp.broadcast_to(v, shape_of_patches)
    distance = xp.zeros_like(u)
    for index, name in enumerate(SHAPES):
        chosen = shape == index
        distance[chosen] = _OUTLINES[name](u[chosen], v[chosen], xp)
    return distance


def _circle(u: Array, v: Array, xp: ModuleType) -> Array:
    return xp.hypot(u, v) - 0.9


def _square(u: Array, v: Array, xp: ModuleType) -> Array:
    return xp.maximum(abs(u), abs(v)) - 0.8


def _triangle(u: Array, v: Array, xp: ModuleType) -> Array:
    return xp.maximum(v - 0.75, 0.894 * abs(u) - 0.447 * v - 0.41)


def _star(u: Array, v: Array, xp: ModuleType) -> Array:
    sector = 2 * math.pi / 5
    angle = abs((xp.atan2(u, -v) + sector / 2) % sector - sector / 2)
    radius = xp.hypot(u, v)
    across, along = radius * xp.sin(angle), radius * xp.cos(angle)
    # The edge from the outer point (0, 1) to the inner one, as a line with a unit normal.
    inner_across, inner_along = 0.42 * math.sin(sector / 2), 0.42 * math.cos(sector / 2)
    length = math.hypot(inner_across, 1 - inner_along)
    return (across * (1 - inner_along) + (along - 1) * inner_across) / length


def _heart(u: Array, v: Array, xp: ModuleType) -> Array:
    lobes = xp.hypot(abs(u) - 0.43, v + 0.28) - 0.47
    # Below the lobes' centres, inside the two lines from the tip (0, 0.92) that touch the lobes;
    # they touch at |u| = 0.783, and beyond it they would stick out as wings.
    point = xp.maximum(0.7507 * abs(u) + 0.6606 * (v - 0.92), xp.maximum(-0.28 - v, abs(u) - 0.783))
    return xp.minimum(lobes, point)


def _diamond(u: Array, v: Array, xp: ModuleType) -> Array:
    return (abs(u) / 0.68 + abs(v) - 1) * 0.562


def _cross(u: Array, v: Array, xp: ModuleType) -> Array:
    bar, beam = xp.maximum(abs(u) - 0.3, abs(v) - 0.92), xp.maximum(abs(u) - 0.92, abs(v) - 0.3)
    return xp.minimum(bar, beam)


def _ring(u: Array, v: Array, xp: ModuleType) -> Array:
    return abs(xp.hypot(u, v) - 0.68) - 0.25


_OUTLINES: Final = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "heart": _heart,
    "diamond": _diamond,
    "cross": _cross,
    "ring": _ring,
}


def _patterns(texture: Array, dx: Array, dy: Array, xp: ModuleType) -> Array:
    """How much of the second tone each pixel shows, 0 to 1."""
    wave = 2 * math.pi / 5  # a period of five pixels is the finest that survives 64 x 64
    kind = texture[:, None, None]
    striped = _clip01(0.5 + 1.5 * xp.cos((dx + dy) * wave))
    dotted = _clip01(1.5 * (xp.cos(dx * wave) + xp.cos(dy * wave)) - 0.6)
    checkered = _clip01(0.5 + 3 * xp.sin(dx * wave / 2) * xp.sin(dy * wave / 2))
    tone = xp.where(kind == TEXTURES.index("striped"), striped, xp.zeros_like(striped))
    tone = xp.where(kind == TEXTURES.index("dotted"), dotted, tone)
    return xp.where(kind == TEXTURES.index("checkered"), checkered, tone)


def _colours(colour: Array, tone: Array, like: Array, xp: ModuleType) -> Array:
    """Each pixel's colour: the object's own, mixed with a darker (for dark ones lighter) tone."""
    first = np.array(list(COLOURS.values()), dtype=np.float32)
    dark = first.mean(axis=1, keepdims=True) < 0.3
    second = np.where(dark, first * 0.4 + 0.55, first * 0.3)
    own, other = (_like(table, like, xp)[colour][:, None, None, :] for table in (first, second))
    return own + (other - own) * tone[..., None]


def _clip01(values: Array) -> Array:
    return values.clip(0.0, 1.0)


# The five places where NumPy and torch differ.
def _copy(values: Array, xp: ModuleType) -> Array:
    return values.copy() if xp is np else values.clone()


def _index(values: Array, xp: ModuleType) -> Array:
    return values.astype(np.int64) if xp is np else values.long()


def _to_bytes(values: Array, xp: ModuleType) -> Array:
    return values.astype(np.uint8) if xp is np else values.to(xp.uint8)


def _arange(stop: int, like: Array, xp: ModuleType) -> Array:
    return np.arange(stop) if xp is np else xp.arange(stop, device=like.device)


def _like(table: np.ndarray, like: Array, xp: ModuleType) -> Array:
    return table if xp is np else xp.from_numpy(table).to(like.device)
