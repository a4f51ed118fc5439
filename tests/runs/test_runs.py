"""Runs to their folders and back, and what is refused on the way."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from support import mixed, part, random_run, random_scores, run_of, table

from counterpoint.cases import Cases
from counterpoint.metrics import Protocol
from counterpoint.runs import Run, find_runs, folders, load_run, rows, save_run

ODD = Protocol(
    "mine", "odd", "half", "types", ("micro", "types"), exclude=frozenset({"b", "a"}), min_count=3
)


def full_run() -> Run:
    """Two benchmarks, several shapes, what was left out, and a protocol of our own."""
    captions, pairs = table(20), mixed()
    one = replace(
        part(captions, random_scores(captions, 0), ODD, "captions"),
        cases=Cases(captions.frame, Path("somewhere")),
        left_out=(("lost-1", "no such image"), ("lost-2", "caption too long")),
        cut_captions=7,
    )
    return run_of(
        one, part(pairs, random_scores(pairs, 1) / 7, "strict", "pairs"), model="org/model"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    save_run(full_run(), tmp_path / "run")
    return tmp_path / "run"


def manifest_of(folder: Path) -> dict:
    return json.loads((folder / "run.json").read_text(encoding="utf-8"))


def assert_same(a: Run, b: Run) -> None:
    assert a.model == b.model
    assert list(a.parts) == list(b.parts)
    for one, two in zip(a.parts.values(), b.parts.values(), strict=True):
        assert one.cases.frame.equals(two.cases.frame)
        assert one.cases.root == two.cases.root
        assert one.scores.dtype == two.scores.dtype == np.float32
        np.testing.assert_array_equal(one.scores, two.scores)
        fields = ("benchmark", "protocol", "left_out", "cut_captions")
        assert [getattr(one, f) for f in fields] == [getattr(two, f) for f in fields]


@pytest.mark.slow
def test_a_run_survives_its_folder(folder: Path) -> None:
    found = load_run(folder)
    assert_same(found, full_run())
    assert found.folder == folder
    assert found.manifest["created"] == "today"
    assert found.left_out == 2
    assert rows(found, resamples=20) == rows(full_run(), resamples=20)
    assert load_run(str(folder)).model == "org/model"


@pytest.mark.slow
def test_a_loaded_run_can_be_saved_again(folder: Path) -> None:
    again = save_run(load_run(folder), folder.parent / "copy")
    assert_same(load_run(folder.parent / "copy"), full_run())
    assert again.folder == folder.parent / "copy"
    assert manifest_of(again.folder) == manifest_of(folder)


def test_the_manifest_counts(folder: Path) -> None:
    described = manifest_of(folder)["benchmarks"]["captions"]
    counts = [described[key] for key in ("cases", "scored", "pairs", "cut_captions")]
    assert counts == [22, 20, 60, 7]
    assert described["left_out"][0] == {"case_id": "lost-1", "reason": "no such image"}
    assert described["data_hash"] == table(20).content_hash()


@pytest.mark.slow
def test_scores_are_a_table_that_others_can_read(folder: Path) -> None:
    scores = pl.read_parquet(folder / "scores.parquet")
    assert scores.columns == ["benchmark", "case_id", "image", "caption", "score"]
    pairs = full_run().parts["pairs"]
    square_3 = scores.filter(benchmark="pairs", case_id="square-3")
    assert square_3.select("image", "caption").rows() == [(0, 0), (0, 1), (1, 0), (1, 1)]
    start = pairs.cases.pair_offsets[15]  # twelve triples come before the squares
    assert square_3["score"].to_list() == pairs.scores[start : start + 4].tolist()


def test_a_run_of_which_everything_was_left_out_is_kept(tmp_path: Path) -> None:
    cases = table(2)
    none = replace(
        part(cases.keep(np.zeros(2, dtype=bool)), np.zeros(0)),
        left_out=(("case-0", "x"), ("case-1", "y")),
    )
    save_run(run_of(none), tmp_path / "run")
    found = load_run(tmp_path / "run")
    assert_same(found, run_of(none))
    assert rows(found) == []


@pytest.mark.slow
def test_an_older_run_is_replaced_and_nothing_else_stays(folder: Path) -> None:
    newer = random_run(table(4), seed=9, model="newer")
    with raises("E-OUTPUT-EXISTS", folder):
        save_run(newer, folder)
    assert_same(load_run(folder), full_run())
    save_run(newer, folder, overwrite=True)
    assert_same(load_run(folder), newer)
    assert [path.name for path in folder.parent.iterdir()] == ["run"]
    assert sorted(p.name for p in folder.iterdir()) == [
        "cases.parquet",
        "run.json",
        "scores.parquet",
    ]


@pytest.mark.slow
def test_a_failure_leaves_the_older_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(folders.ScoreWriter, "add_scores", fail)
    with raises("E-OUTPUT-UNWRITABLE", folder):
        save_run(random_run(table(4), seed=9), folder, overwrite=True)
    assert_same(load_run(folder), full_run())
    assert find_runs(folder.parent) == [folder]


def test_a_folder_of_something_else_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    with raises("E-OUTPUT-EXISTS", tmp_path):
        save_run(random_run(table(4), seed=0), tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("years of work")
    with raises("E-OUTPUT-UNWRITABLE", tmp_path / "out"):
        save_run(random_run(table(4), seed=0), tmp_path / "out")
    assert (tmp_path / "out").read_text() == "years of work"


def test_an_empty_folder_and_missing_parents_are_filled(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for place in (tmp_path / "empty", tmp_path / "a" / "b" / "c"):
        save_run(random_run(table(4), seed=0), place)
        assert load_run(place).model == "model"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["cases.parquet", "scores.parquet"])
def test_a_damaged_table_is_refused(name: str, folder: Path) -> None:
    path = folder / name
    whole = path.read_bytes()
    middle = len(whole) // 2
    flipped = whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :]
    for damaged in (whole[:-10], flipped, b""):
        path.write_bytes(damaged)
        with raises("E-RUN-DAMAGED", path.name):
            load_run(folder)
    path.unlink()
    with raises("E-RUN-DAMAGED", path.name):
        load_run(folder)


def test_a_manifest_of_another_format_is_refused(folder: Path) -> None:
    (folder / "run.json").write_text(json.dumps({**manifest_of(folder), "format": 99}))
    with raises("E-RUN-FORMAT", 99):
        load_run(folder)


def test_no_run_and_several_runs_are_refused(tmp_path: Path) -> None:
    with raises("E-RUN-MISSING", tmp_path / "nowhere"):
        load_run(tmp_path / "nowhere")
    for name in ("one", "two"):
        save_run(random_run(table(4), seed=0, model=name), tmp_path / name)
    with raises("E-RUN-AMBIGUOUS", "one", "two"):
        load_run(tmp_path)
    assert find_runs(tmp_path) == [tmp_path / "one", tmp_path / "two"]
    assert load_run(tmp_path / "two").model == "two"


def test_a_single_run_is_found_below_and_drafts_are_not(tmp_path: Path) -> None:
    save_run(random_run(table(4), seed=0), tmp_path / "deep" / "run")
    (tmp_path / ".run.1.tmp").mkdir()
    (tmp_path / ".run.1.tmp" / "run.json").write_text("{}")
    assert load_run(tmp_path).folder == tmp_path / "deep" / "run"
