"""Counter-based random numbers: what they depend on, and what is taken with them."""

from __future__ import annotations

import numpy as np
from hypothesis import given, strategies as st
from support import FEW

from counterpoint._util.random_numbers import fold, key, order, part, take, uniforms


def test_uniform_numbers_are_uniform_and_belong_to_their_address():
    draws = uniforms(fold(key(1, 2), np.arange(2000)), 10)
    assert draws.shape == (2000, 10)
    assert draws.min() >= 0 and draws.max() < 1
    counts = np.histogram(draws, bins=20, range=(0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 50  # chi squared of 19: beyond it once in 7,000
    assert abs(np.corrcoef(draws.T) - np.eye(10)).max() < 0.1
    assert abs(np.corrcoef(draws[:-1].ravel(), draws[1:].ravel())[0, 1]) < 0.03
    assert np.array_equal(draws[7:9], uniforms(fold(key(1, 2), np.array([7, 8])), 10))
    assert not np.array_equal(draws, uniforms(fold(key(1, 3), np.arange(2000)), 10))


@FEW
@given(
    seed=st.integers(0, 99),
    size=st.integers(0, 9),
    count=st.integers(1, 4),
    start=st.integers(0, 50),
)
def test_things_are_dealt_round_and_round(seed, size, count, start):
    epochs = -(-size // count) if size else 1
    dealt = [take(key(seed), 3, start + epoch, size, count) for epoch in range(epochs)]
    assert all(len(set(hand)) == len(hand) == min(size, count) for hand in dealt)
    assert {thing for hand in dealt for thing in hand} == set(range(size))


@FEW
@given(
    seed=st.integers(0, 99),
    number=st.integers(0, 2**40),
    size=st.integers(0, 200),
    count=st.integers(1, 9),
    epoch=st.integers(0, 50),
)
def test_what_is_dealt_is_a_shuffle_by_the_draws_of_the_number(seed, number, size, count, epoch):
    draws = uniforms(fold(key(seed), number), size).ravel()
    turns = np.argsort(draws, kind="stable")
    places = range(epoch * count, (epoch + 1) * count)
    expected = range(size) if size <= count else [turns[place % size] for place in places]
    assert take(key(seed), number, epoch, size, count) == list(expected)


def test_an_epoch_holds_every_sample_once_in_an_order_of_its_own():
    orders = [order(seed, epoch, 100) for seed in (0, 1) for epoch in (0, 1)]
    assert all(sorted(o.tolist()) == list(range(100)) for o in orders)
    assert len({tuple(o.tolist()) for o in orders}) == 4


def test_ranks_join_to_the_whole():
    numbers = np.arange(12)[::-1]
    assert np.array_equal(np.concatenate([part(numbers, r, 3) for r in range(3)]), numbers)
