"""Benchmarks in which only some cases have positives: no row mixes the two kinds of case."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from columns_support import by_name
from support import case, part, random_run, random_scores, run_of, square, table

from counterpoint.cases import Case, Cases
from counterpoint.metrics import PROTOCOLS
from counterpoint.reports.data import gather
from counterpoint.reports.figures.intervals import drop
from counterpoint.reports.ranking import numbers_of
from counterpoint.runs import (
    Part,
    Run,
    compare,
    members_in,
    results_table,
    rows,
    side_by_side,
)

FAST = 50  # resamples
REST = "without positives"
MAIN = ("original_accuracy", "augmented_accuracy", "brittleness")
# How many cases of each group have a positive, and how many have none.
MIXED = {"add/obj": (10, 6), "replace/obj": (8, 0), "swap/obj": (0, 12), "swap/att": (4, 2)}


def mixed_cases(negatives: int = 1) -> Cases:
    """Cases with and without a positive, alternating within a group."""
    made: list[Case] = []
    for group, (with_one, without) in MIXED.items():
        kinds = [2] * with_one + [1] * without
        for positives in sorted(kinds, key=lambda kind: kind):
            wrong = negatives if positives == 2 else negatives + 1
            made.append(case(len(made), positives, wrong, group=group))
    return Cases.build(made, source="test")


def mixed_run(seed: int = 0, *, same_shape: bool = True) -> Run:
    """With `same_shape`, a case has three captions whether or not it has a positive."""
    cases = mixed_cases()
    if not same_shape:
        made = [replace(cases.case(i)) for i in range(len(cases))]
        made = [
            one
            if sum(one.truth[0]) == 2
            else replace(one, captions=one.captions[:2], truth=((True, False),))
            for one in made
        ]
        cases = Cases.build(made, source="test")
    return random_run(cases, seed)


def has_positive(only: Part) -> np.ndarray:
    return np.array([sum(only.cases.case(i).truth[0]) > 1 for i in range(len(only.cases))])


def originals(only: Part) -> np.ndarray:
    """1 where the original is above every negative, case by case."""
    starts = only.cases.pair_offsets
    found = []
    for i in range(len(only.cases)):
        truth = np.array(only.cases.case(i).truth[0])
        scores = only.scores[starts[i] : starts[i + 1]]
        found.append(float(scores[0] > scores[~truth].max()))
    return np.array(found)


@pytest.mark.parametrize("same_shape", [True, False])
def test_the_metrics_of_a_row_stand_on_the_same_cases(same_shape: bool) -> None:
    run = mixed_run(same_shape=same_shape)
    [only] = run.parts.values()
    found = by_name(rows(run, resamples=FAST))
    reworded, right = has_positive(only), originals(only)
    assert {found["all", metric].n for metric in MAIN} == {22}
    assert found["all", "original_accuracy"].value == pytest.approx(right[reworded].mean())
    rest = found[REST, "original_accuracy"]
    assert rest.n == 20 and rest.value == pytest.approx(right[~reworded].mean())
    assert rest.chance == pytest.approx(1 / 3 if same_shape else 1 / 2)
    assert (REST, "augmented_accuracy") not in found
    assert (REST, "brittleness") not in found
    for group in {row.group for row in found.values()}:
        ns = {found[group, metric].n for metric in MAIN if (group, metric) in found}
        assert len(ns) == 1, group


def test_groups_are_there_on_both_sides() -> None:
    found = by_name(rows(mixed_run(), resamples=FAST))
    counts = {
        group: row.n for (group, metric), row in found.items() if metric == "original_accuracy"
    }
    assert counts == {
        "all": 22,
        "add": 10,
        "add/obj": 10,
        "replace": 8,
        "replace/obj": 8,
        "swap": 4,
        "swap/att": 4,
        REST: 20,
        f"{REST}/add": 6,
        f"{REST}/add/obj": 6,
        f"{REST}/swap": 14,
        f"{REST}/swap/att": 2,
        f"{REST}/swap/obj": 12,
    }


@pytest.mark.slow
@pytest.mark.parametrize("average", ["macro", "types", "types-macro", "nested"])
def test_an_average_is_over_the_same_groups_for_every_metric(average: str) -> None:
    """`swap/obj` has no positive: it counts for the original of no average beside augmented."""
    run = mixed_run()
    [only] = run.parts.values()
    protocol = replace(PROTOCOLS["strict"], average=average, averages=(average,))
    alone = only.cases.keep(has_positive(only))
    pairs = np.repeat(has_positive(only), 3)
    expected = by_name(
        rows(
            run_of(replace(only, cases=alone, scores=only.scores[pairs])), protocol, resamples=FAST
        )
    )
    for groups in (True, False):
        found = by_name(rows(run, protocol, resamples=FAST, groups=groups))
        for metric in MAIN:
            assert found["all", metric].value == pytest.approx(expected["all", metric].value)
    beside = side_by_side(only, protocol)[average]
    assert beside["original_accuracy"] == pytest.approx(expected["all", "original_accuracy"].value)


def test_cases_without_positives_are_averaged_as_the_protocol_averages() -> None:
    run = mixed_run()
    [only] = run.parts.values()
    protocol = replace(PROTOCOLS["strict"], average="macro")
    rest = ~has_positive(only)
    apart = replace(only, cases=only.cases.keep(rest), scores=only.scores[np.repeat(rest, 3)])
    expected = by_name(rows(run_of(apart), protocol, resamples=FAST))["all", "original_accuracy"]
    for groups in (True, False):
        found = by_name(rows(run, protocol, resamples=FAST, groups=groups))
        row = found[REST, "original_accuracy"]
        assert (row.value, row.n) == (pytest.approx(expected.value), expected.n)
        assert row.ci_low < row.value < row.ci_high


def test_without_groups_the_rest_is_still_a_row() -> None:
    found = rows(mixed_run(), groups=False, resamples=FAST)
    assert {row.group for row in found} == {"all", REST}


@pytest.mark.parametrize("positives", [1, 2])
def test_where_all_cases_are_alike_nothing_is_apart(positives: int) -> None:
    cases = table(30, positives=positives)
    found = rows(random_run(cases, 0), resamples=FAST)
    assert not any(row.group.startswith(REST) for row in found)
    assert {row.n for row in found if row.group == "all"} == {30}


def test_squares_with_and_without_positives_are_apart() -> None:
    """As BiVLC with positives for some of its captions."""
    plain = [square(i) for i in range(5)]
    truth = ((True, False, True), (False, True, False))
    reworded = [
        replace(square(i), captions=(*square(i).captions, f"b below a {i}"), truth=truth)
        for i in range(5, 9)
    ]
    cases = Cases.build([*plain, *reworded], source="test")
    found = by_name(rows(random_run(cases, 3), resamples=FAST))
    metrics = ("original_accuracy", "augmented_accuracy", "image_to_text", "group")
    assert {found["all", metric].n for metric in metrics} == {4}
    assert found[REST, "group"].n == found[REST, "image_to_text"].n == 5
    assert (REST, "original_accuracy") not in found


def test_compare_has_the_same_rows() -> None:
    a, b = mixed_run(1), mixed_run(2)
    found = {(d.group, d.metric): d for d in compare(a, b, resamples=FAST)}
    assert {found["all", metric].n for metric in MAIN} == {22}
    assert found[REST, "original_accuracy"].n == 20
    mine = by_name(rows(a, resamples=FAST))
    for (group, metric), difference in found.items():
        assert difference.a == pytest.approx(mine[group, metric].value)
        assert difference.n == mine[group, metric].n


def test_the_table_shows_both_rows_with_their_numbers_of_cases() -> None:
    found = rows(mixed_run(), groups=False, resamples=FAST)
    shown = results_table(found)
    columns = {
        heading: [line.cells[number] for line in shown.lines]
        for number, heading in enumerate(shown.columns)
    }
    assert [name for name in columns["benchmark"] if name] == ["bench", f"  {REST}"]
    assert [n for n in columns["cases"] if n] == ["22", "20"]
    at_rest = columns["cases"].index("20")
    assert columns["original"][at_rest] and not columns["augmented"][at_rest]


@pytest.mark.slow
def test_report_and_drop_figure_have_the_same_numbers() -> None:
    run = mixed_run()
    material = gather([run])
    numbers = by_name(list(numbers_of(material, resamples=FAST)))
    expected = by_name(rows(run, resamples=FAST))
    for key, number in numbers.items():
        assert (number.value, number.n) == (pytest.approx(expected[key].value), expected[key].n)
    [figure] = drop(material, list(numbers.values()))
    [line] = figure.rows
    fall = expected["all", "original_accuracy"].value - expected["all", "augmented_accuracy"].value
    assert line["drop"] == pytest.approx(100 * fall)


def test_a_protocol_that_leaves_groups_out_leaves_them_out_on_both_sides() -> None:
    cases = mixed_cases()
    protocol = replace(PROTOCOLS["strict"], exclude=frozenset({"swap"}))
    members = members_in(cases, protocol)
    counts = {label: len(found) for label, found in members.items()}
    assert (counts["all"], counts[REST]) == (18, 6)
    assert (counts["swap"], counts[f"{REST}/swap"]) == (4, 14)
    assert sum(map(len, (members["all"], members[REST], members["swap"]))) + 14 == len(cases)
    scores = random_scores(cases, 0)
    found = by_name(rows(run_of(part(cases, scores, protocol)), resamples=FAST))
    assert found[REST, "original_accuracy"].n == 6
