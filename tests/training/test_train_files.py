"""`counterpoint train` on files, from the command line to a model that `eval` loads."""

from __future__ import annotations

import json
import math
from collections import Counter
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from open_clip_models import CLIP, save_model
from PIL import Image
from typer.testing import CliRunner

from counterpoint.cases import ImageRef
from counterpoint.cli.app import app
from counterpoint.generation import write_pairs
from counterpoint.generation.export import export_training
from counterpoint.generation.pairs import Pair, tabulate

pytestmark = pytest.mark.slow

COLOURS = {"red": (200, 30, 30), "green": (30, 180, 40), "blue": (40, 60, 210), "black": (9, 9, 9)}
SHAPES = ("circle", "square", "star")
SMALL = ("batch=6", "steps=16", "lr=3e-3", "warmup=1", "log_every=1", "device=cpu", "seed=2")


@pytest.fixture
def start(tmp_path) -> str:
    return f"model=open_clip:local-dir:{save_model(tmp_path / 'start', CLIP)}"


def picture(colour: str, shape: str) -> Image.Image:
    """A plain ground with a patch that is another for every shape."""
    image = Image.new("RGB", (48, 40), COLOURS[colour])
    at = 4 + 12 * SHAPES.index(shape)
    image.paste((240, 240, 240), (at, at, at + 8, at + 6))
    return image


def things() -> list[tuple[str, str]]:
    return [(colour, shape) for colour in COLOURS for shape in SHAPES]


def texts(colour: str, shape: str) -> dict[str, list[str]]:
    others = [other for other in COLOURS if other != colour]
    return {
        "positives": [f"the {colour} {shape}", f"one {shape} that is {colour}"],
        "negatives": [f"a {other} {shape}" for other in others],
    }


def pairs_files(folder: Path) -> list[Path]:
    """Negatives and positives, as `generate` writes them, beside a folder of photographs."""
    (folder / "photos").mkdir()
    made: dict[str, list[Pair]] = {"positives": [], "negatives": []}
    for number, (colour, shape) in enumerate(things()):
        picture(colour, shape).save(folder / "photos" / f"{number}.jpg", quality=95)
        image, caption = ImageRef(f"photos/{number}.jpg"), f"a {colour} {shape}"
        for name, said in texts(colour, shape).items():
            kind = name.removesuffix("s")
            made[name] += [
                Pair(str(number), image, caption, text, kind, "replace", "att", "m", "1", 0)
                for text in said
            ]
    files = [folder / f"{name}.parquet" for name in made]
    for file, pairs in zip(files, made.values(), strict=True):
        write_pairs(file, [tabulate(pairs)], {})
    return files


def trained(folder: Path, recipe: str, *changes: str) -> tuple[dict[str, object], list[dict]]:
    """What the command prints, and its log."""
    out = folder / f"run-{recipe}"
    done = CliRunner().invoke(app, ["train", recipe, *SMALL, *changes, f"out={out}", "--json"])
    assert done.exit_code == 0, done.output
    [told] = json.loads(done.stdout)
    return told, [json.loads(line) for line in (out / "log.jsonl").read_text().splitlines()]


def accuracies(model: str, files: list[Path], folder: Path) -> dict[str, float]:
    """On a benchmark of the same pairs, through the commands that a user would give."""
    path, out = folder / "mine.parquet", folder / "evaluated"
    for command in (
        ["export", *map(str, files), "--as", "benchmark", "-o", str(path)],
        ["eval", "-m", model, "-b", str(path), "--device", "cpu", "--out", str(out), "--json"],
    ):
        done = CliRunner().invoke(app, command)
        assert done.exit_code == 0, done.output
    return {row["metric"]: row["value"] for row in json.loads(done.stdout)}


def test_hp_hn_learns_from_pairs_files_and_their_photographs(tmp_path, start, monkeypatch):
    files = pairs_files(tmp_path)
    path = f"data.path=[{files[0]},{files[1]}]"
    told, log = trained(tmp_path, "hp-hn", start, path, "data.workers=0", "epochs=20")
    assert told["steps"] == len(log) == 40
    losses = [line["loss"] for line in log]
    assert np.mean(losses[-5:]) < 0.8 * np.mean(losses[:5])
    assert set(log[0]["terms"]) == {"clip", "negatives", "analogy"}
    model = str(told["model"])
    assert model.startswith("open_clip:local-dir:")
    found = accuracies(model, files, tmp_path)
    assert found["original_accuracy"] > 0.75 and found["augmented_accuracy"] > 0.65
    assert found["mean_score_positive"] > found["mean_score_negative"] + 0.3


def neighbours(folder: Path) -> Path:
    """As `generate neighbours` writes them."""
    rows = [
        {
            "image": f"photos/{number}.jpg",
            "neighbours": [f"photos/{(number + i) % len(things())}.jpg" for i in (1, 2, 3)],
            "similarities": [0.9, 0.8, 0.7],
        }
        for number in range(len(things()))
    ]
    path = folder / "near.parquet"
    pl.DataFrame(rows).write_parquet(path)
    return path


def test_negclip_takes_hard_images_from_a_training_file(tmp_path, start):
    files = pairs_files(tmp_path)
    (tmp_path / "sets").mkdir()
    path = tmp_path / "sets" / "train.parquet"
    export_training(files, path, Counter(), neighbours=neighbours(tmp_path))
    given = (start, f"data.path={path}", f"data.images={tmp_path}", "precision=fp32")
    _, log = trained(tmp_path, "negclip", *given, "data.workers=0")
    losses = [line["loss"] for line in log]
    assert all(map(math.isfinite, losses)) and losses[-1] < losses[0]
    # twice as many images as samples, a column for every text of either
    assert losses[0] == pytest.approx((math.log(12) + math.log(24)) / 2, rel=0.1)
    _, none = trained(tmp_path, "clip-ft", *given, "data.workers=0")
    assert none[0]["loss"] == pytest.approx(math.log(6), rel=0.1)
