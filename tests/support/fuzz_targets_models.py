"""Readers of models and of training as targets for fuzzers."""

from __future__ import annotations

import functools
import io
import json
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np
import torch
from fuzz_support import Target, of_bytes, of_json
from open_clip_models import CLIP, CONFIG, PREPROCESS, WEIGHTS, build, save_model
from safetensors.numpy import save as to_safetensors
from train_data_support import opened
from training import CPU as ALONE, small_recipe

from counterpoint.evaluation.wise import refuse_other_model
from counterpoint.models.detector.adapter import (
    CONFIG as DETECTOR,
    WEIGHTS as HEADS,
    DetectorHeads,
    LinearHead,
    SavedDetector,
    read,
    save,
)
from counterpoint.models.hub import guarded
from counterpoint.models.openclip import ABOUT
from counterpoint.models.registry import LoadOptions, load_model
from counterpoint.training.checkpoints import (
    RECIPE,
    capture,
    claimed,
    load_last,
    restore,
    save as save_checkpoint,
)
from counterpoint.training.logs import LOG, Log
from counterpoint.training.reading import load_recipe, recipe_text
from counterpoint.training.setup import build as build_run
from counterpoint.training.steps import TrainingRun

CPU = LoadOptions("cpu")
STEP = 2


def model_config(data: bytes, folder: Path) -> None:
    """`open_clip_config.json` of a model folder."""
    if not (folder / WEIGHTS).exists():
        save_model(folder)
    (folder / CONFIG).write_bytes(data)
    load_model(f"open_clip:local-dir:{folder}", CPU)


def tokenizer_config(data: bytes, folder: Path) -> None:
    """A config that is examined before transformers reads it."""
    (folder / "tokenizer_config.json").write_bytes(data)
    with guarded("a model", folder, CPU):
        pass


def weights(name: str) -> Callable[[bytes, Path], None]:
    """A file of weights, in the architecture of a folder."""

    def target(data: bytes, folder: Path) -> None:
        if not (folder / "arch").exists():
            save_model(folder / "arch")
        (folder / name).write_bytes(data)
        load_model(f"checkpoint:{folder / name}@local-dir:{folder / 'arch'}", CPU)

    return target


def recipe_file(data: bytes, folder: Path) -> None:
    (folder / "mine.yaml").write_bytes(data)
    load_recipe(str(folder / "mine.yaml"), ["lr=1e-5"], world=True)


def recipe_change(data: bytes, folder: Path) -> None:
    """A `key=value` of the command line."""
    del folder
    load_recipe("hp-hn", [data.decode(errors="replace")], world=True)


def shard(data: bytes, folder: Path) -> None:
    """A WebDataset shard: indexed, and every sample read."""
    (folder / "x.tar").write_bytes(data)
    with mock.patch("platformdirs.user_cache_dir", lambda _: tempfile.mkdtemp(dir=folder)):
        samples = opened(folder / "x.tar", batch=1, kind="webdataset", workers=0)
    for step in range(min(samples.steps_per_epoch, 4)):
        samples.batch(0, step)


def checkpoint(name: str) -> Callable[[bytes, Path], None]:
    """A file of a training's checkpoint."""

    def target(data: bytes, folder: Path) -> None:
        run = small_run()
        if not (folder / "checkpoints").exists():
            save_checkpoint(folder, capture(run, STEP), keep=1)
        (folder / "checkpoints" / f"step-{STEP:08d}" / name).write_bytes(data)
        if (saved := load_last(folder, torch.device("cpu"))) is not None:
            restore(run, saved)

    return target


def run_recipe(data: bytes, folder: Path) -> None:
    """`recipe.json` of a run's folder."""
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / RECIPE).write_bytes(data)
    with claimed(small_run().recipe, folder / "run"):
        pass


def log(data: bytes, folder: Path) -> None:
    (folder / LOG).write_bytes(data)
    Log(folder, 3, tensorboard=False, wandb=None).close()


def about(data: bytes, folder: Path) -> None:
    """`training.json` of a folder that `wise --save` would write to."""
    (folder / ABOUT).write_bytes(data)
    ends: Any = SimpleNamespace(base="a", tuned="b", fingerprints=("1", "2"))
    refuse_other_model(folder, ends)


def detector(name: str) -> Callable[[bytes, Path], None]:
    """A file of a detector's folder."""

    def target(data: bytes, folder: Path) -> None:
        if not (folder / "d").exists():
            head = LinearHead(np.ones(4, np.float32), np.zeros(1, np.float32))
            save(folder / "d", SavedDetector(DetectorHeads(head, head), "world:base", "f", {}))
        (folder / "d" / name).write_bytes(data)
        read(folder / "d")

    return target


# --- what they begin with ----------------------------------------------------------------------


@functools.cache
def small_run() -> TrainingRun:
    """A run to put checkpoints into."""
    with tempfile.TemporaryDirectory() as folder:
        return build_run(small_recipe(Path(folder)), ALONE)


def _state() -> Any:
    captured = capture(small_run(), STEP)
    return json.loads(json.dumps({"format": 1, "step": STEP, **captured.state}))


def _heads() -> bytes:
    sizes = {"weight": 4, "bias": 1}
    names = [(f"{side}.{part}", n) for side in ("image", "caption") for part, n in sizes.items()]
    return to_safetensors({name: np.ones(n, np.float32) for name, n in names})


def _pickled(**more: Any) -> bytes:
    file = io.BytesIO()
    torch.save({"state_dict": build(CLIP).state_dict(), "epoch": 3, **more}, file)
    return file.getvalue()


def _safetensors() -> bytes:
    return to_safetensors({k: v.numpy() for k, v in build(CLIP).state_dict().items()})


def _shard() -> bytes:
    from PIL import Image

    image, tar = io.BytesIO(), io.BytesIO()
    Image.new("RGB", (8, 8), "red").save(image, "PNG")
    texts = {"caption": "a dog", "positives": ["one dog"], "negatives": ["a cat"]}
    with tarfile.open(fileobj=tar, mode="w") as made:
        for number in range(3):
            for end, data in (("png", image.getvalue()), ("json", json.dumps(texts).encode())):
                info = tarfile.TarInfo(f"{number}.{end}")
                info.size = len(data)
                made.addfile(info, io.BytesIO(data))
    return tar.getvalue()


TARGETS = {
    "model config": Target(
        model_config, of_json({"model_cfg": CLIP, "preprocess_cfg": PREPROCESS})
    ),
    "tokenizer config": Target(
        tokenizer_config, of_json({"tokenizer_class": "CLIPTokenizer", "auto_map": None})
    ),
    "weights .pt": Target(weights("w.pt"), of_bytes(_pickled)),
    "weights .safetensors": Target(
        weights("w.safetensors"),
        of_bytes(
            lambda: to_safetensors({k: v.numpy() for k, v in build(CLIP).state_dict().items()})
        ),
    ),
    "recipe file": Target(recipe_file, of_bytes(recipe_text("hp-hn").encode())),
    "recipe change": Target(recipe_change, of_bytes(b"loss.negatives.weight=0.5")),
    "shard": Target(shard, of_bytes(_shard)),
    "state": Target(checkpoint("state.json"), of_json(_state)),
    "optimiser": Target(
        checkpoint("optimiser.safetensors"),
        of_bytes(lambda: to_safetensors({"clip.visual.proj/step": np.ones(1, "f4")})),
    ),
    "recipe of a run": Target(run_recipe, of_json(lambda: small_run().recipe.settled())),
    "log": Target(log, of_bytes(b'{"event": "step", "step": 1, "loss": 0.5}\n' * 4)),
    "training.json": Target(
        about,
        of_json(
            {
                "wise": {
                    "base": {"id": "a", "fingerprint": "1"},
                    "tuned": {"id": "b", "fingerprint": "2"},
                }
            }
        ),
    ),
    "detector": Target(
        detector(DETECTOR),
        of_json({"format": 2, "encoder": "world:base", "encoder_fingerprint": "f"}),
    ),
    "detector weights": Target(detector(HEADS), of_bytes(_heads)),
}
