"""The engine: right scores, and nothing computed twice."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from engine_support import ROUNDING, build, complaint, cosine, naive, one_file
from hypothesis import given, strategies as st
from models_for_tests import (
    Counter,
    Judge,
    Reader,
    Towers,
    choice,
    features,
    is_sentence,
    naive_pair,
    naive_vector,
    noise,
    pixels,
    ragged,
    run_engine,
    write_images,
)
from support import FEW

from counterpoint import evaluate
from counterpoint._util.errors import CounterpointError
from counterpoint._util.store import Store
from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.scoring import Work, engine, plan, score

# --- two towers --------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 3, 100])
def test_scores_are_the_naive_dot_products(tmp_path: Path, batch: int) -> None:
    cases = ragged(tmp_path, 40)
    found = run_engine(Towers(), {"bench": cases}, tmp_path / "store", batch)["bench"]
    assert found.scores.dtype == np.float32 and found.left_out == {} and found.cut_captions == 0
    np.testing.assert_allclose(found.scores, naive(cases, cosine), rtol=0, atol=ROUNDING)


@pytest.mark.slow
@FEW
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_scores_do_not_depend_on_how_the_work_is_cut(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    """Lines in chunks, pairs in pieces: any sizes give each score its own place."""
    folder = tmp_path_factory.mktemp("data")
    cases = ragged(folder, 9, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "_LINES", size)
        patch.setattr(plan, "_PAIRS", 3 * size)
        patch.setattr(plan, "_FEWER", 2 * size)
        patch.setattr(engine, "_PIECE", 2 * size - 1)
        found = run_engine(Towers(), {"bench": cases}, folder / "store")["bench"]
    np.testing.assert_allclose(found.scores, naive(cases, cosine), rtol=0, atol=ROUNDING)


def test_everything_is_encoded_once_over_all_benchmarks(tmp_path: Path) -> None:
    tables = {name: ragged(tmp_path, 15, seed) for seed, name in enumerate(("one", "two", "three"))}
    model = Towers()
    first = run_engine(model, tables, tmp_path / "store")
    asked = [c.case(row) for c in tables.values() for row in range(len(c))]
    images = {pixels(Picture(i, tmp_path).open()) for case in asked for i in case.images}
    captions = {caption for case in asked for caption in case.captions}
    assert sorted(model.images) == sorted(images)
    assert sorted(model.captions) == sorted(captions)

    again = Towers()
    second = run_engine(again, tables, tmp_path / "store", batch=7)
    assert again.images == again.captions == []
    for name in tables:
        assert (second[name].scores == first[name].scores).all()


def test_batches_are_full_and_captions_come_by_length(tmp_path: Path) -> None:
    model = Towers()
    run_engine(model, {"bench": ragged(tmp_path, 60)}, tmp_path / "store", batch=3)
    lengths = model.count_tokens(model.captions)
    assert len(set(lengths.tolist())) > 3
    assert (np.diff(lengths) >= 0).all()
    for batches in (model.image_batches, model.caption_batches):
        assert {len(batch) for batch in batches[:-1]} == {3} and 1 <= len(batches[-1]) <= 3


def test_the_same_picture_under_two_paths_is_encoded_once(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    (tmp_path / "other").mkdir()
    shutil.copy(tmp_path / "a.png", tmp_path / "other" / "copy.png")
    first = build(choice("0", "a.png", "yes", "no"), root=tmp_path)
    second = build(choice("0", "copy.png", "yes", "no"), root=tmp_path / "other")
    model = Towers()
    found = run_engine(model, {"one": first, "two": second}, tmp_path / "store")
    assert len(model.images) == 1 and sorted(model.captions) == ["no", "yes"]
    assert (found["one"].scores == found["two"].scores).all()


@pytest.mark.parametrize("batch", [1, 2, 5])
def test_copies_in_several_batches_are_encoded_once(tmp_path: Path, batch: int) -> None:
    """Workers read ahead of what is committed, so a copy is prepared before its twin is stored."""
    write_images(tmp_path, "a.png", "b.png")
    for n in range(12):
        shutil.copy(tmp_path / f"{'ab'[n % 2]}.png", tmp_path / f"copy-{n}.png")
    cases = [choice(str(n), f"copy-{n}.png", "yes", "no") for n in range(12)]
    model = Towers()
    run_engine(model, {"bench": build(*cases, root=tmp_path)}, tmp_path / "store", batch)
    assert len(model.images) == 2


def test_a_picture_that_changes_is_encoded_again(tmp_path: Path) -> None:
    cases = one_file(tmp_path)
    before = run_engine(Towers(), {"bench": cases}, tmp_path / "store")["bench"].scores
    noise(99).save(tmp_path / "b.png")
    model = Towers()
    after = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"].scores
    assert model.images == [pixels(noise(99))] and model.captions == []
    assert ((after != before) == np.repeat([False, True, False, True], 2)).all()


# --- other kinds of model ----------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("batch", [1, 5, 1000])
def test_a_pair_scorer_sees_each_pair_once(tmp_path: Path, batch: int) -> None:
    tables = {name: ragged(tmp_path, 15, seed) for seed, name in enumerate(("one", "two"))}
    model = Judge()
    found = run_engine(model, tables, tmp_path / "store", batch)
    for name, cases in tables.items():
        np.testing.assert_allclose(found[name].scores, naive(cases, naive_pair), rtol=1e-6)
    asked: set[tuple[str, str]] = set()
    for cases in tables.values():
        naive(cases, lambda *pair: asked.add(pair) or 0.0)
    assert sorted(model.pairs) == sorted(asked)
    images = [image for image, _ in model.pairs]
    changes = sum(a != b for a, b in pairwise(images))
    assert changes == len(set(images)) - 1  # pairs of one image stand together

    again = Judge()
    second = run_engine(again, tables, tmp_path / "store")
    assert again.pairs == []
    assert (second["two"].scores == found["two"].scores).all()


@pytest.mark.parametrize("batch", [1, 3])
def test_a_pair_of_copies_is_scored_once(tmp_path: Path, batch: int) -> None:
    write_images(tmp_path, "a.png")
    for n in range(4):
        shutil.copy(tmp_path / "a.png", tmp_path / f"copy-{n}.png")
    cases = [choice(str(n), f"copy-{n}.png", "yes", "no") for n in range(4)]
    model = Judge()
    run_engine(model, {"bench": build(*cases, root=tmp_path)}, tmp_path / "store", batch)
    assert sorted(caption for _, caption in model.pairs) == ["no", "yes"]


def test_a_blind_scorer_needs_no_images(tmp_path: Path) -> None:
    cases = build(
        choice("0", "gone.png", "yes", "no"),
        Case("1", (ImageRef("x.png"), ImageRef("y.png")), ("no", "maybe"), ((True, False),) * 2),
        choice("2", "world:broken", "yes", "no"),
        root=tmp_path,
    )
    model = Reader()
    found = run_engine(model, {"bench": cases}, tmp_path / "store", batch=2)["bench"]
    yes, no, maybe = (np.float32(features(caption)[0]) for caption in ("yes", "no", "maybe"))
    assert found.left_out == {}
    assert found.scores.tolist() == [yes, no, no, maybe, no, maybe, yes, no]
    assert model.captions == ["yes", "no", "maybe"]
    again = Reader()
    run_engine(again, {"bench": cases}, tmp_path / "store")
    assert again.captions == []


def test_a_table_scorer_sees_the_whole_table(tmp_path: Path) -> None:
    cases = build(choice("0", "gone.png", "yes", "no"), choice("1", "gone.png", "yes", "a", "b"))
    found = run_engine(Counter(), {"one": cases, "two": cases}, tmp_path / "store")
    assert found["one"].scores.tolist() == found["two"].scores.tolist() == [0, 1, 2, 3, 4]
    assert found["one"].left_out == {} and found["one"].scores.dtype == np.float32


@pytest.mark.parametrize(
    "change", [lambda s: s[:-1], lambda s: s[None], lambda s: s * np.nan, lambda s: s / 0.0]
)
def test_a_wrong_table_is_refused(
    tmp_path: Path, change: Callable[[np.ndarray], np.ndarray]
) -> None:
    class Wrong(Counter):
        def score_cases(self, cases: Cases) -> np.ndarray:
            with np.errstate(all="ignore"):
                return change(super().score_cases(cases))

    assert "Wrong" in complaint("E-MODEL-OUTPUT", Wrong(), tmp_path)


# --- retrieval ---------------------------------------------------------------------------------


def retrieval(root: Path, k: int = 40, m: int = 60) -> Cases:
    """Every image with every caption, hardly anything true."""
    names, texts = [f"{i}.png" for i in range(k)], [f"caption number {j}" for j in range(m)]
    write_images(root, *names)
    truth = tuple(tuple(j == i for j in range(m)) for i in range(k))
    return build(Case("all", tuple(map(ImageRef, names)), tuple(texts), truth), root=root)


def product(cases: Cases) -> np.ndarray:
    case = cases.case(0)
    shown = [pixels(Picture(image, cases.root).open()) for image in case.images]
    left, right = (np.stack([naive_vector(x) for x in xs]) for xs in (shown, case.captions))
    return (left @ right.T).reshape(-1)


def refuse(*_: object, **__: object) -> None:
    raise AssertionError("this way should not be taken")


@pytest.mark.parametrize("dense", [True, False])
def test_retrieval_is_a_matrix_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dense: bool
) -> None:
    cases, model = retrieval(tmp_path), Towers()
    expected = product(cases)
    if dense:
        monkeypatch.setattr(engine, "_DENSE", 100)
        monkeypatch.setattr(np, "einsum", refuse)
    else:
        monkeypatch.setattr(engine, "_PIECE", 7)  # a row of captions is cut in the middle
    found = run_engine(model, {"bench": cases}, tmp_path / "store", batch=16)["bench"]
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=ROUNDING)
    assert len(model.images) == 40 and len(model.captions) == 60


def test_many_small_cases_make_no_large_product(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A product of all images with all captions would mostly be of pairs nobody asked for."""
    monkeypatch.setattr(engine, "_DENSE", 1)
    names = [f"{n}.png" for n in range(12)]
    write_images(tmp_path, *names)
    cases = build(*(choice(n, n, f"yes {n}", f"no {n}") for n in names), root=tmp_path)
    asked = []
    einsum = np.einsum
    monkeypatch.setattr(np, "einsum", lambda *a: asked.append(len(a[1])) or einsum(*a))
    found = run_engine(Towers(), {"bench": cases}, tmp_path / "store")["bench"]
    assert sum(asked) == 24
    np.testing.assert_allclose(found.scores, naive(cases, cosine), rtol=0, atol=ROUNDING)


# --- progress ----------------------------------------------------------------------------------


class Bars:
    def __init__(self) -> None:
        self.bars: dict[str, list[int]] = {}

    def note(self, text: str) -> None:
        raise AssertionError(text)

    def start(self, what: str, total: int) -> Callable[[int], None]:
        bar = self.bars.setdefault(what, [total, 0])

        def advance(steps: int) -> None:
            bar[1] += steps

        return advance


@pytest.mark.parametrize("kind", [Towers, Judge, Reader])
def test_every_bar_reaches_its_end(tmp_path: Path, kind: type[Towers | Judge | Reader]) -> None:
    tables = {"bench": ragged(tmp_path, 30)}
    for _ in range(2):  # cold, then warm
        bars = Bars()
        with Store(tmp_path / "store") as store:
            score(kind(), tables, {"bench": "cut"}, Work(store, 4, bars))
        assert bars.bars
        for total, done in bars.bars.values():
            assert done == total > 0


# --- evaluate ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [{"batch_size": 0}, {"limit": 0}])
def test_sizes_must_be_positive(tmp_path: Path, wrong: dict[str, int]) -> None:
    with pytest.raises(CounterpointError) as error:
        evaluate([("x", Towers())], "world-swap:size=2", store=tmp_path, **wrong)  # type: ignore
    assert is_sentence(error.value)


@pytest.mark.slow
@pytest.mark.parametrize(("models", "benchmarks"), [([], "world-swap"), ("random", [])])
def test_something_must_be_asked(
    tmp_path: Path, models: Sequence[str] | str, benchmarks: Sequence[str] | str
) -> None:
    with pytest.raises(CounterpointError) as error:
        evaluate(models, benchmarks, store=tmp_path)
    assert is_sentence(error.value)


def test_several_models_have_a_folder_each_and_share_nothing(tmp_path: Path) -> None:
    models = [("first/model", Towers("1")), ("second", Towers("2"))]
    names = ["world-swap:size=6", "world-bi:size=6"]
    runs = evaluate(models, names, store=tmp_path / "store", out=tmp_path / "runs", limit=4)
    assert [run.folder for run in runs] == [
        tmp_path / "runs" / n for n in ("first-model", "second")
    ]
    for run, (_, model) in zip(runs, models, strict=True):
        assert [len(part.cases) for part in run.parts.values()] == [4, 4]
        assert len(model.images) == len(set(model.images)) == 4 + 8
        assert run.manifest["fingerprint"] == model.fingerprint
