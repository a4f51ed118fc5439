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
    run_engine,
    write_images,
)

from counterpoint.cases import PROMPTS, Case, Cases, ImageRef, without_images

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
