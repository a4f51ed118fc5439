"""Statistics: the bootstrap against a naive one and theory, exact tests, and nested averages."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from counterpoint.metrics import (
    AVERAGES,
    Averaging,
    Estimate,
    averages,
    estimate,
    members_of,
    prefixes,
    statistics,
)
from counterpoint.metrics.statistics import clopper_pearson, draw_weights

KINDS = {name: Averaging(levels) for name, levels in AVERAGES.items()}


def column(*values: float) -> np.ndarray:
    return np.array(values, dtype=float)[:, None]


def alone(values: np.ndarray, clusters: np.ndarray | None = None, **options: Any) -> Estimate:
    """The estimate of one column over all cases."""
    numbers = np.arange(len(values)) if clusters is None else clusters
    members = members_of([()] * len(values))
    return estimate(values.reshape(-1, 1), numbers, members, **options)["all"][0]


def width(e: Estimate) -> float:
    return e.high - e.low


# --- drawing clusters --------------------------------------------------------------------------


def test_weights_are_draws_with_replacement() -> None:
    """Each weight is binomial(50, 1/50); two weights of a draw repel each other by -1/50."""
    weights = np.concatenate(list(draw_weights(50, 4000, seed=0)))
    assert weights.shape == (4000, 50)
    assert (weights.sum(axis=1) == 50).all()
    assert (weights == weights.round()).all() and weights.min() == 0
    assert weights.mean(axis=0) == pytest.approx(1, abs=4 / math.sqrt(4000))
    assert weights.var(axis=0).mean() == pytest.approx(1 - 1 / 50, rel=0.02)
    covariance = np.cov(weights.T)[~np.eye(50, dtype=bool)]
    assert covariance.mean() == pytest.approx(-1 / 50, rel=0.05)


def test_weights_come_in_chunks_of_bounded_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "_CELLS", 35)
    chunks = list(draw_weights(10, 8, seed=1))
    assert [len(chunk) for chunk in chunks] == [3, 3, 2]
    assert all((chunk.sum(axis=1) == 10).all() for chunk in chunks)
    monkeypatch.setattr(statistics, "_CELLS", 5)  # one cluster too many for any chunk
    assert [len(chunk) for chunk in draw_weights(10, 2, seed=1)] == [1, 1]


def test_weights_do_not_depend_on_how_many_are_drawn_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One call of the generator draws what several calls draw."""
    whole = np.concatenate(list(draw_weights(10, 40, seed=1)))
    for cells, drawn in ((400, 10), (130, 35), (130, 1)):
        monkeypatch.setattr(statistics, "_CELLS", cells)
        monkeypatch.setattr(statistics, "_DRAWN", drawn)
        assert np.array_equal(np.concatenate(list(draw_weights(10, 40, seed=1))), whole)


def test_a_seed_is_a_draw() -> None:
    first, again, other = (np.concatenate(list(draw_weights(9, 20, s))) for s in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


# --- the interval ------------------------------------------------------------------------------


def naive_samples(values: list[float], clusters: list[int], draws: np.ndarray) -> list[float]:
    """Case by case: every drawn cluster brings all its cases, as often as it was drawn."""
    means = []
    for draw in draws:
        cases = [v for v, c in zip(values, clusters, strict=True) for _ in range(int(draw[c]))]
        means.append(sum(cases) / len(cases))
    return means


def test_the_interval_is_that_of_a_naive_bootstrap() -> None:
    rng = np.random.default_rng(5)
    clusters = rng.permutation(np.repeat(np.arange(20), rng.integers(1, 5, 20)))
    values = (rng.random(len(clusters)) < 0.6).astype(float)
    draws = np.concatenate(list(draw_weights(20, 200, seed=7)))
    samples = naive_samples(values.tolist(), clusters.tolist(), draws)
    found = alone(values, clusters, resamples=200, seed=7)
    assert found.value == pytest.approx(values.mean())
    assert (found.low, found.high) == pytest.approx(np.quantile(samples, [0.025, 0.975]), abs=1e-6)
    assert found.n == len(values)


def test_groups_and_nested_averages_are_resampled_as_a_whole() -> None:
    """Macro over two groups that share clusters, recomputed by hand in every resample."""
    rng = np.random.default_rng(6)
    clusters, values = np.arange(40) // 2, rng.random(40)
    groups = [("a",) if i % 2 else ("b",) for i in range(40)]
    draws = np.concatenate(list(draw_weights(20, 150, seed=0)))
    of = {label: [i for i in range(40) if groups[i] == (label,)] for label in "ab"}
    samples = {
        label: naive_samples(values[rows].tolist(), clusters[rows].tolist(), draws)
        for label, rows in of.items()
    }
    found = estimate(
        values[:, None], clusters, members_of(groups), Averaging(AVERAGES["macro"]), resamples=150
    )
    macro = np.mean([samples["a"], samples["b"]], axis=0)
    for label, expected in {**samples, "all": macro}.items():
        [e] = found[label]
        assert (e.low, e.high) == pytest.approx(np.quantile(expected, [0.025, 0.975]), abs=1e-6)


def test_the_interval_is_near_the_normal_one() -> None:
    values = (np.random.default_rng(1).random(900) < 0.7).astype(float)
    found = alone(values, resamples=4000)
    margin = 1.96 * values.std() / math.sqrt(len(values))
    assert found.low == pytest.approx(values.mean() - margin, abs=0.15 * margin)
    assert found.high == pytest.approx(values.mean() + margin, abs=0.15 * margin)


def test_copies_in_a_cluster_add_nothing() -> None:
    """Four copies of a case in its cluster leave the interval; as own clusters they halve it."""
    values = (np.random.default_rng(2).random(100) < 0.6).astype(float)
    single = alone(values, resamples=1000)
    copies = np.repeat(values, 4)
    clustered = alone(copies, np.repeat(np.arange(100), 4), resamples=1000)
    assert clustered[:3] == pytest.approx(single[:3], abs=1e-6)
    assert clustered.n == 4 * single.n
    assert width(alone(copies, resamples=1000)) == pytest.approx(width(single) / 2, rel=0.15)


@pytest.mark.slow
def test_intervals_hold_the_truth_about_as_often_as_they_say() -> None:
    """60 images, three cases each that share the image's difficulty; the true mean is 1/2."""
    rng, clusters, hits, naive_hits = np.random.default_rng(3), np.repeat(np.arange(60), 3), [], []
    for _ in range(200):
        ease = np.repeat(rng.random(60), 3)
        values = (rng.random(180) < ease).astype(float)
        found = alone(values, clusters, resamples=300)
        hits.append(found.low <= 0.5 <= found.high)
        margin = 1.96 * values.std() / math.sqrt(180)  # as if cases were independent
        naive_hits.append(abs(values.mean() - 0.5) <= margin)
    assert 0.89 <= np.mean(hits) <= 0.99
    assert np.mean(naive_hits) < np.mean(hits)


def test_the_order_of_cases_is_nothing() -> None:
    rng = np.random.default_rng(8)
    values, clusters, order = rng.random(30), np.arange(30) // 3, rng.permutation(30)
    whole = alone(values, clusters, resamples=100)
    assert alone(values[order], clusters[order], resamples=100) == pytest.approx(whole, abs=1e-6)


def test_perfect_and_hopeless_still_have_an_interval() -> None:
    """Clopper-Pearson on clusters: 0.025 ** (1 / n) is the bound when all of n are right."""
    for clusters in [5, 50]:
        numbers = np.repeat(np.arange(clusters), 3)
        right = alone(np.ones(3 * clusters), numbers, resamples=50, shares=[True])
        wrong = alone(np.zeros(3 * clusters), numbers, resamples=50, shares=[True])
        bound = 0.025 ** (1 / clusters)
        assert (right.low, right.value, right.high) == pytest.approx((bound, 1, 1))
        assert (wrong.low, wrong.value, wrong.high) == pytest.approx((0, 0, 1 - bound))


def test_the_interval_of_few_clusters_is_at_least_the_exact_one() -> None:
    for clusters in [1, 4, 9, 19]:
        numbers = np.repeat(np.arange(clusters), 2)
        for right in range(clusters + 1):
            found = alone((numbers < right).astype(float), numbers, resamples=200, shares=[True])
            exact = binomtest(right, clusters).proportion_ci(method="exact")
            assert found.low <= exact.low + 1e-9 and found.high >= exact.high - 1e-9
            assert clopper_pearson(right, clusters) == pytest.approx((exact.low, exact.high))


def test_chance_is_seldom_outside_of_the_interval_of_few_clusters() -> None:
    """A third of random models was "above chance" over three images of three cases each."""
    rng = np.random.default_rng(0)
    for clusters in (3, 5, 8, 13, 19):
        for size, chance in product((1, 3), (1 / 2, 1 / 3, 1 / 4)):
            values = (rng.random((clusters * size, 300)) < chance).astype(float)
            numbers, members = np.repeat(np.arange(clusters), size), members_of([()] * len(values))
            all_shares = [True] * 300
            found = estimate(values, numbers, members, resamples=300, shares=all_shares)["all"]
            assert np.mean([e.low > chance + 1e-9 for e in found]) <= 0.055, (
                clusters,
                size,
                chance,
            )


def test_a_missing_value_is_left_out_of_its_column_only() -> None:
    nan = float("nan")
    values = np.array([[1, nan], [0, nan], [nan, nan], [1, nan], [1, nan]])
    values = np.column_stack([values, [0.2, 0.4, 0.6, 0.8, 1.0]])
    found = estimate(values, np.arange(5), members_of([()] * 5), resamples=200)["all"]
    assert (found[0].value, found[0].n) == (0.75, 4)
    assert found[0].low < 0.75 < found[0].high
    assert found[1].n == 0 and all(math.isnan(x) for x in found[1][:3])
    assert (found[2].value, found[2].n) == (pytest.approx(0.6), 5)


def test_a_case_that_is_missing_is_a_case_that_is_not_there() -> None:
    """A NaN gives the interval of the same clusters without the case."""
    rng = np.random.default_rng(9)
    values, clusters = rng.random(40), np.arange(40) // 4
    missing, kept = values.copy(), np.arange(40) % 4 != 1
    missing[~kept] = np.nan
    assert alone(missing, clusters, resamples=100) == pytest.approx(
        alone(values[kept], clusters[kept], resamples=100), abs=1e-6
    )


# --- group labels and averages -----------------------------------------------------------------


def test_members_are_the_rows_of_every_prefix() -> None:
    found = members_of([("a/x", "hard"), ("a/y",), (), ("b",)])
    assert {label: rows.tolist() for label, rows in found.items()} == {
        "all": [0, 1, 2, 3],
        "a": [0, 1],
        "a/x": [0],
        "a/y": [1],
        "b": [3],
        "hard": [0],
    }
    assert next(iter(found)) == "all"


SIZES = {
    "add/att": 692,
    "add/obj": 2062,
    "replace/att": 788,
    "replace/obj": 1652,
    "replace/rel": 1406,
    "swap/att": 666,
    "swap/obj": 245,
}
# Published accuracies by subset, in the order of SIZES, and the four averages in use.
SUGARCREPE = {
    "CLIP": ((68.79, 77.21, 80.08, 90.92, 69.20, 63.96, 61.22), (76.56, 73.05, 73.03, 71.9)),
    "NegCLIP": ((85.12, 90.06, 87.94, 93.83, 74.40, 77.03, 75.92), (85.66, 83.47, 83.69, 83.15)),
}


def sugarcrepe(accuracies: tuple[float, ...]) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """A case for each of the 7,511, right as often as published."""
    values, groups = [], []
    for (label, size), accuracy in zip(SIZES.items(), accuracies, strict=True):
        right = round(size * accuracy / 100)
        values += [1.0] * right + [0.0] * (size - right)
        groups += [(label,)] * size
    return column(*values), members_of(groups)


def test_the_four_averages_of_sugarcrepe() -> None:
    for model in SUGARCREPE:
        accuracies, published = SUGARCREPE[model]
        values, members = sugarcrepe(accuracies)
        found = averages(values, members, KINDS)
        for name, expected in zip(
            ("micro", "macro", "types", "types-macro"), published, strict=True
        ):
            rounding = 0.051 if expected == 71.9 else 0.011
            assert 100 * found[name].item() == pytest.approx(expected, abs=rounding), name


def test_an_estimate_is_the_average_that_was_asked_for() -> None:
    for average in AVERAGES:
        accuracies, _ = SUGARCREPE["CLIP"]
        values, members = sugarcrepe(accuracies)
        [found] = estimate(values, np.arange(len(values)), members, KINDS[average], resamples=20)[
            "all"
        ]
        assert found.value == pytest.approx(averages(values, members, KINDS)[average].item())
        assert found.low <= found.value <= found.high and width(found) > 0
        assert found.n == 7511


def test_the_hard_positives_average_is_over_cases() -> None:
    """(57.6 x 16,868 + 68.1 x 10,575) / 27,443 = 61.65, printed as 61.6; macro is 62.85."""
    counts = {"relations": 16_868, "attributes": 10_575}
    values = column(*[0.576] * counts["relations"], *[0.681] * counts["attributes"])
    members = members_of([(label,) for label, count in counts.items() for _ in range(count)])
    found = averages(values, members, KINDS)
    assert 100 * found["micro"].item() == pytest.approx(61.65, abs=0.005)
    assert 100 * found["macro"].item() == pytest.approx(62.85, abs=0.005)


def nested(
    values: np.ndarray, groups: list[tuple[str, ...]], average: str, **options: object
) -> float:
    first = frozenset(
        prefix for labels in groups for label in labels[:1] for prefix in prefixes(label)
    )
    kind = Averaging(AVERAGES[average], labels=first, **options)  # type: ignore[arg-type]
    members = members_of(groups, kind.exclude)
    [found] = estimate(values, np.arange(len(values)), members, kind, resamples=5)["all"]
    side = averages(values, members, {"it": kind})["it"].item()
    assert found.value == pytest.approx(side, nan_ok=True), "the two ways to an average must agree"
    return side


FOUR = (column(0.0, 0.0, 0.6, 1.0), [("a/x",), ("a/x",), ("a/y",), ("b/z",)])


def test_four_averages_by_hand() -> None:
    expected: Mapping[str, float] = {
        "micro": 1.6 / 4,
        "macro": (0 + 0.6 + 1) / 3,
        "types": (0.2 + 1) / 2,
        "types-macro": (0.3 + 1) / 2,
    }
    assert {name: nested(*FOUR, name) for name in expected} == pytest.approx(expected)


def test_excluded_groups_are_left_out() -> None:
    assert nested(*FOUR, "macro", exclude=frozenset({"a/x"})) == pytest.approx(0.8)
    assert nested(*FOUR, "types", exclude=frozenset({"a"})) == pytest.approx(1.0)
    assert nested(*FOUR, "types-macro", exclude=frozenset({"a/x"})) == pytest.approx(0.8)


def test_excluded_groups_are_left_out_of_the_mean_over_cases_too() -> None:
    assert nested(*FOUR, "micro", exclude=frozenset({"a/x"})) == pytest.approx(0.8)


def test_small_groups_are_left_out() -> None:
    assert nested(*FOUR, "macro", min_count=1) == pytest.approx(1.6 / 3)
    assert nested(*FOUR, "macro", min_count=2) == pytest.approx(0.0)
    assert nested(*FOUR, "types", min_count=3) == pytest.approx(0.2)


def test_labels_without_levels_below_stand_for_themselves() -> None:
    values, groups = column(0.0, 1.0, 0.5), [("a",), ("b/x",), ("b/y",)]
    assert nested(values, groups, "types-macro") == pytest.approx((0 + 0.75) / 2)
    assert nested(values, groups, "macro") == pytest.approx(0.5)


def test_cases_without_groups_are_averaged_as_they_are() -> None:
    for average in AVERAGES:
        assert nested(column(0.0, 1.0, 1.0), [(), (), ()], average) == pytest.approx(2 / 3)


def test_a_label_that_begins_like_another_is_not_below_it() -> None:
    """`swaps/z` is no subgroup of `swap`."""
    values = column(0.0, 1.0, 1.0)
    groups = [("swap/x",), ("swap/y",), ("swaps/z",)]
    assert nested(values, groups, "types-macro") == pytest.approx((0.5 + 1) / 2)


def test_averages_use_the_first_label_of_a_case() -> None:
    """As the case table says; further labels are reported and enter no average."""
    values = column(0.0, 0.0, 1.0)
    groups = [("a/x", "hard"), ("a/x", "hard"), ("b/y", "hard")]
    for average in ("macro", "types", "types-macro"):
        assert nested(values, groups, average) == pytest.approx(0.5), average


def test_groups_that_are_all_left_out_have_no_average() -> None:
    assert math.isnan(nested(*FOUR, "macro", exclude=frozenset({"a", "b"})))
    assert nested(*FOUR, "macro", exclude=frozenset({"a"})) == pytest.approx(1.0)


def test_a_column_that_a_group_has_no_value_for_is_no_warning() -> None:
    """Mixed shapes: a metric may be undefined for a whole group, or for the whole benchmark."""
    nan = float("nan")
    values = np.array([[1.0, nan], [nan, nan]])
    found = averages(values, members_of([("a",), ("b",)]), KINDS)
    for name in AVERAGES:
        assert found[name][0] == 1.0, name
        assert math.isnan(found[name][1]), name


# --- medians -----------------------------------------------------------------------------------


def test_medians_and_their_intervals_are_those_of_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    values = rng.integers(1, 7, (60, 2)).astype(float)
    values[rng.random(60) < 0.2, 1] = np.nan
    clusters = rng.integers(0, 17, 60)
    clusters[:17] = range(17)
    members = members_of([("a" if row % 3 else "b",) for row in range(60)])
    found = estimate(
        values, clusters, members, Averaging(AVERAGES["macro"]), medians=[False, True], resamples=40
    )
    weights = np.concatenate(list(draw_weights(17, 40, seed=0))).astype(int)

    def median(label: str, times: np.ndarray) -> float:
        rows = members[label]
        return float(np.nanmedian(np.repeat(values[rows, 1], times[clusters[rows]])))

    for label in ("a", "b"):
        assert found[label][1].value == median(label, np.ones(17, dtype=int))
        samples = [median(label, times) for times in weights]
        low, high = np.quantile(samples, [0.025, 0.975])
        assert (found[label][1].low, found[label][1].high) == pytest.approx((low, high))
    # The average over groups is a mean of their medians; the other column is left as it is.
    assert found["all"][1].value == (found["a"][1].value + found["b"][1].value) / 2
    plain = estimate(values, clusters, members, Averaging(AVERAGES["macro"]), resamples=40)
    assert [e[0] for e in found.values()] == [e[0] for e in plain.values()]
    assert plain["a"][1] != found["a"][1]


def test_the_median_of_nothing_is_not_a_number() -> None:
    assert math.isnan(alone(column(np.nan, np.nan), medians=[True]).value)
