"""From scores in memory to rows, differences and averages."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
import pytest
from columns_support import by_name, differences
from errors import raises
from support import (
    GROUPS,
    case,
    gallery,
    mixed,
    owned,
    part,
    random_run,
    random_scores,
    reference,
    run_of,
    table,
)

from counterpoint.cases import NO_NEGATIVE, SURPLUS, Absent, Cases
from counterpoint.metrics import METRICS, PROTOCOLS, Metric, PooledMetric, holm, mcnemar
from counterpoint.runs import (
    Part,
    Run,
    as_json,
    compare,
    differences_note,
    differences_table,
    part_size,
    rows,
    side_by_side,
)

NONE = "no difference shown"
FAST = 200  # resamples
TRIPLES = {
    "original_accuracy": 1 / 2,
    "augmented_accuracy": 1 / 3,
    "brittleness": 1 / 3,
    "brittle_original_above": 1 / 6,
    "brittle_original_below": 1 / 6,
    "negative_above_both": 1 / 3,
    "tied": 0,
    "tie_rate": 0,
    "mean_score_original": None,
    "mean_score_positive": None,
    "mean_score_negative": None,
    "auroc": 1 / 2,
    "calibration_error": None,
    "true_below_threshold": None,
}
LABELS = {"all", "replace", "swap", *GROUPS}


def case_values(p: Part, metric: str, tie: str = "wrong") -> np.ndarray:
    """One metric case by case, by the slow reference."""
    starts, values = p.cases.pair_offsets, []
    for i in range(len(p.cases)):
        truth = p.cases.case(i).truth
        cells = p.scores[starts[i] : starts[i + 1]].reshape(len(truth), -1).tolist()
        values.append(reference(metric, cells, truth, tie))
    return np.array(values)


def in_group(p: Part, label: str) -> np.ndarray:
    first = [labels[0] for labels in p.cases.frame["groups"].to_list()]
    return np.array([label == "all" or f"{name}/".startswith(f"{label}/") for name in first])


# --- rows --------------------------------------------------------------------------------------


def test_every_group_has_a_row_for_every_metric_it_defines() -> None:
    found = by_name(rows(random_run(table(), seed=0), resamples=FAST))
    assert set(found) == {(label, metric) for label in LABELS for metric in TRIPLES}
    for (_, metric), row in found.items():
        assert row.model == "model" and row.benchmark == "bench"
        assert row.ci_low <= row.value <= row.ci_high
        assert row.chance == (None if TRIPLES[metric] is None else pytest.approx(TRIPLES[metric]))


@pytest.mark.slow
@pytest.mark.parametrize("tie", ["wrong", "right", "half"])
def test_a_row_is_the_mean_of_its_cases(tie: str) -> None:
    run = random_run(table(), seed=1, values=3)
    protocol = replace(PROTOCOLS["strict"], tie=tie)
    [only] = run.parts.values()
    outcomes = {n for n, m in METRICS.items() if isinstance(m, Metric) and m.partition}
    for row in rows(run, protocol, resamples=20):
        if isinstance(METRICS[row.metric], PooledMetric):
            continue  # not a mean: see test_pooled_rows
        chosen = in_group(only, row.group)
        assert row.value == pytest.approx(
            case_values(only, row.metric, tie)[chosen].mean(), rel=1e-6
        )
        assert row.n == chosen.sum()
        # A tie matters if the policy would change the value; where ties are an outcome, always.
        decided = case_values(only, row.metric, "wrong") != case_values(only, row.metric, "right")
        tied = case_values(only, "tie_rate") if row.metric in outcomes else decided
        assert row.ties == tied[chosen].sum()


def test_all_is_the_average_of_the_protocol() -> None:
    run = random_run(table(), seed=2)
    found = by_name(rows(run, replace(PROTOCOLS["strict"], average="macro"), resamples=FAST))
    groups = [found[label, "original_accuracy"].value for label in GROUPS]
    micro = by_name(rows(run, resamples=FAST))["all", "original_accuracy"].value
    macro = found["all", "original_accuracy"].value
    assert macro == pytest.approx(np.mean(groups))
    assert macro != pytest.approx(micro)


def test_shapes_that_differ_have_their_own_metrics() -> None:
    found = by_name(rows(random_run(mixed(), seed=3), resamples=FAST))
    assert found["all", "brittleness"].n == 12
    assert found["all", "group"].n == 12
    assert found["all", "group"].chance == pytest.approx(1 / 6)
    assert ("swap", "brittleness") not in found
    assert ("replace", "group") not in found
    assert found["swap", "group"].value == found["all", "group"].value
    assert all(np.isfinite([row.value, row.ci_low, row.ci_high]).all() for row in found.values())


def test_rows_of_every_benchmark_and_none_for_an_empty_one() -> None:
    cases = table(10)
    empty = part(cases.keep(np.zeros(10, dtype=bool)), np.zeros(0), name="empty")
    full = part(cases, random_scores(cases, 0), name="full")
    again = part(cases, random_scores(cases, 1), name="again")
    found = rows(run_of(empty, full, again), resamples=FAST)
    assert {row.benchmark for row in found} == {"full", "again"}


def test_clusters_widen_the_interval_of_a_row() -> None:
    """Sixty cases of six images that are right or wrong together, and the same as sixty images."""
    right = np.repeat([1, 0, 1, 1, 0, 1], 10)
    scores = np.stack([right, right, np.full(60, 0.5)], axis=1).reshape(-1)
    made = [replace(case(i), cluster=str(i // 10)) for i in range(60)]
    apart = [replace(one, cluster=one.id) for one in made]
    widths = []
    for cases in (made, apart):
        run = run_of(part(Cases.build(cases, source="test"), scores))
        row = by_name(rows(run, resamples=1000))["all", "augmented_accuracy"]
        assert row.value == pytest.approx(4 / 6)
        widths.append(row.ci_high - row.ci_low)
    assert widths[0] / widths[1] == pytest.approx(10**0.5, rel=0.25)


def test_a_perfect_mean_rank_is_not_below_1() -> None:
    cases = table(20, positives=1, negatives=5)
    run = run_of(part(cases, np.tile([9, 1, 2, 3, 4, 5], 20)))
    row = by_name(rows(run, resamples=FAST))["all", "mean_rank"]
    assert row.value == 1
    assert row.ci_low >= 1


def test_ranks_count_cases_of_few_captions_too() -> None:
    """CREPE's lists of negatives are of all lengths; none may leave an average."""
    made = [case(0, 1, 5), case(1, 1, 1), case(2, 1, 2), case(3, 1, 1)]
    scores = [3, 1, 9, 8, 2, 0, *(1, 2), *(5, 4, 6), *(2, 1)]  # ranks 3, 2, 2, 1
    found = by_name(rows(run_of(part(Cases.build(made, source="test"), scores)), resamples=FAST))
    values = {
        "recall@1": 1 / 4,
        "recall@3": 1,
        "recall@10": 1,
        "mean_rank": 2,
        "median_rank": 2,
    }
    for metric, value in values.items():
        row = found["all", metric]
        assert (row.n, row.value) == (4, pytest.approx(value)), metric
    chances = [1 / 6, 1 / 2, 1 / 3, 1 / 2]
    assert found["all", "recall@1"].chance == pytest.approx(np.mean(chances))
    assert found["all", "median_rank"].chance is None


def test_ranks_are_shown_where_some_case_has_two_negatives() -> None:
    cases = Cases.build([case(0, 1, 1), case(1, 1, 1)], source="test")
    found = by_name(rows(run_of(part(cases, [1, 2, 2, 1])), resamples=FAST))
    assert ("all", "original_accuracy") in found and ("all", "recall@1") not in found


def test_a_protocol_of_other_captions_is_refused() -> None:
    with raises("E-PROTOCOL-MISFIT", "bench", "aro-order"):
        rows(random_run(table(10), seed=0), PROTOCOLS["aro-order"])


def test_rows_are_the_same_every_time() -> None:
    run = random_run(table(), seed=4)
    assert rows(run, resamples=FAST) == rows(run, resamples=FAST)


def test_rows_are_plain_json() -> None:
    found = rows(random_run(table(10), seed=5), resamples=20)
    plain = json.loads(json.dumps(as_json(found), allow_nan=False))
    assert plain[0]["metric"] == found[0].metric and plain[0]["value"] == found[0].value
    odd = as_json([replace(found[0], value=float("nan"), ci_high=float("inf"))])
    assert odd[0]["value"] is None and odd[0]["ci_high"] is None and odd[0]["n"] == 10


# --- averages side by side ---------------------------------------------------------------------


def test_all_averages_side_by_side() -> None:
    cases = table()
    made = part(cases, random_scores(cases, 6), "sugarcrepe")
    found = side_by_side(made)
    values = case_values(made, "original_accuracy")
    mean = {label: values[in_group(made, label)].mean() for label in LABELS}
    types = [[mean[g] for g in GROUPS if g.startswith(t)] for t in ("replace", "swap")]
    expected = {
        "micro": values.mean(),
        "macro": np.mean([mean[g] for g in GROUPS]),
        "types": (mean["replace"] + mean["swap"]) / 2,
        "types-macro": np.mean([np.mean(t) for t in types]),
    }
    assert {n: v["original_accuracy"] for n, v in found.items()} == pytest.approx(expected)
    assert len(set(expected.values())) == 4
    assert set(side_by_side(made, PROTOCOLS["strict"])) == {"micro", "macro"}


def test_averages_side_by_side_of_mixed_shapes() -> None:
    cases = mixed()
    found = side_by_side(part(cases, random_scores(cases, 7)))
    assert all(np.isfinite(list(values.values())).all() for values in found.values())


# --- comparing ---------------------------------------------------------------------------------


def good_and_bad(count: int = 80) -> tuple[Run, Run]:
    """A ranks both positives first in nine of ten cases; B puts the negative between them."""
    cases, rng = table(count), np.random.default_rng(0)
    good, bad = np.array([3.0, 2.0, 1.0]), np.array([3.0, 1.0, 2.0])
    a = np.where(rng.random((count, 1)) < 0.9, good, good[::-1])
    b = np.where(rng.random((count, 1)) < 0.8, bad, good)
    return run_of(part(cases, a.reshape(-1)), model="a"), run_of(
        part(cases, b.reshape(-1)), model="b"
    )


def test_the_better_run_is_named_whatever_better_means() -> None:
    forth = differences(compare(*good_and_bad(), resamples=1000))
    back = differences(compare(*reversed(good_and_bad()), resamples=1000))
    assert forth["all", "augmented_accuracy"].verdict == "A is better"
    assert forth["all", "brittleness"].verdict == "A is better"
    assert forth["all", "brittleness"].difference < 0
    assert back["all", "augmented_accuracy"].verdict == "B is better"
    for key, found in forth.items():
        assert found.difference == pytest.approx(found.a - found.b)
        assert back[key].difference == pytest.approx(-found.difference)
        assert (back[key].a, back[key].b) == (found.b, found.a)
        assert back[key].p == pytest.approx(found.p)
        assert found.ci_low <= found.difference <= found.ci_high


def test_each_side_of_a_difference_is_its_own_row() -> None:
    a, b = (random_run(table(), seed) for seed in (0, 1))
    sides = [by_name(rows(run, resamples=20)) for run in (a, b)]
    found = differences(compare(a, b, resamples=20))
    shown = {metric for metric in TRIPLES if METRICS[metric].better}
    assert set(found) == {(label, metric) for label in LABELS for metric in shown}
    for key, d in found.items():
        assert (d.a, d.b) == pytest.approx([side[key].value for side in sides])
        assert d.n == sides[0][key].n


def test_p_values_are_corrected_over_groups_and_exact_ones_are_mcnemars() -> None:
    a, b = good_and_bad()
    found = differences(compare(a, b, resamples=FAST))
    for metric in ("original_accuracy", "brittleness"):
        groups = [label for label, name in found if name == metric and label != "all"]
        expected = holm([found[label, metric].p for label in groups])
        assert [found[label, metric].p_holm for label in groups] == pytest.approx(expected)
        assert found["all", metric].p_holm == found["all", metric].p
        for label in ("all", *groups):
            left, right = (
                case_values(run.parts["bench"], metric)[in_group(run.parts["bench"], label)]
                for run in (a, b)
            )
            assert found[label, metric].p_mcnemar == pytest.approx(mcnemar(left, right))


@pytest.mark.slow
def test_what_correction_takes_back_is_not_shown() -> None:
    """Among many groups of two equal runs some p is small by chance; none of it is a verdict."""
    cases = table()
    found = [
        difference
        for seed in range(12)
        for difference in compare(
            random_run(cases, 2 * seed), random_run(cases, 2 * seed + 1), resamples=FAST
        )
    ]
    taken_back = [d for d in found if d.p < 0.05 <= d.p_holm]
    assert taken_back
    assert all(d.verdict == NONE for d in taken_back)


def test_exact_tests_are_for_right_or_wrong_only() -> None:
    """Half a point for a tie, and ranks, are no coin tosses."""
    cases = table(40, positives=1, negatives=5)
    a, b = (run_of(part(cases, random_scores(cases, seed, values=3))) for seed in (0, 1))
    half = differences(compare(a, b, replace(PROTOCOLS["strict"], tie="half"), resamples=20))
    assert half["all", "original_accuracy"].p_mcnemar is None
    strict = differences(compare(a, b, resamples=20))
    assert strict["all", "original_accuracy"].p_mcnemar is not None
    assert strict["all", "mean_rank"].p_mcnemar is None


def test_a_run_shows_no_difference_from_itself() -> None:
    run = random_run(table(), seed=8)
    for found in compare(run, run, resamples=FAST):
        assert found.verdict == NONE
        assert (found.difference, found.p, found.p_holm) == (0, 1, 1)
        assert found.p_mcnemar in (None, 1)
        # As much is said about A - B as about B - A.
        assert found.ci_high == pytest.approx(-found.ci_low) and found.ci_low <= 0, found.metric


@pytest.mark.slow
def test_differences_of_random_runs_are_seldom_named() -> None:
    """At 5 %, corrected over groups: 40 pairs of equals, about 2 verdicts on `all` at most."""
    cases, named = table(60), 0
    for seed in range(40):
        a, b = (random_run(cases, 1000 + 2 * seed + i) for i in (0, 1))
        found = differences(compare(a, b, resamples=FAST))
        named += found["all", "original_accuracy"].verdict != NONE
    assert named <= 5


def test_only_cases_that_both_scored_are_compared_in_any_order() -> None:
    cases = table(40)
    a, b = (random_scores(cases, seed).reshape(40, 3) for seed in (0, 1))
    order = np.random.default_rng(0).permutation(40)[:30]
    some = Cases(cases.frame[order])
    whole = run_of(part(cases, a.reshape(-1)))
    found = compare(whole, run_of(part(some, b[order].reshape(-1))), resamples=20)
    kept = np.sort(order)
    fewer = Cases(cases.frame[kept])
    expected = compare(
        run_of(part(fewer, a[kept].reshape(-1))),
        run_of(part(fewer, b[kept].reshape(-1))),
        resamples=20,
    )
    assert found == expected
    assert {d.n for d in found if d.group == "all"} == {30}


def test_runs_of_which_one_lacks_a_shape_are_compared_on_the_rest() -> None:
    """B could not score any case of two images, so the metrics of two images fall away."""
    cases = mixed()
    a = random_run(cases, seed=0)
    kept = cases.keep(np.arange(24) < 12)
    b = run_of(part(kept, random_scores(cases, 1)[: 12 * 3]))
    found = differences(compare(a, b, resamples=20))
    assert found["all", "brittleness"].n == 12
    assert ("all", "group") not in found
    expected = by_name(rows(b, resamples=20))["all", "brittleness"].value
    assert found["all", "brittleness"].b == pytest.approx(expected)


def test_runs_that_share_nothing_are_refused() -> None:
    cases = table(10)
    a = run_of(part(cases, random_scores(cases, 0), name="one"), model="clip")
    b = run_of(part(cases, random_scores(cases, 0), name="two"), model="siglip")
    with raises("E-RUNS-DISJOINT", "clip", "siglip"):
        compare(a, b)
    half = np.arange(10) < 5
    parts = [part(cases.keep(mask), np.zeros(15)) for mask in (half, ~half)]
    with raises("E-RUNS-DISJOINT", "bench"):
        compare(*map(run_of, parts))


@pytest.mark.parametrize("column", ["captions", "truth"])
def test_runs_on_other_data_are_refused(column: str) -> None:
    cases = table(10)
    other = {"captions": ["a", "b", "c"], "truth": [0]}[column]
    changed = pl.Series([other], dtype=cases.frame.schema[column])
    frame = cases.frame.with_columns(
        pl.when(pl.col("id") == "case-3")
        .then(changed.first())
        .otherwise(pl.col(column))
        .alias(column)
    )
    a, b = (run_of(part(c, np.zeros(30))) for c in (cases, Cases(frame)))
    with raises("E-CASES-DIFFER", "bench", "case-3", 1):
        compare(a, b)


def test_runs_of_other_protocols_need_one_to_agree_on() -> None:
    cases = table(20)
    a, b = (
        run_of(part(cases, random_scores(cases, seed), name))
        for seed, name in enumerate(("strict", "sugarcrepe"))
    )
    with raises("E-PROTOCOLS-DIFFER", "strict", "sugarcrepe"):
        compare(a, b)
    assert compare(a, b, PROTOCOLS["strict"], resamples=20)


# --- how much of the whole ---------------------------------------------------------------------

LOST = (("a", "no such file"), ("b", "no such file"))


def test_how_much_of_the_whole_was_scored() -> None:
    cases = table(12)
    scored = part(cases, random_scores(cases, 1))
    sizes: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {}, ""),
        ({"whole": 12}, {}, ""),
        ({"whole": 12}, {"limit": 50}, ""),
        ({"whole": 7511}, {"limit": 12}, "12 of 7,511"),
        ({"left_out": LOST}, {}, "12 of 14"),
        ({"left_out": LOST}, {"limit": 14}, "12 (part)"),
        ({"whole": 10}, {}, "12 instead of 10"),
        ({"absent": (Absent("f", "file missing", None),)}, {}, "12 (part)"),
        ({"absent": (Absent("f", "rows missing", 5),)}, {}, "12 of 17"),
        ({"absent": (Absent("f", NO_NEGATIVE),)}, {}, ""),
        ({"absent": (Absent("f", SURPLUS, 2),)}, {}, "12 (part)"),
    ]
    for about, options, size in sizes:
        assert part_size(replace(scored, **about), options) == size


def test_of_a_gallery_images_are_counted() -> None:
    cases = Cases.build([gallery(owned(7))], source="test")
    one = part(cases, random_scores(cases, 1))
    assert part_size(replace(one, whole=5000), {"limit": 7}) == "7 of 5,000 images"
    assert part_size(replace(one, whole=7), {"limit": 9}) == ""
    lost = (Absent("coco", "captions missing", 3),)
    assert part_size(replace(one, whole=7, absent=lost), {}) == "7 images (part)"


def test_a_table_says_which_p_is_corrected() -> None:
    """Intervals and McNemar's p are not, p of the whole benchmark neither."""
    found = compare(*good_and_bad(), resamples=20)
    for group, expected in (("all", "p"), ("swap", "p (Holm)")):
        mine = [d for d in found if d.group == group]
        heads = list(differences_table("title", mine).columns)
        assert heads == ["metric", "A", "B", "A - B", expected, "McNemar", "verdict"]
    said = differences_note(found)
    assert "of groups it is Holm-corrected" in said and "tied" not in said
    assert "tied: the whole interval lies within ±2.5 points." in differences_note(
        [replace(found[0], margin=2.5)]
    )
