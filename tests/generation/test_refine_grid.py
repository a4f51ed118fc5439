"""Refinement's arithmetic: the grid against a slow reference, scaling, selection."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

import numpy as np
import pytest
from errors import raises
from hypothesis import given, settings, strategies as st
from support import FEW

from counterpoint.generation.refinement.negatives import balanced, cells, scaled, top
from counterpoint.generation.refinement.refining import accuracy

# --- the grid ----------------------------------------------------------------------------------


def slow(
    gaps: Sequence[Sequence[float]],
    keys: Sequence[int],
    groups: Sequence[int],
    bins: int,
    zero_bins: int,
) -> set[int]:
    """Row by row and cell by cell: which rows are kept."""
    members = defaultdict(list)
    kept = set()
    for row, gap in enumerate(gaps):
        mine = [gap for gap, group in zip(gaps, groups, strict=True) if group == groups[row]]
        says = [any(values) for values in zip(*mine, strict=True)]
        count = zero_bins if any(v == 0 and s for v, s in zip(gap, says, strict=True)) else bins
        cell = []
        for value in gap:
            number = min(int(abs(value) * count) + 1, count)
            cell.append(number if value > 0 else -number if value < 0 else 0)
        if not any(cell):
            kept.add(row)
        else:
            members[groups[row], tuple(cell)].append(row)
    for (group, cell), rows in members.items():
        mirror = members.get((group, tuple(-number for number in cell)), [])
        kept.update(sorted(rows, key=lambda row: keys[row])[: len(mirror)])
    return kept


GAPS = st.one_of(
    st.sampled_from([-1.0, -0.5, -0.02, 0.0, 0.0, 0.02, 0.5, 1.0]),
    st.integers(-12, 12).map(lambda n: n / 12),
    st.floats(-1, 1),
)


@st.composite
def problems(draw: st.DrawFn) -> tuple[np.ndarray, np.ndarray, np.ndarray, int, int]:
    dimensions = draw(st.integers(1, 3))
    rows = draw(st.lists(st.tuples(*[GAPS] * dimensions), max_size=60))
    gaps = np.array(rows, dtype=float).reshape(len(rows), dimensions)
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    keys = rng.permutation(len(rows)).astype(np.uint64)
    groups = rng.integers(0, draw(st.integers(1, 3)), len(rows))
    return gaps, keys, groups, draw(st.integers(1, 50)), draw(st.integers(1, 12))


@pytest.mark.slow
@settings(derandomize=True, deadline=None, max_examples=150)
@given(problems())
def test_the_grid_agrees_with_the_slow_reference(problem) -> None:
    gaps, keys, groups, bins, zero_bins = problem
    kept = balanced(gaps, keys, groups, bins=bins, zero_bins=zero_bins)
    expected = slow(gaps.tolist(), keys.tolist(), groups.tolist(), bins, zero_bins)
    assert set(np.flatnonzero(kept).tolist()) == expected


@FEW
@given(problems())
def test_every_model_and_any_vote_of_them_is_at_chance(problem) -> None:
    gaps, keys, groups, bins, zero_bins = problem
    kept = balanced(gaps, keys, groups, bins=bins, zero_bins=zero_bins)
    left = gaps[kept]
    if len(left):
        votes = np.sign(np.sign(left) @ np.arange(1, left.shape[1] + 1) ** 2)
        for found in (*left.T, votes):
            assert (found > 0).sum() == (found < 0).sum()
            assert accuracy(found) == 0.5


@FEW
@given(problems(), st.integers(0, 3), st.integers(0, 2))
def test_a_model_that_says_nothing_changes_nothing(problem, place, silent) -> None:
    """Of all pairs, or of one group: its zeros must not put pairs into the wider cells."""
    gaps, keys, groups, bins, zero_bins = problem
    kept = balanced(gaps, keys, groups, bins=bins, zero_bins=zero_bins)
    place = min(place, gaps.shape[1])
    nothing = np.insert(gaps, place, 0.0, axis=1)
    assert (balanced(nothing, keys, groups, bins=bins, zero_bins=zero_bins) == kept).all()
    in_others = np.insert(gaps, place, (groups != silent) * 0.5, axis=1)
    found = balanced(in_others, keys, groups, bins=bins, zero_bins=zero_bins)
    assert (found == kept)[groups == silent].all()


def test_cells_of_the_paper() -> None:
    # D.3: (0.02, 0.04] x (-0.06, -0.04] and its mirror, on 100 x 100 cells
    assert cells(np.array([[0.03, -0.05], [-0.03, 0.05]])).tolist() == [[2, -3], [-2, 3]]
    assert cells(np.array([[1.0, -1.0], [0.999, -0.981]])).tolist() == [[50, -50], [50, -50]]
    assert cells(np.array([[0.0, 0.0], [0.0, -1.0], [1e-9, 0.0]])).tolist() == [
        [0, 0],
        [0, -10],
        [1, 0],
    ]


def test_pairs_with_a_gap_of_zero_meet_in_wider_cells_as_the_authors_have_it() -> None:
    gaps, keys = np.array([[0, 0.11], [0, -0.19], [0.3, 0.11], [-0.3, -0.19]]), np.arange(4)
    assert balanced(gaps, keys).tolist() == [True, True, False, False]
    assert not balanced(gaps, keys, zero_bins=50).any()
    assert balanced(gaps, keys, bins=10).all()


@pytest.mark.parametrize("bad", [np.nan, 1.5, -np.inf])
def test_gaps_that_are_none_are_refused_with_their_number(bad: float) -> None:
    with raises("E-GAP-INVALID", 2):
        balanced(np.array([[bad, bad], [0.1, bad], [0.1, 0.2]]), np.arange(3))


# --- scaling and selection ---------------------------------------------------------------------


@FEW
@given(st.lists(st.integers(-30, 30), min_size=1, max_size=40), st.sampled_from(["max", "rank"]))
def test_scaling_keeps_order_and_sign_and_is_odd(values, scale) -> None:
    gaps, one = np.array(values) / 3, np.zeros(len(values), dtype=int)
    found = scaled(gaps, one, scale)
    assert (np.sign(found) == np.sign(gaps)).all()
    assert np.allclose(scaled(-gaps, one, scale), -found)
    order = np.argsort(np.abs(gaps), kind="stable")
    assert (np.diff(np.abs(found[order])) >= 0).all()
    for a in range(len(gaps)):
        assert ((np.abs(gaps) == abs(gaps[a])) == (np.abs(found) == abs(found[a]))).all()
    assert not gaps.any() or np.abs(found).max() == 1


def test_each_group_has_its_own_scale() -> None:
    gaps, groups = np.array([1.0, 10, -2, 0, -5]), np.array([0, 1, 0, 0, 1])
    assert scaled(gaps, groups, "max").tolist() == [0.5, 1, -1, 0, -0.5]
    assert scaled(gaps, groups, "rank").tolist() == [0.5, 1, -1, 0, -0.5]
    assert scaled(np.array([3.0, -3, 1, 7]), np.zeros(4), "rank").tolist() == [0.75, -0.75, 0.25, 1]


@FEW
@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 2)), max_size=40),
    st.sampled_from([0.0, 0.2, 0.355, 0.5, 1.0]),
)
def test_the_top_is_what_the_quantile_says(rows, share) -> None:
    values = np.array(rows, dtype=float).reshape(len(rows), 3)
    scores, groups = values[:, :2], values[:, 2].astype(int)
    kept = top(scores, groups, share)
    for row, (score, group) in enumerate(zip(scores, groups, strict=True)):
        good = True
        for column in range(2):
            column_of_group = sorted(scores[groups == group, column].tolist())
            place = (1 - share) * (len(column_of_group) - 1)  # between neighbours, linearly
            low = int(place)
            high = min(low + 1, len(column_of_group) - 1)
            a, b = column_of_group[low], column_of_group[high]
            good = good and score[column] >= a + (b - a) * (place - low) - 1e-9
        assert kept[row] == good
