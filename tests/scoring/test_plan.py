"""The plan: what is unique over all benchmarks, and which case uses what."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given, strategies as st
from support import FEW

from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.scoring import (
    Scored,
    make_plan,
    plan as plan_module,
    used_captions,
    used_images,
)
from counterpoint.scoring.plan import Texts

BOXES = (
    None,
    (0, 0, 1, 1),
    (0, 0, 1, 2),
    (0, 0, 2, 2),
    (-1, -1, 1, 1),
    (1, 11, 1, 1),
    (11, 1, 1, 1),
)
Shape = tuple[list[tuple[int, int]], list[int]]  # (path, box) of each image, number of each caption


def build(*cases: Case, root: Path | None = None) -> Cases:
    return Cases.build(cases, root=root, source="test")


def ragged_case(number: int, shape: Shape) -> Case:
    images, captions = shape
    k, m = len(images), len(captions)
    truth = tuple(tuple(i + j == 0 for j in range(m)) for i in range(k))
    refs = tuple(ImageRef(f"{path}.jpg", BOXES[box]) for path, box in images)
    return Case(f"case-{number}", refs, tuple(f"caption {c}" for c in captions), truth)


def shapes() -> st.SearchStrategy[list[Shape]]:
    image = st.tuples(st.integers(0, 3), st.integers(0, len(BOXES) - 1))
    captions = st.lists(st.integers(0, 6), min_size=2, max_size=5)
    shape = st.tuples(st.lists(image, min_size=1, max_size=3), captions)
    return st.lists(shape, min_size=1, max_size=8)


def tables() -> st.SearchStrategy[dict[str, Cases]]:
    """One to three benchmarks, two of which may share their root."""
    table = st.builds(
        lambda found, root: build(*(ragged_case(*pair) for pair in enumerate(found)), root=root),
        shapes(),
        st.sampled_from([None, Path("a"), Path("b")]),
    )
    names = st.sampled_from(["first", "second", "third"])
    return st.dictionaries(names, table, min_size=1, max_size=3)


def in_order(values: list[object]) -> list[object]:
    return list(dict.fromkeys(values))


def all_cases(benchmarks: dict[str, Cases]) -> list[tuple[Path | None, Case]]:
    return [(c.root, c.case(row)) for c in benchmarks.values() for row in range(len(c))]


@pytest.mark.slow
@FEW
@given(tables())
def test_images_and_captions_are_unique_in_order_of_appearance(tables: dict[str, Cases]) -> None:
    plan = make_plan(tables)
    cases = all_cases(tables)
    assert list(plan.pictures) == in_order(
        [Picture(i, root) for root, c in cases for i in c.images]
    )
    assert list(plan.captions) == in_order([caption for _, c in cases for caption in c.captions])
    assert list(plan.shares) == list(tables)


@pytest.mark.slow
@FEW
@given(tables(), st.randoms(use_true_random=False))
def test_pairs_are_those_of_an_obvious_loop(tables: dict[str, Cases], random: object) -> None:
    plan = make_plan(tables)
    for name, cases in tables.items():
        rows = [row for row in range(len(cases)) if random.random() < 0.7]  # type: ignore
        expected = list(loop(cases, rows))
        share = plan.shares[name]
        found = share.pairs(share.layout.lines(np.array(rows, dtype=np.int64)))
        named = [
            (place, plan.pictures[image], plan.captions[caption])
            for image, caption, place in zip(*(part.tolist() for part in found), strict=True)
        ]
        assert named == expected


def loop(cases: Cases, rows: list[int]) -> list[tuple[int, Picture, str]]:
    """The place among the scores, image and caption of every pair of some cases."""
    found, place = [], 0
    for row in range(len(cases)):
        case = cases.case(row)
        for image in case.images:
            for caption in case.captions:
                if row in rows:
                    found.append((place, Picture(image, cases.root), caption))
                place += 1
    return found


@pytest.mark.slow
@FEW
@given(tables(), st.integers(0, 2**32 - 1))
def test_cases_are_found_by_what_they_use(tables: dict[str, Cases], seed: int) -> None:
    plan, rng = make_plan(tables), np.random.default_rng(seed)
    images = rng.random(len(plan.pictures)) < 0.3
    captions = rng.random(len(plan.captions)) < 0.3
    for name, cases in tables.items():
        share = plan.shares[name]
        assert share.cases_with_image(images).tolist() == [
            any(images[plan.pictures.index(Picture(i, cases.root))] for i in c.images)
            for c in map(cases.case, range(len(cases)))
        ]
        assert share.cases_with_caption(captions).tolist() == [
            any(captions[plan.captions.index(caption)] for caption in c.captions)
            for c in map(cases.case, range(len(cases)))
        ]


@pytest.mark.slow
@FEW
@given(tables(), st.randoms(use_true_random=False))
def test_what_is_left_out_needs_no_image_and_no_caption(
    tables: dict[str, Cases], random: object
) -> None:
    plan, scored = make_plan(tables), {}
    images, captions = set[Picture](), set[str]()
    for name, cases in tables.items():
        rows = {row: "" for row in range(len(cases)) if random.random() < 0.4}  # type: ignore
        single: dict[int, dict[int, str]] = {}
        for row in range(len(cases)):
            case = cases.case(row)
            out = {i: "" for i in range(len(case.images)) if random.random() < 0.4}  # type: ignore
            single |= {row: out} if out else {}
            shown = {Picture(image, cases.root) for i, image in enumerate(case.images)
                     if row not in rows and i not in out}  # fmt: skip
            images |= shown
            captions |= set(case.captions) if shown else set()
        scored[name] = Scored(np.zeros(0), rows, single)
    assert {plan.pictures[number] for number in used_images(plan, scored)} == images
    assert {plan.captions[number] for number in used_captions(plan, scored)} == captions


@FEW
@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=40), st.lists(st.integers(0, 2), min_size=10)
)
def test_values_are_numbered_in_order_even_if_their_hashes_collide(
    numbers: list[int], hashes: list[int]
) -> None:
    values = pl.Series([f"text {number}" for number in numbers])
    firsts = [numbers.index(number) for number in numbers]
    colliding = np.array([hashes[number] for number in numbers], dtype=np.uint64)
    assert plan_module._first_rows(values, colliding).tolist() == firsts
    codes, where = plan_module._codes(values)
    assert [firsts[row] for row in where[codes]] == firsts
    assert where.tolist() == sorted(set(firsts))


def test_texts_are_a_list(monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["b", "a", "", "\u00e9\U0001f600", "b"]
    numbers = np.array([4, 0, 3, 3])
    for few in (0, 9):  # taken as a column, and one by one
        monkeypatch.setattr(plan_module, "_FEW", few)
        assert (
            Texts(words).take(numbers)
            == list(Texts(words).only(numbers))
            == [*"bb", *[words[3]] * 2]
        )
    assert list(Texts(words)) == words and Texts(words)[1:3] == words[1:3] and "a" in Texts(words)


def test_pictures_are_a_list() -> None:
    refs = [ImageRef("a.jpg"), ImageRef("a.jpg", (-1, 2, 3, 4)), ImageRef("text:a"), ImageRef("b")]
    cases = build(
        *(Case(f"{n}", (ref,), ("x", "y"), ((True, False),)) for n, ref in enumerate(refs))
    )
    pictures = make_plan({"one": cases}).pictures
    assert list(pictures) == [Picture(ref, None) for ref in refs]
    assert list(pictures[1:3]) == list(pictures.only(np.array([1, 2]))) == list(pictures)[1:3]
    assert pictures.are_texts().tolist() == [False, False, True, False]
    with pytest.raises(IndexError):
        pictures[4]
