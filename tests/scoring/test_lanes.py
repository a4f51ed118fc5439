"""Models that compute several batches at a time: the same results, in order, at a good size."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from engine_support import ROUNDING, build
from errors import raises
from models_for_tests import Judge, Towers, choice, ragged, run_engine, write_images
from PIL import Image

from counterpoint._util.errors import ImageError
from counterpoint._util.processes import NICE
from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases import Cases, ImageRef
from counterpoint.images import Picture, Reader
from counterpoint.scoring import BatchSize, Work, encode_images
from counterpoint.scoring.encode import BATCH
from counterpoint.scoring.workers import ENCODE_IMAGES, Here, ReaderProcesses


class LanedTowers(Towers):
    """As a model on a GPU: batches in threads. Later batches are done first."""

    lanes, device = 3, "a device"

    def __init__(self, hold: float = 0.0) -> None:
        super().__init__()
        self.hold, self.threads, self.calls = hold, set[int](), 0
        self.lock, self.running, self.most = threading.Lock(), 0, 0

    def _encode(self, contents: Sequence[str]) -> np.ndarray:
        with self.lock:
            self.threads.add(threading.get_ident())
            self.calls += 1
            pause = self.hold * (3 - self.calls % 3)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(pause)
        found = super()._encode(contents)
        with self.lock:
            self.running -= 1
        return found


def contents(store: Path) -> dict[bytes, bytes]:
    with Store(store) as opened:
        return dict(opened._connection.execute("SELECT key, value FROM results").fetchall())


def test_lanes_store_what_one_thread_stores(tmp_path: Path) -> None:
    table = ragged(tmp_path, 30)
    plain = run_engine(Towers(), {"bench": table}, tmp_path / "plain", batch=2)["bench"]
    model = LanedTowers(hold=0.02)
    found = run_engine(model, {"bench": table}, tmp_path / "laned", batch=2)["bench"]
    np.testing.assert_array_equal(found.scores, plain.scores)
    assert contents(tmp_path / "laned") == contents(tmp_path / "plain")
    assert threading.get_ident() not in model.threads and model.most > 1


def test_a_broken_image_in_a_lane_costs_its_case(tmp_path: Path) -> None:
    write_images(tmp_path, *(f"{n}.png" for n in range(6)))
    (tmp_path / "3.png").write_bytes(b"no image")
    table = build(*(choice(str(n), f"{n}.png", "yes", "no") for n in range(6)), root=tmp_path)
    found = run_engine(LanedTowers(), {"bench": table}, tmp_path / "store", batch=4)["bench"]
    assert list(found.left_out) == [3] and "3.png" in found.left_out[3]


def test_a_run_that_goes_on_has_the_batches_of_before(tmp_path: Path) -> None:
    """A broken image in a stored batch must not move the images behind it into other batches."""
    write_images(tmp_path, *(f"{n}.png" for n in range(9)))
    (tmp_path / "1.png").write_bytes(b"no image")
    pictures = [Picture(ImageRef(f"{n}.png"), tmp_path) for n in range(9)]
    whole = Towers()
    with Store(tmp_path / "whole") as store:
        encode_images(whole, pictures, Work(store, 4, Quiet()))
    assert [len(batch) for batch in whole.image_batches] == [3, 4, 1]

    class Stops(Towers):
        def encode_images(self, images: Sequence[str]) -> np.ndarray:
            if self.image_batches:
                raise KeyboardInterrupt
            return super().encode_images(images)

    with Store(tmp_path / "cut") as store:
        with pytest.raises(KeyboardInterrupt):
            encode_images(Stops(), pictures, Work(store, 4, Quiet()))
        rest = Towers()
        found = encode_images(rest, pictures, Work(store, 4, Quiet()))
    assert rest.image_batches == whole.image_batches[1:]
    assert list(found.failures) == [1] and "1.png" in found.failures[1]


# --- batch sizes ---------------------------------------------------------------------------------


class Launches(LanedTowers):
    """A call takes time however few items it has, and room for so many items."""

    launch, each, room = 0.008, 0.00001, 10_000

    def _encode(self, items: Sequence[Any]) -> np.ndarray:
        if len(items) > self.room:
            raise MemoryError("no room")
        with self.lock:
            time.sleep(self.launch + self.each * len(items))
        return np.ones((len(items), 2), dtype=np.float32)


def tuned(model: Towers) -> int | None:
    with Here(model) as here:
        return here.tune("encode_captions", ["a caption"])


def test_large_batches_where_launching_takes_the_time() -> None:
    size = tuned(Launches())
    assert size is not None and size >= 512


def test_small_batches_where_all_are_as_fast() -> None:
    class Steady(Launches):
        launch, each = 0.0, 0.0004

    size = tuned(Steady())
    assert size is not None and size <= 256


def test_a_size_that_does_not_fit_is_not_taken() -> None:
    class Small(Launches):
        room = 100

    assert tuned(Small()) == 64
    assert tuned(Towers()) is None  # a model without lanes


def test_a_size_is_found_once_and_stored(tmp_path: Path) -> None:
    asked: list[int] = []

    def tune() -> int:
        asked.append(1)
        return 96

    with Store(tmp_path) as store:
        size = BatchSize(None, store, "a model on a device", tune)
        assert asked == []  # there may be nothing to compute
        assert size.size == 96 and BatchSize(None, store, "a model on a device", tune).size == 96
        assert len(asked) == 1
        assert BatchSize(None, store, "another", lambda: None).size == BATCH
        size.halve(96, MemoryError())
        assert BatchSize(None, store, "a model on a device", tune).size == 48
        assert BatchSize(200, store, "a model on a device", tune).size == 48


# --- processes that read -------------------------------------------------------------------------


class ReadingTowers(LanedTowers):
    """Its images are bytes that another process can read."""

    reader = Reader(8, (8, 8), Image.Resampling.BICUBIC)

    def preprocess(self, image: Image.Image) -> np.ndarray:
        return self.reader.prepare(image)

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        return self._encode([image.tobytes().hex() for image in images])


def encoded(model: Towers, pictures: list[Picture], store: Path) -> tuple[list[bytes], list[str]]:
    with Store(store) as opened:
        found = encode_images(model, pictures, Work(opened, 16, Quiet()))
    return found.keys, list(found.failures.values())


@pytest.fixture
def shown(tmp_path: Path) -> list[Picture]:
    write_images(tmp_path, *(f"{n}.png" for n in range(90)))
    (tmp_path / "40.png").write_bytes(b"no image")
    return [Picture(ImageRef(f"{n}.png"), tmp_path) for n in range(90)]


def test_processes_read_what_threads_read(tmp_path, shown, monkeypatch) -> None:
    keys, failures = encoded(ReadingTowers(), shown, tmp_path / "threads")
    monkeypatch.setattr("counterpoint.scoring.workers._MANY", 20)  # images
    monkeypatch.setattr("counterpoint.scoring.workers._CORES", 1)
    started: list[ReaderProcesses] = []

    class Seen(ReaderProcesses):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            started.append(self)

    monkeypatch.setattr("counterpoint.scoring.workers.ReaderProcesses", Seen)
    again = encoded(ReadingTowers(), shown, tmp_path / "processes")
    assert again == (keys, failures) and "40.png" in failures[0]
    assert contents(tmp_path / "processes") == contents(tmp_path / "threads")
    [processes] = started
    assert processes._started and all(p.returncode is not None for p in processes._started)


def test_small_batches_keep_all_processes_busy(shown, monkeypatch) -> None:
    monkeypatch.setattr("counterpoint.scoring.workers._CORES", 1)
    monkeypatch.setattr("counterpoint.scoring.workers.READERS", 4)
    with Here(ReadingTowers()) as here:
        before = here.ahead
        here.submit(ENCODE_IMAGES, [shown[:4]]).result()
        assert before * 4 < 2 * 4 * 16 <= here.ahead * 4  # images; a process takes 16 at a time


def test_readers_let_the_driver_go_first(shown) -> None:
    processes = ReaderProcesses(_priority, 1)
    try:
        [found] = processes.submit(shown[:1])[0].result()
    finally:
        processes.close()
    assert found.tolist() == [min(19, os.nice(0) + NICE)]


def _priority(picture: Picture) -> np.ndarray:
    return np.array([os.nice(0)])


@pytest.mark.faults
def test_a_reader_that_is_killed_is_replaced(shown) -> None:
    processes = ReaderProcesses(ReadingTowers.reader, 2)
    try:
        [first] = [f.result() for f in processes.submit(shown[:16])]
        for process in list(processes._started):
            process.kill()
            process.wait()
        again = [one for f in processes.submit(shown[:40]) for one in f.result()]
        np.testing.assert_array_equal(np.stack(again[:16]), np.stack(first))
        assert len(processes._started) > 1
    finally:
        processes.close()


def test_a_file_that_cannot_be_decoded_costs_its_image_only(tmp_path, shown) -> None:
    """The reader leaves a JPEG encoded; that it is broken shows when the device decodes it."""

    class Decodes(ReadingTowers):
        def encode_images(self, images: Sequence[Any]) -> np.ndarray:
            if any(isinstance(image, str) for image in images):
                raise ImageError("E-IMAGE-BROKEN", "a JPEG: broken.")
            return super().encode_images(images)

    model = Decodes()
    with Here(model) as here:
        files = [here._threads.submit(lambda: ["encoded"]) for _ in shown]
        found = here._see(shown, files)
    assert list(found.broken) == [40] and len(found.values) == len(shown) - 1


# --- batches that do not fit ---------------------------------------------------------------------

IMAGES = 11


class Tight(Towers):
    """Memory for so many items at a time."""

    room = 3

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def encode_images(self, images: Sequence[object]) -> np.ndarray:
        self._reserve(len(images))
        return super().encode_images(images)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        self._reserve(len(captions))
        return super().encode_captions(captions)

    def _reserve(self, items: int) -> None:
        self.sizes.append(items)
        if items > self.room:
            raise MemoryError("no room")


class TightJudge(Judge):
    def score_pairs(self, pictures: Sequence[object], captions: Sequence[str]) -> np.ndarray:
        if len(captions) > 3:
            raise MemoryError("no room")
        return super().score_pairs(pictures, captions)  # type: ignore[arg-type]


def cases(folder: Path) -> Cases:
    write_images(folder, *(f"{i}.png" for i in range(IMAGES)))
    rows = [choice(str(i), f"{i}.png", f"caption {i}", f"other {i}") for i in range(IMAGES)]
    return build(*rows, root=folder)


def test_what_does_not_fit_is_halved_and_remembered(tmp_path: Path) -> None:
    table = cases(tmp_path)
    model = Tight()
    found = run_engine(model, {"bench": table}, tmp_path / "tight", batch=16)["bench"]
    plain = run_engine(Towers(), {"bench": table}, tmp_path / "plain", batch=16)["bench"]
    np.testing.assert_allclose(found.scores, plain.scores, atol=ROUNDING)
    assert not found.left_out
    # 11 images fail, and 5 of them: 2 fit, and the rest is tried by twos. Captions have a size of
    # their own: 16, 8 and 4 fail.
    assert [size for size in model.sizes[: model.sizes.index(16)] if size > 3] == [11, 5]
    assert [size for size in model.sizes[model.sizes.index(16) :] if size > 3] == [16, 8, 4]
    assert max(model.sizes[-6:]) <= 2
    again = Tight()
    table = build(
        *(choice(f"n{i}", f"{i}.png", f"new {i}", f"newer {i}") for i in range(9)), root=tmp_path
    )
    run_engine(again, {"bench": table}, tmp_path / "tight", batch=16)
    assert again.sizes and max(again.sizes) <= 2


def test_pairs_are_halved_too(tmp_path: Path) -> None:
    table = cases(tmp_path)
    tight = run_engine(TightJudge(), {"bench": table}, tmp_path / "tight", batch=16)["bench"]
    plain = run_engine(Judge(), {"bench": table}, tmp_path / "plain", batch=16)["bench"]
    np.testing.assert_allclose(tight.scores, plain.scores, rtol=1e-6)


def test_a_single_item_that_does_not_fit_is_one_sentence(tmp_path: Path) -> None:
    class Full(Tight):
        room = 0

    with raises("E-OUT-OF-MEMORY"):
        run_engine(Full(), {"bench": cases(tmp_path)}, tmp_path / "store", batch=4)


def test_a_larger_wish_does_not_undo_what_is_known(tmp_path: Path) -> None:
    with Store(tmp_path) as store:
        BatchSize(64, store, "a model").halve(8, MemoryError())
        assert BatchSize(64, store, "a model").size == 4
        assert BatchSize(2, store, "a model").size == 2
        assert BatchSize(64, store, "another").size == 64
