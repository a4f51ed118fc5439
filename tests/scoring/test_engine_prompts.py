"""The engine on captions of several prompts, and on texts in place of images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from engine_support import ROUNDING, build, cosine, loop, own_place, prompted
from models_for_tests import (
    Judge,
    Reader,
    Towers,
    choice,
    features,
    is_sentence,
    naive_pair,
    naive_vector,
    pixels,
    run_engine,
    write_images,
)

import counterpoint as cp
from counterpoint.cases import PICTURE, PROMPTS, Case, Cases, ImageRef, without_images, write_cases
from counterpoint.images import Picture
from counterpoint.models.registry import LoadOptions
from counterpoint.models.vectors import load as load_vectors
from counterpoint.scoring import make_plan

__all__ = ["own_place"]  # fixtures


def mean_direction(shown: str, prompts: list[str]) -> float:
    """The cosine with the mean of the prompts' unit vectors, made a unit vector again."""
    total = sum(naive_vector(prompt) for prompt in prompts) / len(prompts)
    return float(naive_vector(shown) @ total / np.linalg.norm(total))


# --- prompts -----------------------------------------------------------------------------------


def test_a_dual_encoder_averages_the_prompts_vectors(tmp_path: Path) -> None:
    cases, model = prompted(tmp_path), Towers()
    found = run_engine(model, {"bench": cases}, tmp_path / "store", batch=3)["bench"]
    expected = loop(cases, mean_direction)
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=ROUNDING)
    means = loop(cases, cosine, caption_mean=True)
    assert abs(expected - means).max() > 100 * ROUNDING  # which is not the mean of the cosines
    assert len(model.captions) == len(set(model.captions)) == 2 + 3 + 4
    assert not any(PROMPTS in caption for caption in model.captions)
    again = Towers()
    second = run_engine(again, {"bench": cases}, tmp_path / "store")["bench"]
    assert again.captions == again.images == []
    np.testing.assert_array_equal(second.scores, found.scores)


def test_other_models_average_the_prompts_scores(tmp_path: Path) -> None:
    cases = prompted(tmp_path)
    judge, reader = Judge(), Reader()
    pairs = run_engine(judge, {"bench": cases}, tmp_path / "store")["bench"].scores
    np.testing.assert_allclose(pairs, loop(cases, naive_pair, caption_mean=True), rtol=1e-5)
    assert len(judge.pairs) == len(set(judge.pairs)) == 7 * 9
    blind = run_engine(reader, {"bench": cases}, tmp_path / "store")["bench"].scores
    expected = loop(cases, lambda _, prompt: features(prompt)[0], caption_mean=True)
    np.testing.assert_allclose(blind, expected, rtol=1e-5)
    assert len(reader.captions) == len(set(reader.captions)) == 9


def test_prompts_and_plain_captions_in_several_benchmarks(tmp_path: Path) -> None:
    write_images(tmp_path, "0.png")
    plain = build(choice("0", "0.png", "a photo of a cat", "the bird", "else"), root=tmp_path)
    tables = {"plain": plain, "classes": prompted(tmp_path, missing="4")}
    model = Towers()
    found = run_engine(model, tables, tmp_path / "store", batch=4)
    assert len(model.captions) == len(set(model.captions)) == 10
    np.testing.assert_allclose(
        found["plain"].scores, loop(plain, mean_direction), rtol=0, atol=ROUNDING
    )
    kept = without_images(tables["classes"], {0: {4}})
    np.testing.assert_allclose(
        found["classes"].scores[kept.pairs],
        loop(kept.cases, mean_direction),
        rtol=0,
        atol=ROUNDING,
    )


@pytest.mark.parametrize("overlong", ["cut", "leave out"])
def test_a_prompt_beyond_the_context_counts_as_its_caption(tmp_path: Path, overlong: str) -> None:
    """`a drawing of a cat with a hat` has ten tokens; the first two classes have no longer one."""
    cases = prompted(tmp_path)
    model = Towers(context=9)
    found = run_engine(model, {"bench": cases}, tmp_path / "store", overlong=overlong)["bench"]
    if overlong == "leave out":
        assert found.left_out == {0: "caption too long: 10 tokens, the model takes 9."}
        assert found.cut_captions == 0 and model.images == []
        assert np.isnan(found.scores).all()
    else:
        assert found.left_out == {} and found.cut_captions == 3  # captions, not prompts
        expected = loop(cases, lambda s, ps: mean_direction(s, [model.cut(p) for p in ps]))
        np.testing.assert_allclose(found.scores, expected, rtol=0, atol=ROUNDING)


# --- texts -------------------------------------------------------------------------------------


def texts(root: Path) -> Cases:
    """Two cases of texts, of which one text is also a caption elsewhere, and one of an image."""
    made = []
    for n in range(2):
        a, b, negative = f"a dog {n}", f"one dog {n}", f"a cat {n}"
        refs = (ImageRef(f"text:{a}"), ImageRef(f"text:{b}"))
        made.append(Case(f"texts-{n}", refs, (a, b, negative), ((True, True, False),) * 2))
    write_images(root, "0.png")
    return build(*made, choice("image", "0.png", "a dog 0", "a text: yes"), root=root)


def test_texts_stand_where_images_do(tmp_path: Path) -> None:
    cases, model = texts(tmp_path), Towers()
    found = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"]
    assert found.left_out == {}
    np.testing.assert_allclose(found.scores, loop(cases, mean_direction), rtol=0, atol=ROUNDING)
    np.testing.assert_allclose(found.scores[[0, 4, 6, 10]], 1, atol=ROUNDING)  # to themselves
    assert len(model.images) == 1
    assert sorted(model.captions) == sorted(
        {*(f"{x} {n}" for x in ("a dog", "one dog", "a cat") for n in range(2)), "a text: yes"}
    )


def test_a_text_that_is_no_caption_is_encoded_too(tmp_path: Path) -> None:
    refs = (ImageRef("text:first"), ImageRef("text:second"))
    cases = build(Case("t", refs, ("x", "y", "z"), ((True, True, False),) * 2), root=tmp_path)
    model = Towers()
    found = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"]
    np.testing.assert_allclose(found.scores, loop(cases, mean_direction), rtol=0, atol=ROUNDING)
    assert sorted(model.captions) == ["first", "second", "x", "y", "z"]


def test_a_pair_scorer_cannot_compare_texts(tmp_path: Path) -> None:
    cases, model = texts(tmp_path), Judge()
    found = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"]
    assert set(found.left_out) == {0, 1}
    for why in found.left_out.values():
        assert is_sentence(why) and "text" in why and "no such file" not in why
    assert np.isfinite(found.scores[12:]).all() and len(model.pairs) == 2


def test_a_text_beyond_the_context_is_left_out_like_a_caption(tmp_path: Path) -> None:
    refs = (ImageRef("text:a very long text indeed"), ImageRef("text:b"))
    cases = build(Case("t", refs, ("x", "b", "z"), ((True, True, False),) * 2), root=tmp_path)
    for overlong in ("leave out", "cut"):
        found = run_engine(
            Towers(context=5), {"bench": cases}, tmp_path / "store", overlong=overlong
        )["bench"]
        assert bool(found.left_out) == (overlong == "leave out")


# --- pictures in the place of captions -----------------------------------------------------------

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
