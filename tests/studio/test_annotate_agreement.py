"""Agreement: golden values of the papers, and other people's code."""

from __future__ import annotations

import math
import warnings

import krippendorff
import numpy as np
import pytest
from hypothesis import given, strategies as st
from sklearn.metrics import cohen_kappa_score
from support import FEW

from counterpoint.studio.annotate.results import (
    PairAgreement,
    cohen,
    fleiss,
    fleiss_of,
    krippendorff_alpha,
    mean_kappa,
    pairwise,
)

# Fleiss 1971, the worked example in the form in which it is usually reprinted: 10 subjects, 14
# raters, 5 categories, kappa 0.210.
FLEISS_1971 = np.array(
    [
        [0, 0, 0, 0, 14],
        [0, 2, 6, 4, 2],
        [0, 0, 3, 5, 6],
        [0, 3, 9, 2, 0],
        [2, 2, 8, 1, 1],
        [7, 7, 0, 0, 0],
        [3, 2, 6, 3, 0],
        [2, 5, 3, 2, 2],
        [6, 5, 2, 1, 0],
        [0, 2, 2, 3, 7],
    ]
)
# Krippendorff 2011, "Computing Krippendorff's alpha-reliability", part C: four observers, twelve
# units, missing values; nominal alpha 0.743.
KRIPPENDORFF_2011 = (
    "1 2 3 3 2 1 4 1 2 . . .",
    "1 2 3 3 2 2 4 1 2 5 . 3",
    ". 3 3 3 2 3 4 2 2 5 1 .",
    "1 2 3 3 2 4 4 1 2 5 1 .",
)

answers = st.lists(st.tuples(st.sampled_from("ab0"), st.sampled_from("ab0")), min_size=2)


def test_fleiss_of_1971():
    assert fleiss(FLEISS_1971) == pytest.approx(0.210, abs=5e-4)


def test_krippendorff_of_2011():
    table = {
        row: {unit: value for unit, value in enumerate(line.split()) if value != "."}
        for row, line in enumerate(KRIPPENDORFF_2011)
    }
    assert krippendorff_alpha(table) == pytest.approx(0.743, abs=5e-4)


@pytest.mark.slow
@FEW
@given(answers)
def test_cohen_is_that_of_scikit_learn(pairs):
    a, b = zip(*pairs, strict=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of one category in all, it divides by zero
        expected = cohen_kappa_score(a, b)
    assert cohen(a, b) == pytest.approx(expected, nan_ok=True)


@FEW
@given(answers)
def test_alpha_is_nearly_fleiss_of_two(pairs):
    """With everybody judging everything, alpha = kappa + (1 - kappa) / N for N values."""
    table = {n: dict(enumerate(said)) for n, said in enumerate(zip(*pairs, strict=True))}
    kappa, items = fleiss_of(table, 2)
    assert items == len(pairs)
    alpha = krippendorff_alpha(table)
    if math.isnan(kappa):
        assert math.isnan(alpha)
    else:
        assert alpha == pytest.approx(kappa + (1 - kappa) / (2 * len(pairs)))


def test_nothing_to_agree_on_is_not_a_number():
    assert math.isnan(cohen([], []))
    assert math.isnan(cohen("aaa", "aaa"))
    assert math.isnan(fleiss(np.array([[3], [3]])))
    assert math.isnan(fleiss_of({1: {1: "a"}}, 1)[0])
    assert math.isnan(krippendorff_alpha({1: {1: "a"}, 2: {2: "b"}}))
    with pytest.raises(ValueError, match="equally many"):
        fleiss(np.array([[1, 1], [1, 0]]))


def test_pairs_are_compared_over_what_both_judged():
    said = {1: {1: "a", 2: "b", 3: "a"}, 2: {2: "b", 3: "b", 4: "a"}, 3: {9: "a"}}
    assert pairwise(said) == [PairAgreement(1, 2, 2, 0.5, pytest.approx(0.0))]
    assert krippendorff.alpha([[0, 1], [0, 0]], level_of_measurement="nominal") == pytest.approx(
        krippendorff_alpha({1: {1: "x", 2: "y"}, 2: {1: "x", 2: "x"}})
    )


def test_the_mean_is_that_of_bivlc_table_7():
    kappas = (0.66, 0.43, 0.56, 0.43, 0.38)
    pairs = [PairAgreement(n, n + 1, 50, 0.0, kappa) for n, kappa in enumerate(kappas)]
    assert round(mean_kappa(pairs), 2) == 0.49
    assert math.isnan(mean_kappa([]))
