"""Crisscrossed Captions: graded pairs of images and captions, and of two images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import polars as pl
import pytest
from benchmark_fixtures import absent, load, needs_real_files, real, write_json, write_table
from errors import raises
from support import part, run_of

from counterpoint.runs import rows

TEXT, IMAGES = "cxc/image-text", "cxc/image-image"


def name(image: int) -> str:
    return f"COCO_val2014_{image:012}.jpg"


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
