"""Scenes: their codes, their places, their relations, and the absence of any prior."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings, strategies as st

from counterpoint._util.errors import CounterpointError
from counterpoint.world.scenes import (
    ATTRIBUTES,
    CANONICAL,
    COLOURS,
    CONVERSE,
    GRID,
    JITTER,
    KINDS,
    RELATIONS,
    SHAPES,
    SIZES,
    SYNONYMS,
    TEXTURES,
    Scene,
    Thing,
    free_places,
    read_scene,
    related,
    sample_scene,
)

FEW = settings(derandomize=True, deadline=None, max_examples=40)
SEEDS = st.integers(0, 2**32 - 1)
ROUNDING = 0.0011  # places are rounded to 3 digits, so two of them are off by 0.001 at most
NEAR, FAR = 2 * JITTER + ROUNDING, 1 / GRID - 2 * JITTER - ROUNDING
GOOD = "0.500;large,red,solid,circle,0.166,0.500;small,blue,striped,star,0.833,0.500"


def scene_of(seed: int) -> Scene:
    return sample_scene(np.random.default_rng(seed))


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    rng = np.random.default_rng(20)
    return [sample_scene(rng) for _ in range(4000)]


def word(thing: Thing, slot: str) -> str:
    return str(getattr(thing, slot))


# --- words -------------------------------------------------------------------------------------


def test_every_replaceable_word_has_a_synonym_and_none_means_two_things() -> None:
    words = [*(v for values in ATTRIBUTES.values() for v in values), *RELATIONS]
    assert set(SYNONYMS) == set(words)
    assert len(words) == len(set(words))
    assert len(set(SYNONYMS.values()) - set(words)) == len(words)
    assert all(CANONICAL[SYNONYMS[w]] == CANONICAL[w] == w for w in words)


# --- places ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_scenes_have_two_to_four_known_objects(scenes: list[Scene]) -> None:
    assert {len(s.things) for s in scenes} == {2, 3, 4}
    things = [t for s in scenes for t in s.things]
    assert {t.shape for t in things} == set(SHAPES)
    assert {t.size for t in things} == set(SIZES)
    assert {t.colour for t in things} == set(COLOURS)
    assert {t.texture for t in things} == set(TEXTURES)
    assert all(0.42 <= s.ground <= 0.62 for s in scenes)


def test_every_cell_is_used_alike(scenes: list[Scene]) -> None:
    cells = [int(t.x * GRID) + GRID * int(t.y * GRID) for s in scenes for t in s.things]
    counts = np.bincount(cells, minlength=GRID**2)
    expected = len(cells) / GRID**2
    assert np.all(abs(counts - expected) < 5 * np.sqrt(expected))


@FEW
@given(SEEDS)
def test_free_places_are_the_empty_cells(seed: int) -> None:
    scene = scene_of(seed)
    places = free_places(scene, np.random.default_rng(seed + 1))
    assert len(places) == GRID**2 - len(scene.things)
    everything = [(t.x, t.y) for t in scene.things] + places
    for (ax, ay), (bx, by) in combinations(everything, 2):
        assert max(abs(ax - bx), abs(ay - by)) >= FAR


# --- relations ---------------------------------------------------------------------------------


def test_relations_mean_what_they_say() -> None:
    # y runs downwards, so "above" is the smaller y.
    left = Thing("circle", "small", "red", "solid", 0.2, 0.5)
    right, below = left.at((0.8, 0.5)), left.at((0.2, 0.9))
    assert [r for r in RELATIONS if related(left, r, right)] == ["left of"]
    assert [r for r in RELATIONS if related(right, r, left)] == ["right of"]
    assert [r for r in RELATIONS if related(left, r, below)] == ["above"]
    assert [r for r in RELATIONS if related(below, r, left)] == ["below"]
    assert {r for r in RELATIONS if related(right, r, below)} == {"right of", "above"}


@FEW
@given(SEEDS, st.sampled_from(RELATIONS))
def test_the_converse_relates_the_other_way_round(seed: int, relation: str) -> None:
    for a, b in combinations(scene_of(seed).things, 2):
        assert related(a, relation, b) == related(b, CONVERSE[relation], a)
        assert not (related(a, relation, b) and related(b, relation, a))
        assert any(related(a, r, b) for r in RELATIONS)


# --- no prior ----------------------------------------------------------------------------------


def chi_square(table: np.ndarray) -> float:
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("slots", list(combinations(("shape", *KINDS), 2)))
def test_no_word_goes_with_another(scenes: list[Scene], slots: tuple[str, str]) -> None:
    pairs = [(word(t, slots[0]), word(t, slots[1])) for s in scenes for t in s.things]
    rows, columns = (sorted(set(values)) for values in zip(*pairs, strict=True))
    table = np.array([[pairs.count((r, c)) for c in columns] for r in rows], dtype=float)
    freedom = (len(rows) - 1) * (len(columns) - 1)
    # Five standard deviations of a chi-square above its mean: never by chance, always by a prior.
    assert chi_square(table) < freedom + 5 * np.sqrt(2 * freedom)


@pytest.mark.parametrize("slot", ["shape", *KINDS])
def test_neighbours_do_not_share_words_more_than_by_chance(scenes: list[Scene], slot: str) -> None:
    same = [word(s.things[0], slot) == word(s.things[1], slot) for s in scenes]
    chance = 1 / {"shape": len(SHAPES), **{k: len(v) for k, v in ATTRIBUTES.items()}}[slot]
    error = np.sqrt(chance * (1 - chance) / len(same))
    assert abs(np.mean(same) - chance) < 5 * error


# --- codes -------------------------------------------------------------------------------------


@FEW
@given(SEEDS)
def test_a_code_gives_its_scene_back(seed: int) -> None:
    scene = scene_of(seed)
    assert scene == scene_of(seed) != scene_of(seed + 1)
    assert read_scene(scene.code()) == scene
    assert read_scene(scene.code()).code() == scene.code()
    assert "\n" not in scene.code()


BROKEN = [
    "",
    ";",
    "0.5",
    "0.5;",
    "red circle",
    GOOD + ";",
    GOOD.replace("0.500;", "", 1),  # the brightness is missing
    GOOD.replace("0.500;", "grey;", 1),
    GOOD.replace("red", "crimson"),  # codes are canonical: a synonym is not a colour
    GOOD.replace("circle", "blob"),
    GOOD.replace("large", "huge"),
    GOOD.replace("striped", "stripy"),
    GOOD.replace("0.166", "left"),
    GOOD.replace("0.166", ""),
    GOOD.replace("large,red", "red,large"),
    GOOD.replace("circle,0.166,0.500", "circle,0.166"),
    GOOD.replace("0.833,0.500", "0.833,0.500,0.1"),
    GOOD.replace("circle", "cir\ncle"),
    GOOD.replace("0.166", "0.1\n66"),
    *(GOOD.replace("0.500;", f"{ground};", 1) for ground in ("nan", "7.000")),
    *(GOOD.replace("0.166", place) for place in ("inf", "nan", "4.000")),
]


def test_broken_codes_are_refused_in_one_line() -> None:
    for code in BROKEN:
        with raises("E-SCENE-INVALID") as caught:
            read_scene(code)
        assert isinstance(caught.value, CounterpointError)
        assert len(str(caught.value).splitlines()) == 1
        assert repr(code) in str(caught.value)
