"""Finetuning throughput: our training step against a plain loop, and whether data keeps up.

    PYTHONPATH=src python bench/training.py [--device cuda] [--batch 256] [--steps 30] [--workers N]

The model is open_clip's ViT-B-32 with random weights, the recipe is hp-hn: an image with a caption,
a positive and a negative. The plain loop does what open_clip's trainer does: one call of the model
with texts padded to 77 tokens, AdamW as torch has it, float32 with TF32 products, or `amp` (float16
with a scaled loss) or `amp_bf16`. Ours is the loop of `counterpoint train`. Both compute the same
loss of the same batches, which lie on the device already; that it is the same is checked. Ours is
measured twice: as recipes have it, and with `compile=true`.

Captions are as long as COCO's: 11 tokens in the middle, one of a hundred longer than 20, some of 40
and more, and two tokens around them. The share of the ceiling is what a loop really multiplies a
second, padding included, against one large matrix product measured in the same run.

Then ours with JPEG photographs from a folder, decoded by worker processes: a stall is time in which
the device had nothing to do because the next batch was not there.

`--only compiled` compares plain amp_bf16 with compile=true alone, a minute each (`--seconds`), in
turns of a sixth of it, compilation excluded. It prints what decides the ratio: graphs compiled
while the clock ran (lengths of texts that differ make one more, at the start), and how much of the
time the device had work. What is missing there is the host's: Python gives it too little to do.

Without a GPU everything is small and in float32: a try, which says nothing about a GPU.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import cycle, islice
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import open_clip
import polars as pl
import torch
from safetensors.torch import save_file
from torch._dynamo.utils import counters
from torch.utils.flop_counter import FlopCounterMode
from training_data import photo

from counterpoint.training.batches import Batch, pack, unpack
from counterpoint.training.logs import Meter
from counterpoint.training.losses import terms as losses
from counterpoint.training.losses.terms import Features
from counterpoint.training.processes import Ranks
from counterpoint.training.reading import load_recipe
from counterpoint.training.recipe import terms_of
from counterpoint.training.setup import arithmetic, build, compile_blocks
from counterpoint.training.steps import TrainingRun, gradients, update

WORDS = (
    *("a", "the", "two", "of", "on", "in", "near", "old", "red", "green", "small", "man", "woman"),
    *("dog", "cat", "horse", "table", "chair", "street", "bus", "bench", "plate", "pizza", "kite"),
    *("standing", "sitting", "riding", "holding", "next", "to", "with", "behind", "and"),
)  # a token each
DISTINCT, PHOTOS, WARM, BLOCKS = 3, 48, 6, 3  # batches, files, steps before and parts of timing
TURNS = 6  # of each loop in `compiled`
PLAIN = {"fp32": "fp32 (TF32)", "amp": "amp (fp16)", "amp_bf16": "amp_bf16"}


@dataclass(frozen=True)
class Speed:
    name: str
    samples: float  # a second
    operations: float  # a sample, in matrix products
    memory: int
    loss: float


# --- model and data ----------------------------------------------------------------------------


def write_start(folder: Path, name: str, layers: int) -> str:
    torch.manual_seed(0)
    logging.disable(logging.WARNING)  # open_clip warns that the weights are random: they shall be
    config = open_clip.get_model_config(name)
    for tower in ("vision_cfg", "text_cfg"):
        config[tower]["layers"] = layers
    model: Any = open_clip.create_model(name, **config)
    folder.mkdir()
    save_file(
        {key: value.contiguous() for key, value in model.state_dict().items()},
        folder / "open_clip_model.safetensors",
    )
    whole = {"model_cfg": config, "preprocess_cfg": model.visual.preprocess_cfg}
    (folder / "open_clip_config.json").write_text(json.dumps(whole, default=list))
    return f"open_clip:local-dir:{folder}"


def captions(count: int, rng: np.random.Generator) -> list[list[str]]:
    """Lengths as of ten thousand captions of COCO: mean 11.5, 99 % up to 21, the longest 49."""
    usual, long = rng.lognormal(2.39, 0.16, count), rng.lognormal(2.65, 0.32, count)
    lengths = np.where(rng.random(count) < 0.1, long, usual).round().clip(5, 60).astype(int)
    return [rng.choice(WORDS, length).tolist() for length in lengths]


def changed(words: list[str], rng: np.random.Generator) -> str:
    """Another word somewhere: as long as the caption, as texts of rules are."""
    other = [*words]
    other[int(rng.integers(len(words)))] = str(rng.choice(WORDS))
    return " ".join(other)


def write_data(folder: Path, count: int) -> Path:
    rng = np.random.default_rng(0)
    for number in range(PHOTOS):
        (folder / f"{number}.jpg").write_bytes(photo(number))
    rows = [
        {
            "image": f"{number % PHOTOS}.jpg",
            "caption": " ".join(words),
            "positives": [changed(words, rng)],
            "negatives": [changed(words, rng)],
        }
        for number, words in enumerate(captions(count, rng))
    ]
    path = folder / "train.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


# --- the two loops -----------------------------------------------------------------------------


def ours(start: str, data: Path, changes: list[str], device: str) -> TrainingRun:
    values = [f"model={start}", f"data.path={data}", f"device={device}", "steps=100000"]
    return build(load_recipe("hp-hn", [*values, *changes]), Ranks(0, 1, torch.device(device)))


def our_step(
    run: TrainingRun, batches: Iterator[Batch], meter: Meter
) -> Callable[[int], torch.Tensor]:
    def step(number: int) -> torch.Tensor:
        loss, _ = gradients(run, number, batches, meter)
        update(run, number)
        meter.stepped(run.recipe.batch)
        return loss

    return step


def plain_step(
    run: TrainingRun, batches: list[Batch], precision: str
) -> Callable[[int], torch.Tensor]:
    """A step as open_clip's trainer takes it, with the terms of the recipe as its loss."""
    device = run.ranks.device
    model = deepcopy(run.model.start.model)
    whole = [padded(batch) for batch in batches]
    named = list(model.named_parameters())
    free = [p for n, p in named if p.ndim < 2 or any(k in n for k in ("bn", "ln", "bias", "scale"))]
    kept = {id(p) for p in free}
    optimiser = torch.optim.AdamW(
        [
            {"params": free, "weight_decay": 0.0},
            {"params": [p for _, p in named if id(p) not in kept], "weight_decay": 0.1},
        ],
        lr=1e-6,
        betas=(0.9, 0.98),
        eps=1e-6,
    )
    scaler = torch.amp.GradScaler(device.type) if precision == "amp" else None
    half = {"amp": torch.float16, "amp_bf16": torch.bfloat16}.get(precision)
    terms = terms_of(run.recipe.loss)

    def step(number: int) -> torch.Tensor:
        batch = whole[number % len(whole)]
        images, texts = pack(batch)
        optimiser.zero_grad()
        with torch.autocast(device.type, dtype=half) if half else nullcontext():
            shown, said, scale = model(images, texts)
            features: Features = unpack(batch, shown, said, scale)
            loss = losses.total(losses.loss(features, terms), terms)
        if scaler is None:
            loss.backward()  # type: ignore[no-untyped-call]
            optimiser.step()
        else:
            scaler.scale(loss).backward()  # type: ignore[no-untyped-call]
            scaler.step(optimiser)
            scaler.update()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        return loss.detach()

    return step


def padded(batch: Batch, context: int = 77) -> Batch:
    texts: dict[str, Any] = {
        name: torch.nn.functional.pad(value, (0, context - value.shape[-1]))
        for name in ("captions", "positives", "negatives")
        if (value := getattr(batch, name)) is not None
    }
    return replace(batch, **texts)


# --- measuring ---------------------------------------------------------------------------------


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def measure(
    name: str,
    step: Callable[[int], torch.Tensor],
    run: TrainingRun,
    steps: int,
    beside: int = 0,
    operations: float = 0,
) -> Speed:
    """`beside`: memory that is in use and not this loop's. `operations`: known, not counted here
    (what counts them keeps torch from compiling)."""
    device, batch = run.ranks.device, run.recipe.batch
    counter = FlopCounterMode(display=False)
    with nullcontext() if operations else counter:
        loss = float(step(0))
        for number in range(1, DISTINCT):
            step(number)
    operations = operations or counter.get_total_flops() / (DISTINCT * batch)
    gpu = device.type == "cuda"
    for number in range(WARM):  # each batch twice: a compiler sees that shapes differ
        step(number)
    wait(device)
    if gpu:
        torch.cuda.reset_peak_memory_stats(device)
    speeds, size = [], max(1, steps // BLOCKS)
    for _ in range(BLOCKS):
        begun = time.perf_counter()
        for number in range(size):
            step(number)
        wait(device)
        speeds.append(size * batch / (time.perf_counter() - begun))
    memory = torch.cuda.max_memory_allocated(device) - beside if gpu else 0
    return Speed(name, median(speeds), operations, memory, loss)


def ceiling(device: torch.device) -> float:
    """Multiplications and additions a second of one large product: bf16 on a GPU."""
    gpu = device.type == "cuda"
    size, dtype = (8192, torch.bfloat16) if gpu else (2048, torch.float32)
    a, b = (torch.randn(size, size, device=device, dtype=dtype) for _ in range(2))
    best = math.inf
    for _ in range(20):  # the first warm up, clocks too
        wait(device)
        begun, count = time.perf_counter(), 10 if gpu else 2
        for _ in range(count):
            a @ b
        wait(device)
        best = min(best, (time.perf_counter() - begun) / count)
    return 2 * size**3 / best


def print_head(most: float) -> None:
    print(f"ceiling: {most / 1e12:.2f} TFLOP/s")
    print(f"{'':34}{'samples/s':>10}{'GFLOP':>8}{'TFLOP/s':>9}{'ceiling':>9}{'memory':>11}")


def print_speed(one: Speed, most: float) -> None:
    rate = one.samples * one.operations
    memory = f"{one.memory / 2**30:7.1f} GiB" if one.memory else ""
    print(
        f"{one.name:34}{one.samples:10,.1f}{one.operations / 1e9:8.1f}{rate / 1e12:9.2f}"
        f"{100 * rate / most:7.0f} %{memory}",
        flush=True,
    )


def print_ratios(plain: list[Speed], mine: list[Speed]) -> None:
    off = max(abs(one.loss / plain[0].loss - 1) for one in (*plain, *mine))
    if off > 0.02:
        raise SystemExit(
            f"the loops do not compute the same loss: {[s.loss for s in plain + mine]}"
        )
    for one in mine:
        told = ", ".join(f"{one.samples / other.samples:.2f} x {other.name}" for other in plain)
        print(f"{one.name}: {told}")


def drop(stream: Iterator[Batch], count: int) -> None:
    for _ in islice(stream, count):
        pass


@dataclass(frozen=True)
class Loaded:
    alone: float  # samples per second without a step
    samples: float  # in training
    stall: float  # share of the time

    def __str__(self) -> str:
        return (
            f"{self.alone:,.0f} samples/s of data alone, {self.samples:,.0f} in training, "
            f"stalled {100 * self.stall:.1f} % of the time"
        )


def loaded(run: TrainingRun, steps: int, workers: int) -> Loaded:
    """The recipe's own data: how fast it comes without a step, then with."""
    batch, device = run.recipe.batch, run.ranks.device
    stream = run.data.stream(0)
    drop(stream, 2 * workers)  # those made ahead while the workers were started
    begun = time.perf_counter()
    drop(stream, steps)
    wait(device)
    alone = steps * batch / (time.perf_counter() - begun)
    meter = Meter()
    step = our_step(run, stream, meter)
    for number in range(WARM if device.type == "cuda" else 1):
        step(number)
    drop(stream, 2 * workers)  # again: what lies ready says nothing of a long run
    wait(device)
    meter.read()
    for number in range(steps):
        step(number)
    wait(device)
    values = meter.read()
    stream.close()
    return Loaded(alone, values["samples_per_second"], values["stall"])


def turn(step: Callable[[int], torch.Tensor], run: TrainingRun, seconds: float) -> float:
    """Samples per second for so long."""
    wait(run.ranks.device)
    begun, steps = time.perf_counter(), 0
    while time.perf_counter() - begun < seconds:
        for _ in range(10):  # the host may be far ahead of the device: wait for it now and then
            step(steps)
            steps += 1
        wait(run.ranks.device)
    return steps * run.recipe.batch / (time.perf_counter() - begun)


def busy(step: Callable[[int], torch.Tensor], steps: int = 8) -> float:
    """Seconds that the device works on one step."""
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        for number in range(steps):
            step(number)
        torch.cuda.synchronize()
    return sum(event.self_device_time_total for event in profile.key_averages()) / 1e6 / steps


# --- all of it ---------------------------------------------------------------------------------


def compared(run: TrainingRun, batches: list[Batch], given: argparse.Namespace) -> None:
    device = run.ranks.device
    gpu = device.type == "cuda"
    most = ceiling(device)
    print_head(most)
    plain, mine = list[Speed](), list[Speed]()
    towers = run.model.towers
    beside = sum(p.numel() * p.element_size() for p in towers.parameters())
    for precision in PLAIN if gpu else ["fp32"]:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True  # as open_clip's trainer sets them
        name = f"plain, {PLAIN[precision] if gpu else precision}"
        step = plain_step(run, batches, precision)
        plain.append(measure(name, step, run, given.steps, beside))
        print_speed(plain[-1], most)
        del step
    torch.backends.cudnn.benchmark = False
    first = {name: value.clone() for name, value in towers.state_dict().items()}
    stalls = []
    for whether in (False, True):
        towers.load_state_dict(first)
        name = f"ours, {run.recipe.precision}{', compiled' * whether}"
        if whether:
            compile_blocks(towers, run.recipe.model)
        with arithmetic(run.recipe.precision, device):
            step = our_step(run, cycle(batches), Meter())
            known = mine[0].operations if whether else 0
            mine.append(measure(name, step, run, given.steps, operations=known))
            print_speed(mine[-1], most)
            stalls.append(f"{name}: {loaded(run, given.steps, given.workers)}")
    print_ratios(plain, mine)
    print(f"JPEG 640 x 480 from a folder, {given.workers} workers", *stalls, sep="\n")


def compiled(run: TrainingRun, batches: list[Batch], given: argparse.Namespace) -> None:
    """Plain amp_bf16 and ours with compile=true, in turns."""
    device = run.ranks.device
    gpu = device.type == "cuda"
    steps = {
        "plain, amp_bf16": plain_step(run, batches, "amp_bf16" if gpu else "fp32"),
        "ours, compile=true": our_step(run, cycle(batches), Meter()),
    }
    compile_blocks(run.model.towers, run.recipe.model)
    speeds: dict[str, list[float]] = {name: [] for name in steps}
    with arithmetic(run.recipe.precision, device):
        begun = time.perf_counter()
        for step in steps.values():
            for number in range(2 * len(batches)):
                step(number)
        wait(device)
        before = counters["stats"]["unique_graphs"]
        print(f"warm after {time.perf_counter() - begun:.0f} s, {before} graphs compiled")
        for _ in range(TURNS):
            for name, step in steps.items():
                speeds[name].append(turn(step, run, given.seconds / TURNS))
        more = counters["stats"]["unique_graphs"] - before
        for name, step in steps.items():
            found = median(speeds[name])
            share = f", device busy {100 * busy(step) * found / given.batch:.0f} %" if gpu else ""
            least, most = min(speeds[name]), max(speeds[name])
            print(f"{name:20}{found:10,.1f} samples/s ({least:,.1f} to {most:,.1f}){share}")
    ratios = [one / other for other, one in zip(*speeds.values(), strict=True)]
    lengths = sorted({batch.captions.shape[1] for batch in batches})
    print(
        f"ratio {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f}) at batch "
        f"{given.batch}; graphs compiled while timed: {more}; lengths of texts: {lengths}"
    )


def main() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, help="256; without a GPU 8")
    parser.add_argument("--steps", type=int, help="timed, of each; 30; without a GPU 3")
    parser.add_argument("--workers", type=int, default=cores, help="processes that decode")
    parser.add_argument("--only", choices=("all", "compiled"), default="all")
    parser.add_argument("--seconds", type=float, help="timed, of each; 60; without a GPU 6")
    given = parser.parse_args()
    gpu = torch.device(given.device).type == "cuda"
    given.batch = given.batch or (256 if gpu else 8)
    given.steps = given.steps or (30 if gpu else 3)
    given.seconds = given.seconds or (60 if gpu else 6)
    distinct = 12 if given.only == "compiled" else DISTINCT
    name, layers = ("ViT-B-32", 12) if gpu else ("ViT-S-32-alt", 4)
    where = torch.cuda.get_device_name() if gpu else "no GPU: a small try in float32"
    print(
        f"{name} of {layers} layers, batch {given.batch}, {given.steps} steps, {where}", flush=True
    )
    with tempfile.TemporaryDirectory() as folder:
        data = write_data(Path(folder), given.batch * max(distinct, 16 if gpu else DISTINCT))
        start = write_start(Path(folder) / "start", name, layers)
        changes = [f"batch={given.batch}", f"data.workers={given.workers}"]
        run = ours(start, data, changes if gpu else [*changes, "precision=fp32"], given.device)
        stream = run.data.stream(0)
        batches = [batch.to(run.ranks.device) for batch in islice(stream, distinct)]
        stream.close()
        lengths = (batches[0].captions != 0).sum(1).float().mean()
        longest = max(batch.captions.shape[1] for batch in batches)
        print(f"captions: {lengths:.1f} tokens on average, the longest of a batch {longest}")
        (compiled if given.only == "compiled" else compared)(run, batches, given)


if __name__ == "__main__":
    main()
