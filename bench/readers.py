"""What the driver of a GPU costs beside processes that read images, measured without a GPU.

    PYTHONPATH=src python bench/readers.py --batches 32 64 128

Sixteen processes "decode" by sleeping for the time that an image takes on one core, and a "GPU"
sleeps for its batches. All else is real: content keys, the store, the pipes. So what is missing
from the rate of the sleeping processes is lost by the driver. Two runs of different length are
compared, which leaves the start of the processes out.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.cases import ImageRef
from counterpoint.images import Picture
from counterpoint.scoring import Work, encode_images, workers

BYTES = 60_000  # of a file


@dataclass(frozen=True)
class SleepingReader:
    seconds: float

    def __call__(self, picture: Picture) -> np.ndarray:
        picture.read()
        time.sleep(self.seconds)
        return np.zeros((224, 224, 3), np.uint8)


class SleepingTowers:
    """A dual encoder on a device that computes one batch at a time."""

    fingerprint, context_length, lanes, device = "sleeping", None, 3, "none"

    def __init__(self, reader: SleepingReader, rate: float) -> None:
        self.reader, self.rate, self._device = reader, rate, threading.Lock()

    def preprocess(self, image: object) -> np.ndarray:
        raise NotImplementedError  # images are read by the processes

    def encode_images(self, images: Sequence[np.ndarray]) -> np.ndarray:
        stacked = np.stack(images)
        with self._device:
            time.sleep(len(stacked) / self.rate)
        return np.ones((len(stacked), 768), np.float32)

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.ones(len(captions), int)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        return np.ones((len(captions), 768), np.float32)


def seconds(model: SleepingTowers, pictures: list[Picture], batch: int) -> tuple[float, float]:
    """Of the clock, and of this process's processors."""
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder)) as store:
        clock, used = time.perf_counter(), time.process_time()
        encode_images(model, pictures, Work(store, batch, Quiet()))  # type: ignore[arg-type]
        return time.perf_counter() - clock, time.process_time() - used


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--batches", type=int, nargs="*", default=[64])
    parser.add_argument("--processes", type=int, default=16)
    parser.add_argument("--decode", type=float, default=8.4, help="milliseconds an image")
    parser.add_argument("--tower", type=float, default=2419, help="images a second")
    parser.add_argument("--images", type=int, nargs=2, default=[2048, 8192])
    given = parser.parse_args()
    workers.READERS, workers._CORES = given.processes, 1  # type: ignore[misc]
    decoded = given.processes / given.decode * 1000
    model = SleepingTowers(SleepingReader(given.decode / 1000), given.tower)
    few, many = given.images
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder, f"{number}.jpg") for number in range(many)]
        for path in paths:
            path.write_bytes(os.urandom(BYTES))
        pictures = [Picture(ImageRef(str(path))) for path in paths]
        print("| batch | images/s | of what is decoded | ms of the driver's processor per image |")
        print("|---|---|---|---|")
        for batch in given.batches:
            short, long = (seconds(model, pictures[:n], batch) for n in (few, many))
            rate, cost = ((many - few) / (long[0] - short[0]), (long[1] - short[1]) / (many - few))
            print(f"| {batch} | {rate:,.0f} | {100 * rate / decoded:.0f} % | {1000 * cost:.2f} |")


if __name__ == "__main__":
    from readers import main as run  # by its name, under which other processes find the reader

    run()
