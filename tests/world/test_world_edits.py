"""Hard negatives and positives: the texts alone are read back and judged against the scenes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from itertools import combinations, islice

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from world_judge import judge

from counterpoint.world.edits import Edit, replacements, swaps
from counterpoint.world.grammar import Statement, holds, leads, read
from counterpoint.world.scenes import (
    ATTRIBUTES,
    COLOURS,
    CONVERSE,
    JITTER,
    KINDS,
    RELATIONS,
    SHAPES,
    SYNONYMS,
    Scene,
    Thing,
)

pytestmark = pytest.mark.slow

FEW = settings(derandomize=True, deadline=None, max_examples=15)
SEEDS = st.integers(0, 2**32 - 1)
MAKERS = {"replacements": replacements, "swaps": swaps}
COUNT = 800
SLOTS = ("shape", "size", "colour", "texture")


@pytest.fixture(scope="module")
def edits() -> dict[str, list[Edit]]:
    return {name: list(islice(make(7), COUNT)) for name, make in MAKERS.items()}


@pytest.fixture(params=list(MAKERS))
def made(edits: dict[str, list[Edit]], request: pytest.FixtureRequest) -> list[Edit]:
    return edits[request.param]


# --- an obvious judge, of the text -------------------------------------------------------------


def is_true(text: str, scene: Scene) -> bool:
    statement = read(text)
    truth = judge(statement, scene)
    assert truth == holds(statement, scene), (text, scene.code())  # the code's own judge agrees
    return truth


def assert_right(edit: Edit) -> None:
    assert is_true(edit.original, edit.scene)
    assert is_true(edit.positive, edit.scene)
    assert not is_true(edit.negative, edit.scene)
    assert is_true(edit.negative, edit.negative_scene)
    assert not is_true(edit.original, edit.negative_scene)
    assert not is_true(edit.positive, edit.negative_scene)
    assert len({edit.original, edit.positive, edit.negative}) == 3


def test_truth(made: list[Edit]) -> None:
    for edit in made:
        assert_right(edit)


# --- how the texts differ ----------------------------------------------------------------------


def slots(statement: Statement) -> dict[str, str | None]:
    parts = {"first": statement.first, "second": statement.second}
    words = {f"{name} {s}": getattr(p, s) for name, p in parts.items() for s in SLOTS}
    return {"relation": statement.relation, **words}


def changed(edit: Edit) -> dict[str, tuple[str | None, str | None]]:
    """Slot by slot; where the negative names the objects in the other order, it is turned."""
    original, negative = read(edit.original), read(edit.negative)
    if negative.relation is None and negative.first.shape != original.first.shape:
        negative = Statement(negative.second, negative.first)
    before, after = slots(original), slots(negative)
    return {slot: (before[slot], after[slot]) for slot in before if before[slot] != after[slot]}


def side(relation: str | None) -> str:
    return "horizontal" if relation in ("left of", "right of") else "vertical"


def test_replacements_change_one_slot_which_is_the_group(edits: dict[str, list[Edit]]) -> None:
    for edit in edits["replacements"]:
        ((slot, (old, new)),) = changed(edit).items()
        assert old is not None and new is not None
        if slot == "relation":
            assert edit.group == f"relations/{side(old)}"
        else:
            assert edit.group == f"attributes/{slot.split()[1]}"


def test_replacements_reword_that_slot_in_the_positive(edits: dict[str, list[Edit]]) -> None:
    for edit in edits["replacements"]:
        assert read(edit.positive) == read(edit.original)
        ((old, _),) = changed(edit).values()
        # Without articles, whose form follows the next word, one word is said otherwise.
        bare, reworded = (re.sub(r"\ban\b", "a", t) for t in (edit.original, edit.positive))
        if not edit.usual:  # the original has the rare name
            bare, reworded = reworded, bare
        assert bare.count(f" {old} ") == 1
        assert reworded == bare.replace(f" {old} ", f" {SYNONYMS[str(old)]} ")


def test_swaps_keep_the_bag_of_words(edits: dict[str, list[Edit]]) -> None:
    for edit in edits["swaps"]:
        assert Counter(edit.original.split()) == Counter(edit.negative.split())
        assert edit.original != edit.negative


def test_swaps_of_attributes_leave_the_nouns(edits: dict[str, list[Edit]]) -> None:
    for edit in edits["swaps"]:
        before, after = read(edit.original), read(edit.negative)
        kinds = {slot.split()[-1] for slot in changed(edit)}
        if edit.group.startswith("relations/"):
            assert (after.first, after.second) == (before.second, before.first)
            assert after.relation == before.relation
            assert edit.group == f"relations/{side(before.relation)}"
            continue
        assert {after.first.shape, after.second.shape} == {before.first.shape, before.second.shape}
        assert before.relation is None
        if edit.group == "attributes/mixed":
            assert len(kinds) == 2
        else:
            assert {edit.group} == {f"attributes/{kind}" for kind in kinds}


def test_swaps_reverse_the_conjuncts_in_the_positive(edits: dict[str, list[Edit]]) -> None:
    for edit in edits["swaps"]:
        before, after = read(edit.original), read(edit.positive)
        assert (after.first, after.second) == (before.second, before.first)
        assert after.relation == (before.relation and CONVERSE[before.relation])


# --- what the streams hold ---------------------------------------------------------------------


def test_groups_come_in_turn(edits: dict[str, list[Edit]]) -> None:
    relations = {"relations/horizontal", "relations/vertical"}
    same = {f"attributes/{kind}" for kind in KINDS}
    turns = {
        "replacements": [{"attributes/size"}, {"attributes/colour"}, {"attributes/texture"}],
        "swaps": [same, {"attributes/mixed"}, same],
    }
    for name, made in edits.items():
        for turn, groups in enumerate([*turns[name], relations]):
            assert {e.group for e in made[turn::4]} == groups


def share(truths: list[bool]) -> float:
    return float(np.mean(truths))


def rare(text: str) -> bool:
    return any(f" {name} " in f" {text} " for name in SYNONYMS.values())


def test_a_rare_word_tells_nothing(edits: dict[str, list[Edit]]) -> None:
    """Original, positive and negative say one as often, whatever the others do."""
    made = edits["replacements"]
    for which in ("original", "positive", "negative"):
        assert abs(share([rare(getattr(e, which)) for e in made]) - 0.5) < 0.06
    for usual in (True, False):
        some = [e for e in made if e.usual == usual]
        assert {rare(e.original) for e in some} == {not usual}
        assert {rare(e.positive) for e in some} == {usual}
        assert abs(share([rare(e.negative) for e in some]) - 0.5) < 0.08
    assert not any(rare(getattr(e, t)) for e in edits["swaps"] for t in ("original", "negative"))


def test_the_order_tells_nothing(edits: dict[str, list[Edit]]) -> None:
    """The object further left is named first as often in originals, positives and negatives."""
    made = [e for e in edits["swaps"] if e.group.startswith("attributes/")]

    def left_first(edit: Edit, which: str) -> bool:
        shape = read(getattr(edit, which)).first.shape
        first = next(t for t in edit.scene.things if t.shape == shape)
        second = next(t for t in edit.scene.things[:2] if t.shape != shape)
        return leads(first, second)

    plain = [e for e in made if len({t.shape for t in e.scene.things}) == len(e.scene.things)]
    for which in ("original", "positive", "negative"):
        assert abs(share([left_first(e, which) for e in plain]) - 0.5) < 0.1
    assert all(e.usual == left_first(e, "original") for e in plain)
    assert {e.usual for e in edits["swaps"] if e not in made} == {None}


def test_every_value_and_relation_is_replaced(edits: dict[str, list[Edit]]) -> None:
    pairs = {pair for e in edits["replacements"] for pair in changed(e).values()}
    for values in (ATTRIBUTES["size"], ATTRIBUTES["texture"], RELATIONS):
        assert {(a, b) for a in values for b in values if a != b} <= pairs
    assert {a for a, _ in pairs} == {b for _, b in pairs} == {*SYNONYMS}


def test_the_two_captions_of_a_pair_are_about_two_shapes(made: list[Edit]) -> None:
    for edit in made:
        statement = read(edit.original)
        assert statement.first.shape != statement.second.shape


def chi_square(pairs: list[tuple[str, str]]) -> float:
    counts = Counter(pairs)
    table = np.array([[counts[(s, c)] for c in COLOURS] for s in SHAPES], dtype=float)
    expected = table.sum(1, keepdims=True) * table.sum(0, keepdims=True) / table.sum()
    return float(((table - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("which", ["original", "negative"])
def test_colours_go_with_no_shape(made: list[Edit], which: str) -> None:
    statements = [read(getattr(e, which)) for e in made]
    phrases = [p for s in statements for p in (s.first, s.second)]
    pairs = [(p.shape, p.colour) for p in phrases if p.colour is not None]
    freedom = (len(SHAPES) - 1) * (len(COLOURS) - 1)
    assert len(pairs) > 5 * freedom
    assert chi_square(pairs) < freedom + 5 * np.sqrt(2 * freedom)


def repeats(text: str) -> bool:
    """Whether both phrases have the same size, colour or texture."""
    s = read(text)
    return any(
        s.first.value(k) is not None and s.first.value(k) == s.second.value(k) for k in KINDS
    )


def test_a_repeated_word_does_not_give_the_negative_away(edits: dict[str, list[Edit]]) -> None:
    attributes = [e for e in edits["replacements"] if e.group.startswith("attributes/")]
    originals = sum(repeats(e.original) for e in attributes)
    negatives = sum(repeats(e.negative) for e in attributes)
    assert abs(originals - negatives) <= 5 * np.sqrt(max(1, originals + negatives)) / 2


# --- the negative's scene ----------------------------------------------------------------------


def moved(edit: Edit) -> list[tuple[Thing, Thing]]:
    both = zip(edit.scene.things, edit.negative_scene.things, strict=True)
    return [(a, b) for a, b in both if a != b]


def test_the_negative_scene_changes_as_little_as_it_can(edits: dict[str, list[Edit]]) -> None:
    for name, expected in (("replacements", 1), ("swaps", 2)):
        for edit in edits[name]:
            assert edit.scene.ground == edit.negative_scene.ground
            assert len(moved(edit)) == expected
            for before, after in moved(edit):
                assert before.shape == after.shape
                stays = (before.x, before.y) == (after.x, after.y)
                assert stays == edit.group.startswith("attributes/")


def test_swapped_attributes_change_places_in_the_scene(edits: dict[str, list[Edit]]) -> None:
    for edit in edits["swaps"]:
        if edit.group.startswith("relations/"):
            continue
        (a, a_after), (b, b_after) = moved(edit)
        named = {slot.split()[-1] for slot in changed(edit)}
        for kind in KINDS:
            expected = (b, a) if kind in named else (a, b)
            found = a_after.value(kind), b_after.value(kind)
            assert found == tuple(t.value(kind) for t in expected), (kind, edit)


def test_no_relation_is_a_close_call_in_either_scene(made: list[Edit]) -> None:
    near, far = 2 * JITTER + 0.0011, 1 / 3 - 2 * JITTER - 0.0011
    for edit in made:
        for scene in (edit.scene, edit.negative_scene):
            for a, b in combinations(scene.things, 2):
                gaps = abs(a.x - b.x), abs(a.y - b.y)
                assert all(gap <= near or gap >= far for gap in gaps)
                assert max(gaps) >= far


# --- seeds -------------------------------------------------------------------------------------


@FEW
@given(SEEDS, st.sampled_from(list(MAKERS)))
def test_a_seed_is_a_stream(seed: int, name: str) -> None:
    make = MAKERS[name]
    assert list(islice(make(seed), 6)) == list(islice(make(seed), 6))
    assert list(islice(make(seed), 6)) != list(islice(make(seed + 1), 6))


def test_edits_do_not_repeat(made: list[Edit]) -> None:
    assert len({(e.scene.code(), e.original) for e in made}) == len(made)


PRINT_EDITS = """
import json
from itertools import islice
from counterpoint.world.edits import replacements, swaps
rows = [e for make in (replacements, swaps) for e in islice(make(5), 40)]
print(json.dumps([[e.scene.code(), e.original, e.positive, e.negative, e.negative_scene.code()]
                  for e in rows]))
"""


def test_streams_do_not_depend_on_the_process() -> None:
    # Sets of words are ordered by a hash that differs from process to process.
    def rows(hash_seed: str) -> list[list[str]]:
        path = os.pathsep.join(p for p in sys.path if p)
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path}
        command = [sys.executable, "-c", PRINT_EDITS]
        done = subprocess.run(command, env=environment, capture_output=True, check=True)
        return json.loads(done.stdout)

    assert rows("1") == rows("2")
