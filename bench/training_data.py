"""How fast training data is made: samples per second, and the share of time that a step waits.

    PYTHONPATH=src python bench/training_data.py [--device cuda] [--workers 4] [--step-ms 80]

The first table is of one core (processor time, which other work on the machine changes little): the
world's edits against those of the benchmarks, which are drawn one by one; images with JPEG's own
scaling against decoding them whole. The second takes batches from the stream as training does, with
a step that only sleeps: a stall is the time waited for the next batch, as a share of all.
"""

from __future__ import annotations

import argparse
import io
import json
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import polars as pl
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

import counterpoint
from counterpoint.training.data.base import DataConfig, TrainingData
from counterpoint.training.data.images import decode
from counterpoint.training.data.opening import open_data
from counterpoint.training.data.world import WorldData
from counterpoint.world.edits import replacements, swaps

BASE = Path(counterpoint.__file__).parent / "world" / "checkpoints" / "base"
PHOTOS, SIZE, SIDE = 512, (640, 480), 224
WORLD_BATCH, BATCH = 1024, 256


def photo(number: int) -> bytes:
    """A JPEG of the size and weight of COCO's (about 160 kB): shapes with some noise."""
    rng = np.random.default_rng(number)
    shapes = Image.fromarray(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8)).resize(SIZE)
    noise = rng.normal(0, 12, (SIZE[1], SIZE[0], 3))
    buffer = io.BytesIO()
    pixels = (np.asarray(shapes) + noise).clip(0, 255).astype(np.uint8)
    Image.fromarray(pixels).save(buffer, "JPEG", quality=90)
    return buffer.getvalue()


def texts(number: int) -> dict[str, Any]:
    caption = f"a red bus number {number} stands beside a small white house on a quiet street"
    negatives = [caption.replace("red", colour) for colour in ("blue", "green", "black")]
    positives = [caption.replace("small", "little"), caption.replace("beside", "next to")]
    return {"caption": caption, "negatives": negatives, "positives": positives}


def write_data(folder: Path) -> None:
    rows = []
    with tarfile.open(folder / "train-00.tar", "w") as tar:
        for number in range(PHOTOS):
            data = photo(number % 64)
            (folder / f"{number}.jpg").write_bytes(data)
            rows.append({"image": f"{number}.jpg", **texts(number)})
            for ending, content in (("jpg", data), ("json", json.dumps(texts(number)).encode())):
                info = tarfile.TarInfo(f"{number:06}.{ending}")
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    pl.DataFrame(rows).write_parquet(folder / "train.parquet")


def opened(kind: str, folder: Path, arguments: argparse.Namespace) -> TrainingData:
    side = 64 if kind == "world" else SIDE
    config = PreprocessCfg(size=(side, side), interpolation="bicubic")
    tokenize = open_clip.SimpleTokenizer(
        **(
            {"bpe_path": str(BASE / "bpe_merges.txt.gz"), "context_length": 24}
            if side == 64
            else {}
        )
    )
    where = {
        "world": {},
        "pairs": {"path": folder / "train.parquet"},
        "webdataset": {"path": folder / "train-00.tar"},
    }[kind]
    return open_data(
        DataConfig.model_validate({"kind": kind, "workers": arguments.workers, **where}),
        image_transform_v2(config, is_train=False),
        tokenize,
        batch=WORLD_BATCH if kind == "world" else BATCH,
        seed=0,
        device=arguments.device,
    )


def rate(work: Callable[[], int], seconds: float) -> float:
    """Samples per second of this process's time."""
    work()
    start, done = time.process_time(), 0
    while time.process_time() - start < seconds:
        done += work()
    return done / (time.process_time() - start)


def world_speeds(data: WorldData, seconds: float) -> None:
    def slow() -> int:
        edits = zip(replacements(1), swaps(1), strict=False)
        return 2 * len(list(islice(edits, 50)))

    numbers = iter(range(10**9))

    def fast() -> int:
        return len(data.edits(next(numbers) * WORLD_BATCH + np.arange(WORLD_BATCH)).originals)

    def tokens() -> int:
        samples = next(numbers) * WORLD_BATCH + np.arange(WORLD_BATCH)
        data._tokenised(data.texts(samples, data.edits(samples))[0])
        return len(samples)

    one_by_one, at_once = rate(slow, seconds), rate(fast, seconds)
    print(f"world: edits one by one     {one_by_one:10,.0f} samples/s")
    print(f"world: edits as arrays      {at_once:10,.0f} samples/s, {at_once / one_by_one:.0f} x")
    print(f"world: with token ids       {rate(tokens, seconds):10,.0f} samples/s")
    painted = rate(lambda: len(data.batch(0, next(numbers) % 100).samples), seconds)
    print(f"world: with pictures        {painted:10,.0f} samples/s (on {data.setting.device})")


def decode_all(files: list[bytes], side: int) -> int:
    return len([decode(data, "a photo", side) for data in files])


def image_speeds(folder: Path, arguments: argparse.Namespace) -> None:
    files = [(folder / f"{number}.jpg").read_bytes() for number in range(32)]
    for name, side in (("whole", 10**6), ("scaled", SIDE)):
        speed = rate(partial(decode_all, files, side), arguments.seconds)
        print(f"JPEG {SIZE[0]} x {SIZE[1]}, {name:6}     {speed:10,.0f} images/s")
    for kind in ("pairs", "webdataset"):
        data = opened(kind, folder, arguments)
        steps = iter(range(10**9))

        def work(data: TrainingData = data, steps: Iterator[int] = steps) -> int:
            return len(data.batch(*divmod(next(steps), data.steps_per_epoch)).samples)

        print(f"{kind + ': whole batches':27} {rate(work, arguments.seconds):10,.0f} samples/s")


def stall(data: TrainingData, step: float, steps: int, device: str) -> tuple[float, float]:
    """Samples per second by the clock, and the share of the time spent waiting."""
    stream = data.stream(0)
    next(stream)  # workers are started
    waited, done, start = 0.0, 0, time.perf_counter()
    for _ in range(steps):
        asked = time.perf_counter()
        batch = next(stream)
        if device == "cuda":
            batch.to(torch.device(device))
            torch.cuda.synchronize()
        waited += time.perf_counter() - asked
        done += len(batch.samples)
        time.sleep(step)
    total = time.perf_counter() - start
    return done / total, waited / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=4, help="at most as many as there are cores")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0, 80, 400])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder)
        world = opened("world", folder, arguments)
        assert isinstance(world, WorldData)
        world_speeds(world, arguments.seconds)
        image_speeds(folder, arguments)
        for kind in ("world", "pairs", "webdataset"):
            data = opened(kind, folder, arguments)
            for step in arguments.step_ms:
                speed, share = stall(data, step / 1000, arguments.steps, arguments.device)
                size = WORLD_BATCH if kind == "world" else BATCH
                print(
                    f"{kind:10} batch {size:5}, step {step:4.0f} ms: {speed:8,.0f} samples/s, "
                    f"stalled {100 * share:3.0f} %"
                )


if __name__ == "__main__":
    main()
