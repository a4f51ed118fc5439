"""Galleries: what each query finds, and a gallery without some of its images."""

from __future__ import annotations

from itertools import chain, combinations, product
from pathlib import Path

import numpy as np
import pytest
from engine_support import build
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import array_shapes, arrays
from support import (
    FEW,
    TIES,
    case,
    classes,
    gallery,
    owned,
    place,
    queries,
    random_truth,
    recalls,
    square,
)

from counterpoint.cases import (
    Case,
    Cases,
    ImageRef,
    gallery_rows,
    is_classification,
    is_gallery,
    query_clusters,
    smaller_galleries,
    without_images,
)
from counterpoint.metrics import both_standings, rankings
from counterpoint.metrics.rankings import recall, recall_by_chance, standings

SEEDS = st.integers(0, 2**32 - 1)
SIDES = ("images", "captions")


def random_block(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Few values, so that there are many ties."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 8)), int(rng.integers(2, 14))
    return rng.integers(0, 4, shape).astype(np.float32), random_truth(rng, *shape)


# --- standings and recall ----------------------------------------------------------------------


@FEW
@given(SEEDS)
def test_standings_are_counted_answer_by_answer(seed: int) -> None:
    scores, truth = random_block(seed)
    for side, found in both_standings(scores, truth).items():
        asked = queries(scores, truth, side)
        assert found.right.tolist() == [sum(true) for _, true in asked]
        assert found.wrong.tolist() == [len(true) - sum(true) for _, true in asked]
        places = {tie: [place(*query, tie) for query in asked] for tie in ("wrong", "right")}
        for number, (kind, strict) in enumerate(zip(places["right"], places["wrong"], strict=True)):
            assert found.defined[number] == (kind is not None)
            if kind is not None and strict is not None:
                assert found.above[number] == kind
                assert found.equal[number] == strict - kind


@FEW
@given(seed=SEEDS, k=st.sampled_from([1, 2, 5, 10, 100]))
def test_recall_is_that_of_a_loop(seed: int, k: int) -> None:
    for tie, side in product(TIES, SIDES):
        scores, truth = random_block(seed)
        values = recall(both_standings(scores, truth)[side], k, tie)
        np.testing.assert_array_equal(values, recalls(scores, truth, side, k, tie))


def test_recall_by_hand() -> None:
    """Right answers are in the first two columns; a wrong one equals the best of them, twice."""
    scores = np.array([[3, 5, 5, 5, 9, 1], [7, 1, 2, 3, 4, 5], [0, 0, 0, 0, 0, 0]], dtype=float)
    truth = np.array([[1, 1, 0, 0, 0, 0]] * 3, dtype=bool)
    found = standings(scores, truth)
    assert found.above.tolist() == [1, 0, 0]
    assert found.equal.tolist() == [2, 0, 4]
    for k, wrong, right in (
        (1, [0, 1, 0], [0, 1, 1]),
        (2, [0, 1, 0], [1, 1, 1]),
        (4, [1, 1, 0], [1, 1, 1]),
        (5, [1, 1, 1], [1, 1, 1]),
    ):
        assert recall(found, k, "wrong").tolist() == wrong
        assert recall(found, k, "right").tolist() == right
        assert recall(found, k, "half").tolist() == [
            (w + r) / 2 for w, r in zip(wrong, right, strict=True)
        ]


def test_a_query_without_a_right_or_a_wrong_answer_says_nothing() -> None:
    for tie in TIES:
        scores, truth = np.ones((3, 2)), np.array([[0, 0], [1, 1], [1, 0]], dtype=bool)
        values = recall(standings(scores, truth), 1, tie)
        assert np.isnan(values).tolist() == [True, True, False]
        assert np.isnan(recall_by_chance(standings(scores, truth), 1)).tolist() == [
            True,
            True,
            False,
        ]


@pytest.mark.parametrize("cells", [1, 7, 30, 10**6])
@pytest.mark.parametrize("seed", range(5))
def test_pieces_of_any_size_give_the_same(
    cells: int, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(seed)
    scores, truth = rng.integers(0, 5, (23, 11)).astype(float), random_truth(rng, 23, 11)
    expected = {side: standings(*lines) for side, lines in transposed(scores, truth).items()}
    monkeypatch.setattr(rankings, "_CELLS", cells)
    sizes: list[int] = []
    whole = rankings._standing

    def counted(scores: np.ndarray, truth: np.ndarray) -> rankings.Standings:
        sizes.append(scores.size)
        return whole(scores, truth)

    monkeypatch.setattr(rankings, "_standing", counted)
    for side, found in both_standings(scores, truth).items():
        for mine, theirs in zip(found, expected[side], strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert sum(sizes) == 2 * scores.size
    assert max(sizes) <= max(cells, 23)  # a line at least, and no more than was allowed
    assert (len(sizes) == 2) == (cells == 10**6)


def transposed(scores: np.ndarray, truth: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    return {"images": (scores, truth), "captions": (scores.T.copy(), truth.T.copy())}


def test_scores_of_a_gallery_may_be_negative_or_float32() -> None:
    """What stands for a wrong answer must lie below every score."""
    scores = np.array([[-3e38, -2e38, -1e38]], dtype=np.float32)
    truth = np.array([[True, False, False]])
    assert recall(standings(scores, truth), 2, "wrong").tolist() == [0]
    step = np.nextafter(np.float32(0.25), np.float32(1))
    close = np.array([[step, 0.25], [0.25, step]], dtype=np.float32)
    found = recall(standings(close, np.array([[True, False]] * 2)), 1, "right")
    assert found.tolist() == [1, 0]


# --- chance ------------------------------------------------------------------------------------


def test_chance_is_the_mean_over_all_orders() -> None:
    for right, wrong, k in product([1, 2, 3], [1, 2, 4], [1, 2, 3, 5, 10]):
        width = right + wrong
        truth = [True] * right + [False] * wrong
        chosen = combinations(range(width), right)  # the places of the right answers, all as likely
        expected = np.mean([any(at < k for at in places) for places in chosen])
        found = standings(np.zeros((1, width)), np.array([truth]))
        assert recall_by_chance(found, k) == pytest.approx([expected], abs=1e-12)


@pytest.mark.slow
def test_random_galleries_are_at_chance() -> None:
    """Each side of a gallery whose queries have different chances, over 1,000 tables."""
    rng = np.random.default_rng(0)
    truth = np.array([[1, 1, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1, 0]]).T == 1
    scores = rng.random((1000, *truth.shape))
    for side in SIDES:
        for k in (1, 2, 5):
            found = [recall(both_standings(s, truth)[side], k, "wrong") for s in scores]
            expected = recall_by_chance(both_standings(scores[0], truth)[side], k)
            np.testing.assert_allclose(np.mean(found, axis=0), expected, atol=4 * 0.5 / 1000**0.5)


def test_chance_of_a_large_gallery_is_finite() -> None:
    """A retrieval of 5,000 images with five captions each."""
    found = rankings.Standings(*(np.array([n]) for n in (0, 0, 24_995, 5)))
    assert recall_by_chance(found, 10).item() == pytest.approx(10 * 5 / 25_000, rel=0.001)


# --- which cases are galleries -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("images", "captions", "expected"),
    [
        (1, 2, False),
        (1, 1000, False),
        (2, 2, False),
        (2, 1, False),  # a choice between the two
        (3, 2, True),  # images must share captions
        (4, 4, False),
        (4, 3, True),
        (4, 1000, False),
        (5, 5, True),
        (10, 1, False),
        (5, 1000, True),
        (5, 2, True),
    ],
)
def test_a_gallery_has_many_images_or_more_than_captions(
    images: int, captions: int, expected: bool
) -> None:
    assert is_gallery(images, captions) == expected


def test_the_galleries_of_a_table() -> None:
    cases = build(case(0), gallery(owned(5)), square(1), gallery(classes([0, 0, 1], 2), "classes"))
    assert gallery_rows(cases).tolist() == [False, True, False, True]


@pytest.mark.parametrize(
    ("truth", "expected"),
    [
        (classes([0, 0, 1], 2), True),
        (classes([0, 0, 0], 3), True),  # classes without images
        (np.eye(5), False),  # nothing is shared: a retrieval of one caption an image
        (owned(5), False),
        (np.array([[1, 0], [1, 0], [1, 1]]), False),
        (np.array([[1, 0], [1, 0], [0, 0]]), False),  # an image of no class
    ],
)
def test_a_classification_has_one_class_an_image_and_shares_classes(
    truth: np.ndarray, expected: bool
) -> None:
    assert is_classification(truth.astype(bool)) == expected


@given(st.data())
def test_many_tables_of_truth_are_told_apart_as_each_is_alone(data):
    shape = data.draw(array_shapes(min_dims=3, max_dims=3, max_side=4))
    truth = data.draw(arrays(bool, shape))
    alone = [
        all(sum(image) == 1 for image in one)
        and any(sum(column) > 1 for column in zip(*one, strict=True))
        for one in truth.tolist()
    ]
    assert is_classification(truth).tolist() == alone


# --- clusters ----------------------------------------------------------------------------------


def test_a_query_belongs_to_its_image() -> None:
    """Captions go to the first image they are true of; a distractor stands for itself."""
    truth = np.array([[0, 1, 0, 0], [1, 1, 0, 0], [0, 0, 0, 1], [1, 0, 0, 1], [0, 0, 0, 0]])
    names = ["a.png", "b.png", "c.png", "d.png", "e.png"]
    found = query_clusters(build(case(0), gallery(truth, images=names)), 1)
    assert found[:5] == names
    assert found[5:7] == ["b.png", "a.png"] and found[8] == "c.png"
    assert found[7] not in names


@FEW
@given(SEEDS)
def test_clusters_are_those_of_a_loop(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(1, 8)), int(rng.integers(2, 9))
    truth = random_truth(rng, k, m)
    names = [f"{rng.integers(0, 4)}.png" for _ in range(k)]  # an image may stand there twice
    found = query_clusters(build(gallery(truth, images=names)), 0)
    assert found[:k] == names
    lonely = []
    for j in range(m):
        owners = [names[i] for i in range(k) if truth[i, j]]
        if owners:
            assert found[k + j] == owners[0]
        else:
            lonely.append(found[k + j])
    assert len(set(lonely)) == len(lonely) and set(lonely).isdisjoint(names)


# --- a gallery without some images -------------------------------------------------------------


def blocks_of(cases: Cases, scores: np.ndarray) -> list[dict[tuple[str, str], tuple[float, bool]]]:
    """Each case's score and truth by the names of its image and its caption."""
    starts, found = cases.pair_offsets, []
    for row in range(len(cases)):
        one = cases.case(row)
        flat = iter(scores[starts[row] : starts[row + 1]].tolist())
        found.append(
            {
                (image.path, caption): (next(flat), true)
                for image, line in zip(one.images, one.truth, strict=True)
                for caption, true in zip(one.captions, line, strict=True)
            }
        )
    return found


def pruned_by_loop(one: Case, gone: set[int]) -> tuple[list[str], list[str]]:
    images = [ref.path for i, ref in enumerate(one.images) if i not in gone]
    captions = []
    for j, caption in enumerate(one.captions):
        owners = {i for i in range(len(one.images)) if one.truth[i][j]}
        if not owners or owners - gone:
            captions.append(caption)
    return images, captions


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_every_choice_of_lost_images_keeps_the_rest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    k, m = int(rng.integers(2, 6)), int(rng.integers(2, 7))
    middle = gallery(random_truth(rng, k, m), groups=("some/group",))
    cases = build(case(0), middle, square(1))
    scores = rng.random(cases.pair_offsets[-1])
    before = blocks_of(cases, scores)
    choices = chain.from_iterable(combinations(range(k), n) for n in range(k))
    for gone in map(set, choices):
        kept = without_images(cases, {1: gone})
        after = blocks_of(kept.cases, scores[kept.pairs])
        assert len(kept.pairs) == len(scores)
        assert after[0] == before[0] and after[2] == before[2]
        images, captions = pruned_by_loop(middle, gone)
        if captions:
            found = kept.cases.case(1)
            assert [ref.path for ref in found.images] == images
            assert list(found.captions) == captions
            assert (found.id, found.groups, found.cluster) == (
                middle.id,
                middle.groups,
                cases.case(1).cluster,
            )
        assert after[1] == {(i, c): before[1][i, c] for i in images for c in captions}


@pytest.mark.slow
@FEW
@given(SEEDS)
def test_several_galleries_lose_images_at_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [
        gallery(owned(int(rng.integers(5, 8)), 1, int(rng.integers(0, 3))), f"g{n}")
        for n in range(4)
    ]
    cases = build(*made)
    scores = rng.random(cases.pair_offsets[-1])
    lost = {
        row: {int(i) for i in rng.choice(5, int(rng.integers(0, 5)), replace=False)}
        for row in rng.permutation(4)[: int(rng.integers(0, 5))].tolist()  # in any order
    }
    kept = without_images(cases, lost)
    before, after = blocks_of(cases, scores), blocks_of(kept.cases, scores[kept.pairs])
    for row, one in enumerate(made):
        images, captions = pruned_by_loop(one, lost.get(row, set()))
        assert after[row] == {(i, c): before[row][i, c] for i in images for c in captions}


def test_boxes_and_the_root_survive() -> None:
    refs = (ImageRef("a"), ImageRef("b", (1, 2, 3, 4)), ImageRef("c"), ImageRef("d", (5, 6, 7, 8)))
    truth = tuple(tuple(i == j for j in range(4)) for i in range(4))
    one = Case("g", refs, ("w", "x", "y", "z"), truth)
    cases = Cases.build([one], root=Path("somewhere"), source="test")
    kept = without_images(cases, {0: {0}}).cases
    assert kept.case(0).images == refs[1:]
    assert kept.root == Path("somewhere")
    assert kept.frame.schema == cases.frame.schema
    alone = without_images(cases, {0: {1, 3}}).cases  # no box is left
    assert alone.case(0).images == (refs[0], refs[2])
    assert alone.frame.schema == cases.frame.schema


def test_a_caption_of_two_images_stays_until_both_are_lost() -> None:
    truth = [[1, 0, 0, 0], [1, 0, 0, 0], [0, 1, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]]
    cases = build(gallery(truth))
    kept = {
        gone: list(without_images(cases, {0: set(gone)}).cases.case(0).captions)
        for gone in ((0,), (1,), (2,), (0, 1))
    }
    shared, own, other, distractor = cases.case(0).captions
    assert kept == {
        (0,): [shared, own, other, distractor],
        (1,): [shared, own, other, distractor],
        (2,): [shared, distractor],
        (0, 1): [own, other, distractor],
    }


def test_a_class_stays_without_an_image() -> None:
    cases = build(gallery([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]))
    kept = without_images(cases, {0: {4}}).cases.case(0)
    assert len(kept.images) == 4 and kept.captions == cases.case(0).captions


def test_nothing_lost_is_the_same_table() -> None:
    cases = build(case(0), gallery(owned(5)))
    for lost in ({}, {1: set()}):
        kept = without_images(cases, lost)
        assert kept.cases.frame.equals(cases.frame) and kept.pairs.all()
        assert kept.cases.content_hash() == cases.content_hash()


# --- smaller galleries -------------------------------------------------------------------------


def test_galleries_are_cut_evenly() -> None:
    for count in [5, 6, 8, 9, 100]:
        cases = build(
            case(0), gallery(owned(8, 2, 3), "eight"), square(1), gallery(owned(6), "six")
        )
        found = smaller_galleries(cases, count)
        assert found.image_counts.tolist() == [1, min(8, count), 2, min(6, count)]
        for row in range(4):
            one, before = found.case(row), cases.case(row)
            size = len(before.images)
            chosen = (
                {round(i * (size - 1) / (count - 1)) for i in range(count)} if count < size else ()
            )
            gone = set(range(size)) - set(chosen) if chosen and row in (1, 3) else set()
            images, captions = pruned_by_loop(before, gone)
            assert [ref.path for ref in one.images] == images
            assert list(one.captions) == captions


def test_only_galleries_are_cut() -> None:
    cases = build(square(0), case(1), gallery(np.eye(4), "no gallery"))
    assert smaller_galleries(cases, 1).frame.equals(cases.frame)
