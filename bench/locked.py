"""Locked-image tuning: samples per second against the same model with pixels, in one run.

    PYTHONPATH=src python bench/locked.py [--device cuda] [--batch 32] [--steps 4] [--workers 2]

The model is a VisionTextDualEncoder of transformers with random weights: ViT-S/16 at 224 pixels and
a BERT of MiniLM's size. The recipe is hp-hn, an image with a caption, a positive and a negative.
The data are JPEG photographs of 640 x 480 pixels, and captions as long as COCO's. Compared are the
whole model, `freeze=image` and `lock=image` (pooled, and tokens with an attention pool), from files
to weights, in turns. What the first look at the images takes is printed apart: it is paid once for
a trunk and its images. `freeze=image` and `lock=image freeze=image` must have the same loss.

On a CPU then one step of `lock=image` with `--texts` samples, whose texts go through the tower
apart by length, is compared with the same step whose texts go through it together.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

import torch
import transformers as tf
from training import WORDS, our_step, ours, wait, write_data

from counterpoint.training import towers
from counterpoint.training.logs import Meter
from counterpoint.training.setup import arithmetic
from counterpoint.training.steps import TrainingRun

TURNS = 3
ATTENTION = "lock={tower: image, pool: attention, heads: 6}"
WAYS = {
    "all of it": [],
    "freeze=image": ["freeze=image"],
    "lock=image": ["lock=image"],
    "lock=image, pool=attention": [ATTENTION],
}


def write_start(folder: Path) -> str:
    torch.manual_seed(0)
    special = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
    words = [*special, *WORDS]
    words += [f"[unused{n}]" for n in range(30_522 - len(words))]  # as many as BERT has
    vocabulary = {word: number for number, word in enumerate(words)}
    tokenizer = tf.BertTokenizer(vocab=vocabulary, model_max_length=128)
    small: dict[str, Any] = {"hidden_size": 384, "intermediate_size": 1536}
    vision = tf.ViTConfig(**small, num_hidden_layers=12, num_attention_heads=6)
    text = tf.BertConfig(
        **small, num_hidden_layers=6, num_attention_heads=12, vocab_size=len(vocabulary)
    )
    config = tf.VisionTextDualEncoderConfig.from_vision_text_configs(vision, text)
    for part in (tf.VisionTextDualEncoderModel(config), tokenizer, tf.ViTImageProcessor()):
        part.save_pretrained(folder)
    return f"hf:{folder}"


def speed(run: TrainingRun, steps: int, workers: int) -> float:
    """Samples per second, without the batches that lay ready."""
    stream = run.data.stream(0)
    step = our_step(run, stream, Meter())
    step(0)
    for _ in islice(stream, 2 * workers):
        pass
    wait(run.ranks.device)
    begun = time.perf_counter()
    for number in range(steps):
        step(number)
    wait(run.ranks.device)
    found = steps * run.recipe.batch / (time.perf_counter() - begun)
    stream.close()
    return found


def check_losses(start: str, data: Path, changes: list[str], device: str) -> None:
    """A step of what is frozen gives the same loss from pixels and from what is stored."""
    both = []
    for lock in ([], ["lock=image"]):
        run = ours(start, data, [*changes, "freeze=image", *lock], device)
        stream = run.data.stream(0)
        both.append(float(our_step(run, stream, Meter())(0)))
        stream.close()
    if abs(both[0] / both[1] - 1) > 0.01:
        raise SystemExit(f"pixels and stored vectors do not have the same loss: {both}")


def compare_texts(start: str, data: Path, changes: list[str], batch: int) -> None:
    """Texts of a large batch, apart by length and together, in turns."""
    run = ours(start, data, [*changes, "lock=image", f"batch={batch}"], "cpu")
    stream = run.data.stream(0)
    step = our_step(run, stream, Meter())
    ways = {"texts together": sys.maxsize, "texts apart by length": towers._TOGETHER}
    found: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(TURNS):
        for name, most in ways.items():
            with patch.object(towers, "_TOGETHER", most):
                begun = time.perf_counter()
                step(turn)
                found[name].append(batch / (time.perf_counter() - begun))
    stream.close()
    tell(found)


def tell(speeds: dict[str, list[float]]) -> None:
    """Each way against the first."""
    first, *_ = speeds
    for name, found in speeds.items():
        ratio = median(found) / median(speeds[first])
        spread = f"{min(found):,.1f} to {max(found):,.1f}"
        print(f"{name:28}{median(found):10,.1f} samples/s ({spread}), {ratio:.2f} x {first}")


def main() -> None:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--steps", type=int, default=4, help="timed, of each turn")
    parser.add_argument("--workers", type=int, default=cores, help="processes that decode")
    parser.add_argument("--texts", type=int, default=256, help="samples of the last comparison")
    given = parser.parse_args()
    gpu = torch.device(given.device).type == "cuda"
    changes = [f"batch={given.batch}", f"data.workers={given.workers}"]
    changes += [] if gpu else ["precision=fp32"]
    where = torch.cuda.get_device_name() if gpu else f"{cores} cores"
    print(f"ViT-S/16 and BERT of 6 layers, batch {given.batch}, {where}", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["COUNTERPOINT_CACHE"] = str(Path(folder) / "cache")
        data = write_data(Path(folder), max(given.batch * 64, given.texts))
        start = write_start(Path(folder) / "start")
        precision = "bf16" if gpu else "fp32"
        with arithmetic(precision, torch.device(given.device)):
            check_losses(start, data, changes, given.device)
            os.environ["COUNTERPOINT_CACHE"] = str(Path(folder) / "another")
            runs: dict[str, TrainingRun] = {}
            for name, more in WAYS.items():
                begun = time.perf_counter()
                runs[name] = ours(start, data, [*changes, *more], given.device)
                print(f"{name:28} ready after {time.perf_counter() - begun:5.1f} s", flush=True)
            speeds: dict[str, list[float]] = {name: [] for name in runs}
            for _ in range(TURNS):
                for name, run in runs.items():
                    times = 3 if "lock" in name else 1  # their steps are short
                    speeds[name].append(speed(run, times * given.steps, given.workers))
                    print(f"{name:28}{speeds[name][-1]:10,.1f} samples/s", flush=True)
            tell(speeds)
            if not gpu:
                compare_texts(start, data, changes, given.texts)


if __name__ == "__main__":
    main()
