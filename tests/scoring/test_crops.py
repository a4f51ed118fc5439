"""Crops of one photograph: it is decoded once, whoever reads it, and scores are the same bytes."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from crop_support import (
    CROPS,
    PHOTOGRAPHS,
    NotingTowers,
    decoder,
    load_noting,
    noted,
    scattered,
)
from engine_support import ROUNDING, cosine, naive
from models_for_tests import Towers, run_engine
from worker_models import evaluated, placed

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases import Cases, ImageRef
from counterpoint.images import Picture
from counterpoint.scoring import Work, encode_images, workers

ALL = PHOTOGRAPHS * CROPS
BATCHES = (ALL, 7, 1)


pytestmark = pytest.mark.usefixtures("decoder")
__all__ = ["decoder"]


@pytest.mark.parametrize("form", ["files", "tar", "parquet"])
@pytest.mark.parametrize("batch", BATCHES)
def test_every_photograph_is_decoded_once(tmp_path: Path, form: str, batch: int) -> None:
    cases = scattered(tmp_path / "images", form)
    model = load_noting(tmp_path / "log")
    found = run_engine(model, {"crops": cases}, tmp_path / "store", batch)["crops"]
    seen = noted(tmp_path / "log")
    assert len(seen) == len(set(seen)) == PHOTOGRAPHS
    np.testing.assert_allclose(found.scores, naive(cases, cosine), rtol=0, atol=ROUNDING)


def test_scores_are_the_bytes_of_a_run_that_shares_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Crops of a file that is broken and of one that is not there are left out in the same way."""
    cases = scattered(tmp_path / "images")
    (tmp_path / "images" / "03.png").write_bytes(b"no image")
    (tmp_path / "images" / "05.png").unlink()
    for folder in ("shared", "alone"):
        (tmp_path / folder).mkdir()
    shared = evaluated(Towers(), cases, tmp_path / "shared", 16)
    monkeypatch.setattr(Picture, "sharing", lambda picture, photographs: picture)
    monkeypatch.setattr("counterpoint.scoring.encode.by_photograph", lambda p: np.arange(len(p)))
    alone = evaluated(Towers(), cases, tmp_path / "alone", 16)
    assert alone[0]["scores.parquet"] == shared[0]["scores.parquet"]
    assert alone[1:] == shared[1:] and len(shared[2]) == 2 * CROPS


def test_pairs_of_neighbouring_crops_share_a_photograph(tmp_path: Path) -> None:
    """Models of pairs open their images themselves, in the order of the cases."""
    table = scattered(tmp_path / "images")
    order = np.argsort([table.case(row).images[0].path for row in range(ALL)], kind="stable")
    cases = Cases.build(map(table.case, order.tolist()), root=table.root, source="crops")
    run_engine(load_noting(tmp_path / "log", "pairs"), {"crops": cases}, tmp_path / "store", 7)
    seen = noted(tmp_path / "log")
    assert len(seen) == len(set(seen)) == PHOTOGRAPHS


def test_keys_and_failures_are_in_the_order_of_the_pictures(tmp_path: Path) -> None:
    cases = scattered(tmp_path / "images")
    (tmp_path / "images" / "03.png").write_bytes(b"no image")
    pictures = [Picture(cases.case(row).images[0], cases.root) for row in range(ALL)]
    with Store(tmp_path / "store") as store:
        found = encode_images(Towers(), pictures, Work(store, 7, Quiet()))
        alone = [encode_images(Towers(), [p], Work(store, 1, Quiet())) for p in pictures]
    assert found.keys == [one.keys[0] for one in alone]
    assert found.failures == {n: one.failures[0] for n, one in enumerate(alone) if one.failures}
    assert list(found.failures) == list(range(3, ALL, PHOTOGRAPHS))


def test_whole_images_stay_in_their_order(tmp_path: Path) -> None:
    """Without crops, batches are what they always were."""
    cases = scattered(tmp_path / "images")
    whole = [Picture(ImageRef(cases.case(row).images[0].path), cases.root) for row in range(12)]
    model = Towers()
    with Store(tmp_path / "store") as store:
        encode_images(model, [*whole[::-1], *whole], Work(store, 5, Quiet()))
    expected = [model.preprocess(picture.open()) for picture in whole[::-1]]
    assert model.images == expected


@pytest.mark.parametrize("batch", [ALL, 20])
def test_processes_decode_a_photograph_once_for_a_batch(
    tmp_path: Path, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    cases = scattered(tmp_path / "images")
    pictures = [Picture(cases.case(row).images[0], cases.root) for row in range(ALL)]
    found = []
    for many in (10_000, 1):  # images from which on processes read
        monkeypatch.setattr("counterpoint.scoring.workers._MANY", many)
        monkeypatch.setattr("counterpoint.scoring.workers._CORES", 1)
        model, log = NotingTowers(tmp_path / f"{many}.log"), tmp_path / f"{many}.log"
        with Store(tmp_path / f"{many}.store") as store:
            keys = encode_images(model, pictures, Work(store, batch, Quiet())).keys
            found.append(store.get(keys))
        assert len(noted(log)) == PHOTOGRAPHS
    assert found[0] == found[1] and None not in found[0]


def test_chunks_keep_crops_together() -> None:
    def crops(*counts: int) -> list[Picture]:
        return [
            Picture(ImageRef(f"{n}.jpg", (i, 0, 1, 1)))
            for n, c in enumerate(counts)
            for i in range(c)
        ]

    def sizes(*counts: int) -> list[int]:
        chunks = list(workers._chunks(crops(*counts)))
        assert [picture for chunk in chunks for picture in chunk] == crops(*counts)
        return [len(chunk) for chunk in chunks]

    assert sizes(*[1] * 40) == [16, 16, 8]
    assert sizes(5, 5, 5, 5) == [15, 5]
    assert sizes(3, 16, 1) == [3, 16, 1]
    assert sizes(2, 40, 3) == [2, 16, 16, 11]
    assert sizes() == []


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("batch", [20, ALL])
def test_workers_elsewhere_decode_once_for_a_batch(tmp_path: Path, batch: int) -> None:
    cases, results = scattered(tmp_path / "images"), []
    for where in ("here", "cpu,cpu"):
        folder = tmp_path / where
        folder.mkdir()
        with placed(where, partial(load_noting, folder / "log")) as model:
            results.append(evaluated(model, cases, folder, batch))
        assert len(noted(folder / "log")) == PHOTOGRAPHS
    assert results[0] == results[1]
