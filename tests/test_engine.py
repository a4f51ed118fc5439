"""The engine: right scores, nothing computed twice, and exactly the right cases left out."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from models_for_tests import (
    WIDTH,
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
from support import FEW, write_lines

from counterpoint import evaluate, load_run
from counterpoint.cases import Case, Cases, ImageRef
from counterpoint.errors import CounterpointError, ModelError, StoreError
from counterpoint.scoring import engine
from counterpoint.scoring.engine import Work, score
from counterpoint.scoring.pictures import Picture
from counterpoint.scoring.progress import Quiet
from counterpoint.scoring.store import Store

ROUNDING = 5e-7  # float32 vectors of length one, compared with float64


def naive(cases: Cases, pair: Callable[[str, str], float]) -> list[float]:
    """Every pair in a plain loop; `pair` takes what the image shows and the caption."""
    found = []
    for row in range(len(cases)):
        case = cases.case(row)
        for image in case.images:
            shown = pixels(Picture(image, cases.root).open())
            found += [pair(shown, caption) for caption in case.captions]
    return found


def cosine(shown: str, caption: str) -> float:
    return float(naive_vector(shown) @ naive_vector(caption))


def build(*cases: Case, root: Path | None = None) -> Cases:
    return Cases.build(cases, root=root, source="test")


def one_file(root: Path) -> Cases:
    """Four cases on two images."""
    write_images(root, "a.png", "b.png")
    names = ("a.png", "b.png", "a.png", "b.png")
    cases = (choice(str(n), name, f"yes {n}", f"no {n}") for n, name in enumerate(names))
    return build(*cases, root=root)


# --- two towers --------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 3, 100])
def test_scores_are_the_naive_dot_products(tmp_path: Path, batch: int) -> None:
    cases = ragged(tmp_path, 40)
    found = run_engine(Towers(), {"bench": cases}, tmp_path / "store", batch)["bench"]
    assert found.scores.dtype == np.float32 and found.left_out == {} and found.cut_captions == 0
    np.testing.assert_allclose(found.scores, naive(cases, cosine), rtol=0, atol=ROUNDING)


@FEW
@given(st.integers(0, 2**32 - 1), st.integers(1, 9))
def test_scores_do_not_depend_on_how_the_work_is_cut(
    tmp_path_factory: pytest.TempPathFactory, seed: int, size: int
) -> None:
    """Cases in chunks, pairs in pieces: any sizes give each score its own place."""
    folder = tmp_path_factory.mktemp("data")
    cases = ragged(folder, 9, seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_CHUNK", size)
        patch.setattr(engine, "_PIECE", 2 * size - 1)
        found = run_engine(Towers(), {"bench": cases}, folder / "store")["bench"]
    np.testing.assert_allclose(found.scores, naive(cases, cosine), rtol=0, atol=ROUNDING)


def test_the_batch_size_changes_nothing_but_the_rounding(tmp_path: Path) -> None:
    cases = ragged(tmp_path, 60)
    found = [
        run_engine(Towers(), {"bench": cases}, tmp_path / f"store-{batch}", batch)["bench"].scores
        for batch in (1, 2, 7, 64)
    ]
    for scores in found[1:]:
        assert abs(scores - found[0]).max() <= ROUNDING


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


def test_a_new_benchmark_costs_only_what_is_new(tmp_path: Path) -> None:
    run_engine(Towers(), {"old": one_file(tmp_path)}, tmp_path / "store")
    write_images(tmp_path, "c.png")
    old, new = choice("0", "a.png", "yes 0", "no 1"), choice("1", "c.png", "no 1", "new")
    model = Towers()
    run_engine(model, {"new": build(old, new, root=tmp_path)}, tmp_path / "store")
    assert model.images == [pixels(Picture(ImageRef("c.png"), tmp_path).open())]
    assert model.captions == ["new"]


def test_another_model_shares_nothing(tmp_path: Path) -> None:
    cases = one_file(tmp_path)
    run_engine(Towers("first"), {"bench": cases}, tmp_path / "store")
    model = Towers("second")
    run_engine(model, {"bench": cases}, tmp_path / "store")
    assert len(model.images) == 2 and len(model.captions) == 8


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


def test_boxes_of_one_image_are_different_images(tmp_path: Path) -> None:
    noise(1).save(tmp_path / "a.png")
    boxes = (None, (0, 0, 4, 4), (1, 1, 4, 4))
    cases = [
        choice(str(n), ImageRef("a.png", box), "yes", "no") for n, box in enumerate((*boxes, None))
    ]
    table, model = build(*cases, root=tmp_path), Towers()
    found = run_engine(model, {"bench": table}, tmp_path / "store")["bench"]
    assert len(model.images) == 3
    np.testing.assert_allclose(found.scores, naive(table, cosine), rtol=0, atol=ROUNDING)


def test_a_picture_that_changes_is_encoded_again(tmp_path: Path) -> None:
    cases = one_file(tmp_path)
    before = run_engine(Towers(), {"bench": cases}, tmp_path / "store")["bench"].scores
    noise(99).save(tmp_path / "b.png")
    model = Towers()
    after = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"].scores
    assert model.images == [pixels(noise(99))] and model.captions == []
    assert ((after != before) == np.repeat([False, True, False, True], 2)).all()


def test_a_world_needs_no_files(tmp_path: Path) -> None:
    model = Towers()
    [run] = evaluate(
        [("towers", model)],
        "world-bi:size=10",
        store=tmp_path / "store",
        out=tmp_path / "run",
    )
    part = run.parts["world-bi:size=10"]
    np.testing.assert_allclose(part.scores, naive(part.cases, cosine), rtol=0, atol=ROUNDING)
    assert len(set(model.images)) == len(model.images) == 20


# --- captions that do not fit ------------------------------------------------------------------

LONG = "one two three four five six seven"


def too_long(root: Path) -> Cases:
    """The first and the last case have a caption of nine tokens."""
    write_images(root, "a.png", "b.png", "c.png")
    return build(
        choice("first", "a.png", "short", LONG),
        choice("second", "b.png", "short", "also short"),
        choice("last", "c.png", LONG, "only here", f"{LONG} eight"),
        root=root,
    )


def test_overlong_captions_leave_their_cases_out(tmp_path: Path) -> None:
    cases, model = too_long(tmp_path), Towers(context=8)
    found = run_engine(model, {"bench": cases}, tmp_path / "store", overlong="leave out")["bench"]
    assert found.left_out == {
        0: "caption too long: 9 tokens, the model takes 8.",
        2: "caption too long: 10 tokens, the model takes 8.",
    }
    assert sorted(model.captions) == ["also short", "short"]  # "only here" is not needed any more
    assert model.images == [pixels(Picture(ImageRef("b.png"), tmp_path).open())]
    assert np.isnan(found.scores).tolist() == [True] * 2 + [False] * 2 + [True] * 3
    assert found.cut_captions == 0


def test_overlong_captions_may_be_cut_and_are_counted(tmp_path: Path) -> None:
    cases, model = too_long(tmp_path), Towers(context=8)
    found = run_engine(model, {"bench": cases}, tmp_path / "store", overlong="cut")["bench"]
    assert found.left_out == {} and found.cut_captions == 2
    expected = naive(cases, lambda shown, caption: cosine(shown, model.cut(caption)))
    np.testing.assert_allclose(found.scores, expected, rtol=0, atol=ROUNDING)


@pytest.mark.parametrize(("context", "left_out"), [(9, [2]), (10, []), (None, [])])
def test_a_caption_that_just_fits_is_kept(
    tmp_path: Path, context: int | None, left_out: list[int]
) -> None:
    model, tables = Towers(context=context), {"bench": too_long(tmp_path)}
    found = run_engine(model, tables, tmp_path / "store", overlong="leave out")["bench"]
    assert list(found.left_out) == left_out and LONG in model.captions


@pytest.mark.parametrize(("context", "cut"), [(9, 1), (10, 0), (None, 0)])
def test_a_caption_that_just_fits_is_not_cut(tmp_path: Path, context: int | None, cut: int) -> None:
    model, tables = Towers(context=context), {"bench": too_long(tmp_path)}
    assert run_engine(model, tables, tmp_path / "store")["bench"].cut_captions == cut


def test_each_benchmark_has_its_own_policy(tmp_path: Path) -> None:
    cases, model = too_long(tmp_path), Towers(context=8)
    with Store(tmp_path / "store") as store:
        policies = {"cut": "cut", "strict": "leave out"}
        found = score(model, dict.fromkeys(policies, cases), policies, Work(store, 4, Quiet()))
    assert sorted(found["strict"].left_out) == [0, 2] and found["strict"].cut_captions == 0
    assert found["cut"].left_out == {} and found["cut"].cut_captions == 2
    assert np.isfinite(found["cut"].scores).all()


# --- images that cannot be read ----------------------------------------------------------------


@pytest.mark.parametrize("kind", [Towers, Judge])
def test_missing_images_leave_out_the_cases_that_use_them(
    tmp_path: Path, kind: type[Towers | Judge]
) -> None:
    """In both benchmarks, and nothing else; one missing image of several is enough."""
    write_images(tmp_path / "one", "a.png")
    write_images(tmp_path / "two", "a.png", "gone.png")
    pair = Case(
        "pair",
        (ImageRef("a.png"), ImageRef("gone.png")),
        ("yes", "no"),
        ((True, False), (False, True)),
    )
    cases = (choice("0", "a.png", "yes", "no"), choice("1", "gone.png", "yes", "no"), pair)
    tables = {name: build(*cases, root=tmp_path / name) for name in ("one", "two")}
    found = run_engine(kind(), tables, tmp_path / "store")
    assert list(found["one"].left_out) == [1, 2] and found["two"].left_out == {}
    for why in found["one"].left_out.values():
        assert is_sentence(why) and "gone.png" in why and "no such file" in why
    assert np.isnan(found["one"].scores).tolist() == [False] * 2 + [True] * 6
    assert np.isfinite(found["two"].scores).all()
    assert (found["one"].scores[:2] == found["two"].scores[:2]).all()


def test_broken_images_leave_out_the_cases_that_use_them(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png", "cut.png")
    (tmp_path / "cut.png").write_bytes((tmp_path / "cut.png").read_bytes()[:50])
    (tmp_path / "text.jpg").write_text("no image")
    refs = ("a.png", "cut.png", "text.jpg", ImageRef("a.png", (500, 0, 5, 5)), "../x.png", "a.png")
    cases = [choice(str(n), ref, f"yes {n}", "no") for n, ref in enumerate(refs)]
    table, model = build(*cases, root=tmp_path), Towers()
    found = run_engine(model, {"bench": table}, tmp_path / "store")["bench"]
    assert sorted(found.left_out) == [1, 2, 3, 4]
    for row, words in {1: "cut.png", 2: "text.jpg", 3: "lies outside", 4: "leads out"}.items():
        assert is_sentence(found.left_out[row]) and words in found.left_out[row]
    assert sorted(model.captions) == ["no", "yes 0", "yes 5"]
    kept = build(cases[0], cases[5], root=tmp_path)
    np.testing.assert_allclose(
        found.scores[[0, 1, 10, 11]], naive(kept, cosine), rtol=0, atol=ROUNDING
    )


@pytest.mark.parametrize("kind", [Towers, Judge])
def test_a_broken_scene_leaves_out_its_case_too(tmp_path: Path, kind: type[Judge]) -> None:
    """A code that cannot be drawn is an image that cannot be read, like any other."""
    write_images(tmp_path, "a.png")
    cases = [choice("0", "a.png", "yes", "no"), choice("1", "world:0.5;no", "yes", "no")]
    found = run_engine(kind(), {"bench": build(*cases, root=tmp_path)}, tmp_path / "store")["bench"]
    assert list(found.left_out) == [1] and is_sentence(found.left_out[1])


def test_a_broken_image_leaves_out_its_cases_for_pairs_too(tmp_path: Path) -> None:
    """A file that is there but cannot be decoded comes to light when the pair is scored."""
    write_images(tmp_path, "a.png")
    (tmp_path / "text.jpg").write_text("no image")
    cases = [choice("0", "a.png", "yes", "no"), choice("1", "text.jpg", "yes", "no")]
    found = run_engine(Judge(), {"bench": build(*cases, root=tmp_path)}, tmp_path / "store")
    assert list(found["bench"].left_out) == [1] and is_sentence(found["bench"].left_out[1])


@pytest.mark.parametrize("kind", [Towers, Judge])
def test_broken_images_of_one_content_are_all_left_out(
    tmp_path: Path, kind: type[Towers | Judge]
) -> None:
    """Downloads that failed leave many empty files, which all have the same key."""
    write_images(tmp_path, "a.png")
    names = ("a.png", "empty-1.jpg", "empty-2.jpg", "empty-3.jpg")
    for name in names[1:]:
        (tmp_path / name).touch()
    cases = [choice(name, name, "yes", "no") for name in names]
    found = run_engine(kind(), {"bench": build(*cases, root=tmp_path)}, tmp_path / "store")["bench"]
    assert sorted(found.left_out) == [1, 2, 3]
    for row, why in found.left_out.items():
        assert is_sentence(why) and names[row] in why


def write_benchmark(folder: Path, *images: str) -> str:
    lines = [
        json.dumps({"id": n, "images": [i], "captions": ["yes", "no"], "truth": [[True, False]]})
        for n, i in enumerate(images)
    ]
    folder.mkdir(exist_ok=True)
    return str(write_lines(folder / "cases.jsonl", *lines))


def test_a_run_names_what_was_left_out_and_keeps_the_rest(tmp_path: Path) -> None:
    good = write_benchmark(tmp_path / "good", "a.png", "b.png")
    bad = write_benchmark(tmp_path / "bad", "a.png", "gone.png", "b.png")
    for folder in ("good", "bad"):
        write_images(tmp_path / folder, "a.png", "b.png")
    evaluate([("towers", Towers())], [good, bad], store=tmp_path / "store", out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    [(case, why)] = run.parts[bad].left_out
    assert case == "1" and "gone.png" in why and run.left_out == 1
    assert run.parts[good].left_out == ()
    assert run.parts[bad].cases.ids.to_list() == ["0", "2"]
    np.testing.assert_array_equal(run.parts[bad].scores, run.parts[good].scores)
    described = run.manifest["benchmarks"][bad]
    assert (described["cases"], described["scored"], described["pairs"]) == (3, 2, 4)
    assert described["left_out"] == [{"case_id": "1", "reason": why}]


def test_a_run_may_have_nothing_left(tmp_path: Path) -> None:
    bad = write_benchmark(tmp_path / "bad", "gone.png", "gone too.png")
    model = Towers()
    evaluate([("towers", model)], bad, store=tmp_path / "store", out=tmp_path / "run")
    part = load_run(tmp_path / "run").parts[bad]
    assert len(part.left_out) == 2 and len(part.cases) == len(part.scores) == 0
    assert model.images == model.captions == []


# --- models that misbehave ---------------------------------------------------------------------


def spoil(
    name: str, change: Callable[[np.ndarray], object], model: Towers | Judge | Reader
) -> Towers | Judge | Reader:
    """Change what one method of a model returns."""
    right = getattr(model, name)
    setattr(model, name, lambda *inputs: change(right(*inputs)))
    return model


METHODS = [
    ("encode_images", Towers),
    ("encode_captions", Towers),
    ("score_pairs", Judge),
    ("score_captions", Reader),
]


def complaint(model: object, root: Path, **options: int) -> str:
    with pytest.raises(ModelError) as error:
        run_engine(model, {"bench": one_file(root)}, root / "store", **options)
    assert is_sentence(error.value)
    return str(error.value)


@pytest.mark.parametrize(("method", "kind"), METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(
    tmp_path: Path, method: str, kind: type[Towers], value: float
) -> None:
    def change(values: np.ndarray) -> np.ndarray:
        values[0] = value
        return values

    why = complaint(spoil(method, change, kind()), tmp_path, batch=2)
    assert "NaN or infinity for 1 of 2 inputs" in why
    # Nothing of that batch was kept: a model that has been mended starts afresh.
    found = run_engine(kind(), {"bench": one_file(tmp_path)}, tmp_path / "store")["bench"]
    assert np.isfinite(found.scores).all()


def test_one_bad_number_in_a_vector_is_enough(tmp_path: Path) -> None:
    def change(vectors: np.ndarray) -> np.ndarray:
        vectors[1, WIDTH - 1] = np.nan
        return vectors

    assert "for 1 of 2" in complaint(spoil("encode_images", change, Towers()), tmp_path)


@pytest.mark.parametrize(("method", "kind"), METHODS)
@pytest.mark.parametrize("change", [lambda v: v[:-1], lambda v: np.concatenate([v, v[:1]])])
def test_a_wrong_number_of_results_is_refused(
    tmp_path: Path, method: str, kind: type[Towers], change: Callable[[np.ndarray], np.ndarray]
) -> None:
    why = complaint(spoil(method, change, kind()), tmp_path, batch=2)
    assert "for 2 inputs" in why and ("returned 1" in why or "returned 3" in why)


@pytest.mark.parametrize(("method", "kind"), METHODS)
def test_results_that_are_no_array_are_refused(
    tmp_path: Path, method: str, kind: type[Towers]
) -> None:
    complaint(spoil(method, lambda _: 0.5, kind()), tmp_path)


def test_towers_of_different_widths_are_refused(tmp_path: Path) -> None:
    complaint(spoil("encode_captions", lambda v: v[:, :-1], Towers()), tmp_path)


@pytest.mark.parametrize(("method", "kind"), METHODS[2:])
def test_two_scores_for_a_pair_are_refused(tmp_path: Path, method: str, kind: type[Judge]) -> None:
    """A matching head has two outputs; to take the first of them would be to guess."""
    complaint(spoil(method, lambda v: np.stack([v, -v], axis=1), kind()), tmp_path)


def test_an_object_of_no_kind_is_refused(tmp_path: Path) -> None:
    class Nothing:
        fingerprint = "nothing"

    assert "Nothing" in complaint(Nothing(), tmp_path)
    with pytest.raises(ModelError):
        evaluate([("x", Nothing())], "world-swap:size=2", store=tmp_path, out=tmp_path / "run")  # type: ignore
    assert not (tmp_path / "run").exists()


def test_results_that_vanish_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when somebody deletes the store during a run."""
    monkeypatch.setattr(Store, "put", lambda self, items: None)
    with pytest.raises(StoreError) as error:
        run_engine(Towers(), {"bench": one_file(tmp_path)}, tmp_path / "store")
    assert is_sentence(error.value)


# --- other kinds of model ----------------------------------------------------------------------


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

    assert "Wrong" in complaint(Wrong(), tmp_path)


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
