"""No photograph and no caption of an evaluation is trained on: found, refused, taken out."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from errors import raises
from hf_models import noise
from PIL import Image
from train_data_support import opened

from counterpoint.images import look, photograph_id, same_looks
from counterpoint.training import find_leaks, without_leaks
from counterpoint.training.leaks import BY_CONTENT, BY_LOOK, BY_NAME, BY_TEXT


@pytest.fixture
def evaluated(tmp_path) -> Path:
    """A case file of four photographs, with the photographs."""
    folder = tmp_path / "evaluated"
    (folder / "val2017").mkdir(parents=True)
    rows = []
    for n in range(4):
        name = f"val2017/{397133 + n:012}.jpg"
        noise(320, 240, n).save(folder / name)
        captions = [f"A photograph of number {n}.", f"a photograph without number {n}"]
        rows.append({"id": str(n), "images": [name], "captions": captions, "truth": [[1, 0]]})
    path = folder / "cases.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def trained(folder: Path, *rows: dict) -> pl.DataFrame:
    """Rows of a training table: a clean one of a photograph of its own, and these."""
    (folder / "photos").mkdir(exist_ok=True)
    noise(300, 200, 100).save(folder / "photos" / "clean.png")
    clean = {
        "image": "photos/clean.png",
        "caption": "two birds on a tree",
        "positives": ["two birds in a tree"],
        "negatives": ["a tree on two birds"],
        "negative_images": [None],
    }
    lists = {"positives": ["x"], "negatives": ["y"], "negative_images": [None]}
    return pl.DataFrame(
        [{**clean, **lists, **row} for row in (clean, *rows)],
        schema_overrides={"negative_images": pl.List(pl.String())},
    )


def hows(table: pl.DataFrame, evaluated: Path, images: Path) -> list[tuple[int, str]]:
    return [(leak.row, leak.how) for leak in find_leaks(table, [evaluated], images=images)]


def test_the_number_of_a_photograph():
    for name, number in [
        ("val2017/000000397133.jpg", "COCO 397133"),
        ("coco/val2014/COCO_val2014_000000397133.jpg", "COCO 397133"),
        ("tar:a.tar#000000397133.jpg", "COCO 397133"),
        ("flickr8k/1000268201_693b08cb0e.jpg", "Flickr 1000268201"),
        ("flickr30k-images/1000268201.jpg", "Flickr 1000268201"),
        ("VG_100K/2345678.jpg", None),
        ("photos/7.png", None),
        ("world:abc", None),
    ]:
        assert photograph_id(name) == number


def test_a_clean_table_has_no_leak(tmp_path, evaluated):
    table = trained(tmp_path)
    assert find_leaks(table, [evaluated], images=tmp_path) == []
    assert without_leaks(table, [evaluated], images=tmp_path)[0].equals(table)


def test_photographs_leak_by_their_number_without_being_here(tmp_path, evaluated):
    table = trained(
        tmp_path,
        {"image": "val2014/COCO_val2014_000000397134.jpg"},
        {"negative_images": ["COCO_train2014_000000397135.jpg"]},
        {"image": "val2014/COCO_val2014_000000397139.jpg"},
    )
    assert hows(table, evaluated, tmp_path) == [(1, BY_NAME), (2, BY_NAME)]


def test_photographs_leak_by_their_bytes_and_by_their_look(tmp_path, evaluated):
    source = evaluated.parent / "val2017" / "000000397133.jpg"
    table = trained(tmp_path, {"image": "photos/a.jpg"}, {"image": "photos/b.jpg"})
    (tmp_path / "photos" / "a.jpg").write_bytes(source.read_bytes())
    with Image.open(source) as image:  # as Visual Genome has COCO's: of another size and quality
        image.resize((256, 256)).save(tmp_path / "photos" / "b.jpg", quality=60)
    assert hows(table, evaluated, tmp_path) == [(1, BY_CONTENT), (2, BY_LOOK)]


def test_texts_leak_in_every_column(tmp_path, evaluated):
    table = trained(
        tmp_path,
        {"caption": "a photograph of  number 2"},
        {"positives": ["something", "A Photograph of number 0"]},
        {"negatives": ["a photograph without number 3!"]},
        {"caption": "a photograph of number 22"},
    )
    table = table.with_columns(dense=pl.lit(["A photograph of number 1."]))
    found = hows(table, evaluated, tmp_path)
    assert {row for row, how in found if how == BY_TEXT} == {0, 1, 2, 3, 4}
    assert hows(table.drop("dense"), evaluated, tmp_path) == [(n, BY_TEXT) for n in (1, 2, 3)]


def test_a_training_file_may_be_kept_out(tmp_path, evaluated):
    del evaluated
    other = tmp_path / "held.parquet"
    pl.DataFrame({"image": ["photos/clean.png"], "caption": ["a held-out caption"]}).write_parquet(
        other
    )
    table = trained(tmp_path, {"image": "photos/x.png", "caption": "A held-out caption."})
    assert hows(table, other, tmp_path) == [(0, BY_NAME), (1, BY_TEXT)]


def test_benchmarks_are_kept_out_by_their_ids(tmp_path):
    [first] = find_leaks(
        trained(tmp_path, {"caption": world_caption()}), ["world-swap:size=5"], images=tmp_path
    )
    assert first.how == BY_TEXT and first.row == 1 and "world-swap" in first.where


def world_caption() -> str:
    from counterpoint.benchmarks import load_benchmark

    return str(load_benchmark("world-swap:size=5").cases.case(0).captions[0]).upper()


def test_a_recipe_with_a_leak_is_refused_and_the_filtered_table_is_not(tmp_path, evaluated):
    rows = [{"caption": "a photograph of number 1"}, {"image": "000000397133.jpg"}]
    table = trained(tmp_path, *rows, {"caption": "a ring"}, {"caption": "a star"})
    path = tmp_path / "train.parquet"
    table.write_parquet(path)
    with raises("E-DATA-LEAK", f"1 {BY_NAME}", f"1 {BY_TEXT}") as caught:
        opened(path, batch=2, keep_out=[str(evaluated)])
    message = str(caught.value)
    assert "2 of 5 rows" in message and "\n" not in message and "number 1" in message
    kept, leaks = without_leaks(table, [evaluated], images=tmp_path)
    assert kept["caption"].to_list() == ["two birds on a tree", "a ring", "a star"]
    assert len(leaks) == 2
    kept.write_parquet(path)
    assert opened(path, batch=2, keep_out=[str(evaluated)]).source.size == 3


def test_an_unknown_benchmark_is_refused(tmp_path):
    with raises("E-BENCHMARK-UNKNOWN"):
        find_leaks(trained(tmp_path), ["sugarcrape"], images=tmp_path)


def test_looks_of_copies_are_the_same_and_those_of_others_are_not():
    ones = np.array([look(noise(300, 200, n)) for n in range(20)])
    copies = np.array([look(noise(300, 200, n).resize((200, 200))) for n in range(20)])
    others = np.array([look(noise(300, 200, n)) for n in range(20, 60)])
    assert list(same_looks(ones, copies)) == [(n, n) for n in range(20)]
    assert list(same_looks(ones, others)) == []
    assert list(same_looks(ones, others[:0])) == []
    assert look(Image.new("RGB", (40, 30), "gray")) is None
