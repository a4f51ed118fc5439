"""The engine on galleries: right scores in any pieces, and what is lost is said."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from engine_support import ROUNDING, build, cosine, loop, own_place, photos, prompted
from errors import raises
from models_for_tests import (
    Counter,
    Judge,
    Towers,
    choice,
    is_sentence,
    naive_pair,
    run_engine,
    write_images,
)
from support import case, classes, gallery, owned, part, random_scores, recalls, run_of

from counterpoint import evaluate
from counterpoint.cases import Cases, without_images, write_cases
from counterpoint.evaluation.evaluating import prepare
from counterpoint.metrics import PROTOCOLS
from counterpoint.runs import Run, load_run, rows, save_run, score_files
from counterpoint.scoring import engine, plan

__all__ = ["own_place"]  # fixtures
CUT = PROTOCOLS["retrieval"]


def saved(cases: Cases, folder: Path) -> str:
    """The cases as a file, which is a benchmark."""
    write_cases(cases, folder / "cases.parquet")
    return str(folder / "cases.parquet")


# --- images that are lost ----------------------------------------------------------------------


def test_a_gallery_loses_images_and_not_its_place(tmp_path: Path) -> None:
    truth = owned(8, 2, 2)
    one = photos(tmp_path, truth, missing="16", broken="3")
    cases = build(choice("plain", "0.png", "yes", "no"), one, root=tmp_path)
    found = run_engine(Towers(), {"bench": cases}, tmp_path / "store")["bench"]
    assert found.left_out == {} and set(found.left_out_images) == {1}
    reasons = found.left_out_images[1]
    assert set(reasons) == {1, 3, 6}
    assert all(is_sentence(why) and f"{i}.png" in why for i, why in reasons.items())
    assert "no such file" in reasons[1] and "not an image" in reasons[3]

    kept = without_images(cases, {1: {1, 3, 6}})
    lost = np.isnan(found.scores[2:]).reshape(truth.shape)
    assert lost.all(axis=1).tolist() == [i in (1, 3, 6) for i in range(8)]
    assert lost.any() and not lost[[0, 2, 4, 5, 7]].any()
    np.testing.assert_allclose(
        found.scores[kept.pairs],
        loop(kept.cases, lambda shown, prompts: cosine(shown, prompts[0])),
        rtol=0,
        atol=ROUNDING,
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Towers, Judge])
def test_numbers_are_those_of_a_gallery_without_the_lost_images(
    tmp_path: Path, kind: type[Towers | Judge]
) -> None:
    whole = build(photos(tmp_path, owned(8, 2, 2), missing="16", broken="3"), root=tmp_path)
    less = without_images(whole, {0: {1, 3, 6}}).cases
    for name, cases in (("whole", whole), ("less", less)):
        (tmp_path / name).mkdir()
        for image in tmp_path.glob("*.png"):
            (tmp_path / name / image.name).symlink_to(image)
        saved(cases, tmp_path / name)
    runs = {
        name: evaluate(
            [("m", kind())], str(tmp_path / name / "cases.parquet"), out=tmp_path / f"r-{name}"
        )[0]
        for name in ("whole", "less")
    }
    parts = {name: next(iter(run.parts.values())) for name, run in runs.items()}
    assert parts["whole"].cases.frame.equals(parts["less"].cases.frame)
    np.testing.assert_array_equal(parts["whole"].scores, parts["less"].scores)
    pair = cosine if kind is Towers else naive_pair
    expected = loop(less, lambda shown, prompts: pair(shown, prompts[0]))
    np.testing.assert_allclose(parts["whole"].scores, expected, rtol=1e-5, atol=ROUNDING)
    assert runs["less"].left_out == 0 and parts["less"].left_out_images == ()
    # The run says exactly which images are not there, and why.
    lost = parts["whole"].left_out_images
    assert runs["whole"].left_out == len(lost) == 3 and parts["whole"].left_out == ()
    assert [case_id for case_id, _ in lost] == ["photos"] * 3
    assert [f"{i}.png" in why for i, (_, why) in zip((1, 3, 6), lost, strict=True)] == [True] * 3
    assert parts["whole"].data_hash != parts["less"].data_hash  # of what was asked for
    manifest = json.loads((tmp_path / "r-whole" / "run.json").read_text())
    [described] = manifest["benchmarks"].values()
    assert described["lost_images"] == [{"case_id": "photos", "reason": why} for _, why in lost]
    assert described["pairs"] == len(parts["whole"].scores) == 5 * (2 * 5 + 2)

    scores, truth = parts["less"].scores.reshape(5, 12), np.array(less.case(0).truth)
    for row in rows(runs["whole"], resamples=20):
        side = "images" if row.metric.startswith("image") else "captions"
        values = np.array(recalls(scores, truth, side, int(row.metric.partition("@")[2]), "wrong"))
        values = values[~np.isnan(values)]
        assert (row.value, row.n) == (pytest.approx(values.mean()), len(values))


def test_a_case_that_is_no_gallery_is_left_out_as_a_whole(tmp_path: Path) -> None:
    names = [f"{i}.png" for i in range(4)]
    write_images(tmp_path, *names[:3])
    four = gallery(np.eye(4), "four", images=names)
    three = gallery(classes([0, 1, 1], 2), "three", images=names[1:])  # fewer, but a gallery
    cases = build(four, three, root=tmp_path)
    found = run_engine(Towers(), {"bench": cases}, tmp_path / "store")["bench"]
    assert set(found.left_out) == {0} and "3.png" in found.left_out[0]
    assert set(found.left_out_images) == {1} and set(found.left_out_images[1]) == {2}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [Towers, Judge])
@pytest.mark.parametrize("broken", ["", "234", "01234"])
def test_a_run_of_a_gallery_without_any_image_is_an_error(
    tmp_path: Path, kind: type[Towers | Judge], broken: str
) -> None:
    """Some are missing and the others broken, which a pair scorer finds out one after the other."""
    missing = "".join(digit for digit in "01234" if digit not in broken)
    cases = build(photos(tmp_path, np.eye(5), missing=missing, broken=broken), root=tmp_path)
    with raises("E-RUN-EMPTY") as caught:
        evaluate([("m", kind())], saved(cases, tmp_path), out=tmp_path / "run")
    assert is_sentence(caught.value) and "photos" in str(caught.value)
    assert not (tmp_path / "run").exists()


# --- limit -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("limit", [5, 6, 20])
def test_a_limit_cuts_galleries_to_their_first_images(tmp_path: Path, limit: int) -> None:
    cases = build(photos(tmp_path, owned(8, 2, 2)), root=tmp_path)
    model = Towers()
    [run] = evaluate([("m", model)], saved(cases, tmp_path), limit=limit, out=tmp_path / "run")
    [p] = run.parts.values()
    count = min(8, limit)
    assert p.cases.image_counts.tolist() == [count] and len(model.images) == count
    assert p.cases.caption_counts.tolist() == [2 * count + 2]
    assert run.left_out == 0 and p.left_out_images == ()
    assert {row.n for row in rows(run, resamples=20) if "image_to" in row.metric} == {count}


def test_a_limit_leaves_a_classification_its_classes() -> None:
    """Folders come class by class: the first images alone would all be of the first class."""
    cases = build(gallery(classes(np.repeat(np.arange(10), 20).tolist(), 10)))
    limited = prepare(cases, PROTOCOLS["classification"], 30)
    found = rows(run_of(part(limited, random_scores(limited, 0))), resamples=20)
    assert {row.metric: row.n for row in found} == {"accuracy@1": 30, "accuracy@5": 30}
    assert found[0].chance == pytest.approx(1 / 10)


@pytest.mark.parametrize("limit", [1, 2, 5, 6])
def test_a_limit_takes_images_with_captions_first(limit: int) -> None:
    """The first images of a gallery may be distractors, which no caption is true of."""
    truth = np.vstack([np.zeros((6, 8), dtype=bool), owned(8, 1)])
    cases = prepare(build(case(0), gallery(truth)), CUT, limit)
    found = rows(run_of(part(cases, random_scores(cases, 0), CUT)), resamples=20)
    queries = {row.n for row in found if row.metric.startswith("image_to_text_recall")}
    assert queries == {max(limit, 5)}


# --- other kinds of model ----------------------------------------------------------------------


def test_a_pair_scorer_on_a_gallery(tmp_path: Path) -> None:
    cases = build(photos(tmp_path, owned(5, 1)), root=tmp_path)
    model = Judge()
    found = run_engine(model, {"bench": cases}, tmp_path / "store", batch=7)["bench"]
    expected = loop(cases, lambda shown, prompts: naive_pair(shown, prompts[0]))
    np.testing.assert_allclose(found.scores, expected, rtol=1e-6)
    assert len(model.pairs) == len(set(model.pairs)) == 25


@pytest.mark.slow
@pytest.mark.parametrize("model", ["random", "blind:length", "blind:bow", ("counter", Counter())])
def test_baselines_score_galleries_without_images(tmp_path: Path, model: object) -> None:
    cases = build(gallery(owned(6, 2)), gallery(classes([0, 1, 1, 0, 2], 3), "classes"))
    [run] = evaluate([model], saved(cases, tmp_path), out=tmp_path / "run")
    assert run.left_out == 0
    names = {row.metric for row in rows(run, resamples=20)}
    assert {"image_to_text_recall@1", "accuracy@1"} <= names


# --- pieces ------------------------------------------------------------------------------------


def everything(root: Path) -> dict[str, Cases]:
    one = photos(root, owned(7, 2, 2), missing="5")
    return {
        "galleries": build(
            one, gallery(np.eye(5), "second", images=[f"{i}.png" for i in range(5)]), root=root
        ),
        "small": build(
            choice("a", "0.png", "yes", "no"), choice("b", "gone.png", "yes", "no"), root=root
        ),
        "prompts": prompted(root, missing="5"),
    }


@pytest.mark.slow
@pytest.mark.parametrize(("lines", "pairs", "dense", "piece"), [(1, 1, 0, 1), (3, 7, 50, 5)])
def test_results_do_not_depend_on_the_sizes_of_pieces(
    tmp_path: Path,
    lines: int,
    pairs: int,
    dense: int,
    piece: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables, kinds = everything(tmp_path), (Towers, Judge)
    whole = [run_engine(kind(), tables, tmp_path / "store") for kind in kinds]
    for name, most in {"_LINES": lines, "_PAIRS": pairs, "_FEWER": pairs}.items():
        monkeypatch.setattr(plan, name, most)
    monkeypatch.setattr(engine, "_DENSE", dense)
    monkeypatch.setattr(engine, "_PIECE", piece)
    cut = [run_engine(kind(), tables, tmp_path / "pieces") for kind in kinds]
    for name in tables:
        for a, b in zip(cut, whole, strict=True):
            np.testing.assert_allclose(a[name].scores, b[name].scores, rtol=0, atol=ROUNDING)
            assert a[name].left_out == b[name].left_out
            assert a[name].left_out_images == b[name].left_out_images
    assert sum(np.isnan(found.scores).sum() for found in whole[0].values()) == 16 + 2 + 4


# --- run folders -------------------------------------------------------------------------------


def folder_run(root: Path) -> Run:
    return evaluate(
        [("towers", Towers())], saved(everything(root)["galleries"], root), out=root / "run"
    )[0]


def test_a_run_of_galleries_survives_its_folder(tmp_path: Path) -> None:
    run = folder_run(tmp_path)
    again = load_run(tmp_path / "run")
    [one], [two] = run.parts.values(), again.parts.values()
    assert two.cases.frame.equals(one.cases.frame)
    np.testing.assert_array_equal(two.scores, one.scores)
    assert two.left_out_images == one.left_out_images and len(two.left_out_images) == 1
    assert again.left_out == run.left_out == 1
    assert rows(again, resamples=20) == rows(run, resamples=20)
    save_run(again, tmp_path / "copy")
    for name in ("scores.parquet", "cases.parquet"):
        assert (tmp_path / "copy" / name).read_bytes() == (tmp_path / "run" / name).read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("pairs", [1, 10, 1000])
def test_scores_are_a_row_a_pair_in_pieces_of_any_size(
    tmp_path: Path, pairs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_files, "_GROUP", pairs)
    run = folder_run(tmp_path)
    [p] = run.parts.values()
    expected = []
    flat = iter(p.scores.tolist())
    for row in range(len(p.cases)):
        one = p.cases.case(row)
        expected += [
            (p.benchmark, one.id, i, j, next(flat))
            for i in range(len(one.images))
            for j in range(len(one.captions))
        ]
    path = tmp_path / "run" / "scores.parquet"
    frame = pl.read_parquet(path)
    assert frame.schema == {
        "benchmark": pl.String,
        "case_id": pl.String,
        "image": pl.Int32,
        "caption": pl.Int32,
        "score": pl.Float32,
    }
    assert frame.rows() == expected
    arrow = pq.read_table(path)
    assert arrow.column_names == ["benchmark", "case_id", "image", "caption", "score"]
    assert arrow.schema.field("score").type == pa.float32()
    assert [tuple(row.values()) for row in arrow.to_pylist()] == expected
    groups = pq.ParquetFile(path).metadata.num_row_groups
    assert (groups > 1) == (pairs < 100)


def test_several_parts_and_empty_ones_are_one_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(score_files, "_GROUP", 7)
    full = build(gallery(owned(5, 1)))
    empty = full.keep(np.array([False]))
    run = run_of(
        part(empty, np.zeros(0), name="first"),
        part(full, random_scores(full, 0), name="full"),
        part(empty, np.zeros(0), name="empty"),
        part(build(case(0)), np.array([1, 2, 3]), name="small"),
    )
    save_run(run, tmp_path / "run")
    frame = pl.read_parquet(tmp_path / "run" / "scores.parquet")
    assert frame["benchmark"].to_list() == ["full"] * 25 + ["small"] * 3
    again = load_run(tmp_path / "run")
    assert [len(p.scores) for p in again.parts.values()] == [0, 25, 0, 3]
    np.testing.assert_array_equal(again.parts["small"].scores, [1, 2, 3])
    np.testing.assert_array_equal(again.parts["full"].scores, run.parts["full"].scores)
