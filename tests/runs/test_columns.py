"""Tables of cases and queries: what is counted, and with which clusters."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
from columns_support import (
    CLASSES,
    LISTED,
    QUERIES,
    RETRIEVAL,
    SEEDS,
    STRICT,
    by_name,
    values_by_hand,
    zoo,
    zoo_run,
)
from engine_support import build
from hypothesis import given
from support import FEW, TIES, case, classes, gallery, owned, part, random_scores, run_of

from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.metrics import METRICS, PooledMetric
from counterpoint.metrics.statistics import draw_weights
from counterpoint.runs import columns_of, members_in, rows


def clusters_by_hand(cases: Cases, row: int) -> list[str]:
    """The source image of each row of a case; of a caption, the first image it is true of."""
    one = cases.case(row)
    k, m = len(one.images), len(one.captions)
    if not (k >= 5 or k > m):
        return [one.cluster]
    paths = [image.path for image in one.images]
    owners = [[paths[i] for i in range(k) if one.truth[i][j]] for j in range(m)]
    return paths + [own[0] if own else f"{one.id} alone {j}" for j, own in enumerate(owners)]


# --- the table ---------------------------------------------------------------------------------


def test_a_row_is_a_case_or_a_query() -> None:
    cases = zoo()
    columns = columns_of(part(cases, random_scores(cases, 0)), "wrong")
    sizes = [1, 6 + 15, 1, 7 + 6, 1, 6 + 15, 1, 3 + 2]
    assert columns.cases.tolist() == np.repeat(np.arange(8), sizes).tolist()
    shape = (sum(sizes), len(columns.metrics))
    assert columns.values.shape == columns.ties.shape == columns.chance.shape == shape
    assert {metric.name for metric in columns.metrics} >= {*RETRIEVAL, *CLASSES, "group"}


@pytest.mark.slow
@pytest.mark.parametrize("tie", TIES)
@pytest.mark.parametrize("seed", range(4))
def test_every_value_is_that_of_a_loop(tie: str, seed: int) -> None:
    cases = zoo()
    p = part(cases, random_scores(cases, seed, values=6))
    columns = columns_of(p, tie)
    for j, metric in enumerate(columns.metrics):
        if isinstance(metric, PooledMetric):
            continue  # no value of its own: see test_pooled_rows
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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
    pooled = {name for name, metric in METRICS.items() if isinstance(metric, PooledMetric)}
    found = {key: row for key, row in found.items() if key[1] not in pooled}  # not a mean
    for name in METRICS.keys() - pooled - LISTED:
        if name == "text_only_accuracy" or METRICS[name].asked_by is not None:
            continue  # no texts; no case of two negatives, which ranks need
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
    members = columns.members(members_in(p.cases, STRICT))
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
    cases = build(gallery(owned(24, 3)))
    p = part(cases, random_scores(cases, 3, values=400))
    [row] = [r for r in rows(run_of(p), resamples=200) if r.metric == name]
    values: dict[str, list[float]] = defaultdict(list)
    clusters = clusters_by_hand(cases, 0)
    found = values_by_hand(p, name)[0]
    start = 0 if QUERIES[name].side == "images" else 24
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
