"""Images that are compared with images: a picture stands in the place of a caption."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from models_for_tests import Judge, Reader, Towers, naive_vector, pixels, run_engine, write_images

import counterpoint as cp
from counterpoint.cases import PICTURE, Case, Cases, ImageRef, write_cases
from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions
from counterpoint.models.vectors import load as load_vectors
from counterpoint.scoring import make_plan

NAMES = ("a.png", "b.png", "c.png", "d.png")
TEXTS = ("a mole", "a mole in a hat")


def pair(image: str, caption: str) -> Case:
    return Case(f"{image} {caption}", (ImageRef(image),), (caption,), ((False,),), grades=(1.0,))


def graded(root: Path, *missing: str) -> Cases:
    """Images with images and with texts; `d.png` is only ever in the place of a caption."""
    write_images(root, *(name for name in NAMES if name not in missing))
    pictures = [pair(a, PICTURE + b) for a in NAMES[:3] for b in NAMES]
    texts = [pair(a, text) for a in NAMES[:3] for text in TEXTS]
    return Cases.build([*pictures, *texts], root=root, source="graded")


def vector(root: Path, name: str) -> np.ndarray:
    if name.startswith(PICTURE):
        name = name.removeprefix(PICTURE)
    elif name in TEXTS:
        return naive_vector(name)
    return naive_vector(pixels(Picture(ImageRef(name), root).open()))


def expected(cases: Cases, root: Path) -> list[float]:
    found = []
    for row in range(len(cases)):
        one = cases.case(row)
        found.append(float(vector(root, one.images[0].path) @ vector(root, one.captions[0])))
    return found


@pytest.mark.parametrize("context", [None, 8])
def test_two_images_are_compared_by_their_vectors(context: int | None, tmp_path: Path) -> None:
    cases = graded(tmp_path)
    model = Towers(context=context)
    scored = run_engine(model, {"graded": cases}, tmp_path / "store")["graded"]
    kept = np.isfinite(scored.scores)
    np.testing.assert_allclose(
        scored.scores[kept], np.array(expected(cases, tmp_path))[kept], atol=5e-7
    )
    assert kept[:12].all()  # however long its path is, a picture has no tokens
    assert len(model.images) == len(set(model.images)) == 4  # each is encoded once
    assert set(model.captions) <= set(TEXTS)


def test_a_missing_picture_costs_its_cases(tmp_path: Path) -> None:
    cases = graded(tmp_path, "d.png")
    scored = run_engine(Towers(), {"graded": cases}, tmp_path / "store")["graded"]
    assert {cases.ids[row] for row in scored.left_out} == {
        f"{name} {PICTURE}d.png" for name in NAMES[:3]
    }
    assert all("no such file" in why for why in scored.left_out.values())


@pytest.mark.parametrize("model", [Judge(), Reader()])
def test_other_models_compare_images_with_texts_only(model: object, tmp_path: Path) -> None:
    cases = graded(tmp_path)
    scored = run_engine(model, {"graded": cases}, tmp_path / "store")["graded"]
    assert set(scored.left_out) == set(range(12))
    assert np.isfinite(scored.scores[12:]).all() and np.isnan(scored.scores[:12]).all()
    assert {*scored.left_out.values()} == {"two images: only a dual encoder can compare them."}


def test_exported_vectors_give_the_same_scores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    cases = graded(tmp_path)
    write_cases(cases, tmp_path / "graded.parquet")
    cp.export_vectors(("towers", Towers()), tmp_path / "graded.parquet", tmp_path / "vectors")
    folder = load_vectors(str(tmp_path / "vectors"), LoadOptions())
    scored = run_engine(folder, {"graded": cases}, tmp_path / "store")["graded"]
    np.testing.assert_allclose(scored.scores, expected(cases, tmp_path), atol=5e-7)


def test_tables_without_pictures_are_planned_as_before(tmp_path: Path) -> None:
    cases = graded(tmp_path)
    plan = make_plan({"texts": cases.keep(np.arange(18) >= 12)})
    assert plan.pictured == {} and len(plan.pictures) == 3 and list(plan.texts) == list(TEXTS)
    plan = make_plan({"graded": cases})
    assert len(plan.pictures) == 4 and len(plan.pictured) == 4
