"""Numbers of all pairs in rows, comparisons and run folders; graded pairs and listed queries."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from columns_support import by_name
from errors import raises
from scipy.stats import spearmanr
from support import case, part, random_run, random_scores, run_of, square, table

from counterpoint.cases import SCHEMA, Case, Cases, ImageRef, read_cases, write_cases
from counterpoint.metrics import METRICS, PROTOCOLS, PooledMetric
from counterpoint.runs import Run, as_json, compare, load_run, rows, save_run, side_by_side

POOLED = {name for name, metric in METRICS.items() if isinstance(metric, PooledMetric)}
OF_TRUTH = POOLED - {"rank_correlation"}


def area(scores: np.ndarray, truth: np.ndarray) -> float:
    return float(np.mean([(a > b) + (a == b) / 2 for a in scores[truth] for b in scores[~truth]]))


def pairs_in(run: Run, label: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores and truth of the pairs of a group."""
    [only] = run.parts.values()
    groups = only.cases.frame["groups"].list.first().to_list()
    inside = [label == "all" or f"{group}/".startswith(f"{label}/") for group in groups]
    chosen = np.repeat(inside, only.cases.image_counts * only.cases.caption_counts)
    return only.scores[chosen], only.cases.truth_flat()[chosen]


@pytest.mark.parametrize("average", ["micro", "macro"])
def test_a_group_is_measured_on_its_own_pairs_whatever_the_average(average: str) -> None:
    run = random_run(table(), seed=1, values=9)
    found = by_name(rows(run, replace(PROTOCOLS["strict"], average=average), resamples=50))
    labels = {label for label, metric in found if metric == "auroc"}
    assert labels == {"all", "replace", "swap"} | {
        f"replace/{s}" for s in ("obj", "att", "rel")
    } | {f"swap/{s}" for s in ("obj", "att")}
    for label in labels:
        row = found[label, "auroc"]
        assert row.value == pytest.approx(area(*pairs_in(run, label)))
        assert row.ci_low <= row.value <= row.ci_high and row.chance == 0.5 and row.ties == 0
        assert row.n == found[label, "original_accuracy"].n


def test_a_common_scale_is_more_than_right_cases() -> None:
    """Every case is right, and scores of one image are all above those of the next."""
    cases = table(positives=1)
    height = np.repeat(np.arange(len(cases)), 2) * 10
    run = run_of(part(cases, height + np.tile([1, 0], len(cases))))
    found = by_name(rows(run, resamples=50, groups=False))
    assert found["all", "original_accuracy"].value == 1
    assert found["all", "auroc"].value < 0.52
    assert found["all", "true_below_threshold"].value > 0.2
    level = run_of(part(cases, np.tile([1, 0], len(cases))))
    found = by_name(rows(level, resamples=50, groups=False))
    assert found["all", "auroc"].value == 1 and found["all", "true_below_threshold"].value == 0


def test_two_images_count_and_galleries_and_texts_do_not() -> None:
    squares = Cases.build([square(n) for n in range(8)], source="test")
    found = by_name(rows(random_run(squares, 0), resamples=20, groups=False))
    assert {name for _, name in found} >= OF_TRUTH
    images = tuple(ImageRef(f"{n}.jpg") for n in range(5))
    gallery = Case("g", images, tuple("abcde"), tuple(map(tuple, np.eye(5, dtype=bool).tolist())))
    found = by_name(rows(random_run(Cases.build([gallery], source="t"), 0), resamples=20))
    assert not {name for _, name in found} & POOLED


def test_short_tables_do_not_wait_for_them() -> None:
    run = random_run(table(), seed=1)
    every, short = (rows(run, resamples=20, main=main) for main in (False, True))
    assert [row for row in every if row.metric not in POOLED] == short
    assert {name for name in POOLED if METRICS[name].main} == {"rank_correlation"}
    [only] = run.parts.values()
    assert not any(POOLED & set(values) for values in side_by_side(only).values())


def test_differences_are_paired() -> None:
    a, b = (random_run(table(), seed, values=9) for seed in (0, 1))
    found = {(d.group, d.metric): d for d in compare(a, b, resamples=200)}
    for label in ("all", "replace/obj"):
        d = found[label, "auroc"]
        sides = [area(*pairs_in(run, label)) for run in (a, b)]
        assert (d.a, d.b) == pytest.approx(sides)
        assert d.difference == pytest.approx(sides[0] - sides[1])
        assert d.ci_low <= d.difference <= d.ci_high and d.p_mcnemar is None
    assert {name for _, name in found} >= OF_TRUTH
    same = {(d.group, d.metric): d for d in compare(a, a, resamples=50)}["all", "auroc"]
    assert (same.difference, same.p, same.verdict) == (0, 1, "no difference shown")
    assert -0.12 < same.ci_low < 0 < same.ci_high == -same.ci_low
    assert not {d.metric for d in compare(a, b, resamples=20, main=True)} & POOLED


def test_a_better_scale_is_found_better() -> None:
    cases = table(count=120, positives=1)
    truth, noise = cases.truth_flat(), np.random.default_rng(0).normal(size=240)
    good, bad = (run_of(part(cases, by * truth + noise)) for by in (3, 0.2))
    found = {(d.group, d.metric): d for d in compare(good, bad, resamples=500)}
    assert found["all", "auroc"].verdict == "A is better"
    assert found["all", "true_below_threshold"].difference < 0


# --- graded pairs ------------------------------------------------------------------------------


def graded(count: int = 40, seed: int = 0) -> Cases:
    rng = np.random.default_rng(seed)
    return Cases.build(
        [
            Case(
                f"{n}",
                (ImageRef(f"images/{n}.jpg"),),
                (f"caption {n // 2}",),  # two pairs of each query
                ((bool(grade >= 3),),),
                ("odd" if n % 4 == 1 else "even",),
                f"images/{n // 4}.jpg",
                (float(grade),),
            )
            for n, grade in enumerate(rng.integers(0, 6, count))
        ],
        source="graded",
    )


def test_graded_pairs_have_a_correlation_and_no_accuracy() -> None:
    cases = graded()
    run = random_run(cases, 3)
    found = by_name(rows(run, resamples=50))
    [only] = run.parts.values()
    expected = spearmanr(only.scores, cases.grades_flat()).statistic
    row = found["all", "rank_correlation"]
    assert row.value == pytest.approx(expected) and row.chance == 0 and row.n == 40
    assert {name for label, name in found if label == "all"} == POOLED
    assert found["all", "auroc"].value == pytest.approx(area(*pairs_in(run, "all")))


def by_hand(scores: Sequence[float], grades: Sequence[float], queries: Sequence[str]) -> float:
    """Spearman's correlation of pairs, each of which is written down as often as it weighs."""
    times = np.array([24 // queries.count(query) for query in queries])
    return float(spearmanr(np.repeat(scores, times), np.repeat(grades, times)).statistic)


def test_captions_of_one_wording_are_one_query_unless_the_case_says_whose_they_are() -> None:
    wordings = ["a cat", "a cat", "a cat", "a cat", "a hat", "a sea", "a sea", "fog"] * 3
    grades, scores = (np.random.default_rng(seed).permutation(24) for seed in (0, 1))
    plain = [
        Case(str(n), (ImageRef(f"{n}.jpg"),), (text,), ((True,),), grades=(float(grade),))
        for n, (text, grade) in enumerate(zip(wordings, grades, strict=True))
    ]
    owners = [f"{min(n % 8, 2)} {text}" for n, text in enumerate(wordings)]
    named = [replace(case, query=owner) for case, owner in zip(plain, owners, strict=True)]
    some = named[:12] + plain[12:]
    ungraded = [replace(case(n), captions=("a cat", "one cat", "a dog")) for n in range(3)]
    for cases, queries in (
        (plain, wordings),
        (named, owners),
        (some, owners[:12] + wordings[12:]),
        ([*plain, *ungraded], wordings),
    ):
        made = Cases.build(cases, source="test")
        run = run_of(part(made, np.resize(scores, made.pair_offsets[-1])))
        found = by_name(rows(run, resamples=20))["all", "rank_correlation"]
        assert found.value == pytest.approx(by_hand(scores, grades, queries), abs=1e-12)
    assert by_hand(scores, grades, wordings) != pytest.approx(by_hand(scores, grades, owners))


def test_the_query_of_a_pair_is_part_of_case_files(tmp_path: Path) -> None:
    line = {"id": "1", "images": ["a.jpg"], "captions": ["a"], "truth": [[0]], "grades": [[2.5]]}
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(line | {"query": 7}) + "\n" + json.dumps(line | {"id": 2}) + "\n")
    cases = read_cases(path)
    assert [cases.case(row).query for row in (0, 1)] == ["7", ""]
    write_cases(cases, tmp_path / "cases.parquet")
    assert read_cases(tmp_path / "cases.parquet").frame.equals(cases.frame)
    path.write_text(json.dumps(line | {"query": ["a"]}) + "\n")
    with raises("E-CASE-MALFORMED", "query"):
        read_cases(path)


def test_a_group_without_true_pairs_has_no_threshold() -> None:
    cases = graded()
    low = cases.frame.with_columns(truth=pl.lit([], dtype=SCHEMA["truth"]))
    found = by_name(rows(random_run(Cases(low), 3), resamples=20))
    assert {name for _, name in found} == {"rank_correlation"}


def test_graded_pairs_and_others_survive_a_run_folder(tmp_path: Path) -> None:
    one, two, three = graded(), table(), listed()
    parts = [
        part(cases, random_scores(cases, 1), name=name)
        for name, cases in (("listed", three), ("graded", one), ("plain", two))
    ]
    run = save_run(run_of(*parts), tmp_path / "run")
    back = load_run(tmp_path / "run")
    for name, p in run.parts.items():
        assert back.parts[name].cases.frame.equals(p.cases.frame)
        assert back.parts[name].cases.content_hash() == p.cases.content_hash()
    assert json.dumps(as_json(rows(back, resamples=20))) == json.dumps(
        as_json(rows(run, resamples=20))
    )


def test_a_plain_table_has_no_further_column(tmp_path: Path) -> None:
    run = save_run(random_run(table(), 0), tmp_path / "run")
    assert run.folder is not None
    written = pl.read_parquet_schema(run.folder / "cases.parquet")
    assert list(written) == ["benchmark", *SCHEMA.names()]
    write_cases(table(), tmp_path / "cases.parquet")
    assert list(pl.read_parquet_schema(tmp_path / "cases.parquet")) == SCHEMA.names()


def test_grades_are_part_of_case_files(tmp_path: Path) -> None:
    write_cases(graded(), tmp_path / "cases.parquet")
    assert read_cases(tmp_path / "cases.parquet").frame.equals(graded().frame)
    line = {"id": "1", "images": ["a.jpg"], "captions": ["a"], "truth": [[0]], "grades": [[2.5]]}
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(line) + "\n")
    assert read_cases(path).case(0).grades == (2.5,)
    assert graded().content_hash() != Cases(graded().frame.drop("grades")).content_hash()


@pytest.mark.parametrize(
    ("grades", "code"),
    [
        ([[1, 2]], "E-GRADES-SHAPE"),
        ([[float("inf")]], "E-GRADE-INVALID"),
        ([["a"]], "E-CASE-MALFORMED"),
    ],
)
def test_malformed_grades_are_refused(grades: object, code: str, tmp_path: Path) -> None:
    line = {"id": "1", "images": ["a.jpg"], "captions": ["a"], "truth": [[0]], "grades": grades}
    path = tmp_path / "cases.jsonl"
    path.write_text(json.dumps(line).replace("Infinity", "1e999") + "\n")
    with raises(code):
        read_cases(path)


def test_without_grades_a_single_pair_is_refused() -> None:
    alone = Case("1", (ImageRef("a.jpg"),), ("a",), ((False,),))
    with raises("E-CASE-NO-POSITIVE"):
        Cases.build([case(0), alone], source="test")


# --- galleries that name their queries ---------------------------------------------------------


def listed(numbers: tuple[int, ...] = (0, 1, 6, 9)) -> Cases:
    """Six images, eight captions; two images and two captions are asked for."""
    rng = np.random.default_rng(2)
    truth = rng.random((6, 8)) < 0.4
    truth[:, :6] |= np.eye(6, dtype=bool)
    made = Case(
        "g",
        tuple(ImageRef(f"{n}.jpg") for n in range(6)),
        tuple(f"caption {n}" for n in range(8)),
        tuple(map(tuple, truth.tolist())),
    )
    frame = Cases.build([made], source="test").frame
    column = pl.Series("queries", [list(numbers)], dtype=pl.List(pl.Int32()))
    return Cases.checked(iter([frame.with_columns(column)]), None, "test")


def test_only_listed_queries_count() -> None:
    found = by_name(rows(random_run(listed(), 0, values=5), resamples=20))
    for side in ("image_to_text", "text_to_image"):
        for name in ("recall@1", "r_precision", "map@R"):
            assert found["all", f"{side}_{name}"].n == 2
    every = by_name(rows(random_run(Cases(listed().frame.drop("queries")), 0), resamples=20))
    assert every["all", "image_to_text_recall@1"].n == 6
    assert not any(name.endswith(("r_precision", "map@R")) for _, name in every)


@pytest.mark.parametrize("numbers", [(0, 14), (-1, 2)])
def test_queries_outside_of_the_gallery_are_refused(numbers: tuple[int, ...]) -> None:
    with raises("E-QUERIES-OUTSIDE"):
        listed(numbers)
