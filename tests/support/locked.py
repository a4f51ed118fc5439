"""Tiny starts and photographs for the tests of locked-image tuning."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import hf_models
import numpy as np
import polars as pl
from open_clip_models import CLIP, COCA, CUSTOM, PREPROCESS, noise, save_model
from training import CPU

from counterpoint.training import load_recipe
from counterpoint.training.logs import Meter
from counterpoint.training.setup import _optimiser, build
from counterpoint.training.steps import gradients, update
from counterpoint.training.towers import parts_of

TIMM = {
    **CUSTOM,
    "embed_dim": 16,
    "vision_cfg": {
        "image_size": 160,
        "timm_model_name": "test_vit3",
        "timm_model_pretrained": False,
        "timm_pool": "avg",
        "timm_proj": "linear",
    },
}
MAP = {**TIMM["vision_cfg"], "timm_pool": "map", "timm_proj": "none"}
SIGLIP = {**TIMM, "embed_dim": 96, "vision_cfg": MAP}
RESNET = {
    **CLIP,
    "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8},
}
OPEN_CLIP = {"CLIP": CLIP, "CUSTOM": CUSTOM, "COCA": COCA, "TIMM": TIMM, "RESNET": RESNET}
OPEN_CLIP["SIGLIP"] = SIGLIP
HF = {**hf_models.DUALS, "dinov2-bert": hf_models.dinov2_bert}
LOOKS = [*product(("red", "green", "striped"), ("circle", "star", "heart"))]
SETTINGS = (
    *("precision=fp32", "batch=4", "steps=5", "lr=1e-3", "warmup=1", "save_every=2", "log_every=1"),
    *("data.workers=0", "benchmarks=[]", "device=cpu", "grad_clip=none"),
)


def start_in(folder: Path, name: str) -> str:
    where = folder / f"start-{name}"
    if name in OPEN_CLIP:
        if not where.is_dir():
            save_model(where, OPEN_CLIP[name], PREPROCESS)
        return f"open_clip:local-dir:{where}"
    if not where.is_dir():
        hf_models.save(where, HF[name])
    return f"hf:{where}"


def data_in(folder: Path, count: int = 9, name: str = "train.parquet") -> Path:
    """Every second caption has images of negatives; two captions belong to the first image."""
    (folder / "photos").mkdir(exist_ok=True)
    rows = []
    for n in range(count):
        look, thing = LOOKS[n % len(LOOKS)]
        other = LOOKS[(n + 1) % len(LOOKS)]
        noise(40 + n, 36, n).save(folder / "photos" / f"{n}.png")
        noise(40, 44, 100 + n).save(folder / "photos" / f"made-{n}.png")
        rows.append(
            {
                "image": f"photos/{0 if n == 1 else n}.png",
                "caption": f"a small {look} {thing}",
                "positives": [f"the small {thing} {look}", f"a {look} and solid {thing}"],
                "negatives": [f"a small {other[0]} {other[1]}", f"a large {look} {thing}"],
                "negative_images": [f"photos/made-{n}.png" if n % 2 else None, None],
                "neighbours": [f"photos/{(n + i) % count}.png" for i in (1, 2)],
            }
        )
    pl.DataFrame(rows).write_parquet(folder / name)
    return folder / name


def recipe_in(folder: Path, id: str, *changes: str, name: str = "hp-hn", out: str = "run"):
    data = data_in(folder)
    given = [*SETTINGS, f"model={id}", f"data.path={data}", f"out={folder / out}", *changes]
    return load_recipe(name, given)


def steps_of(run, count: int = 3):
    """The losses of a few steps, and all weights afterwards."""
    batches = run.data.stream(0, count)
    found = []
    for step in range(count):
        loss, _ = gradients(run, step, batches, Meter())
        update(run, step)
        found.append(float(loss))
    return found, {n: p.detach().clone() for n, p in run.model.towers.clip.named_parameters()}


def pixels_like(run, recipe):
    """A run that reads pixels and trains the parameters that the locked one trains."""
    free = recipe.model_copy(update={"lock": None, "out": Path(f"{recipe.out}-pixels")})
    other = build(free, CPU)
    names = run.model.trainable().keys()
    for name, parameter in other.model.towers.named_parameters():
        parameter.requires_grad_(name in names)
    for part in parts_of(other.model.start, "image"):
        part.eval()
    other.optimiser = _optimiser(free, other.parameters, CPU.device)
    return other


def vectors_in(folder: Path, names: list[str], vectors: np.ndarray, file: str = "images") -> Path:
    folder.mkdir(exist_ok=True)
    np.save(folder / f"{file}.npy", vectors)
    lines = "".join(json.dumps({"name": name}) + "\n" for name in names)
    (folder / f"{file}.jsonl").write_text(lines)
    return folder
