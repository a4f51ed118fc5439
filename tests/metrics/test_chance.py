"""Chance: closed forms against every order of the scores, and against random scores."""

from __future__ import annotations

import math
from itertools import permutations, product

import numpy as np
import pytest
from support import references

from counterpoint.metrics import METRICS, Metric, estimate, members_of

OF_CASES = {n: m for n, m in METRICS.items() if isinstance(m, Metric)}
OF_IMAGES = {n: m for n, m in OF_CASES.items() if not (m.texts or m.questions)}
ANSWERS = [name for name, metric in OF_CASES.items() if metric.questions]
WITH_CHANCE = [name for name, metric in OF_IMAGES.items() if metric.chance is not None]
CAPTION_METRICS = [n for n in WITH_CHANCE if METRICS[n].applies(np.array([[[1, 1, 0, 0]]]) > 0)]
RENDERED = ("original_group", "augmented_group", "image_brittleness")
COUNTS = [(p, n) for p in range(1, 5) for n in range(1, 5) if p + n <= 5]
PAIRS = ((1, 0), (0, 1))


def chance(name: str, truth: np.ndarray) -> np.ndarray:
    metric = METRICS[name]
    assert isinstance(metric, Metric) and metric.chance is not None
    return metric.chance(truth)


def counted(name: str, truth: np.ndarray) -> float:
    """The mean over all orders of the scores of one case, by the slow reference.

    The scores are powers of two, so that no two sums of them tie (group matching adds scores).
    """
    orders = 2 ** np.array(list(permutations(range(truth.size)))).reshape(-1, *truth.shape)
    everywhere = np.broadcast_to(truth, orders.shape)
    return float(np.mean(references(name, orders, everywhere, "wrong")))


def one_image(positives: int, negatives: int) -> np.ndarray:
    return np.array([[True] * positives + [False] * negatives])


# --- every order -------------------------------------------------------------------------------


def test_chance_is_the_mean_over_all_orders() -> None:
    one = [one_image(*counts) for counts in COUNTS]
    two_by_two = [PAIRS, PAIRS[::-1]]
    two_by_three = [((1, 1, 0), (0, 0, 1)), ((1, 0, 0), (0, 1, 0))]
    two = ["augmented_accuracy", "image_to_text", "text_to_image", "group"]
    asked = [(CAPTION_METRICS, one), (WITH_CHANCE, two_by_two), (two, two_by_three)]
    for names, cases in asked:
        for name, cells in product(names, cases):
            truth = np.array(cells, dtype=bool)
            expected = pytest.approx([counted(name, truth)], abs=1e-12, nan_ok=cases is two_by_two)
            assert chance(name, truth[None]) == expected, name


def test_chance_of_renderings_and_wordings_is_the_mean_over_all_orders() -> None:
    """All 362,880 orders, by the metric itself, which is held against a reference elsewhere."""
    for name in RENDERED:
        truth = SHAPES["3x3"]
        orders = np.array(list(permutations(range(9))), dtype=np.int8).reshape(-1, 3, 3)
        values = METRICS[name].values(orders, np.broadcast_to(truth, orders.shape), "wrong")
        assert chance(name, truth[None]) == pytest.approx([values.mean()], abs=1e-12)
        small = np.array([[1, 1, 0], [0, 0, 1]], dtype=bool)  # a rewording, and no re-rendering
        if name != "image_brittleness":
            assert chance(name, small[None]) == pytest.approx([counted(name, small)], abs=1e-12)
        assert name == "image_brittleness" or np.isnan(chance(name, np.eye(4, dtype=bool)[None]))


def test_chance_of_two_texts_is_the_mean_over_all_orders_of_three_similarities() -> None:
    """Similarity has no direction, and nothing is closer to a text than itself."""
    truth = np.array([[[True, True, False]] * 2])
    orders = [[[9, ab, an], [ab, 9, bn]] for ab, an, bn in permutations(range(3))]
    everywhere = np.broadcast_to(truth, (len(orders), 2, 3))
    expected = np.mean(references("text_only_accuracy", np.array(orders), everywhere, "wrong"))
    assert expected == pytest.approx(1 / 3)
    assert chance("text_only_accuracy", everywhere) == pytest.approx([expected] * len(orders))


def test_chance_of_answers_is_the_mean_over_all_orders() -> None:
    """Two questions with two answers, or one with three, about two images."""
    for name, cells in product(ANSWERS, [((1, 0, 0, 1), (0, 1, 1, 0)), ((1, 0, 0), (0, 0, 1))]):
        truth = np.array(cells, dtype=bool)
        sizes = range(truth.size)
        orders = np.array(list(permutations(sizes)), dtype=np.int8).reshape(-1, *truth.shape)
        values = METRICS[name].values(orders, np.broadcast_to(truth, orders.shape), "wrong")
        assert chance(name, truth[None]) == pytest.approx([values.mean()], abs=1e-12)


def test_chance_is_the_papers() -> None:
    triple, pairs = one_image(2, 1)[None], np.array([PAIRS], dtype=bool)
    expected = {
        ("original_accuracy", "triple"): 1 / 2,
        ("augmented_accuracy", "triple"): 1 / 3,
        ("brittleness", "triple"): 1 / 3,
        ("negative_above_both", "triple"): 1 / 3,
        ("image_to_text", "pairs"): 1 / 4,
        ("text_to_image", "pairs"): 1 / 4,
        ("group", "pairs"): 1 / 6,
        ("image_to_text_0", "pairs"): 1 / 2,
        ("text_to_image_1", "pairs"): 1 / 2,
        ("group_matching", "pairs"): 1 / 2,
        ("original_group", "renderings"): 1 / 6,
        ("augmented_group", "renderings"): 5 / 378,
        ("image_brittleness", "renderings"): 1 / 3,
        ("answer_accuracy", "answers"): 1 / 2,
        ("question_accuracy", "answers"): 1 / 4,
        ("image_accuracy", "answers"): 1 / 4,
        ("all_answers", "answers"): 1 / 16,
    }
    answers = np.array([[[1, 0, 0, 1], [0, 1, 1, 0]]], dtype=bool)
    blocks = {
        "answers": answers,
        "triple": triple,
        "pairs": pairs,
        "renderings": SHAPES["3x3"][None],
    }
    found = {key: chance(key[0], blocks[key[1]]).item() for key in expected}
    assert found == pytest.approx(expected)


def test_chance_of_large_blocks_stays_finite_or_unknown() -> None:
    """Factorials of a thousand captions overflow if they are multiplied out."""
    wide = one_image(5, 2000)[None]
    assert chance("original_accuracy", wide).item() == pytest.approx(1 / 2001)
    assert chance("recall@10", wide).item() == pytest.approx(10 * 5 / 2005, rel=0.02)
    augmented = chance("augmented_accuracy", wide).item()
    assert math.isclose(augmented, 1 / math.comb(2005, 5), rel_tol=1e-6)
    three = np.eye(3, dtype=bool)[None]
    assert chance("image_to_text", three).item() == pytest.approx(1 / 27)
    assert np.isnan(chance("group", three)).all()


def test_chance_of_a_matching_is_one_of_all_matchings() -> None:
    for size in [2, 3, 4]:
        truth = np.eye(size, dtype=bool)[None]
        metric = METRICS["group_matching"]
        assert metric.applies(truth).all()
        assert chance("group_matching", truth).item() == pytest.approx(1 / math.factorial(size))
        turned = truth[:, ::-1]  # any permutation is a truth
        assert metric.applies(turned).all()
        scores = np.random.default_rng(size).random((4000, size, size))
        found = metric.values(scores, np.broadcast_to(turned, scores.shape), "wrong").mean()
        assert found == pytest.approx(1 / math.factorial(size), abs=0.03)


def test_a_matching_is_of_bijective_cases_below_a_gallery() -> None:
    metric = METRICS["group_matching"]
    assert not metric.applies(np.eye(5, dtype=bool)[None]).any()
    assert not metric.applies(np.ones((1, 3, 3), dtype=bool)).any()
    assert not metric.applies(np.eye(2, 3, dtype=bool)[None]).any()


def test_each_case_has_its_own_chance() -> None:
    for name in WITH_CHANCE:
        if METRICS[name].applies(one_image(2, 3)[None]):
            truth = np.array([one_image(p, 5 - p) for p in (1, 2, 3, 4)])
        else:
            truth = np.array([PAIRS, PAIRS[::-1], PAIRS], dtype=bool)
        alone = [chance(name, truth[[i]]).item() for i in range(len(truth))]
        assert chance(name, truth) == pytest.approx(alone, nan_ok=True)


# --- random scores -----------------------------------------------------------------------------

SHAPES = {
    "1x3": one_image(2, 1),
    "1x8": one_image(3, 5),
    "2x2": np.array(PAIRS, dtype=bool),
    "3x1": np.array([[1], [1], [0]], dtype=bool),
    "3x3": np.array([[1, 1, 0], [1, 1, 0], [0, 0, 1]], dtype=bool),
}


def defined(shape: str) -> list[Metric]:
    truth = SHAPES[shape][None]
    return [m for m in OF_IMAGES.values() if m.chance is not None and m.applies(truth)]


def test_random_scores_are_at_chance() -> None:
    """Every metric within four standard errors over 20,000 cases."""
    for shape in SHAPES:
        truth = np.repeat(SHAPES[shape][None], 20_000, axis=0)
        scores = np.random.default_rng(0).random(truth.shape)
        for metric in defined(shape):
            values = metric.values(scores, truth, "wrong")
            error = values.std() / math.sqrt(len(values))
            assert abs(values.mean() - chance(metric.name, truth[:1]).item()) <= 4 * error, (
                metric.name
            )


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_intervals_of_random_scores_hold_chance(shape: str) -> None:
    """About 95 % of them: 40 tables of 150 cases, each metric counted."""
    metrics = [metric for metric in defined(shape) if metric.name not in ("tied", "tie_rate")]
    truth = np.repeat(SHAPES[shape][None], 150, axis=0)
    expected = np.array([chance(metric.name, truth[:1]).item() for metric in metrics])
    members = members_of([()] * len(truth))
    hits = []
    for seed in range(40):
        scores = np.random.default_rng(seed).random(truth.shape)
        values = np.stack([metric.values(scores, truth, "wrong") for metric in metrics], axis=1)
        found = estimate(values, np.arange(len(truth)), members, resamples=300)["all"]
        hits += [e.low <= c <= e.high for e, c in zip(found, expected, strict=True)]
    assert 0.89 <= np.mean(hits) <= 0.99
