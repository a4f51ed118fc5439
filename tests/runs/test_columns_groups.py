"""Groups with groups below them: averages, what is excluded, and what is too small."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from columns_support import STRICT, differences
from engine_support import build
from errors import raises
from support import case, part, random_scores, run_of

from counterpoint.metrics import Protocol
from counterpoint.runs import Run, compare, rows, side_by_side

DEEP = {
    "a/x/1": [1, 0, 0, 0],
    "a/x/2": [1, 1],
    "a/y": [0, 0, 1],
    "b/z": [1, 0],
}


def deep(extra: dict[str, tuple[str, ...]] | None = None) -> Run:
    """Cases that are right (1) or wrong (0), in groups of unequal sizes and depths."""
    made, scores = [], []
    for label, outcomes in DEEP.items():
        for outcome in outcomes:
            one = case(len(made), 1, 1, group=label)
            more = (extra or {}).get(label, ())
            made.append(replace(one, groups=(*one.groups, *more), cluster=one.id))
            scores += [outcome, 0.5]
    return run_of(part(build(*made), np.array(scores)))


def accuracies(run: Run, protocol: Protocol, *, groups: bool = True) -> dict[str, float]:
    found = rows(run, protocol, groups=groups, resamples=20)
    return {row.group: row.value for row in found if row.metric == "original_accuracy"}


X1, X2, Y, Z = 1 / 4, 1.0, 1 / 3, 1 / 2
NESTED = {
    "micro": {"a": 4 / 9, "a/x": 3 / 6, "b": Z, "all": 5 / 11},
    "macro": {
        "a": (X1 + X2 + Y) / 3,
        "a/x": (X1 + X2) / 2,
        "b": Z,
        "all": (X1 + X2 + Y + Z) / 4,
    },
    "types": {"a": 4 / 9, "a/x": 3 / 6, "b": Z, "all": (4 / 9 + Z) / 2},
    "types-macro": {
        "a": (X1 + X2 + Y) / 3,
        "a/x": (X1 + X2) / 2,
        "b": Z,
        "all": ((X1 + X2 + Y) / 3 + Z) / 2,
    },
    "nested": {
        "a": ((X1 + X2) / 2 + Y) / 2,
        "a/x": (X1 + X2) / 2,
        "b": Z,
        "all": (((X1 + X2) / 2 + Y) / 2 + Z) / 2,
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("average", NESTED)
def test_groups_with_groups_below_follow_the_average(average: str) -> None:
    protocol = replace(STRICT, average=average, averages=tuple(NESTED))
    leaves = {"a/x/1": X1, "a/x/2": X2, "a/y": Y, "b/z": Z}
    run = deep()
    assert accuracies(run, protocol) == pytest.approx({**leaves, **NESTED[average]})
    assert accuracies(run, protocol, groups=False) == pytest.approx({"all": NESTED[average]["all"]})
    side = side_by_side(run.parts["bench"], protocol)
    assert {name: values["original_accuracy"] for name, values in side.items()} == pytest.approx(
        {name: values["all"] for name, values in NESTED.items()}
    )


def test_a_difference_of_groups_follows_the_average_too() -> None:
    protocol = replace(STRICT, average="nested")
    a = deep()
    flat = part(a.parts["bench"].cases, np.tile([1.0, 0.5], 11))
    found = differences(compare(a, run_of(flat), protocol, resamples=20))
    for label, value in NESTED["nested"].items():
        assert found[label, "original_accuracy"].a == pytest.approx(value)
        assert found[label, "original_accuracy"].difference == pytest.approx(value - 1)


def test_labels_beside_the_first_have_plain_means() -> None:
    """`hard` is shown; no average is made from it, and nothing is nested in it."""
    run = deep({"a/x/2": ("hard/one",), "a/y": ("hard/two",)})
    found = accuracies(run, replace(STRICT, average="nested"))
    assert found["hard"] == pytest.approx(3 / 5)
    assert {k: v for k, v in found.items() if not k.startswith("hard")} == pytest.approx(
        accuracies(deep(), replace(STRICT, average="nested"))
    )


@pytest.mark.parametrize("kind", ["exclude", "skip"])
def test_an_excluded_case_is_in_the_excluded_group_and_in_no_other(kind: str) -> None:
    run = deep({"a/x/2": ("odd",)})
    protocol = replace(STRICT, **{kind: frozenset({"odd"})})
    found = accuracies(run, protocol)
    assert found == pytest.approx(
        {"a": 2 / 7, "a/x": 1 / 4, "a/x/1": X1, "a/y": Y, "b": Z, "b/z": Z, "all": 3 / 9, "odd": 1}
    )
    numbers = {r.group: r.n for r in rows(run, protocol, resamples=20)}
    assert (numbers["all"], numbers["a"], numbers["odd"]) == (9, 7, 2)


@pytest.mark.slow
@pytest.mark.parametrize("average", ["micro", "macro", "types", "types-macro", "nested"])
def test_what_is_excluded_by_its_own_label_is_as_if_it_were_not_there(average: str) -> None:
    protocol = replace(STRICT, average=average)
    run = deep()
    [p] = run.parts.values()
    kept = np.array(
        [not labels[0].startswith("a/x") for labels in p.cases.frame["groups"].to_list()]
    )
    without = part(p.cases.keep(kept), p.scores.reshape(-1, 2)[kept].reshape(-1))
    expected = accuracies(run_of(without), protocol)
    found = accuracies(run, replace(protocol, exclude=frozenset({"a/x"})))
    assert {label: found[label] for label in expected} == pytest.approx(expected)
    assert set(found) - set(expected) == {"a/x", "a/x/1", "a/x/2"}  # shown, not counted
    alone = accuracies(run, replace(protocol, exclude=frozenset({"a/x"})), groups=False)
    assert alone == pytest.approx({"all": expected["all"]})


def test_no_group_is_large_enough_whether_groups_are_shown_or_not() -> None:
    protocol = replace(STRICT, average="macro", min_count=100)
    shown, alone = (accuracies(deep(), protocol, groups=g)["all"] for g in (True, False))
    assert math.isnan(shown) and math.isnan(alone)


def test_a_run_that_did_not_score_what_a_protocol_counts_is_refused() -> None:
    skipping = replace(STRICT, name="short", skip=frozenset({"odd"}))
    cases = build(*(case(i) for i in range(4)))
    short, whole = (
        run_of(part(cases, random_scores(cases, 0), protocol)) for protocol in (skipping, STRICT)
    )
    with raises("E-PROTOCOL-MISFIT", "bench", "strict"):
        rows(short, STRICT, resamples=20)
    assert rows(whole, skipping, resamples=20) == rows(short, skipping, resamples=20)
    more = replace(skipping, skip=frozenset({"odd", "even"}))
    assert rows(short, more, resamples=20)
