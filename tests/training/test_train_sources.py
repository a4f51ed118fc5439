"""Training data from pairs files and from shards: the same batches as from a training file."""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest
import webdataset
from errors import raises
from PIL import Image
from train_data_support import (
    SIZE,
    colour,
    opened,
    paint,
    png,
    rows_of,
    said,
    same,
    training_file,
    write_tar,
)
from webdataset.tariterators import group_by_keys, tar_file_expander

from counterpoint.cases import ImageRef
from counterpoint.generation import write_pairs
from counterpoint.generation.export import export_training
from counterpoint.generation.pairs import Pair, tabulate
from counterpoint.training.batches import Batch
from counterpoint.training.data.loading import TrainingData
from counterpoint.training.data.table import decode


def epoch_of(data: TrainingData, epoch: int) -> list[Batch]:
    return [data.batch(epoch, step) for step in range(data.steps_per_epoch)]


# Pairs files


def pairs(folder: Path) -> list[Path]:
    """Negatives and positives of six captions, in two files, as two commands write them."""

    def pair(n: int, text: str, kind: str, type_: str) -> Pair:
        paint(folder / f"photos/{n}.png", colour(n))
        image = ImageRef(f"photos/{n}.png")
        return Pair(str(n), image, f"caption {n}", text, kind, type_, "att", "m", "1", 0)

    negatives = [
        pair(n, f"{n} not {type_}", "negative", type_)
        for n in range(6)
        for type_ in (("swap", "replace") if n % 2 else ("replace",))
    ]
    positives = [
        pair(n, f"{n} said by {t}", "positive", t) for n in range(6) for t in ("replace", "swap")
    ]
    files = [folder / "negatives.parquet", folder / "positives.parquet"]
    for file, made in zip(files, (negatives, positives), strict=True):
        write_pairs(file, [tabulate(made)], {})
    return files


def test_pairs_files_are_read_as_their_export_is(tmp_path):
    files = pairs(tmp_path)
    exported = tmp_path / "train.parquet"
    export_training(files, exported, Counter())
    direct, through = opened(files, batch=6), opened(exported, batch=6)
    assert all(same(direct.batch(e, 0), through.batch(e, 0)) for e in range(3))


def test_a_jsonl_export_gives_the_same_batches(tmp_path):
    files = pairs(tmp_path)
    for name in ("train.parquet", "train.jsonl"):
        export_training(files, tmp_path / name, Counter())
    one, other = (opened(tmp_path / name, batch=6) for name in ("train.parquet", "train.jsonl"))
    assert same(one.batch(1, 0), other.batch(1, 0))


def test_only_keeps_the_texts_of_a_type(tmp_path):
    data = opened(pairs(tmp_path), batch=6, only="swap")
    for epoch in range(2):
        batch = data.batch(epoch, 0)
        assert batch.has_positive.all()
        for place, n in enumerate(batch.samples):
            assert said(batch.positives[place]) == f"{n} said by swap"
            assert batch.has_negative[place, 0] == n % 2
            if n % 2:
                assert said(batch.negatives[place, 0]) == f"{n} not swap"
    with raises("E-DATA-EMPTY", "positives", "negate"):
        opened(pairs(tmp_path), only="negate")


def test_one_pairs_file_without_positives(tmp_path):
    files = pairs(tmp_path)
    with raises("E-DATA-EMPTY", "positives"):
        opened(files[0])
    assert opened(files[0], positives=False).batch(0, 0).positives is None
    with raises("E-FILES-MIXED", files[0]):
        opened([training_file(tmp_path), files[0]])


# WebDataset shards


@pytest.fixture
def shards(tmp_path, monkeypatch) -> Path:
    """Three shards of four samples, written by the library itself."""
    folder = tmp_path / "shards"
    folder.mkdir()
    for shard in range(3):
        with webdataset.TarWriter(str(folder / f"train-{shard:02}.tar")) as writer:
            for n in range(4 * shard, 4 * shard + 4):
                image = Image.new("RGB", (20, 16), colour(n))
                row = rows_of()[n]
                texts = {k: row[k] for k in ("caption", "positives", "negatives")}
                types = {"negative_types": ["swap" if i else "replace" for i in range(n % 4)]}
                types["positive_types"] = ["swap"] * len(texts["positives"])
                writer.write({"__key__": f"s{n:03}", "png": image, "json": texts | types})
    return folder


def test_shards_give_what_was_written_in_them(shards):
    data = opened(shards, batch=SIZE, kind="webdataset")
    rows = rows_of()
    batch = data.batch(0, 0)
    assert sorted(batch.samples) == list(range(SIZE))
    for place, n in enumerate(batch.samples):
        assert said(batch.captions[place]) == rows[n]["caption"]
        assert batch.images[place, :, 0, 0].tolist() == list(colour(n))
        assert batch.has_negative[place, 0] == bool(rows[n]["negatives"])
        if rows[n]["negatives"]:
            assert said(batch.negatives[place, 0]) in rows[n]["negatives"]


def test_samples_are_those_the_library_sees(shards):
    data = opened(shards / "train-01.tar", batch=4, kind="webdataset")
    with (shards / "train-01.tar").open("rb") as file:
        files = tar_file_expander([{"url": "train-01.tar", "stream": file}])
        samples = list(group_by_keys(files))
    assert [json.loads(sample["json"])["caption"] for sample in samples] == [
        data.source.record(n).caption for n in range(4)
    ]
    assert [decode(sample["png"], "a", 8).tobytes() for sample in samples] == [
        data.source.image(n, 8).tobytes() for n in range(4)
    ]


def test_shards_are_gone_through_in_an_order_of_each_epoch_and_at_any_step(shards):
    pattern = shards / "train-{00..02}.tar"
    data = opened(pattern, kind="webdataset")
    epochs = [[n for batch in epoch_of(data, e) for n in batch.samples] for e in (0, 1)]
    assert epochs[0] != epochs[1]
    assert all(sorted(epoch) == list(range(SIZE)) for epoch in epochs)
    again = opened(shards, kind="webdataset")  # a folder is the same shards
    assert all(
        same(batch, again.batch(*divmod(n, 3)))
        for n, batch in enumerate(data.stream(4, 6), start=4)
    )


def test_the_index_of_shards_is_kept_until_they_change(shards, monkeypatch):
    opened(shards, kind="webdataset")
    scan = "counterpoint.training.data.shards._rows"
    monkeypatch.setattr(scan, lambda shard: pytest.fail(f"{shard} was read again"))
    opened(shards, kind="webdataset")
    os.utime(shards / "train-01.tar", (1, 1))
    with pytest.raises(pytest.fail.Exception, match=r"train-01\.tar was read again"):
        opened(shards, kind="webdataset")


def test_only_works_on_shards_with_types(shards):
    data = opened(shards, batch=SIZE, kind="webdataset", only="swap")
    batch = data.batch(0, 0)
    for place, n in enumerate(batch.samples):
        assert batch.has_negative[place, 0] == (n % 4 >= 2)
        if n % 4 >= 2:
            assert not said(batch.negatives[place, 0]).endswith("negative 0")


def test_broken_samples_of_shards(shards):
    """A text instead of JSON, a caption as .txt, a broken image, a sample without an image."""
    members = {
        "a.png": b"no image",
        "a.json": b'{"caption": "a"}',
        "b.png": (image := png(colour(1))),
        "b.json": b"[" * 100_000,
        "c.png": image,
        "c.txt": b"caption c\n",
        "d.json": b'{"caption": "d"}',
        "e.png": image,
        "e.json": json.dumps({"caption": "e", "negatives": ["f"], "positives": ["g"]}).encode(),
    }
    write_tar(shards / "odd.tar", members.items())
    data = opened([shards / "train-00.tar", shards / "odd.tar"], batch=8, kind="webdataset")
    batch = data.batch(0, 0)
    assert len(batch.samples) == 8
    assert {"a", ""}.isdisjoint(said(batch.captions)) and "caption c" in said(batch.captions)
    told = "\n".join(data.problems.told())
    assert "not an image" in told and "nested too deeply" in told
    assert data.problems.counts["samples without an image or a caption: left out"] == 1


def test_shards_that_are_none(shards, tmp_path):
    with raises("E-FILE-MISSING", shards / "train-03.tar"):
        opened(shards / "train-{00..05}.tar", kind="webdataset")
    (tmp_path / "x.tar").write_bytes(b"x" * 2000)
    with raises("E-FILE-MALFORMED", tmp_path / "x.tar"):
        opened(tmp_path / "x.tar", kind="webdataset")
    (tmp_path / "empty").mkdir()
    with raises("E-FILE-MISSING", tmp_path / "empty"):
        opened(tmp_path / "empty", kind="webdataset")
    with raises("E-DATA-EMPTY", "dense"):
        opened(shards, kind="webdataset", dense=2)
