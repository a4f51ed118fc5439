"""Comparing runs of galleries: queries are paired, and so are cases in any order."""

from __future__ import annotations

import math

import numpy as np
import pytest
from columns_support import CLASSES, RETRIEVAL, SEEDS, by_name, differences, values_by_hand, zoo_run
from engine_support import build
from errors import raises
from hypothesis import given
from support import FEW, gallery, owned, part, random_scores, random_truth, run_of

from counterpoint.cases import Cases
from counterpoint.metrics import METRICS
from counterpoint.runs import compare, rows

FAST = 100
NONE = "no difference shown"


def test_a_run_of_galleries_shows_no_difference_from_itself() -> None:
    run = zoo_run(7)
    found = compare(run, run, resamples=FAST)
    assert {d.metric for d in found} >= {*RETRIEVAL, *CLASSES, "group", "brittleness"}
    for d in found:
        assert (d.difference, d.p, d.p_holm, d.verdict) == (0, 1, 1, NONE)
        assert d.a == d.b and d.ci_low <= 0 <= d.ci_high
        assert d.p_mcnemar in (None, 1)


def test_each_side_of_a_difference_is_its_own_row() -> None:
    a, b = zoo_run(8), zoo_run(9)
    sides = [by_name(rows(run, resamples=20)) for run in (a, b)]
    found = differences(compare(a, b, resamples=20))
    expected = {key for key in sides[0] if METRICS[key[1]].better is not None}
    assert set(found) == expected
    for key, d in found.items():
        assert (d.a, d.b) == pytest.approx([side[key].value for side in sides])
        assert d.difference == pytest.approx(d.a - d.b)
        assert d.n == sides[0][key].n


def test_queries_are_paired() -> None:
    """A finds what B finds and one image more: the gap's interval is that of the pairs."""
    truth = owned(40, 1)
    rng = np.random.default_rng(0)
    easy = rng.random(40) < 0.5
    b = np.where(truth, np.where(easy, 1.0, -1.0)[:, None], rng.random((40, 40)) * 0.1)
    a = b.copy()
    gained = np.flatnonzero(~easy)[:6]
    a[gained, gained] = 1.0
    cases = build(gallery(truth))
    found = differences(
        compare(run_of(part(cases, a.reshape(-1))), run_of(part(cases, b.reshape(-1))))
    )
    d = found["all", "image_to_text_recall@1"]
    assert d.difference == pytest.approx(6 / 40) and d.verdict == "A is better"
    gaps = np.isin(np.arange(40), gained).astype(float)
    margin = 1.96 * gaps.std() / math.sqrt(40)
    assert (d.ci_low, d.ci_high) == pytest.approx(
        (6 / 40 - margin, 6 / 40 + margin), abs=0.2 * margin
    )
    worse = differences(
        compare(run_of(part(cases, b.reshape(-1))), run_of(part(cases, a.reshape(-1))))
    )["all", "image_to_text_recall@1"]
    assert worse.verdict == "B is better" and worse.difference == pytest.approx(-6 / 40)


@pytest.mark.slow
@FEW
@given(SEEDS)
def test_cases_and_galleries_are_matched_by_id_in_any_order(seed: int) -> None:
    rng = np.random.default_rng(seed)
    made = [
        gallery(random_truth(rng, int(rng.integers(2, 7)), int(rng.integers(2, 6))), f"g{n}")
        for n in range(6)
    ]
    cases, order = build(*made), rng.permutation(6)[:4]
    a, b = random_scores(cases, seed % 1000), random_scores(cases, seed % 1000 + 1)
    starts = cases.pair_offsets
    some = Cases(cases.frame[order])
    mine = np.concatenate([b[starts[r] : starts[r + 1]] for r in order])
    kept = np.sort(order)
    fewer = Cases(cases.frame[kept])
    pieces = [[s[starts[r] : starts[r + 1]] for r in kept] for s in (a, b)]
    expected = compare(
        *(run_of(part(fewer, np.concatenate(scores))) for scores in pieces), resamples=10
    )
    found = compare(run_of(part(cases, a)), run_of(part(some, mine)), resamples=10)
    assert repr(found) == repr(expected)  # NaN and all


def test_galleries_that_lost_different_images_are_not_compared() -> None:
    whole, less = build(gallery(owned(6, 1))), build(gallery(owned(7, 1)))
    runs = [run_of(part(cases, random_scores(cases, 0))) for cases in (whole, less)]
    with raises("E-CASES-DIFFER", "bench", "gallery", 1):
        compare(*runs)


def test_mcnemar_counts_the_queries_of_a_gallery() -> None:
    """Image queries alone: captions have no value in their column, which is no half right."""
    cases = build(gallery(owned(20, 1, 2)))
    better = random_scores(cases, 0) + 400 * cases.truth_flat()
    runs = [run_of(part(cases, scores)) for scores in (better, random_scores(cases, 1))]
    found = differences(compare(*runs, resamples=20))["all", "image_to_text_recall@5"]
    lists = [values_by_hand(r.parts["bench"], "image_to_text_recall@5")[0] for r in runs]
    only = [sum(x > y for x, y in zip(*order, strict=True)) for order in (lists, lists[::-1])]
    tail = sum(math.comb(sum(only), i) for i in range(min(only) + 1)) / 2 ** sum(only)
    assert found.p_mcnemar == pytest.approx(min(1.0, 2 * tail))
    assert found.p_mcnemar < 0.5  # or it would say nothing
