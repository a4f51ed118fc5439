"""How fast training data is made: samples per second, and the share of time that a step waits.

    PYTHONPATH=src python bench/training_data.py [--device cuda] [--workers 4] [--only jpeg]

First JPEG photographs in training (`--only jpeg` stops there): what as many processes as workers
decode and resize, and do nothing else; the stream of batches without a step; a real step (ViT-B-32
on a GPU, recipe hp-hn) with batches that lie on the device; the same while those processes decode,
as they are and at the low priority of workers, which tells what a step loses to them; and the step
with batches from files. The goal is nine tenths of the lower of the first and the third.

Then one core (processor time, which other work on the machine changes little): the world's edits
against those of the benchmarks, which are drawn one by one; images with JPEG's own scaling against
decoding them whole. The last table takes batches from the stream as training does, with a step that
only sleeps: a stall is the time waited for the next batch, as a share of all.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import tarfile
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import cycle, islice
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier, Event
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import polars as pl
import torch
from open_clip.transform import PreprocessCfg, image_transform_v2
from PIL import Image

import counterpoint
from counterpoint._util.processes import NICE
from counterpoint.models import split_transform
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting, TrainingData, _cores
from counterpoint.training.data.samples import Samples
from counterpoint.training.data.table import decode
from counterpoint.training.data.world import WorldData
from counterpoint.training.logs import Meter
from counterpoint.training.recipe import DataConfig
from counterpoint.training.setup import arithmetic
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
        Setting(
            DataConfig.model_validate({"kind": kind, "workers": arguments.workers, **where}),
            image_transform_v2(config, is_train=False),
            tokenize,
            WORLD_BATCH if kind == "world" else BATCH,
            seed=0,
            device=arguments.device,
        )
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


# --- JPEG photographs in training ----------------------------------------------------------------


def _decoding(data: Samples, nice: int, stop: Event, begun: Barrier, done: Queue[float]) -> None:
    """In a process of its own: images per second until it is told to stop."""
    os.nice(nice)
    torch.set_num_threads(1)
    begun.wait()
    count, start = 0, time.perf_counter()
    while not stop.is_set():
        image = data.source.image(count % data.source.size, data.side)
        data.setting.preprocess(image) if data.split is None else data.split[0](image)
        count += 1
    done.put(count / (time.perf_counter() - start))


@contextmanager
def decoders(data: Samples, workers: int, nice: int = 0) -> Iterator[list[float]]:
    """So many processes decode; what they decode a second is in the list in the end."""
    fork, speeds = multiprocessing.get_context("fork"), list[float]()
    stop, begun, done = fork.Event(), fork.Barrier(workers + 1), fork.Queue()
    given = (data, nice, stop, begun, done)
    processes = [fork.Process(target=_decoding, args=given) for _ in range(workers)]
    for process in processes:
        process.start()
    begun.wait()
    try:
        yield speeds
    finally:
        stop.set()
        speeds += [done.get() for _ in processes]
        for process in processes:
            process.join()


def in_training(folder: Path, arguments: argparse.Namespace) -> None:
    import training  # which takes photographs from here

    gpu = torch.device(arguments.device).type == "cuda"
    batch, steps = (BATCH, 60) if gpu else (8, 4)
    name, layers = ("ViT-B-32", 12) if gpu else ("ViT-S-32-alt", 4)
    start = training.write_start(folder / "start", name, layers)
    table = training.write_data(folder, batch * 16)
    changes = [f"batch={batch}", f"data.workers={arguments.workers}"]
    changes += [] if gpu else ["precision=fp32"]
    run = training.ours(start, table, changes, arguments.device)
    data = run.data
    assert isinstance(data, Samples)
    data.split = split_transform(data.setting.preprocess)  # on a CPU, too, as for a GPU
    workers = min(arguments.workers, _cores())
    with decoders(data, workers) as cores:
        time.sleep(arguments.seconds)
    print(
        f"JPEG {SIZE[0]} x {SIZE[1]}, {name} of {layers} layers, batch {batch}, {workers} workers"
    )
    print(f"decoder alone           {sum(cores):10,.1f} images/s", flush=True)
    batches = [each.to(run.ranks.device) for each in islice(data.stream(0, 3), 3)]
    step = training.our_step(run, cycle(batches), Meter())

    def memory() -> float:
        training.wait(run.ranks.device)
        begun = time.perf_counter()
        for number in range(steps):
            step(number)
        training.wait(run.ranks.device)
        return steps * batch / (time.perf_counter() - begun)

    with arithmetic(run.recipe.precision, run.ranks.device):
        memory()
        speed = memory()
        print(f"step, from memory       {speed:10,.1f} samples/s")
        for nice in (0, NICE):
            with decoders(data, workers, nice):
                beside = memory()
            print(f"  beside decoders, nice {nice:2} {beside:9,.1f} samples/s", flush=True)
        found = training.loaded(run, steps, workers)
    print(f"stream without a step   {found.alone:10,.1f} samples/s")
    possible = min(speed, sum(cores))
    print(
        f"step, from JPEGs        {found.samples:10,.1f} samples/s, "
        f"{100 * found.samples / possible:.0f} % of what is possible ({possible:,.1f}), "
        f"stalled {100 * found.stall:.1f} %",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, default=4, help="at most as many as there are cores")
    parser.add_argument("--step-ms", type=float, nargs="+", default=[0, 80, 400])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--only", choices=("all", "jpeg"), default="all")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        in_training(Path(name), arguments)
    if arguments.only == "jpeg":
        return
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
