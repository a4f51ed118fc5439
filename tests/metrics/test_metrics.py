"""Metrics: they agree with slow references, with the papers' formulas and with hand-made tables."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest
from hypothesis import given, strategies as st
from support import (
    FEW,
    TIES,
    answered_block,
    matched_block,
    random_block,
    reference,
    references,
    rendered_block,
)

from counterpoint.cases import Block
from counterpoint.metrics import METRICS as EVERY, Metric, PooledMetric, QueryMetric, both_standings
from counterpoint.metrics.definitions import group_matching
from counterpoint.metrics.rankings import Standings, ranks, standings

SEEDS = st.integers(0, 2**32 - 1)
METRICS = {name: metric for name, metric in EVERY.items() if isinstance(metric, Metric)}
ASKED = {name: metric for name, metric in EVERY.items() if isinstance(metric, QueryMetric)}
QUERIES = {name: metric for name, metric in ASKED.items() if not metric.listed}
LISTED = {name: metric for name, metric in ASKED.items() if metric.listed}
POOLED = {name: metric for name, metric in EVERY.items() if isinstance(metric, PooledMetric)}
SQUARE = (
    "image_to_text_0",
    "image_to_text_1",
    "text_to_image_0",
    "text_to_image_1",
    "group_matching",
)
RANKED = ("recall@1", "recall@3", "recall@5", "recall@10", "mean_rank", "median_rank")
TEXTS = "text_only_accuracy"
ANSWERS = ("answer_accuracy", "question_accuracy", "image_accuracy", "all_answers")
RENDERED = ("image_brittleness", "original_group", "augmented_group")
SCORED = ("mean_score_original", "mean_score_positive", "mean_score_negative")
TRIPLE = np.array([[[True, True, False]]])
PAIRS = np.array([[[True, False], [False, True]]])
RENDERINGS = np.array([[[1, 1, 0], [1, 1, 0], [0, 0, 1]]], dtype=bool)
TWO_TEXTS = np.array([[True, True, False]] * 2)


def block_for(name: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """A random block of a shape that defines the metric."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 6))
    if name in SQUARE:
        return matched_block(rng, n, 2)
    if name in RENDERED:
        return rendered_block(rng, n)
    if name in ANSWERS:
        return answered_block(rng, n, *rng.integers((1, 1, 2), 4).tolist())
    if name == TEXTS:
        scores = rng.integers(0, 4, (n, 2, 3)).astype(float)
        return scores, np.broadcast_to(TWO_TEXTS, scores.shape)
    if name in RANKED:
        scores, truth = random_block(rng, 8, 1, int(rng.integers(5, 25)), values=5)
        few = rng.random(truth.shape) < 0.1  # mostly negatives, so that ranks go beyond 10
        return scores, truth & (few | (truth.cumsum(axis=2) == 1))
    return random_block(rng, n, int(rng.integers(1, 4)), int(rng.integers(2, 6)))


def value(name: str, scores: list[list[float]], truth: np.ndarray, tie: str = "wrong") -> float:
    [found] = METRICS[name].values(np.array([scores], dtype=float), truth, tie)
    return float(found)


# --- against slow references -------------------------------------------------------------------


@FEW
@given(seed=SEEDS)
def test_a_metric_is_what_its_definition_says(seed: int) -> None:
    for tie, name in product(TIES, METRICS):
        scores, truth = block_for(name, seed)
        found = METRICS[name].values(scores, truth, tie)
        assert found.shape == (len(scores),)
        np.testing.assert_allclose(found, references(name, scores, truth, tie), atol=1e-12)


@FEW
@given(seed=SEEDS)
def test_group_matching_of_three(seed: int) -> None:
    for tie in TIES:
        scores, truth = matched_block(np.random.default_rng(seed), 4, 3)
        expected = references("group_matching", scores, truth, tie)
        np.testing.assert_allclose(group_matching(scores, truth, tie), expected)


@FEW
@given(seed=SEEDS)
def test_the_references_meet_ties(seed: int) -> None:
    """The blocks above would prove little about ties if they had none."""
    scores, truth = random_block(np.random.default_rng(seed), 200, 1, 3)
    rate = np.mean(references("tie_rate", scores, truth, "wrong"))
    assert 0.1 < rate < 0.6


def test_a_texts_similarity_to_itself_decides_nothing() -> None:
    """Whatever an import has on the diagonal: a blank, 0, or anything below the negative."""
    for tie, own in product(TIES, [-1.0, 0.0, 2.0, 9.0]):
        for line in product((1.0, 2.0), repeat=4):
            (a_b, a_n), (b_a, b_n) = line[:2], line[2:]
            found = value(TEXTS, [[own, a_b, a_n], [b_a, own, b_n]], TWO_TEXTS[None], tie)
            apart = value(TEXTS, [[5, a_b, a_n], [b_a, 7, b_n]], TWO_TEXTS[None], tie)
            assert found == apart


# --- identities --------------------------------------------------------------------------------


@FEW
@given(seed=SEEDS)
def test_the_four_outcomes_sum_to_one(seed: int) -> None:
    for tie in TIES:
        scores, truth = block_for("augmented_accuracy", seed)
        outcomes = ("augmented_accuracy", "brittleness", "negative_above_both", "tied")
        total = sum(METRICS[name].values(scores, truth, tie) for name in outcomes)
        np.testing.assert_allclose(total, 1)


@FEW
@given(seed=SEEDS)
def test_the_brittle_halves_sum_to_brittleness(seed: int) -> None:
    for tie in TIES:
        scores, truth = block_for("brittleness", seed)
        halves = (METRICS[f"brittle_original_{side}"] for side in ("above", "below"))
        total = sum(metric.values(scores, truth, tie) for metric in halves)
        np.testing.assert_allclose(total, METRICS["brittleness"].values(scores, truth, tie))


@FEW
@given(seed=SEEDS)
def test_a_kinder_tie_policy_is_never_worse(seed: int) -> None:
    for name in [n for n in METRICS if METRICS[n].better == "higher"]:
        scores, truth = block_for(name, seed)
        wrong, half, right = (
            METRICS[name].values(scores, truth, t) for t in ("wrong", "half", "right")
        )
        assert (wrong <= half).all() and (half <= right).all()


@FEW
@given(seed=SEEDS)
def test_tie_policies_agree_where_nothing_is_tied(seed: int) -> None:
    for name in METRICS:
        scores, truth = block_for(name, seed)
        apart = scores + np.random.default_rng(seed).random(scores.shape) / 2
        values = [METRICS[name].values(apart, truth, tie) for tie in TIES]
        np.testing.assert_array_equal(values[0], values[1])
        np.testing.assert_array_equal(values[0], values[2])


@FEW
@given(seed=SEEDS)
def test_recall_at_1_of_one_positive_is_the_original_accuracy(seed: int) -> None:
    for tie in TIES:
        rng = np.random.default_rng(seed)
        scores, truth = rng.integers(0, 4, (5, 1, 6)).astype(float), np.zeros((5, 1, 6), dtype=bool)
        truth[:, :, 0] = True
        recall, accuracy = (
            METRICS[n].values(scores, truth, tie) for n in ("recall@1", "original_accuracy")
        )
        np.testing.assert_array_equal(recall, accuracy)


def monotone(scores: np.ndarray) -> np.ndarray:
    return np.exp(scores / 3) - 7


@FEW
@given(seed=SEEDS, tie=st.sampled_from(TIES))
def test_only_the_order_of_scores_matters(seed: int, tie: str) -> None:
    for name in [n for n in METRICS if n not in (*SCORED, "group_matching")]:
        scores, truth = block_for(name, seed)
        values = [METRICS[name].values(s, truth, tie) for s in (scores, monotone(scores))]
        np.testing.assert_array_equal(*values)


def test_group_matching_and_mean_scores_are_not_a_matter_of_order() -> None:
    """Their sums and means see distances: 3 + 0 beats 2 + 0, and stretching reverses it."""
    scores, stretched = [[0.0, 1.0], [1.0, 3.0]], [[0.0, 2.0], [2.0, 3.0]]
    assert value("group_matching", scores, PAIRS) == 1
    assert value("group_matching", stretched, PAIRS) == 0
    assert value("mean_score_original", [[1.0, 2.0, 3.0]], TRIPLE) == 1
    assert value("mean_score_original", [[10.0, 20.0, 30.0]], TRIPLE) == 10


@pytest.mark.slow
@pytest.mark.parametrize("name", METRICS)
@FEW
@given(seed=SEEDS, tie=st.sampled_from(TIES))
def test_each_case_has_its_own_value(name: str, seed: int, tie: str) -> None:
    """The order of cases and the company they are in change nothing."""
    scores, truth = block_for(name, seed)
    order = np.random.default_rng(seed).permutation(len(scores))
    values = METRICS[name].values(scores, truth, tie)
    np.testing.assert_array_equal(
        METRICS[name].values(scores[order], truth[order], tie), values[order]
    )
    alone = [METRICS[name].values(scores[[i]], truth[[i]], tie)[0] for i in range(len(scores))]
    np.testing.assert_array_equal(alone, values)


@FEW
@given(seed=SEEDS)
def test_captions_have_no_order_but_the_original(seed: int) -> None:
    for name in ["augmented_accuracy", "brittleness", "negative_above_both", "tied"]:
        scores, truth = block_for(name, seed)
        order = np.random.default_rng(seed).permutation(scores.shape[2])
        values = METRICS[name].values(scores, truth, "wrong")
        moved = METRICS[name].values(scores[:, :, order], truth[:, :, order], "wrong")
        np.testing.assert_array_equal(moved, values)


@FEW
@given(seed=SEEDS)
def test_image_brittleness_is_brittleness_with_images_and_captions_exchanged(seed: int) -> None:
    for tie in TIES:
        rng = np.random.default_rng(seed)
        scores = rng.integers(0, 4, (6, 1, 4)).astype(float)
        truth = np.broadcast_to([[True, True, False, seed % 2 == 0]], scores.shape)
        turned = [np.swapaxes(values, 1, 2) for values in (scores, truth)]
        found = METRICS["image_brittleness"].values(*turned, tie)
        np.testing.assert_array_equal(found, METRICS["brittleness"].values(scores, truth, tie))
        counted = METRICS["image_brittleness"].ties(*turned)
        np.testing.assert_array_equal(counted, METRICS["brittleness"].ties(scores, truth))


@FEW
@given(seed=SEEDS, tie=st.sampled_from(TIES))
def test_more_renderings_and_wordings_are_never_easier(seed: int, tie: str) -> None:
    scores, truth = block_for("augmented_group", seed)
    original, augmented = (
        METRICS[f"{which}_group"].values(scores, truth, tie) for which in ("original", "augmented")
    )
    assert (augmented <= original).all()
    np.testing.assert_array_equal(augmented, METRICS["group"].values(scores, truth, tie))


def test_renderings_by_hand() -> None:
    """Images: original, re-rendering, negative's. Captions: original, rewording, negative."""
    right = [[5.0, 5.0, 1.0], [5.0, 5.0, 1.0], [2.0, 2.0, 6.0]]
    found = {name: value(name, right, RENDERINGS) for name in RENDERED}
    assert found == {"image_brittleness": 0, "original_group": 1, "augmented_group": 1}
    dark = [[5.0, 5.0, 1.0], [1.5, 5.0, 1.0], [2.0, 2.0, 6.0]]  # the original misses it
    found = {name: value(name, dark, RENDERINGS) for name in RENDERED}
    assert found == {"image_brittleness": 1 / 2, "original_group": 1, "augmented_group": 0}
    tied = [[5.0, 5.0, 1.0], [2.0, 5.0, 1.0], [2.0, 2.0, 6.0]]
    by_tie = {tie: value("image_brittleness", tied, RENDERINGS, tie) for tie in TIES}
    assert by_tie == {"wrong": 0, "right": 0, "half": 1 / 4}
    assert METRICS["image_brittleness"].ties(np.array([tied]), RENDERINGS).tolist() == [1]
    own = [[5.0, 5.0, 6.0], [5.0, 5.0, 1.0], [2.0, 2.0, 6.0]]  # a tie of the negative's own image
    assert METRICS["image_brittleness"].ties(np.array([own]), RENDERINGS).tolist() == [0]


# --- the papers' formulas ----------------------------------------------------------------------


def test_hard_positives_on_every_order_of_c_p_n() -> None:
    """Kamath et al.: all 27 assignments of {0, 1, 2} to original, hard positive, hard negative."""
    for c, p, n in np.ndindex(3, 3, 3):
        found = {
            name: value(name, [[c, p, n]], TRIPLE)
            for name in ("original_accuracy", "augmented_accuracy", "brittleness", "tied")
        }
        assert found["original_accuracy"] == (c > n)
        assert found["augmented_accuracy"] == (c > n and p > n)
        assert found["brittleness"] == ((c > n > p) or (p > n > c))
        assert found["tied"] == (n in (c, p))


def test_bivlc_and_winoground_on_every_table_of_three_scores() -> None:
    """All 81 blocks s(C_j, I_i) of {0, 1, 2}, with the formulas as the papers print them."""
    for i0c0, i0c1, i1c0, i1c1 in np.ndindex(3, 3, 3, 3):
        block = [[i0c0, i0c1], [i1c0, i1c1]]
        text = i0c0 > i0c1 and i1c1 > i1c0
        image = i0c0 > i1c0 and i1c1 > i0c1
        expected = {
            "image_to_text": text,
            "text_to_image": image,
            "group": text and image,
            "image_to_text_0": i0c0 > i0c1,
            "image_to_text_1": i1c1 > i1c0,
            "text_to_image_0": i0c0 > i1c0,
            "text_to_image_1": i1c1 > i0c1,
            "group_matching": i0c0 + i1c1 > i0c1 + i1c0,
        }
        assert {name: value(name, block, PAIRS) for name in expected} == expected


def test_a_winoground_table_by_hand() -> None:
    """Rows are C0I0, C0I1, C1I0, C1I1, as the published score files have them."""
    table = [
        (0.30, 0.20, 0.10, 0.40),  # everything right
        (0.30, 0.35, 0.10, 0.40),  # captions right, C0 prefers the wrong image
        (0.20, 0.10, 0.25, 0.40),  # images right, I0 prefers the wrong caption
        (0.30, 0.30, 0.20, 0.40),  # C0 cannot tell the images apart
        (0.10, 0.30, 0.40, 0.20),  # everything wrong
    ]
    scores = np.array([[[c0i0, c1i0], [c0i1, c1i1]] for c0i0, c0i1, c1i0, c1i1 in table])
    truth = np.repeat(PAIRS, len(table), axis=0)

    def mean(name: str, tie: str) -> float:
        return float(METRICS[name].values(scores, truth, tie).mean())

    names = ("image_to_text", "text_to_image", "group", "group_matching")
    assert [mean(name, "wrong") for name in names] == pytest.approx([3 / 5, 2 / 5, 1 / 5, 4 / 5])
    assert [mean(name, "right") for name in names] == pytest.approx([3 / 5, 3 / 5, 2 / 5, 4 / 5])
    assert [mean(name, "half") for name in names] == pytest.approx([3 / 5, 1 / 2, 3 / 10, 4 / 5])


def test_three_positives_and_two_negatives_by_hand() -> None:
    truth = np.array([[[True, True, True, False, False]]])
    scores = [[5.0, 3.0, 1.0, 2.0, 0.0]]  # two of three positives are above both negatives
    expected = {
        "original_accuracy": 1,
        "augmented_accuracy": 0,
        "brittleness": 1,
        "brittle_original_above": 1,
        "brittle_original_below": 0,
        "negative_above_both": 0,
        "mean_score_original": 5,
        "mean_score_positive": 2,
        "mean_score_negative": 1,
        "mean_rank": 1,
    }
    assert {name: value(name, scores, truth) for name in expected} == expected


def test_the_place_among_tied_negatives_by_hand() -> None:
    scores = np.array([[[5.0, 9.0, 5.0, 5.0, 1.0]]])
    truth = np.array([[[True, False, False, False, False]]])
    places = {tie: ranks(scores, truth, tie).item() for tie in TIES}
    assert places == {"wrong": 4, "right": 2, "half": 3}


def test_images_of_a_case_are_averaged_and_silent_ones_left_out() -> None:
    """Image 0 is right, image 1 wrong; image 2 has no true caption and image 3 no false one."""
    truth = np.array([[[1, 0], [0, 1], [0, 0], [1, 1]]], dtype=bool)
    scores = [[2.0, 1.0], [2.0, 1.0], [9.0, 9.0], [9.0, 9.0]]
    assert value("original_accuracy", scores, truth) == 0.5
    assert value("negative_above_both", scores, truth) == 0.5
    assert value("tie_rate", scores, truth) == 0
    assert value("image_to_text", scores, truth) == 0


def test_no_other_positive_has_no_mean_score() -> None:
    truth = np.array([[[True, False]]])
    assert np.isnan(value("mean_score_positive", [[1.0, 0.0]], truth))


def test_the_precision_of_scores_is_kept() -> None:
    """Scores that differ in their last digit are not tied; equal ones are."""
    for kind in [np.float16, np.float32, np.float64]:
        step = np.nextafter(kind(0.25), kind(1))
        scores = np.array([[[step, kind(0.25)]], [[kind(0.25), kind(0.25)]]], dtype=kind)
        truth = np.array([[[True, False]]] * 2)
        assert METRICS["original_accuracy"].values(scores, truth, "wrong").tolist() == [1, 0]
        assert METRICS["tie_rate"].values(scores, truth, "wrong").tolist() == [0, 1]


# --- which metrics a shape defines -------------------------------------------------------------

CAPTIONS = {"original_accuracy", "tie_rate", "mean_score_original", "mean_score_negative"}
POSITIVES = {
    "augmented_accuracy",
    "brittleness",
    "brittle_original_above",
    "brittle_original_below",
    "negative_above_both",
    "tied",
    "mean_score_positive",
}
IMAGES = {"image_to_text", "text_to_image", "group"}


def defined_by(block: np.ndarray) -> set[str]:
    """The metrics of images and captions that a shape defines; others are for texts and answers."""
    marks = {
        name: metric.applies(block) & (metric.asked_by or metric.applies)(block)
        for name, metric in EVERY.items()
        if name not in (TEXTS, *ANSWERS, *POOLED, *LISTED)
    }
    assert all(mark.shape == (len(block),) for mark in marks.values())
    assert all(mark.all() == mark.any() for mark in marks.values())  # these cases are all alike
    return {name for name, mark in marks.items() if mark.any()}


FEW_CLASSES = {"accuracy@1"}  # the five best of four are all of them
CLASSES = {"accuracy@1", "accuracy@5"}
RETRIEVAL = {
    f"{side}_recall@{k}" for side in ("image_to_text", "text_to_image") for k in (1, 5, 10)
}


def test_a_shape_defines_its_metrics_and_no_other() -> None:
    """Many images define those of queries alone."""
    for truth, expected in [
        ([[1, 0]], CAPTIONS),
        ([[1, 1, 0]], CAPTIONS | POSITIVES),
        ([[1, 0, 0]], CAPTIONS | set(RANKED)),
        ([[1, 0, 0, 0, 0]], CAPTIONS | set(RANKED)),
        ([[1, 1, 0, 0, 0]], CAPTIONS | POSITIVES | set(RANKED)),
        ([[1, 0], [0, 1]], IMAGES | set(SQUARE)),
        ([[1, 0], [1, 0]], IMAGES),  # no one-to-one matching
        ([[1, 0, 0], [0, 1, 0], [0, 0, 1]], IMAGES | {"group_matching"}),
        ([[1, 1, 0, 0], [0, 0, 1, 1]], IMAGES | CAPTIONS | POSITIVES),
        (RENDERINGS[0], (IMAGES - {"group"}) | set(RENDERED)),
        ([[1], [1], [0]], {"text_to_image", "image_brittleness"}),  # no caption to choose
        (np.eye(5), RETRIEVAL),
        (np.eye(4), IMAGES | {"group_matching"}),  # one image less is a case like any other
        (np.repeat(np.eye(5), 5, axis=1), RETRIEVAL),  # five captions an image, as COCO has
        (np.repeat(np.eye(5), 2, axis=0), CLASSES),  # two images a class
        (np.repeat(np.eye(4), 2, axis=0), FEW_CLASSES),
        (np.repeat(np.eye(2), [2, 1], axis=0), FEW_CLASSES),  # more images than captions
        (np.repeat(np.eye(3), 2, axis=0)[:, :2], RETRIEVAL),  # two images are of no class
        (np.eye(5) + np.eye(5, k=1), RETRIEVAL),
    ]:
        assert defined_by(np.array([truth, truth], dtype=bool)) == expected, truth


def test_answers_define_their_own_metrics_and_those_of_all_pairs() -> None:
    truth = np.array([[[1, 0, 0, 1], [0, 1, 1, 0]]], dtype=bool)
    for questions in (0, 2):
        block = Block(np.zeros(1, dtype=np.int64), truth, questions=questions)
        found = {name for name, metric in EVERY.items() if metric.defined(block).any()}
        assert found - set(POOLED) == (set(ANSWERS) if questions else IMAGES | CAPTIONS | POSITIVES)
        assert found & set(POOLED) == set(POOLED)


def test_answers_to_different_questions_are_not_compared() -> None:
    """The second question has higher scores throughout: that says nothing about the first."""
    truth = np.array([[[1, 0, 0, 1], [0, 1, 1, 0]]], dtype=bool)
    scores = [[2.0, 1.0, 8.0, 9.0], [2.0, 1.0, 9.0, 8.0]]  # only the first of image 1 is wrong
    expected = {"answer_accuracy": 3 / 4, "question_accuracy": 1 / 2, "image_accuracy": 1 / 2}
    assert {name: value(name, scores, truth) for name in expected} == expected
    assert value("all_answers", scores, truth) == 0
    assert value("image_to_text", scores, truth) == 0  # which compares all four with each other
    tied = [[1.0, 1.0, 8.0, 9.0], [1.0, 2.0, 9.0, 8.0]]
    assert [value("all_answers", tied, truth, tie) for tie in TIES] == [0, 1, 0.5]
    assert METRICS["all_answers"].ties(np.array([tied]), truth).tolist() == [1]


def test_a_case_defines_its_metrics_whatever_stands_beside_it() -> None:
    """[1, 1, 0] has a positive and [1, 0, 0] has none, though both are one image x three texts."""
    block = np.array([[[1, 1, 0]], [[1, 0, 0]]], dtype=bool)
    assert all(EVERY[name].applies(block).tolist() == [True, False] for name in POSITIVES)
    assert all(EVERY[name].applies(block).all() for name in CAPTIONS)
    squares = np.array([np.eye(2), [[1, 0], [1, 0]]], dtype=bool)
    assert all(EVERY[name].applies(squares).tolist() == [True, False] for name in SQUARE)


def test_two_texts_of_one_meaning_and_a_negative_define_the_metric_of_texts() -> None:
    others = [
        np.ones((2, 3)),
        np.eye(2, 3),
        TWO_TEXTS[:, ::-1],
        TWO_TEXTS[:1],
        TWO_TEXTS[:, :2],
        np.array([[True, True, False, False]] * 2),
        np.array([[True, True, False]] * 3),
    ]
    assert EVERY[TEXTS].applies(np.array([TWO_TEXTS, TWO_TEXTS])).all()
    assert not any(EVERY[TEXTS].applies(other[None].astype(bool)) for other in others)


def test_every_metric_is_named_by_its_key_and_says_what_is_better() -> None:
    for name, metric in EVERY.items():
        assert metric.name == name
        assert (metric.better is None) == (metric.unit == "score")
    assert all(metric.values.__doc__ for metric in METRICS.values())
    assert {metric.texts for metric in METRICS.values()} == {False, True}
    assert METRICS | QUERIES | LISTED | POOLED == EVERY
    assert all(metric.function.__doc__ for metric in (*LISTED.values(), *POOLED.values()))


@FEW
@given(seed=SEEDS, tie=st.sampled_from(TIES))
def test_shares_are_between_0_and_1(seed: int, tie: str) -> None:
    for name in METRICS:
        scores, truth = block_for(name, seed)
        if METRICS[name].unit == "share":
            values = METRICS[name].values(scores, truth, tie)
            assert ((values >= 0) & (values <= 1)).all()


# --- which cases are tied ----------------------------------------------------------------------


def moved_by_ties(name: str, scores: list[list[float]], truth: list[list[bool]]) -> bool:
    """Whether the policy matters to a case."""
    return reference(name, scores, truth, "wrong") != reference(name, scores, truth, "right")


@FEW
@given(seed=SEEDS)
def test_a_case_that_ties_decide_is_counted_as_tied(seed: int) -> None:
    for name in [n for n in METRICS if METRICS[n].unit != "score"]:
        scores, truth = block_for(name, seed)
        counted = METRICS[name].ties(scores, truth)
        pairs = zip(scores.tolist(), truth.tolist(), strict=True)
        moved = np.array([moved_by_ties(name, s, t) for s, t in pairs])
        assert (counted[moved] == 1).all()


# --- metrics of queries ------------------------------------------------------------------------


def asked(seed: int) -> tuple[Standings, list[tuple[list[float], list[bool]]]]:
    """Queries with many ties: their standings, and their scores and truth line by line."""
    rng = np.random.default_rng(seed)
    shape = int(rng.integers(1, 9)), int(rng.integers(1, 14))
    scores, truth = rng.integers(0, 4, shape).astype(float), rng.random(shape) < rng.random()
    return standings(scores, truth), list(zip(scores.tolist(), truth.tolist(), strict=True))


def found_among(scores: list[float], truth: list[bool], k: int, tie: str) -> float:
    """Sort the answers, wrong ones before or after right ones of the same score; look at k."""
    if all(truth) or not any(truth):
        return float("nan")
    if tie == "half":
        return (found_among(scores, truth, k, "wrong") + found_among(scores, truth, k, "right")) / 2
    answers = zip(scores, truth, strict=True)
    ranked = sorted(answers, key=lambda a: (-a[0], a[1] if tie == "wrong" else not a[1]))
    first = next(place for place, (_, true) in enumerate(ranked) if true)
    return float(first < k)


@FEW
@given(seed=SEEDS)
def test_a_query_is_right_if_an_answer_of_its_own_is_among_the_first(seed: int) -> None:
    for tie, name in product(TIES, QUERIES):
        found, lines = asked(seed)
        k = int(name.partition("@")[2])
        expected = [found_among(*line, k, tie) for line in lines]
        np.testing.assert_array_equal(QUERIES[name].values(found, tie), expected)


@FEW
@given(seed=SEEDS)
def test_a_query_is_tied_if_the_policy_matters_to_it(seed: int) -> None:
    for name in QUERIES:
        found, lines = asked(seed)
        k = int(name.partition("@")[2])
        ends = [[found_among(*line, k, tie) for tie in ("wrong", "right")] for line in lines]
        expected = [float(wrong != right and wrong == wrong) for wrong, right in ends]
        assert QUERIES[name].ties(found).tolist() == expected
        kinder = [
            QUERIES[name].values(found, tie)[found.defined] for tie in ("wrong", "half", "right")
        ]
        assert (kinder[0] <= kinder[1]).all() and (kinder[1] <= kinder[2]).all()


def ranked_answers(scores: list[float], truth: list[bool], tie: str) -> list[bool]:
    answers = zip(scores, truth, strict=True)
    ranked = sorted(answers, key=lambda a: (-a[0], a[1] if tie == "wrong" else not a[1]))
    return [true for _, true in ranked]


def by_the_authors(name: str, scores: list[float], truth: list[bool], tie: str) -> float:
    """R-precision and mAP@R as ECCV Caption has them: one prefix of the ranking at a time."""
    if all(truth) or not any(truth):
        return float("nan")
    if tie == "half":
        ends = [by_the_authors(name, scores, truth, end) for end in ("wrong", "right")]
        return sum(ends) / 2
    ranked, right = ranked_answers(scores, truth, tie), sum(truth)
    precisions = [sum(ranked[:r]) / r for r in range(1, right + 1)]
    if name.endswith("r_precision"):
        return precisions[-1]
    return sum(p if true else 0 for p, true in zip(precisions, ranked, strict=False)) / right


@FEW
@given(seed=SEEDS)
def test_precisions_are_those_of_the_authors(seed: int) -> None:
    for tie, name in product(TIES, LISTED):
        _, lines = asked(seed)
        scores, truth = (np.array(side) for side in zip(*lines, strict=True))
        marks = np.random.default_rng(seed).random(sum(scores.shape)) < 0.8
        if LISTED[name].side == "captions":
            scores, truth = scores.T, truth.T
            found = both_standings(scores, truth, marks)["captions"]
            marks = marks[len(scores) :]
        else:
            found = both_standings(scores, truth, marks)["images"]
            marks = marks[: len(scores)]
        expected = [by_the_authors(name, *line, tie) for line in lines]
        values = LISTED[name].values(found, tie)
        np.testing.assert_allclose(values, np.where(marks, expected, np.nan))
        changed = [
            by_the_authors(name, *line, "wrong") != by_the_authors(name, *line, "right")
            for line in lines
        ]
        assert LISTED[name].ties(found).tolist() == (found.defined & np.array(changed)).tolist()
        recall = EVERY["image_to_text_recall@1"].values(found, tie)
        assert (np.isnan(recall) == ~found.defined).all()


def test_chance_of_precisions_by_trying_every_order() -> None:
    for name, right in product(LISTED, [1, 2, 3]):
        orders = np.array(list(permutations(range(5))), dtype=float)
        truth = np.tile(np.arange(5) < right, (len(orders), 1))
        found = both_standings(orders, truth, np.ones(len(orders) + 5, dtype=bool))["images"]
        by_chance = LISTED[name].chance(found)
        assert by_chance == pytest.approx(LISTED[name].values(found, "wrong").mean())


def test_each_side_of_a_gallery_has_its_own_metrics() -> None:
    sides = {name: (metric.side, metric.k) for name, metric in QUERIES.items()}
    expected = {"accuracy@1": ("images", 1), "accuracy@5": ("images", 5)}
    for k in (1, 5, 10):
        expected[f"image_to_text_recall@{k}"] = ("images", k)
        expected[f"text_to_image_recall@{k}"] = ("captions", k)
    assert sides == expected
