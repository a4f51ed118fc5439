"""The engine: exactly the right cases left out, and models that misbehave refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from engine_support import ROUNDING, build, complaint, cosine, naive, one_file
from errors import raises
from models_for_tests import (
    Judge,
    Reader,
    Towers,
    choice,
    is_sentence,
    pixels,
    run_engine,
    write_images,
)
from support import gallery, write_lines

from counterpoint import evaluate, load_run
from counterpoint._util.progress import Named, Quiet
from counterpoint._util.store import Store
from counterpoint.cases.table import Case, Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.scoring.engine import score
from counterpoint.scoring.kinds import Work

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


class Notes(Quiet):
    """What is told, and which captions the model had read by then."""

    def __init__(self, model: Towers) -> None:
        self.model, self.told = model, list[tuple[str, int]]()

    def note(self, text: str) -> None:
        self.told.append((text, len(self.model.captions) + len(self.model.images)))


def told(tables: dict[str, Cases], tmp_path: Path, context: int) -> list[tuple[str, int]]:
    model = Towers(context=context)
    notes = Notes(model)
    with Store(tmp_path / "store") as store:
        work = Work(store, 4, Named(notes, "towers"))
        score(model, tables, dict.fromkeys(tables, "leave out"), work)
    return notes.told


def test_what_will_be_left_out_is_told_before_the_work(tmp_path: Path) -> None:
    cases = too_long(tmp_path)
    [(text, read)] = told({"bench": cases}, tmp_path, context=8)
    assert text.startswith("towers on bench: 2 of 3 cases will be left out")
    assert "caption too long for the model: 2;" in text and read == 0
    assert told({"bench": cases}, tmp_path, context=9) == []  # one of three
    (tmp_path / "b.png").unlink()
    (tmp_path / "c.png").unlink()
    [(text, _)] = told({"bench": cases}, tmp_path, context=50)
    assert "2 of 3 cases will be left out" in text
    assert "images that are not there: 2 of 3" in text


def test_a_gallery_tells_of_its_images(tmp_path: Path) -> None:
    cases = build(gallery(np.eye(6), images=[f"{i}.png" for i in range(6)]), root=tmp_path)
    write_images(tmp_path, "0.png", "1.png")
    [(text, read)] = told({"bench": cases}, tmp_path, context=50)
    assert (text, read) == ("towers on bench: 4 of 6 images are not there.", 0)
    write_images(tmp_path, "2.png")
    assert told({"bench": cases}, tmp_path, context=50) == []


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


def test_a_run_of_which_nothing_is_left_is_an_error(tmp_path: Path) -> None:
    bad = write_benchmark(tmp_path / "bad", "gone.png", "gone too.png")
    model = Towers()
    with raises("E-RUN-EMPTY", 2):
        evaluate([("towers", model)], bad, store=tmp_path / "store", out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
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


@pytest.mark.parametrize(("method", "kind"), METHODS)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused(
    tmp_path: Path, method: str, kind: type[Towers], value: float
) -> None:
    def change(values: np.ndarray) -> np.ndarray:
        values[0] = value
        return values

    found = complaint("E-MODEL-OUTPUT", spoil(method, change, kind()), tmp_path, batch=2)
    assert "1 of 2" in found
    # Nothing of that batch was kept: a model that has been mended starts afresh.
    scored = run_engine(kind(), {"bench": one_file(tmp_path)}, tmp_path / "store")["bench"]
    assert np.isfinite(scored.scores).all()


@pytest.mark.parametrize(("method", "kind"), METHODS)
@pytest.mark.parametrize("change", [lambda v: v[:-1], lambda v: np.concatenate([v, v[:1]])])
def test_a_wrong_number_of_results_is_refused(
    tmp_path: Path, method: str, kind: type[Towers], change: Callable[[np.ndarray], np.ndarray]
) -> None:
    found = complaint("E-MODEL-OUTPUT", spoil(method, change, kind()), tmp_path, batch=2)
    assert "results for 2 inputs" in found


@pytest.mark.parametrize(("method", "kind"), METHODS)
def test_results_that_are_no_array_are_refused(
    tmp_path: Path, method: str, kind: type[Towers]
) -> None:
    complaint("E-MODEL-OUTPUT", spoil(method, lambda _: 0.5, kind()), tmp_path)


def test_towers_of_different_widths_are_refused(tmp_path: Path) -> None:
    complaint("E-MODEL-OUTPUT", spoil("encode_captions", lambda v: v[:, :-1], Towers()), tmp_path)


@pytest.mark.parametrize(("method", "kind"), METHODS[2:])
def test_two_scores_for_a_pair_are_refused(tmp_path: Path, method: str, kind: type[Judge]) -> None:
    """A matching head has two outputs; to take the first of them would be to guess."""
    complaint(
        "E-MODEL-OUTPUT", spoil(method, lambda v: np.stack([v, -v], axis=1), kind()), tmp_path
    )


def test_an_object_of_no_kind_is_refused(tmp_path: Path) -> None:
    class Nothing:
        fingerprint = "nothing"

    assert "Nothing" in complaint("E-MODEL-INVALID", Nothing(), tmp_path)
    with raises("E-MODEL-INVALID", "Nothing"):
        evaluate([("x", Nothing())], "world-swap:size=2", store=tmp_path, out=tmp_path / "run")  # type: ignore
    assert not (tmp_path / "run").exists()


def test_results_that_vanish_are_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As when somebody deletes the store during a run."""
    monkeypatch.setattr(Store, "put", lambda self, items: None)
    with raises("E-STORE-DAMAGED", tmp_path / "store") as error:
        run_engine(Towers(), {"bench": one_file(tmp_path)}, tmp_path / "store")
    assert is_sentence(error.value)


# --- objects that are no model -----------------------------------------------------------------


class Incomplete:
    """A dual encoder that lacks what `without` names."""

    def __init__(self, *without: str) -> None:
        for name in ("fingerprint", "context_length", "preprocess", "encode_images"):
            if name not in without:
                setattr(self, name, "x")

    def count_tokens(self) -> None: ...

    def encode_captions(self) -> None: ...


def test_a_missing_member_is_named(tmp_path: Path) -> None:
    for names in (["context_length"], ["fingerprint", "encode_images"]):
        found = complaint("E-MODEL-INVALID", Incomplete(*names), tmp_path)
        assert "Incomplete" in found and all(name in found for name in names)


def test_what_is_no_model_at_all(tmp_path: Path) -> None:
    assert "int" in complaint("E-MODEL-INVALID", 3, tmp_path)
    assert "Towers" in complaint("E-MODEL-INVALID", Towers, tmp_path)
    towers = Towers()
    towers.fingerprint = 7  # type: ignore[assignment]
    assert "Towers" in complaint("E-MODEL-INVALID", towers, tmp_path)
