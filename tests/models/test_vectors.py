"""Vectors from elsewhere: the same scores as the model's own, and what is missing or wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from cli_support import counterpoint, own_place
from engine_support import build, photos, prompted
from errors import raises
from models_for_tests import Towers, choice, is_sentence, run_engine, write_images
from support import owned

import counterpoint as cp
from counterpoint.cases.files import write_cases
from counterpoint.cases.table import Case, Cases, ImageRef
from counterpoint.models.registry import load_model
from counterpoint.models.vectors import VECTOR_FORMATS, VectorFolder, write_vectors
from counterpoint.scoring import engine

__all__ = ["counterpoint", "own_place"]  # fixtures


def vectors(count: int, width: int = 4, seed: int = 0) -> np.ndarray:
    found = np.random.default_rng(seed).normal(size=(count, width)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def folder_of(
    place: Path, images: dict[str, np.ndarray], captions: dict[str, np.ndarray], form: str = "npy"
) -> Path:
    place.mkdir(exist_ok=True)
    for side, found in (("images", images), ("captions", captions)):
        write_vectors(place, side, form, [*found], [np.stack([*found.values()])])
    return place


def few(tmp_path: Path, form: str = "npy") -> Path:
    """Two images and three captions."""
    rows = vectors(5)
    images = {"a/1.png": rows[0], "b/2.png": rows[1]}
    return folder_of(tmp_path / "few", images, dict(zip("xyz", rows[2:], strict=True)), form)


def asked(*cases: Case) -> Cases:
    return build(*cases)


def score(folder: Path, cases: Cases, tmp_path: Path):
    return run_engine(load_model(f"vectors:{folder}"), {"bench": cases}, tmp_path / "store")[
        "bench"
    ]


# --- there and back ------------------------------------------------------------------------------


def of_every_kind(root: Path) -> list[str]:
    """Case files with crops, texts in place of images, a gallery, and captions of prompts."""
    write_images(root, "a.png", "b.png")
    boxed = ImageRef("a.png", (1, 1, 4, 4))
    plain = build(
        choice("1", "a.png", "a b", "b a"),
        Case("2", (boxed, ImageRef("b.png")), ("left", "right"), ((True, False), (False, True))),
        Case("3", (ImageRef("text:a true one"),), ("a b", "new"), ((True, False),)),
        root=root,
    )
    places = []
    for name, cases in (
        ("plain", plain),
        ("prompts", prompted(root)),
        ("gallery", build(photos(root, owned(8, 2, 2)), root=root)),
    ):
        write_cases(cases, root / f"{name}.parquet")
        places.append(str(root / f"{name}.parquet"))
    return [*places, "world-swap:size=30"]


@pytest.mark.slow
@pytest.mark.parametrize("form", VECTOR_FORMATS)
def test_exported_vectors_give_the_models_own_bytes(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "_DENSE", 20)  # the gallery is a matrix product
    benchmarks, model = of_every_kind(tmp_path), Towers()
    own = cp.evaluate(("towers", model), benchmarks, out="own")
    seen = len(model.images) + len(model.captions)
    found = cp.export_vectors(("towers", model), benchmarks, "vectors", form=form)
    assert len(model.images) + len(model.captions) == seen  # all of it was in the store
    assert not any(found.left_out.values())
    for path in tmp_path.glob("*.png"):
        path.unlink()  # images need not be there
    other = cp.evaluate(found.model, benchmarks, out="other")
    assert not other.left_out
    for name in ("scores.parquet", "cases.parquet"):
        assert (Path("own") / name).read_bytes() == (Path("other") / name).read_bytes()
    assert own.manifest["fingerprint"] != other.manifest["fingerprint"]


def test_another_programme_reads_what_is_written(tmp_path: Path) -> None:
    rows = dict(zip("xyz", vectors(3), strict=True))
    for form in VECTOR_FORMATS:
        folder_of(tmp_path / form, rows, rows, form)
    wanted = np.stack([*rows.values()])
    table = pl.read_parquet(tmp_path / "parquet" / "captions.parquet")
    assert table["caption"].to_list() == ["x", "y", "z"]
    np.testing.assert_array_equal(np.stack(table["vector"].to_list()), wanted)
    np.testing.assert_array_equal(np.load(tmp_path / "npy" / "images.npy"), wanted)


def test_files_of_other_programmes_are_read(tmp_path: Path) -> None:
    rows = 3 * vectors(3)
    place = tmp_path / "theirs"
    place.mkdir()
    np.save(place / "images.npy", np.asfortranarray(rows.astype(np.float64)))
    (place / "images.jsonl").write_text("".join(f'{{"name": "{n}.png"}}\n' for n in "abc"))
    np.save(place / "captions.npy", rows.astype(np.float16))
    (place / "captions.jsonl").write_text("".join(f'{{"caption": "{n}"}}\n' for n in "xyz"))
    cases = asked(choice("1", "a.png", "x", "y"), choice("2", "c.png", "z", "x"))
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    expected = [unit[0] @ unit[0], unit[0] @ unit[1], unit[2] @ unit[2], unit[2] @ unit[0]]
    found = score(place, cases, tmp_path).scores
    np.testing.assert_allclose(found, expected, atol=1e-3)  # half precision, made length one again
    assert abs(found[0] - 1) < 1e-3


@pytest.mark.slow
def test_neither_torch_nor_a_store_of_vectors_is_needed(tmp_path: Path) -> None:
    place = few(tmp_path)
    write_cases(asked(choice("1", "a/1.png", "x", "y")), tmp_path / "cases.parquet")
    code = (
        "import sys; sys.modules['torch'] = sys.modules['open_clip'] = None\n"
        "import counterpoint as cp\n"
        f"print(len(cp.evaluate('vectors:{place}', '{tmp_path}/cases.parquet').parts))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "1", done.stderr


@pytest.mark.slow
def test_the_command_and_back(tmp_path: Path, counterpoint) -> None:
    bench = ("-b", "world-swap:size=12", "-b", "world-retrieval:size=20")
    done = counterpoint("vectors", "export", "world:base", *bench, "-o", "v", "--format", "npy")
    assert (done.code, "-m vectors:v" in done.out) == (0, True), done.err
    for model, out in (("world:base", "own"), ("vectors:v", "other")):
        assert counterpoint("eval", "-m", model, *bench, "--out", out).code == 0
    assert Path("own/scores.parquet").read_bytes() == Path("other/scores.parquet").read_bytes()
    again = counterpoint("vectors", "export", "world:base", *bench, "-o", "v", "--json")
    [row] = json.loads(again.out)
    assert row["images"] == 32 and not Path("v/images.npy").exists()  # replaced as a whole
    for model, code in (("random", "E-MODEL-UNSUITABLE"), ("colours:a", "E-MODEL-OUTPUT")):
        refused = counterpoint("vectors", "export", model, *bench, "-o", "w")
        assert refused.code == 1 and code in refused.err
        assert not Path("w").exists()


def test_an_export_replaces_nothing_else_and_says_what_is_left_out(tmp_path: Path) -> None:
    write_images(tmp_path, "a.png")
    write_cases(
        build(choice("1", "a.png", "x", "y"), choice("2", "gone.png", "x", "y"), root=tmp_path),
        tmp_path / "cases.parquet",
    )
    model = ("towers", Towers())
    found = cp.export_vectors(model, tmp_path / "cases.parquet", tmp_path / "v")
    assert (found.images, found.captions) == (1, 2)
    [[why]] = found.left_out.values()
    assert "gone.png" in why
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("all of it")
    with raises("E-OUTPUT-EXISTS"):
        cp.export_vectors(model, tmp_path / "cases.parquet", tmp_path / "mine")
    with raises("E-OPTION-INVALID"):
        cp.export_vectors(model, tmp_path / "cases.parquet", tmp_path / "v", form="csv")


def test_two_images_of_one_name_are_not_exported_as_one(tmp_path: Path) -> None:
    places = []
    for number, sub in enumerate("ab"):
        (tmp_path / sub).mkdir()
        write_images(tmp_path / sub, *["other.png"] * number, "1.png")
        cases = build(choice("1", "1.png", "x", "y"), root=tmp_path / sub)
        write_cases(cases, tmp_path / sub / "cases.parquet")
        places.append(tmp_path / sub / "cases.parquet")
    (tmp_path / "b" / "other.png").replace(tmp_path / "b" / "1.png")
    with raises("E-NAME-REPEATED", "1.png"):
        cp.export_vectors(("towers", Towers()), places, tmp_path / "v")
    run = cp.evaluate(f"vectors:{few_named(tmp_path, '1.png')}", places)
    assert (
        "name, and the vector, of one in another folder" in run.manifest["model_info"]["notes"][0]
    )


def few_named(tmp_path: Path, *names: str) -> Path:
    rows = vectors(len(names) + 2)
    images = dict(zip(names, rows[2:], strict=True))
    return folder_of(tmp_path / "named", images, {"x": rows[0], "y": rows[1]})


# --- names ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("known", "wanted", "there"),
    [
        (["1.png"], ["a/1.png"], [True]),
        (["x/y/1.png"], ["1.png"], [True]),
        (["1.png"], ["a/1.png", "b/1.png"], [False, False]),  # which of the two is it?
        (["1.png"], ["1.png", "b/1.png"], [True, False]),
        (["a/1.png", "b/1.png"], ["1.png", "a/1.png"], [False, True]),
        (["2.png"], ["a/1.png"], [False]),
        (["1.png"], ["shuffle-rows:1:a/1.png"], [False]),
        (["shuffle-rows:1:1.png"], ["shuffle-rows:1:a/1.png"], [True]),
    ],
)
def test_file_names_are_enough_where_they_are_clear(
    known: list[str], wanted: list[str], there: list[bool], tmp_path: Path
) -> None:
    place = few_named(tmp_path, *known)
    cases = asked(*(choice(str(n), name, "x", "y") for n, name in enumerate(wanted)))
    model = load_model(f"vectors:{place}")
    found = run_engine(model, {"bench": cases}, tmp_path / "store")["bench"]
    assert [n not in found.left_out for n in range(len(wanted))] == there
    alone = any(ok and name not in known for ok, name in zip(there, wanted, strict=True))
    assert any("file name alone" in note for note in model.describe()["notes"]) == alone


def test_crops_are_images_of_their_own(tmp_path: Path) -> None:
    place = few_named(tmp_path, "a/1.png", "1.png#1,2,3,4")
    boxes = ((1, 2, 3, 4), (9, 9, 9, 9))
    cases = asked(
        *(
            Case(str(n), (ImageRef("a/1.png", box),), ("x", "y"), ((True, False),))
            for n, box in enumerate(boxes)
        )
    )
    found = score(place, cases, tmp_path)
    assert list(found.left_out) == [1] and "a/1.png#9,9,9,9" in found.left_out[1]


# --- what is missing -----------------------------------------------------------------------------


def test_what_has_no_vector_is_left_out_with_a_sentence(tmp_path: Path) -> None:
    place = few(tmp_path)
    cases = asked(
        choice("1", "a/1.png", "x", "y"),
        choice("2", "a/9.png", "x", "y"),
        choice("3", "b/2.png", "x", "unknown"),
        Case("4", (ImageRef("text:other"),), ("x", "y"), ((True, False),)),
        Case("5", (ImageRef("text:z"),), ("x", "y"), ((True, False),)),
    )
    found = score(place, cases, tmp_path)
    assert sorted(found.left_out) == [1, 2, 3]
    for row, word in ((1, "a/9.png"), (2, "unknown"), (3, "other")):
        assert word in found.left_out[row] and found.left_out[row].endswith(".")
    assert np.isfinite(found.scores[[0, 1, 8, 9]]).all() and np.isnan(found.scores[2:8]).all()


def test_a_gallery_loses_an_image_and_needs_all_captions(tmp_path: Path) -> None:
    truth = owned(8, 1, 1)
    names, texts = [f"{i}.png" for i in range(8)], [f"text {i}" for i in range(truth.shape[1])]
    rows = vectors(8 + len(texts))
    images = {name: rows[i] for i, name in enumerate(names) if i != 3}
    captions = dict(zip(texts, rows[8:], strict=True))
    case = Case("all", tuple(map(ImageRef, names)), tuple(texts), tuple(map(tuple, truth.tolist())))
    found = score(folder_of(tmp_path / "most", images, captions), asked(case), tmp_path)
    assert list(found.left_out_images[0]) == [3] and not found.left_out
    scores = found.scores.reshape(truth.shape)
    assert np.isnan(scores[3]).all() and np.isfinite(np.delete(scores, 3, axis=0)).all()
    del captions["text 5"]
    found = score(folder_of(tmp_path / "fewer", images, captions), asked(case), tmp_path)
    assert "text 5" in found.left_out[0] and not found.left_out_images


# --- what is wrong -------------------------------------------------------------------------------


def rewrite(path: Path, change) -> None:
    path.write_bytes(change(path.read_bytes()))


def rename(place: Path, line: str) -> None:
    path = place / "images.jsonl"
    path.write_text(f"{path.read_text().splitlines()[0]}\n{line}\n")


def table(place: Path, **columns: object) -> None:
    (place / "images.npy").unlink()
    pl.DataFrame(columns).write_parquet(place / "images.parquet")


WRONG = {
    "nothing": lambda p: (p / "images.npy").unlink(),
    "two": lambda p: (p / "images.parquet").write_bytes(b"more"),
    "no names": lambda p: (p / "images.jsonl").unlink(),
    "fewer names": lambda p: (p / "images.jsonl").write_text('{"name": "a"}\n'),
    "no name": lambda p: rename(p, '{"name": null}'),
    "broken names": lambda p: rename(p, '{"name": '),
    "other column": lambda p: (p / "images.jsonl").write_text('{"file": "a"}\n' * 2),
    "cut": lambda p: rewrite(p / "images.npy", lambda b: b[:-1]),
    "header cut": lambda p: rewrite(p / "images.npy", lambda b: b[:20]),
    "no array": lambda p: (p / "images.npy").write_bytes(b"hello" * 99),
    "empty": lambda p: (p / "images.npy").write_bytes(b""),
    "other width": lambda p: np.save(p / "images.npy", vectors(2, 5)),
    "one row": lambda p: np.save(p / "images.npy", vectors(2)[0]),
    "no rows": lambda p: np.save(p / "images.npy", vectors(2)[:0]),
    "whole numbers": lambda p: np.save(p / "images.npy", np.ones((2, 4), dtype=int)),
    "pickle": lambda p: np.save(p / "images.npy", np.array([{}, {}]), allow_pickle=True),
    "nan": lambda p: np.save(p / "images.npy", np.float32([[1, 0, 0, 0], [1, np.nan, 0, 0]])),
    "infinity": lambda p: np.save(p / "images.npy", np.float32([[1, 0, 0, 0], [1, np.inf, 0, 0]])),
    "zero": lambda p: np.save(p / "images.npy", np.zeros((2, 4), dtype=np.float32)),
    "same name": lambda p: rename(p, (p / "images.jsonl").read_text().splitlines()[0]),
    "table of texts": lambda p: table(p, name=["a", "b"], vector=["x", "y"]),
    "table without vectors": lambda p: table(p, name=["a", "b"]),
    "table with a gap": lambda p: table(p, name=["a", "b"], vector=[[1.0] * 4, None]),
    "table with a hole": lambda p: table(
        p, name=["a", "b"], vector=[[1.0] * 4, [1.0, None, 0.0, 0.0]]
    ),
    "uneven table": lambda p: table(p, name=["a", "b"], vector=[[1.0] * 4, [1.0] * 3]),
    "empty table": lambda p: table(p, name=[], vector=[]),
    "numbered table": lambda p: table(p, name=[1, 2], vector=[[1.0] * 4, [1.0] * 4]),
}


@pytest.mark.parametrize("how", WRONG)
def test_damage_is_one_sentence(how: str, tmp_path: Path) -> None:
    place = few(tmp_path)
    load_model(f"vectors:{place}")
    WRONG[how](place)
    with pytest.raises(cp.CounterpointError) as caught:
        VectorFolder(place)
    assert is_sentence(caught.value) and str(place) in str(caught.value)


def test_the_same_vector_twice_is_no_harm(tmp_path: Path) -> None:
    place = few(tmp_path)
    np.save(place / "images.npy", np.repeat(vectors(1), 2, axis=0))
    rename(place, (place / "images.jsonl").read_text().splitlines()[0])
    cases = asked(choice("1", "a/1.png", "x", "y"))
    assert np.isfinite(score(place, cases, tmp_path).scores).all()


def test_the_fingerprint_is_of_the_content(tmp_path: Path) -> None:
    first = VectorFolder(few(tmp_path)).fingerprint
    moved = (tmp_path / "few").rename(tmp_path / "moved")
    assert VectorFolder(moved).fingerprint == first
    rename(moved, '{"name": "c/3.png"}')
    assert VectorFolder(moved).fingerprint != first


def test_no_such_folder(tmp_path: Path) -> None:
    for rest in ("", str(tmp_path / "none")):
        with raises("E-MODEL-MISSING"):
            load_model(f"vectors:{rest}")
