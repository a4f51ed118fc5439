"""Pictures: the right colours at the right places, and nothing anywhere else."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from counterpoint.world.arrays import Scenes
from counterpoint.world.drawing import PIXELS, draw, paint
from counterpoint.world.scenes import (
    COLOURS,
    SHAPES,
    SIZES,
    TEXTURES,
    Scene,
    Thing,
    sample_scene,
)

FEW = settings(derandomize=True, deadline=None, max_examples=20)
SEEDS = st.integers(0, 2**32 - 1)
WHITE = COLOURS["white"][0] * 255


def thing(
    shape: str = "circle",
    size: str = "large",
    colour: str = "red",
    texture: str = "solid",
    x: float = 0.5,
    y: float = 0.5,
) -> Thing:
    return Thing(shape, size, colour, texture, x, y)


def picture(*things: Thing, ground: float = 0.5, pixels: int = PIXELS) -> np.ndarray:
    return draw([Scene(things, ground)], pixels)[0]


def coverage(one: Thing, pixels: int = PIXELS) -> np.ndarray:
    """How much of each pixel the object covers, seen as white on black."""
    shown = one.with_value("colour", "white").with_value("texture", "solid")
    return picture(shown, ground=0.0, pixels=pixels)[..., 0] / WHITE


def scenes_of(seed: int, count: int) -> list[Scene]:
    rng = np.random.default_rng(seed)
    return [sample_scene(rng) for _ in range(count)]


def apart(scene: Scene) -> Scene:
    """The scene with small objects, which are far from touching each other."""
    return Scene(tuple(t.with_value("size", "small") for t in scene.things), scene.ground)


# --- form --------------------------------------------------------------------------------------


def test_shape_and_dtype() -> None:
    scenes = scenes_of(0, 5)
    assert draw(scenes).shape == (5, PIXELS, PIXELS, 3)
    assert draw(scenes).dtype == np.uint8
    assert draw(scenes, pixels=32).shape == (5, 32, 32, 3)
    assert draw([]).shape == (0, PIXELS, PIXELS, 3)
    assert draw([]).dtype == np.uint8


@pytest.mark.slow
def test_batch_size_does_not_matter() -> None:
    scenes = scenes_of(1, 150)  # more than two batches, the last one not full
    together, alone = draw(scenes), np.concatenate([draw([s]) for s in scenes])
    assert np.array_equal(together, alone)
    assert np.array_equal(draw(scenes[::-1]), together[::-1])


# --- colour ------------------------------------------------------------------------------------


@pytest.mark.parametrize("colour", list(COLOURS))
@pytest.mark.parametrize("shape", ["circle", "square"])
@pytest.mark.parametrize("size", list(SIZES))
def test_a_solid_centre_has_the_colour_of_the_lexicon(shape: str, colour: str, size: str) -> None:
    centre = picture(thing(shape, size, colour))[30:34, 30:34]
    expected = np.round(np.array(COLOURS[colour]) * 255)
    assert np.all(abs(centre - expected) <= 1)


@pytest.mark.parametrize("ground", [0.42, 0.5, 0.62])
def test_the_background_is_untouched(ground: float) -> None:
    shown = picture(thing(x=0.3, y=0.6), ground=ground)
    rows, columns = np.mgrid[:PIXELS, :PIXELS] + 0.5
    away = np.hypot(columns - 0.3 * PIXELS, rows - 0.6 * PIXELS) > SIZES["large"] * PIXELS + 1
    assert np.all(shown[away] == round(ground * 255))
    assert np.all(shown[0, 0] == shown[-1, -1])


@FEW
@given(SEEDS)
def test_each_object_is_painted_as_if_alone(seed: int) -> None:
    scene = apart(scenes_of(seed, 1)[0])
    together = draw([scene])[0]
    expected = draw([Scene((), scene.ground)])[0]
    ground = expected[0, 0].copy()
    for one in scene.things:
        alone = draw([Scene((one,), scene.ground)])[0]
        mine = np.any(alone != ground, axis=-1)
        expected[mine] = alone[mine]
    assert np.array_equal(together, expected)


@pytest.mark.parametrize("colour", list(COLOURS))
def test_a_texture_has_two_tones_of_which_one_is_the_colour(colour: str) -> None:
    shown = picture(thing("square", colour=colour, texture="striped"))[28:36, 28:36].reshape(-1, 3)
    own = np.round(np.array(COLOURS[colour]) * 255)
    distance = abs(shown - own).max(-1)
    assert distance.min() <= 1
    assert distance.max() > 60


# --- shape -------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", list(SIZES))
@pytest.mark.parametrize("place", [(0.5, 0.5), (0.481, 0.523), (0.178, 0.812)])
def test_a_circle_has_its_area(size: str, place: tuple[float, float]) -> None:
    radius = 0.9 * SIZES[size] * PIXELS  # outlines stay a little inside the size's radius
    area = coverage(thing(size=size).at(place)).sum()
    assert area == pytest.approx(math.pi * radius**2, rel=0.03)


@pytest.mark.parametrize(("one", "two"), list(combinations(SHAPES, 2)))
def test_shapes_differ(one: str, two: str) -> None:
    assert abs(coverage(thing(one)) - coverage(thing(two))).sum() > 25
    assert abs(coverage(thing(one, "small")) - coverage(thing(two, "small"))).sum() > 10


@pytest.mark.parametrize("shape", SHAPES)
def test_shapes_are_upright_and_symmetric(shape: str) -> None:
    covered = coverage(thing(shape))
    assert np.allclose(covered, covered[:, ::-1], atol=0.02)
    upper, lower = covered[:32].sum(), covered[32:].sum()
    if shape == "triangle":  # the point is at the top
        assert upper < 0.8 * lower
    if shape == "heart":  # the point is at the bottom
        assert lower < 0.8 * upper
    assert (covered[32, 32] < 0.01) == (shape == "ring")


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("size", list(SIZES))
def test_objects_stay_within_their_radius(shape: str, size: str) -> None:
    pixels = 256  # so that a pixel is small beside what is measured
    offsets = np.argwhere(coverage(thing(shape, size), pixels) > 0.02) + 0.5 - pixels / 2
    # A touched pixel's centre is at most half a pixel outside the outline.
    assert abs(offsets).max() <= SIZES[size] * pixels + 0.5


# --- place -------------------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("x", "y"), [(0.2, 0.7), (0.8, 0.3), (0.167, 0.167)])
def test_objects_are_where_the_scene_says(shape: str, x: float, y: float) -> None:
    covered = coverage(thing(shape, x=x, y=y))
    rows, columns = np.mgrid[:PIXELS, :PIXELS] + 0.5
    middle_x, middle_y = ((covered * axis).sum() / covered.sum() for axis in (columns, rows))
    assert middle_x == pytest.approx(x * PIXELS, abs=0.3)  # every shape is symmetric sideways
    assert middle_y == pytest.approx(y * PIXELS, abs=2)  # but not up and down


BORDERS = [(0.01, 0.5), (0.99, 0.5), (0.5, 0.01), (0.5, 0.99), (0.0, 0.0), (1.0, 1.0)]


@pytest.mark.parametrize(("x", "y"), BORDERS)
@pytest.mark.parametrize("shape", ["circle", "square", "cross"])
def test_objects_at_the_border_are_cut_off(shape: str, x: float, y: float) -> None:
    covered = coverage(thing(shape, x=x, y=y))
    assert covered.sum() > 20
    rows, columns = np.mgrid[:PIXELS, :PIXELS] + 0.5
    far = np.maximum(abs(columns - x * PIXELS), abs(rows - y * PIXELS)) > 0.2 * PIXELS
    assert covered[far].sum() == 0


def closest_pairs() -> list[tuple[Thing, Thing]]:
    """Two large objects in neighbouring cells, jittered towards each other, of all shapes."""
    near, next_to_it = 0.197, 0.470
    return [
        (thing(a, x=near if across else 0.5, y=0.5 if across else near), second)
        for a in SHAPES
        for b in SHAPES
        for across in (True, False)
        for second in [thing(b, x=next_to_it if across else 0.5, y=0.5 if across else next_to_it)]
    ]


@pytest.mark.slow
def test_no_pixel_is_painted_by_two_objects() -> None:
    # `paint` writes all objects in one step, so of two in one pixel only one would be seen, and on
    # a GPU not always the same one.
    touching = [
        f"{a.shape} {b.shape}"
        for a, b in closest_pairs()
        if np.any((coverage(a) > 0) & (coverage(b) > 0))
    ]
    assert touching == []


# --- torch -------------------------------------------------------------------------------------


def torch_pictures(scenes: list[Scene]) -> np.ndarray:
    torch = pytest.importorskip("torch")
    things, grounds = (torch.from_numpy(table) for table in Scenes.of(scenes).table())
    pictures = paint(things, grounds, pixels=PIXELS, xp=torch)
    assert pictures.dtype == torch.uint8
    return pictures.numpy()


def test_torch_draws_the_same() -> None:
    every = [
        Scene((thing(shape, size, colour, texture, 0.488, 0.517),), 0.5)
        for shape in SHAPES
        for size in SIZES
        for texture in TEXTURES
        for colour in ("red", "black")
    ]
    cut_off = [Scene((thing(x=x, y=y),), 0.5) for x, y in BORDERS]
    scenes = [*every, *cut_off, *(apart(s) for s in scenes_of(3, 100))]
    difference = abs(torch_pictures(scenes).astype(int) - draw(scenes))
    assert difference.max() <= 1
