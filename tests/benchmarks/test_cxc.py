"""Crisscrossed Captions: graded pairs of images and captions, and of two images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from benchmark_fixtures import absent, load, needs_real_files, real, write_json, write_table
from errors import raises
from support import part, run_of

from counterpoint.cases import PICTURE
from counterpoint.cases.table import Absent
from counterpoint.runs import rows

TEXT, IMAGES = "cxc/image-text", "cxc/image-image"


def name(image: int) -> str:
    return f"COCO_val2014_{image:012}.jpg"


def graded(caption: int, image: int, grade: object, method: str = "c2i_intrasim") -> dict[str, Any]:
    return {
        "caption": f"COCO_val2014:sentid:{caption}",
        "image": name(image),
        "agg_score": grade,
        "sampling_method": method,
    }


def write_pairs(root: Path, *rows: dict[str, Any]) -> None:
    split = [
        {"image": f"val2014/{name(7)}", "caption": ["a mole", "one mole"]},
        {"image": f"val2014/{name(8)}", "caption": ["a hat", "one hat", "hat"]},
    ]
    write_json(root / "coco/coco_karpathy_test.json", split)
    ids = {"7": [75, 70], "8": [80, 85]}
    write_json(root / "eccv_caption/original_image_to_caption.json", ids)
    write_table(root / "cxc/sits_test.csv", list(rows))


def test_a_pair_is_a_case_with_a_grade(tmp_path: Path) -> None:
    write_pairs(tmp_path, graded(75, 7, "5.0"), graded(70, 8, 2.99), graded(80, 7, 1))
    cases = load(TEXT, tmp_path)
    assert [case.id for case in cases] == ["75/7", "70/8"]
    assert [case.captions for case in cases] == [("one mole",), ("a mole",)]  # ids ascending
    assert [case.images[0].path for case in cases] == [f"coco/val2014/{name(n)}" for n in (7, 8)]
    assert [case.grades for case in cases] == [(5.0,), (pytest.approx(2.99),)]
    assert [case.truth for case in cases] == [((True,),), ((False,),)]
    assert [case.groups for case in cases] == [("same image",), ("other image",)]
    assert {case.cluster for case in cases} == {f"coco/val2014/{name(7)}"}
    assert [case.query for case in cases] == ["75", "70"]  # a text may be that of two captions
    assert absent(TEXT, tmp_path) == (Absent("80/7", "the caption's text is unknown"),)


def test_two_images_are_a_case(tmp_path: Path) -> None:
    row = {"image1": name(7), "image2": name(8), "agg_score": 3, "sampling_method": "i2i_csim"}
    write_table(tmp_path / "cxc/sis_test.csv", [row])
    [case] = load(IMAGES, tmp_path)
    assert case.id == "7/8" and case.grades == (3.0,) and case.truth == ((True,),)
    assert case.captions == (f"{PICTURE}coco/val2014/{name(7)}",)
    assert case.images[0].path == f"coco/val2014/{name(8)}"
    assert case.cluster == f"coco/val2014/{name(7)}"


def test_a_malformed_row_is_named(tmp_path: Path) -> None:
    for change, field in [
        ({"agg_score": "high"}, "agg_score"),
        ({"agg_score": "5.1"}, "agg_score"),
        ({"agg_score": "nan"}, "agg_score"),
        ({"caption": "a mole"}, "caption"),
        ({"caption": "COCO_val2014:sentid:71"}, "caption"),
        ({"image": "mole.png"}, None),
    ]:
        write_pairs(tmp_path, graded(75, 7, 1), graded(70, 7, 1) | change)
        where = f"{tmp_path}/cxc/sits_test.csv: row 2"
        with raises("E-ROW-MALFORMED", where, field or ""):
            load(TEXT, tmp_path)


def test_missing_columns_and_files_are_named(tmp_path: Path) -> None:
    write_table(tmp_path / "cxc/sis_test.csv", [{"image1": name(7), "agg_score": 1}])
    with raises("E-ROW-MALFORMED", "image2"):
        load(IMAGES, tmp_path)
    with raises("E-FILE-MISSING"):
        load(TEXT, tmp_path)


@needs_real_files
def test_the_authors_files() -> None:
    texts = real(TEXT)
    assert (len(texts), len(texts.absent)) == (44_737, 96)  # of images with six texts
    assert len(real(IMAGES)) == 46_719
    assert texts.frame["grades"].list.first().is_between(0, 5).all()


@needs_real_files
def test_the_correlation_weighs_by_caption_and_not_by_its_text() -> None:
    """24,950 captions have 24,795 texts; by text it is 0.379298 (the reference reads raw files)."""
    cases = real(TEXT)
    ids, grades = cases.ids.str.split("/").list.first(), cases.grades_flat()
    assert grades is not None
    assert (ids.n_unique(), cases.frame["captions"].list.first().n_unique()) == (24_950, 24_795)
    scores = (grades + 2 * np.random.default_rng(0).standard_normal(len(cases))).astype(np.float32)
    found = rows(run_of(part(cases, scores)), resamples=1, main=True, groups=False)
    [row] = [row for row in found if row.metric == "rank_correlation"]
    assert row.value == pytest.approx(0.378244, abs=5e-7)
    weights = 1 / ids.to_frame("id").select(pl.len().over("id")).to_series().to_numpy()
    assert row.value == pytest.approx(weighted_spearman(scores, grades, weights), abs=1e-12)


def weighted_spearman(scores: np.ndarray, grades: np.ndarray, weights: np.ndarray) -> float:
    """By definition: the correlation of mean ranks among copies, of which a pair has its weight."""
    ranks = []
    for values in (scores, grades):
        place = np.unique(values, return_inverse=True)[1]
        mass = np.bincount(place, weights)
        ranks.append((np.cumsum(mass) - mass / 2)[place])
    covariance = np.cov(ranks, aweights=weights)
    return float(covariance[0, 1] / np.sqrt(covariance[0, 0] * covariance[1, 1]))


# --- photographs of one scene ------------------------------------------------------------------


def write_renderings(root: Path, *grades: tuple[int, int, float]) -> None:
    split = [
        {"image": f"val2014/{name(n)}", "caption": [f"{word} one", f"{word} two"]}
        for n, word in ((7, "mole"), (8, "hat"), (9, "sea"), (6, "fog"))
    ]
    write_json(root / "coco/coco_karpathy_test.json", split)
    ids = {str(n): [10 * n, 10 * n + 5] for n in (6, 7, 8, 9)}
    write_json(root / "eccv_caption/original_image_to_caption.json", ids)
    rows = [
        {"image1": name(a), "image2": name(b), "agg_score": grade, "sampling_method": "i2i_csim"}
        for a, b, grade in grades
    ]
    write_table(root / "cxc/sis_test.csv", rows)


def test_photographs_graded_near_five_are_renderings_of_one_scene(tmp_path: Path) -> None:
    write_renderings(
        tmp_path, (7, 6, 1.0), (7, 8, 4.6), (7, 9, 2.9), (8, 7, 4.4), (8, 9, 1), (9, 8, 4.9)
    )
    [case] = load("cxc/renderings", tmp_path)
    assert case.id == "7/8"
    # the false image is the best graded below 3
    assert [image.path for image in case.images] == [f"coco/val2014/{name(n)}" for n in (7, 8, 9)]
    assert case.captions == ("mole one", "mole two", "sea one")
    assert case.truth == ((True, True, False), (True, True, False), (False, False, True))
    assert case.cluster == f"coco/val2014/{name(7)}" and case.groups == ("grade 4.5 to 5",)
    assert absent("cxc/renderings", tmp_path) == ()  # 9/8 has no false image: no case
    more = load("cxc/renderings:grade=4", tmp_path)
    assert [(case.id, case.groups) for case in more] == [
        ("7/8", ("grade 4.5 to 5",)),
        ("8/7", ("grade 4 to 4.5",)),
    ]


def test_a_grade_that_is_none_is_refused(tmp_path: Path) -> None:
    for grade in ["2.9", "5.1", "nan", "high", ""]:
        write_renderings(tmp_path, (7, 8, 4.6), (7, 9, 2.9))
        with raises("E-OPTION-INVALID", "grade"):
            load(f"cxc/renderings:grade={grade}", tmp_path)


@needs_real_files
def test_the_real_grades_give_few_renderings() -> None:
    assert len(real("cxc/renderings")) == 20
    assert 700 < len(real("cxc/renderings:grade=4")) < 907
