"""Nearest other images: against a full sort, with ties, copies and images that are not there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq
import pytest
import typer
from cli_support import Command, counterpoint, own_place
from errors import raises
from hypothesis import given, strategies as st
from models_for_tests import Towers, write_images
from support import FEW
from typer.testing import CliRunner

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cli import generate_images
from counterpoint.cli.console import plainly
from counterpoint.generation.export.groups import read_neighbours
from counterpoint.generation.images.nearest import (
    SCHEMA,
    nearest_images,
    neighbours,
)
from counterpoint.scoring.kinds import Work

__all__ = ["counterpoint", "own_place"]  # fixtures


def unit(vectors: np.ndarray) -> np.ndarray:
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def naive(vectors: np.ndarray, k: int) -> tuple[list[list[int]], list[list[float]]]:
    """All similarities, row by row in Python's own floats, sorted whole."""
    rows = vectors.astype(float).tolist()
    found = []
    for i, one in enumerate(rows):
        others = [
            (-np.float32(sum(a * b for a, b in zip(one, other, strict=True))), j)
            for j, other in enumerate(rows)
            if i != j
        ]
        found.append(sorted(others)[:k])
    indices = [[j for _, j in row] for row in found]
    return indices, [[float(-negated) for negated, _ in row] for row in found]


@pytest.mark.slow
@FEW
@given(
    count=st.integers(0, 23),
    width=st.integers(1, 3),
    k=st.integers(1, 26),
    block=st.integers(1, 30),
    seed=st.integers(0, 999),
)
def test_ties_go_to_the_lower_index_in_any_tiles(count, width, k, block, seed):
    """Vectors of a few whole numbers: most similarities are equal to others, and exact."""
    vectors = np.random.default_rng(seed).integers(-1, 2, (count, width)).astype(np.float32)
    indices, similarities = neighbours(vectors, k, block)
    assert (indices.tolist(), similarities.tolist()) == naive(vectors, k)
    assert indices.shape == similarities.shape == (count, min(k, max(count - 1, 0)))


@pytest.mark.slow
@FEW
@given(k=st.integers(1, 9), block=st.integers(1, 50), seed=st.integers(0, 999))
def test_neighbours_are_those_of_a_full_sort(k, block, seed):
    """Directions with copies of some: equal vectors tie although their products round."""
    rng = np.random.default_rng(seed)
    vectors = unit(rng.normal(size=(20, 17)))[rng.integers(0, 20, 45)]
    indices, similarities = neighbours(vectors, k, block)
    expected, values = naive(vectors, k)
    assert indices.tolist() == expected
    np.testing.assert_array_max_ulp(similarities, np.array(values, dtype=np.float32), 1)


@pytest.mark.slow
def test_the_block_does_not_show_in_the_result():
    """Not even where thousands of vectors are all but the same: CLIP's lie in a narrow cone."""
    rng = np.random.default_rng(0)
    vectors = unit(1 + 1e-2 * rng.normal(size=(1500, 64)))
    vectors[500:1000] = vectors[0]
    found = [neighbours(vectors, 3, block) for block in (64, 700, 4096)]
    for indices, similarities in found[1:]:
        assert (indices == found[0][0]).all() and (similarities == found[0][1]).all()
    assert found[0][0][700].tolist() == [0, 500, 501] and found[0][0][0].tolist() == [500, 501, 502]


# --- images ------------------------------------------------------------------------------------


@pytest.fixture
def work(tmp_path: Path) -> Iterator[Work]:
    with Store(tmp_path / "store") as store:
        yield Work(store, 8, Quiet())


def test_copies_and_broken_images_are_no_neighbours(tmp_path, work):
    names = [f"{i}.png" for i in range(7)]
    write_images(tmp_path, *names)
    (tmp_path / "copy.png").write_bytes((tmp_path / "2.png").read_bytes())
    (tmp_path / "broken.png").write_bytes(b"no image")
    model, asked = Towers(), ["0.png", "copy.png", "gone.png", *names, "broken.png"]
    found = nearest_images(model, asked, tmp_path, work, k=3)
    assert (found.images, found.copies) == (10, 1)
    assert set(found.left_out) == {"gone.png", "broken.png"}
    assert "no such file" in found.left_out["gone.png"]
    rows = {row["image"]: row for row in found.table.to_dicts()}
    assert list(rows) == ["0.png", "copy.png", *names[1:]]  # in order, each once
    assert rows["copy.png"]["neighbours"] == rows["2.png"]["neighbours"]
    assert all("2.png" not in row["neighbours"] for row in rows.values())  # its copy came first
    keys = [image for image in rows if image != "2.png"]
    vectors = model.encode_images([model.preprocess(_open(tmp_path / key)) for key in keys])
    expected, values = naive(vectors, 3)
    assert [rows[key]["neighbours"] for key in keys] == [[keys[j] for j in e] for e in expected]
    np.testing.assert_allclose([rows[key]["similarities"] for key in keys], values, atol=1e-6)
    again = Towers()
    assert nearest_images(again, asked, tmp_path, work).table.equals(found.table)
    assert again.images == []  # vectors are kept


def _open(path: Path):
    from PIL import Image

    return Image.open(path).convert("RGB")


def test_few_images_have_few_neighbours(tmp_path, work):
    write_images(tmp_path, "a.png")
    alone = nearest_images(Towers(), ["a.png"], tmp_path, work).table
    assert alone.to_dicts() == [{"image": "a.png", "neighbours": [], "similarities": []}]
    nothing = nearest_images(Towers(), ["gone.png"], tmp_path, work)
    assert nothing.table.schema == SCHEMA and nothing.table.is_empty()


@pytest.mark.slow
def test_the_command_line(tmp_path, monkeypatch):
    monkeypatch.setenv("COUNTERPOINT_CACHE", str(tmp_path / "cache"))
    app = typer.Typer()
    app.command("neighbours")(plainly(generate_images.neighbours))
    app.command("other")(lambda: None)
    out = tmp_path / "n.parquet"
    asked = ["neighbours", "world:size=60,seed=2", "-o", str(out), "-m", "world:base", "-k", "4"]
    done = CliRunner().invoke(app, asked)
    assert done.exit_code == 0, done.output
    assert "60 images: 60 with neighbours" in done.output
    table = pl.read_parquet(out)
    assert table.schema == SCHEMA and table["neighbours"].list.len().to_list() == [4] * 60
    assert all(row["image"] not in row["neighbours"] for row in table.to_dicts())
    about = json.loads(pq.read_schema(out).metadata[b"counterpoint"])
    assert (about["model"], about["k"], about["images"]) == ("world:base", 4, 60)
    assert not list(tmp_path.glob("*.partial"))
    failed = CliRunner().invoke(app, [*asked[:4], "-m", "random"])
    assert failed.exit_code == 1 and "[E-MODEL-UNSUITABLE]" in failed.output
    other = CliRunner().invoke(app, [*asked[:3], str(tmp_path / "n.csv"), *asked[4:]])
    assert other.exit_code == 1 and "[E-FILE-FORMAT]" in other.output


@pytest.mark.slow
@pytest.mark.parametrize("named", ["captions.json", "negatives.parquet"])
def test_one_option_names_the_images_from_captions_to_export(
    counterpoint: Command, tmp_path: Path, named: str
) -> None:
    """An image has the same path in every file, so that its neighbours are found again."""
    names = [f"{number}.png" for number in range(4)]
    write_images(tmp_path / "photos", *names)
    rows = [{"image": name, "caption": "A black dog and a white cat."} for name in names]
    captions, pairs = tmp_path / "captions.json", tmp_path / "negatives.parquet"
    captions.write_text(json.dumps(rows))
    photos = ["--images", str(tmp_path / "photos")]
    words = ["generate", "negatives", str(captions), "-M", "negclip", "-o", str(pairs)]
    made = counterpoint(*words, *photos)
    assert made.code == 0, made.err
    near = tmp_path / "near.parquet"
    words = ["generate", "neighbours", str(tmp_path / named), "-o", str(near), "-m", "world:base"]
    found = counterpoint(*words, *(photos if named == "captions.json" else ()))
    assert found.code == 0 and "0 left out" in found.out, found.err
    train = tmp_path / "train.parquet"
    export = ["export", str(pairs), "--as", "training", "-o", str(train)]
    done = counterpoint(*export, "--neighbours", str(near))
    assert done.code == 0 and "neighbours" not in done.err, done.err
    assert pl.read_parquet(train)["neighbours"].list.len().to_list() == [3] * 4


def test_neighbours_of_other_images_are_refused(tmp_path: Path) -> None:
    table = pl.DataFrame({"image": ["1.png"], "neighbours": [["2.png"]], "similarities": [[0.5]]})
    table.write_parquet(tmp_path / "n.parquet")
    assert read_neighbours(tmp_path / "n.parquet", [None, "1.png"], "pairs") == {"1.png": ["2.png"]}
    with raises("E-NEIGHBOURS-OTHER"):
        read_neighbours(tmp_path / "n.parquet", [None, "val2017/1.png"], "pairs.parquet")
