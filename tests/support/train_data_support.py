"""Training files of painted images, and how a test opens them."""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import polars as pl
import torch
from PIL import Image

from counterpoint.training.batches import Batch
from counterpoint.training.data import open_data
from counterpoint.training.data.loading import Setting
from counterpoint.training.recipe import DataConfig

CONTEXT = 40
SIZE = 12
TENSORS = [n for n in Batch.__slots__ if n not in ("hard", "samples")]


def tokenize(texts) -> torch.Tensor:
    rows = [list(text.encode())[:CONTEXT] for text in texts]
    return torch.tensor([row + [0] * (CONTEXT - len(row)) for row in rows])


def said(tokens: torch.Tensor) -> list:
    if tokens.ndim > 1:
        return [said(row) for row in tokens]
    return bytes(token for token in tokens.tolist() if token).decode()


def preprocess(image: Image.Image) -> torch.Tensor:
    pixels = np.asarray(image.resize((4, 4))).astype(np.float32)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def same(one: Batch, other: Batch) -> bool:
    if one.samples != other.samples or (one.hard is None) != (other.hard is None):
        return False
    for name in TENSORS:
        a, b = getattr(one, name), getattr(other, name)
        if (a is None) != (b is None) or (a is not None and not torch.equal(a, b)):
            return False
    return one.hard is None or same(one.hard, other.hard)


def colour(number: int) -> tuple[int, int, int]:
    return (10 + 15 * number, 200 - 10 * number, 5 * number)


def paint(path: Path, rgb: tuple[int, int, int], size=(20, 16)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, rgb).save(path)


def png(rgb: tuple[int, int, int] = (0, 0, 0), size=(20, 16)) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", size, rgb).save(buffer, "PNG")
    return buffer.getvalue()


def write_tar(path: Path, members: Iterable[tuple[str, bytes]]) -> Path:
    path.parent.mkdir(exist_ok=True)
    with tarfile.open(path, "w") as tar:
        for name, content in members:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def write_shard(path: Path, samples: Iterable[dict]) -> Path:
    """A shard of these texts, each with a picture of its number's colour."""
    named = [
        (f"{path.stem}-{number:03}.{ending}", content)
        for number, texts in enumerate(samples)
        for ending, content in (
            ("png", png(colour(number % 12))),
            ("json", json.dumps(texts).encode()),
        )
    ]
    return write_tar(path, named)


def rows_of(count: int = SIZE) -> list[dict]:
    """Sample n has n % 4 negatives and (n + 1) % 3 positives."""
    return [
        {
            "source": str(n),
            "image": f"photos/{n}.png",
            "box": None,
            "caption": f"caption {n}",
            "positives": [f"caption {n} positive {i}" for i in range((n + 1) % 3)],
            "negatives": [f"caption {n} negative {i}" for i in range(n % 4)],
            "negative_images": [f"made/{n}-{i}.png" if i == 1 else None for i in range(n % 4)],
            "neighbours": [f"photos/{(n + i) % count}.png" for i in (1, 2, 3)] if n else [],
        }
        for n in range(count)
    ]


def training_file(folder: Path, rows: list[dict] | None = None) -> Path:
    rows = rows_of() if rows is None else rows
    for n, row in enumerate(rows):
        if row["image"]:
            paint(folder / row["image"], colour(n))
        for i, made in enumerate(row["negative_images"]):
            if made:
                paint(folder / made, (255, i, n))
    path = folder / "train.parquet"
    pl.DataFrame(rows, schema_overrides={"box": pl.List(pl.Int32)}).write_parquet(path)
    return path


def opened(path: Path, batch: int = 4, seed: int = 0, rank: int = 0, ranks: int = 1, **config):
    given = {"kind": "pairs", "path": path, "workers": 0} | config
    return open_data(
        Setting(DataConfig(**given), preprocess, tokenize, batch, seed, rank, world_size=ranks)
    )
