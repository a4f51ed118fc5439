"""Tables of cases and queries: what is counted, in which group, and with which clusters."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from engine_support import build
from hypothesis import given
from hypothesis import strategies as st
from support import (
    FEW,
    TIES,
    case,
    classes,
    gallery,
    owned,
    part,
    random_scores,
    random_truth,
    recalls,
    reference,
    run_of,
    square,
)

from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.columns import columns_of
from counterpoint.comparison import Difference, compare
from counterpoint.errors import RunError
from counterpoint.metric_registry import METRICS, QueryMetric
from counterpoint.protocols import PROTOCOLS, Protocol
from counterpoint.results import Row, members_in, rows, side_by_side
from counterpoint.runs import Part, Run
from counterpoint.statistics import draw_weights

SEEDS = st.integers(0, 2**32 - 1)
STRICT = PROTOCOLS["strict"]
FAST = 100
QUERIES = {name: m for name, m in METRICS.items() if isinstance(m, QueryMetric)}
RETRIEVAL = [name for name in QUERIES if "recall" in name]
CLASSES = ["accuracy@1", "accuracy@5"]


def zoo() -> Cases:
    """Every kind of case, in an order in which shapes alternate."""
    return build(
        case(0, group="captions/a"),
        gallery(owned(6, 2, 3), "photos", groups=("galleries/retrieval",)),
        square(1, group="pairs"),
        gallery(classes([2, 0, 2, 1, 1, 2, 0], 4), "classes", groups=("galleries/classes",)),
        case(2, group="captions/b"),
        gallery(owned(6, 2, 3), "more", groups=("galleries/retrieval",)),
        square(3, group="pairs"),
        gallery(classes([0, 1, 1], 2), "few", groups=("galleries/classes",)),
    )


def block(p: Part, row: int) -> tuple[np.ndarray, np.ndarray]:
    truth = np.array(p.cases.case(row).truth)
    start = p.cases.pair_offsets[row]
    return p.scores[start : start + truth.size].reshape(truth.shape), truth


def is_class(truth: np.ndarray) -> bool:
    return all(sum(line) == 1 for line in truth.tolist()) and max(truth.sum(axis=0)) > 1


def values_by_hand(p: Part, metric: str, tie: str = "wrong") -> dict[int, list[float]]:
    """The values of each case that defines a metric: one, or one for each query."""
    found = {}
    for row in range(len(p.cases)):
        scores, truth = block(p, row)
        k, m = truth.shape
        if k >= 5 or k > m:
            query = QUERIES.get(metric)
            if query is not None and is_class(truth) == (metric in CLASSES):
                found[row] = recalls(scores, truth, query.side, query.k, tie)
        elif metric not in QUERIES and METRICS[metric].applies(truth[None]):
            found[row] = [reference(metric, scores.tolist(), truth.tolist(), tie)]
    return found


def clusters_by_hand(cases: Cases, row: int) -> list[str]:
    """The source image of each row of a case; of a caption, the first image it is true of."""
    one = cases.case(row)
    k, m = len(one.images), len(one.captions)
    if not (k >= 5 or k > m):
        return [one.cluster]
    paths = [image.path for image in one.images]
    owners = [[paths[i] for i in range(k) if one.truth[i][j]] for j in range(m)]
    return paths + [own[0] if own else f"{one.id} alone {j}" for j, own in enumerate(owners)]


def by_name(found: list[Row]) -> dict[tuple[str, str], Row]:
    return {(row.group, row.metric): row for row in found}


def differences(found: list[Difference]) -> dict[tuple[str, str], Difference]:
    return {(row.group, row.metric): row for row in found}


def zoo_run(seed: int, values: int = 50, protocol: Protocol | str = "strict") -> Run:
    cases = zoo()
    return run_of(part(cases, random_scores(cases, seed, values), protocol))


# --- the table ---------------------------------------------------------------------------------


def test_a_row_is_a_case_or_a_query() -> None:
    cases = zoo()
    columns = columns_of(part(cases, random_scores(cases, 0)), "wrong")
    sizes = [1, 6 + 15, 1, 7 + 4, 1, 6 + 15, 1, 3 + 2]
    assert columns.cases.tolist() == np.repeat(np.arange(8), sizes).tolist()
    shape = (sum(sizes), len(columns.metrics))
    assert columns.values.shape == columns.ties.shape == columns.chance.shape == shape
    assert {metric.name for metric in columns.metrics} >= {*RETRIEVAL, *CLASSES, "group"}


@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("seed", range(4))
def test_every_value_is_that_of_a_loop(tie: str, seed: int) -> None:
    cases = zoo()
    p = part(cases, random_scores(cases, seed, values=6))
    columns = columns_of(p, tie)
    for j, metric in enumerate(columns.metrics):
        expected = values_by_hand(p, metric.name, tie)
        for row in range(len(cases)):
            mine = columns.values[columns.cases == row, j]
            defined = expected.get(row, [])
            if metric.name in QUERIES:
                images = len(cases.case(row).images)
                at = (
                    slice(0, images)
                    if QUERIES[metric.name].side == "images"
                    else slice(images, None)
                )
                here, elsewhere = mine[at], np.delete(mine, np.arange(len(mine))[at])
            else:
                here, elsewhere = mine[: len(defined)], mine[len(defined) :]
            assert np.isnan(elsewhere).all()
            np.testing.assert_allclose(here, defined or np.full(len(here), np.nan), rtol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_ties_are_queries_that_the_policy_decides(seed: int) -> None:
    cases = zoo()
    p = part(cases, random_scores(cases, seed, values=4))
    columns = columns_of(p, "wrong")
    total = 0
    for j, metric in enumerate(columns.metrics):
        if metric.name not in QUERIES:
            continue
        strict, lenient = (values_by_hand(p, metric.name, tie) for tie in ("wrong", "right"))
        for row, values in strict.items():
            decided = sum(a != b and a == a for a, b in zip(values, lenient[row], strict=True))
            assert columns.ties[columns.cases == row, j].sum() == decided
            total += decided
    assert total > 20


def test_a_gallery_has_chances_of_its_own() -> None:
    """Photos: an image finds one of 2 among 15 captions, a caption its one image among 6."""
    columns = columns_of(part(zoo(), random_scores(zoo(), 0)), "wrong")
    chance = {m.name: columns.chance[columns.cases == 1, j] for j, m in enumerate(columns.metrics)}
    expected = 1 - math.comb(13, 5) / math.comb(15, 5)
    assert chance["image_to_text_recall@5"][:6] == pytest.approx([expected] * 6)
    assert np.isnan(chance["image_to_text_recall@5"][6:]).all()
    captions = chance["text_to_image_recall@1"][6:]
    assert captions[:12] == pytest.approx([1 / 6] * 12)
    assert np.isnan(captions[12:]).all()  # true of no image
    assert np.isnan(chance["group"]).all() and np.isnan(chance["accuracy@1"]).all()


@FEW
@given(SEEDS)
def test_rows_of_cases_are_found(seed: int) -> None:
    rng = np.random.default_rng(seed)
    cases = zoo()
    columns = columns_of(part(cases, random_scores(cases, 0)), "wrong")
    chosen = np.flatnonzero(rng.random(len(cases)) < 0.5)
    expected = [n for n, row in enumerate(columns.cases.tolist()) if row in set(chosen.tolist())]
    assert columns.rows_of(chosen).tolist() == expected
    found = columns.members({"some": chosen, "none": np.array([], dtype=np.int64)})
    assert found["some"].tolist() == expected and found["none"].tolist() == []


def test_clusters_are_the_source_images() -> None:
    """Two galleries and a case that share images share clusters."""
    shared = [f"{i}.png" for i in range(6)]
    cases = build(
        gallery(owned(6), "one", images=shared),
        replace(case(0), images=(ImageRef("3.png"),), cluster="3.png"),
        gallery(owned(6, 1), "two", images=shared[::-1]),
    )
    columns = columns_of(part(cases, random_scores(cases, 0)), "wrong")
    names = [name for row in range(3) for name in clusters_by_hand(cases, row)]
    numbers: dict[str, set[int]] = defaultdict(set)
    for name, number in zip(names, columns.clusters.tolist(), strict=True):
        numbers[name].add(number)
    assert all(len(found) == 1 for found in numbers.values())
    assert len(set.union(*numbers.values())) == len(numbers) == 6


def test_captions_of_no_image_are_clusters_of_their_own() -> None:
    """In another gallery they are other captions."""
    cases = build(*(gallery(owned(5, 1, 2), name) for name in ("one", "two")))
    columns = columns_of(part(cases, random_scores(cases, 0)), "wrong")
    names = [name for row in range(2) for name in clusters_by_hand(cases, row)]
    assert len(set(columns.clusters.tolist())) == len(set(names)) == 2 * (5 + 2)


def test_galleries_of_one_shape_and_two_kinds_keep_their_metrics() -> None:
    made = [gallery(np.eye(6), "pairs"), gallery(classes([0, 0, 1, 1, 2, 2], 6), "classes")]
    for cases in (build(*made), build(*made[::-1])):
        found = by_name(rows(run_of(part(cases, random_scores(cases, 0))), resamples=20))
        assert found["all", "accuracy@1"].n == 6
        assert found["all", "image_to_text_recall@1"].n == 6


# --- texts -------------------------------------------------------------------------------------


def text_case(texts: int, captions: int, id: str = "texts") -> Case:
    truth = ((True,) * (captions - 1) + (False,),) * texts
    refs = tuple(ImageRef(f"text:{i} of {id}") for i in range(texts))
    return Case(id, refs, tuple(f"{j} of {id}" for j in range(captions)), truth)


def test_texts_and_images_of_one_shape_have_their_own_metrics() -> None:
    images = gallery([[1, 1, 0], [1, 1, 0]], "images")
    cases = build(text_case(2, 3), images)
    scores = np.array([9, 5, 4, 6, 9, 5, 5, 4, 3, 3, 2, 9])
    found = by_name(rows(run_of(part(cases, scores)), resamples=20))
    assert (found["all", "text_only_accuracy"].value, found["all", "text_only_accuracy"].n) == (
        1,
        1,
    )
    assert (found["all", "image_to_text"].value, found["all", "image_to_text"].n) == (0, 1)
    assert found["all", "augmented_accuracy"].n == 1


@pytest.mark.parametrize("shape", [(1, 2), (1, 3), (2, 2), (2, 4), (3, 3), (6, 3), (6, 8)])
def test_texts_of_another_shape_define_no_metric(shape: tuple[int, int]) -> None:
    cases = build(text_case(*shape), case(0))
    found = rows(run_of(part(cases, random_scores(cases, 0))), resamples=20)
    assert "text_only_accuracy" not in {row.metric for row in found}
    assert {row.n for row in found} == {1}
    alone = build(text_case(*shape))
    assert rows(run_of(part(alone, random_scores(alone, 0))), resamples=20) == []


# --- rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("tie", TIES)
def test_rows_of_a_mixed_table_are_means_over_cases_and_queries(tie: str) -> None:
    run = zoo_run(5, values=6)
    [p] = run.parts.values()
    found = by_name(rows(run, replace(STRICT, tie=tie), resamples=20))
    in_group = {
        "all": range(8),
        "galleries": (1, 3, 5, 7),
        "galleries/retrieval": (1, 5),
        "galleries/classes": (3, 7),
        "pairs": (2, 6),
        "captions": (0, 4),
        "captions/a": (0,),
        "captions/b": (4,),
    }
    expected = {}
    for name in METRICS:
        if name == "text_only_accuracy":
            continue
        by_case = values_by_hand(p, name, tie)
        for label, members in in_group.items():
            values = [v for row in members for v in by_case.get(row, []) if v == v]
            if values:
                expected[label, name] = (sum(values) / len(values), len(values))
    assert {key: (row.value, row.n) for key, row in found.items()} == {
        key: (pytest.approx(value, rel=1e-6), n) for key, (value, n) in expected.items()
    }
    # Each retrieval has 6 images and 12 captions that are true of one; 3 more say nothing.
    assert found["all", "image_to_text_recall@1"].n == 2 * 6
    assert found["all", "text_to_image_recall@1"].n == 2 * 12
    assert found["all", "accuracy@1"].n == 7 + 3


def test_ties_of_a_row_are_those_of_its_queries() -> None:
    run = zoo_run(6, values=4)
    [p] = run.parts.values()
    columns = columns_of(p, "wrong")
    members = columns.members(members_in(p.cases.frame, STRICT))
    for (label, name), row in by_name(rows(run, resamples=20)).items():
        j = [metric.name for metric in columns.metrics].index(name)
        assert row.ties == columns.ties[members[label], j].sum()


def naive_interval(
    values: dict[str, list[float]], names: list[str], draws: np.ndarray
) -> np.ndarray:
    """Draw source images; each brings all its queries, as often as it was drawn."""
    means = []
    for draw in draws:
        drawn = [
            v for c, name in enumerate(names) for _ in range(int(draw[c])) for v in values[name]
        ]
        if drawn:
            means.append(sum(drawn) / len(drawn))
    return np.quantile(means, [0.025, 0.975])


@pytest.mark.parametrize("name", ["image_to_text_recall@1", "text_to_image_recall@1"])
def test_the_interval_of_a_retrieval_is_a_bootstrap_over_source_images(name: str) -> None:
    cases = build(gallery(owned(12, 3)))
    p = part(cases, random_scores(cases, 1, values=400))
    [row] = [r for r in rows(run_of(p), resamples=200) if r.metric == name]
    values: dict[str, list[float]] = defaultdict(list)
    clusters = clusters_by_hand(cases, 0)
    found = values_by_hand(p, name)[0]
    start = 0 if QUERIES[name].side == "images" else 12
    for cluster, value in zip(clusters[start:], found, strict=False):
        values[cluster].append(value)
    names = sorted(set(clusters))
    draws = np.concatenate(list(draw_weights(len(names), 200, seed=0)))
    low, high = naive_interval(values, names, draws)
    assert 0 < row.value < 1
    assert (row.ci_low, row.ci_high) == pytest.approx((low, high), abs=1e-6)


def test_captions_of_one_image_are_not_independent() -> None:
    """Five captions that are right or wrong together are worth one."""
    truth = owned(30, 5)
    scores = np.random.default_rng(0).random((30, 150)) * 0.1
    right = np.repeat(np.random.default_rng(1).random(30) < 0.5, 5)
    scores[truth] = np.where(right, 1.0, -1.0)
    together = run_of(part(build(gallery(truth)), scores.reshape(-1)))
    row = by_name(rows(together, resamples=1000))["all", "text_to_image_recall@1"]
    rate = right.mean()
    independent = 1.96 * math.sqrt(rate * (1 - rate) / 150)
    assert (row.ci_high - row.ci_low) / 2 == pytest.approx(independent * math.sqrt(5), rel=0.15)


@pytest.mark.parametrize("value", [0, 1])
def test_a_perfect_side_is_as_sure_as_its_own_clusters_allow(value: int) -> None:
    """Clopper-Pearson over the five images, whatever else stands in the table."""
    scores = np.hstack([np.eye(5), np.full((5, 100), -1.0)]) * (1 if value else -1)
    for cases in (
        build(gallery(owned(5, 1, 100))),
        build(gallery(owned(5, 1, 100)), *(case(i) for i in range(40))),
    ):
        padded = np.append(scores, np.tile([3, 2, 1], len(cases) - 1))
        row = by_name(rows(run_of(part(cases, padded)), resamples=50))
        found = row["all", "image_to_text_recall@1"]
        bound = 0.025 ** (1 / 5)
        assert found.value == value
        ends = (bound, 1.0) if value else (0.0, 1 - bound)
        assert (found.ci_low, found.ci_high) == pytest.approx(ends)


# --- groups ------------------------------------------------------------------------------------

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
    with pytest.raises(RunError, match=r"'short'.*'strict' counts.*--protocol strict"):
        rows(short, STRICT, resamples=20)
    assert rows(whole, skipping, resamples=20) == rows(short, skipping, resamples=20)
    more = replace(skipping, skip=frozenset({"odd", "even"}))
    assert rows(short, more, resamples=20)


# --- comparing ---------------------------------------------------------------------------------


def test_a_run_of_galleries_is_tied_with_itself() -> None:
    run = zoo_run(7)
    found = compare(run, run, resamples=FAST)
    assert {d.metric for d in found} >= {*RETRIEVAL, *CLASSES, "group", "brittleness"}
    for d in found:
        assert (d.difference, d.p, d.p_holm, d.verdict) == (0, 1, 1, "tied")
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
    with pytest.raises(RunError, match=r"1 cases differ.*'gallery'"):
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
