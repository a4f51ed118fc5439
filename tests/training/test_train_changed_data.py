"""A run goes on with the data that it was begun with, and with no other."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pyarrow as pa
import pytest
from errors import raises
from train_data_support import rows_of, training_file, write_shard
from training import Killed, held_out, same, tiny_start, weights

from counterpoint.training import load_recipe, loop
from counterpoint.training.checkpoints import steps_in
from counterpoint.training.data.table import column_digest

SMALL = (
    *("precision=fp32", "batch=4", "epochs=2", "save_every=2", "log_every=1", "data.workers=0"),
    *("benchmarks=[]", "device=cpu", "seed=0"),
)


def run(folder: Path, *changes: str, out: str = "run") -> None:
    first = folder / "start"
    id = f"open_clip:local-dir:{first}" if first.is_dir() else tiny_start(first)
    loop.train(load_recipe("hn", [*SMALL, f"model={id}", f"out={folder / out}", *changes]))


def broken_off(folder: Path, monkeypatch, *changes: str, out: str = "run") -> None:
    inner = loop.update

    def killed(training, step):
        if step == 3:
            raise Killed
        return inner(training, step)

    with monkeypatch.context() as patch:
        patch.setattr(loop, "update", killed)
        with pytest.raises(Killed):
            run(folder, *changes, out=out)
    assert steps_in(folder / out) == [2]


def reversed_captions(path: Path) -> None:
    table = pl.read_parquet(path)
    table.with_columns(pl.col("caption").reverse()).write_parquet(path)


def test_changed_captions_of_equal_length_are_refused(tmp_path, monkeypatch):
    path = training_file(tmp_path)
    broken_off(tmp_path, monkeypatch, f"data.path={path}")
    reversed_captions(path)
    with raises("E-OUTPUT-EXISTS", "data.path", "caption") as caught:
        run(tmp_path, f"data.path={path}")
    assert "has changed since (caption); put the file back" in str(caught.value)
    assert steps_in(tmp_path / "run") == [2]


def test_a_finished_run_is_not_said_to_be_of_other_data(tmp_path):
    path = training_file(tmp_path)
    run(tmp_path, f"data.path={path}")
    reversed_captions(path)
    with raises("E-OUTPUT-EXISTS", "data.path"):
        run(tmp_path, f"data.path={path}")


def test_the_same_rows_in_another_file_are_the_same_data(tmp_path, monkeypatch):
    path = training_file(tmp_path)
    run(tmp_path, f"data.path={path}", out="whole")
    broken_off(tmp_path, monkeypatch, f"data.path={path}")
    table = pl.read_parquet(path)
    unread = pl.col("neighbours").list.reverse(), pl.col("positives").list.reverse()
    table.with_columns(unread).write_parquet(path, compression="gzip", row_group_size=5)
    run(tmp_path, f"data.path={path}")
    assert same(weights(tmp_path / "run"), weights(tmp_path / "whole"))


def test_a_changed_validation_file_is_refused(tmp_path, monkeypatch):
    changes = [f"data.path={training_file(tmp_path)}", held_out(tmp_path), "validation.every=2"]
    broken_off(tmp_path, monkeypatch, *changes)
    reversed_captions(tmp_path / "held" / "train.parquet")
    with raises("E-OUTPUT-EXISTS", "validation.path", "caption"):
        run(tmp_path, *changes)


def test_shards_with_other_texts_of_equal_length_are_refused(tmp_path, monkeypatch):
    samples = [{"caption": f"caption {10 + n}", "negatives": ["none"]} for n in range(12)]
    path = tmp_path / "shards" / "a.tar"
    write_shard(path, samples)
    changes = ("data.kind=webdataset", f"data.path={path.parent}")
    broken_off(tmp_path, monkeypatch, *changes)
    size = path.stat().st_size
    write_shard(path, samples[::-1])
    assert path.stat().st_size == size
    with raises("E-OUTPUT-EXISTS", "data.path", "caption"):
        run(tmp_path, *changes)


# --- digests -------------------------------------------------------------------------------------


TEXTS = [["a", "bc"], None, [], ["ab", None, "c"], ["a", "bc"]]


def test_a_digest_is_of_values_and_not_of_how_they_lie_in_memory():
    kind = pa.list_(pa.string())
    whole = pa.array(TEXTS, kind)
    parts = pa.chunked_array([whole[:2], whole[2:]]).combine_chunks()
    later = pa.array([["x"], *TEXTS], kind)[1:]
    assert {column_digest(one) for one in (whole, parts, later)} == {
        "839522b6a830974005e50d50f30bcdcf"
    }


def test_other_values_have_other_digests():
    kind = pa.list_(pa.string())
    others = [
        TEXTS,
        [["abc"], None, [], ["ab", None, "c"], ["a", "bc"]],
        [["a", "bc"], [], None, ["ab", None, "c"], ["a", "bc"]],
        [["a", "bc"], None, [], ["ab", "", "c"], ["a", "bc"]],
        [["a", "bc"], None, [], ["ab", None], ["c", "a", "bc"]],
        [["a", "bc"], None, [], ["a", "bc"], ["ab", None, "c"]],
    ]
    assert len({column_digest(pa.array(other, kind)) for other in others}) == len(others)


def test_boxes_have_digests():
    kind = pa.list_(pa.int32())
    one, two = pa.array([[1, 2, 3, 4], None], kind), pa.array([None, [1, 2, 3, 4]], kind)
    assert column_digest(one) != column_digest(two)
    assert rows_of()[0]["box"] is None and column_digest(pa.nulls(3, kind))
