"""Metrics of all pairs: slow references, weights that are repetitions, and intervals."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.optimize import minimize
from scipy.stats import spearmanr
from support import FEW

from counterpoint.metrics import METRICS, Averaging, PairPool, PooledMetric, estimate, pool_value
from counterpoint.metrics.pooled import (
    BINS,
    auroc,
    calibration_error,
    platt,
    rank_correlation,
    true_below_threshold,
)
from counterpoint.metrics.statistics import POOLED, draw_weights

SEEDS = st.integers(0, 2**32 - 1)
FUNCTIONS = {m.name: m.function for m in METRICS.values() if isinstance(m, PooledMetric)}


def random_pool(seed: int, clusters: int = 6, values: int = 9, pairs: int = 40) -> PairPool:
    """Few values, so that there are many ties; every cluster has a true and a false pair."""
    rng = np.random.default_rng(seed)
    numbers = np.concatenate(
        [np.arange(clusters), np.arange(clusters), rng.integers(0, clusters, pairs)]
    )
    truth = np.concatenate([np.ones(clusters), np.zeros(clusters), rng.random(pairs) < 0.4]) > 0
    scores = rng.integers(0, values, len(truth)) + truth * rng.integers(0, 3, len(truth))
    grades = rng.integers(0, 6, len(truth)).astype(float)
    return PairPool(numbers, scores.astype(np.float32), truth, grades, np.ones(len(truth)))


def ones(pool: PairPool) -> np.ndarray:
    return np.ones((1, int(pool.clusters.max()) + 1))


def repeated(pool: PairPool, weights: np.ndarray) -> PairPool:
    """Every pair as often as its cluster was drawn."""
    places = np.repeat(np.arange(len(pool.scores)), weights[pool.clusters])
    return PairPool(*(column[places] for column in pool))


# --- against slow references -------------------------------------------------------------------


@FEW
@given(seed=SEEDS)
def test_auroc_is_counted_pair_by_pair(seed: int) -> None:
    pool = random_pool(seed)
    wins = [
        (a > b) + (a == b) / 2 for a in pool.scores[pool.truth] for b in pool.scores[~pool.truth]
    ]
    assert auroc(pool)(ones(pool)) == pytest.approx(np.mean(wins))


@FEW
@given(seed=SEEDS)
def test_the_best_threshold_is_found_by_trying_all(seed: int) -> None:
    pool = random_pool(seed)
    true, false = pool.scores[pool.truth], pool.scores[~pool.truth]
    tried = []
    for threshold in [*np.unique(pool.scores), np.inf]:
        balance = (true >= threshold).mean() + (false < threshold).mean()
        tried.append((round(float(balance), 9), float((true < threshold).mean())))
    best = max(balance for balance, _ in tried)
    shares = [share for balance, share in tried if balance == best]
    expected = (min(shares) + max(shares)) / 2
    assert true_below_threshold(pool)(ones(pool)) == pytest.approx(expected)


@FEW
@given(seed=SEEDS)
def test_rank_correlation_is_spearmans(seed: int) -> None:
    pool = random_pool(seed)
    expected = spearmanr(pool.scores, pool.grades).statistic
    assert rank_correlation(pool)(ones(pool)) == pytest.approx(expected)


def test_each_query_counts_once() -> None:
    """A pair of weight 1/2, twice, is a pair of weight 1; the authors' draws tend to it."""
    rng = np.random.default_rng(3)
    counts = rng.integers(1, 5, 400)
    query = np.repeat(np.arange(400), counts)
    grades = rng.integers(0, 6, len(query)).astype(float)
    scores = grades + rng.normal(0, 3, len(query)) + counts[query]
    pool = PairPool(query, scores, grades > 2, grades, 1 / counts[query])
    drawn = []
    for _ in range(1000):  # half of the queries, and one pair of each
        starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
        some = rng.permutation(400)[:200]
        places = starts[some] + rng.integers(0, counts[some])
        drawn.append(spearmanr(scores[places], grades[places]).statistic)
    found = rank_correlation(pool)(ones(pool))
    assert found == pytest.approx(np.mean(drawn), abs=0.01)
    plain = rank_correlation(pool._replace(shares=np.ones(len(query))))(ones(pool))
    assert abs(plain - np.mean(drawn)) > abs(found - np.mean(drawn))


def slow_platt(scores: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """The two numbers of the curve, by another way of finding them."""
    t, f = truth.sum(), (~truth).sum()
    target = np.where(truth, (t + 1) / (t + 2), 1 / (f + 2))

    def loss(fit: np.ndarray) -> float:
        odds = fit[0] + fit[1] * scores
        return float((np.logaddexp(0, odds) - target * odds).sum())

    return minimize(loss, np.zeros(2), method="BFGS", options={"gtol": 1e-8}).x


@FEW
@given(seed=SEEDS)
def test_calibration_is_what_its_definition_says(seed: int) -> None:
    pool = random_pool(seed, clusters=10, values=50, pairs=80)
    probability = np.empty(len(pool.scores))
    for side in (0, 1):
        mine = pool.clusters % 2 == side
        a, b = slow_platt(pool.scores[~mine].astype(float), pool.truth[~mine])
        probability[mine] = 1 / (1 + np.exp(-(a + b * pool.scores[mine])))
    error = 0.0
    for number in range(BINS):
        inside = (probability >= number / BINS) & (probability < (number + 1) / BINS)
        if inside.any():
            gap = abs(probability[inside].mean() - pool.truth[inside].mean())
            error += inside.mean() * gap
    assert calibration_error(pool)(ones(pool)) == pytest.approx(error, abs=1e-4)


def test_platt_is_finite_where_a_threshold_separates_all() -> None:
    scores = np.arange(10.0)
    found = platt(scores, scores > 4)(scores)
    assert (np.diff(found) > 0).all() and found[0] > 0.001 and found[-1] < 0.999
    assert found[-1] == pytest.approx(6 / 7, abs=0.1)


def test_scores_that_are_probabilities_are_calibrated() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 2, 40_000)
    truth = rng.random(40_000) < 1 / (1 + np.exp(-odds))
    pool = PairPool(np.arange(40_000), odds, truth, odds, np.ones(40_000))
    good = calibration_error(pool)(ones(pool))
    steps = pool._replace(scores=np.sign(odds) * np.abs(odds) ** 4)  # not a logistic curve
    assert good < 0.01 < calibration_error(steps)(ones(pool))
    assert auroc(steps)(ones(pool)) == auroc(pool)(ones(pool))


# --- weights, transforms, edges ----------------------------------------------------------------


@FEW
@given(seed=SEEDS)
def test_a_weight_is_a_number_of_copies(seed: int) -> None:
    for name in ["auroc", "true_below_threshold", "rank_correlation"]:
        pool = random_pool(seed)
        weights = np.random.default_rng(seed + 1).integers(0, 4, ones(pool).size)
        weights[0] = 1
        copies = repeated(pool, weights)
        expected = FUNCTIONS[name](copies)(ones(pool))
        [found] = FUNCTIONS[name](pool)(weights[None].astype(np.float32))
        assert found == pytest.approx(expected, nan_ok=True)


@FEW
@given(seed=SEEDS)
def test_calibration_keeps_its_curves_and_weighs_its_pairs(seed: int) -> None:
    pool = random_pool(seed)
    value = calibration_error(pool)
    alone = value(np.eye(ones(pool).size))
    assert value(3 * ones(pool)) == pytest.approx(value(ones(pool)))
    assert value(ones(pool)) <= np.mean(alone) * 3  # a mean of bins' gaps
    assert ((alone >= 0) & (alone <= 1)).all()


@FEW
@given(seed=SEEDS)
def test_only_the_order_of_scores_counts(seed: int) -> None:
    for name in ["auroc", "true_below_threshold", "rank_correlation"]:
        pool = random_pool(seed)
        stretched = pool._replace(scores=np.exp(pool.scores.astype(float)) - 7)
        value, other = (FUNCTIONS[name](one)(ones(pool)) for one in (pool, stretched))
        assert value == pytest.approx(other)


@FEW
@given(seed=SEEDS)
def test_reversed_scores_give_the_rest(seed: int) -> None:
    pool = random_pool(seed)
    back = pool._replace(scores=-pool.scores)
    assert auroc(pool)(ones(pool)) + auroc(back)(ones(pool)) == pytest.approx(1)
    both = [rank_correlation(one)(ones(pool)) for one in (pool, back)]
    assert sum(both) == pytest.approx(0, abs=1e-12)


def test_equal_scores_say_nothing() -> None:
    pool = random_pool(0)._replace(scores=np.zeros(52, dtype=np.float32))
    assert auroc(pool)(ones(pool)) == 0.5
    assert true_below_threshold(pool)(ones(pool)) == 0.5  # below all and above all are as good
    assert np.isnan(rank_correlation(pool)(ones(pool)))
    assert calibration_error(pool)(ones(pool)) < 0.2


def test_without_true_or_false_pairs_there_is_no_number() -> None:
    for name in ["auroc", "true_below_threshold", "calibration_error"]:
        pool = random_pool(0)
        for truth in (np.zeros(52, dtype=bool), np.ones(52, dtype=bool)):
            assert np.isnan(FUNCTIONS[name](pool._replace(truth=truth))(ones(pool)))


def test_chance_is_the_mean_of_random_scores() -> None:
    for name in [n for n in FUNCTIONS if METRICS[n].expected is not None]:
        rng = np.random.default_rng(5)
        pool = random_pool(1)
        found = [
            FUNCTIONS[name](pool._replace(scores=rng.random(52)))(ones(pool)) for _ in range(3000)
        ]
        assert np.mean(found) == pytest.approx(
            METRICS[name].expected, abs=4 * np.std(found) / 3000**0.5
        )


# --- intervals ---------------------------------------------------------------------------------


class OneCase:
    """A pool whose rows are single pairs."""

    def __init__(self, name: str, pool: PairPool) -> None:
        self.name, self.pool = name, pool

    def prepare(self, rows: np.ndarray, clusters: np.ndarray) -> object:
        taken = PairPool(*(column[rows] for column in self.pool))
        return FUNCTIONS[self.name](taken._replace(clusters=clusters))


def test_intervals_are_those_of_a_bootstrap_over_clusters() -> None:
    for name in FUNCTIONS:
        pool = random_pool(4, clusters=30, values=200, pairs=300)
        rows, some = np.arange(len(pool.scores)), np.flatnonzero(pool.clusters > 4)
        members = {"all": rows, "some": some}
        column, mine = np.zeros((len(rows), 1)), OneCase(name, pool)
        averaging = Averaging((-1,), labels=frozenset({"some"}))  # an average does not change it
        found = estimate(
            column, pool.clusters, members, averaging, pools=[mine], resamples=POOLED + 99
        )
        for label, chosen in members.items():
            [one] = found[label]
            drawn = mine.prepare(chosen, np.unique(pool.clusters[chosen], return_inverse=True)[1])
            held = np.unique(pool.clusters[chosen])
            weights = np.concatenate([*draw_weights(30, POOLED + 99, 0)])[:POOLED, held]
            each = np.concatenate([drawn(one) for one in weights[:, None]])
            low, high = np.nanquantile(each, [0.025, 0.975])
            assert one.value == pool_value(mine, chosen, pool.clusters)
            expected = (min(low, one.value), max(high, one.value))
            assert (one.low, one.high) == pytest.approx(expected)
            assert one.n == len(chosen)


def test_all_pooled_metrics_are_tried() -> None:
    tried = {"auroc", "true_below_threshold", "calibration_error", "rank_correlation"}
    assert set(FUNCTIONS) == tried
