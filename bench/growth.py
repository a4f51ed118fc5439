"""Memory and time as the number of cases grows: a whole evaluation with models that cost nothing.

    python bench/growth.py [--cases 10000 100000 1000000] [--kinds dual pair] [--gallery 1000 5000]
    python bench/growth.py --cases 1000000 3000000 --kinds dual --captions 99999 --main

The numbers of docs/scaling.md. A case is one image and three captions (original, positive,
negative); ten cases share an image, and no two captions are the same, unless `--captions` says how
many different ones of each kind there are. `--main` computes the numbers that `eval` prints, and
not those of all pairs that only `--json` shows. Images are crops of small files, so every one is
looked up, opened and cropped. Vectors and scores are hashes: what is
measured is the engine. Every line is a process of its own: its peak memory (`ru_maxrss`) less that
of a process that imports everything and evaluates ten cases.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import polars as pl
from PIL import Image

from counterpoint import evaluate
from counterpoint._util.tables import ParquetGroups
from counterpoint.cases import SCHEMA, Cases, read_cases, write_cases
from counterpoint.images import Picture
from counterpoint.runs import rows

FILES, SIDE, LARGEST = 100, 32, 16  # image files, their pixels, and the sides of crops
PER_IMAGE = 10
KINDS = ("the original caption", "another true caption", "a caption that is not true,")
STAGES = ("read", "score and save", "metrics")


# --- models that cost nothing -------------------------------------------------------------------


class HashTowers:
    fingerprint = "growth towers"
    context_length: int | None = None

    def preprocess(self, image: Image.Image) -> bytes:
        return repr(image.size).encode() + image.tobytes()

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.fromiter(map(len, captions), dtype=np.int64, count=len(captions))

    def encode_images(self, images: Sequence[bytes]) -> np.ndarray:
        hashes = b"".join(hashlib.blake2b(image).digest() for image in images)
        vectors = np.frombuffer(hashes, dtype=np.int8).reshape(len(images), -1).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        return self.encode_images([caption.encode() for caption in captions])


class HashPairs:
    fingerprint = "growth pairs"

    def score_pairs(self, pictures: Sequence[Picture], captions: Sequence[str]) -> np.ndarray:
        pairs = zip(pictures, captions, strict=True)
        hashes = b"".join(
            hashlib.blake2b(f"{picture.ref}{caption}".encode(), digest_size=2).digest()
            for picture, caption in pairs
        )
        return np.frombuffer(hashes, dtype=np.uint16).astype(np.float32)


MODELS: dict[str, type[HashTowers] | type[HashPairs]] = {"dual": HashTowers, "pair": HashPairs}


# --- case files ---------------------------------------------------------------------------------


def make_images(folder: Path) -> None:
    rng = np.random.default_rng(0)
    for number in range(FILES):
        pixels = rng.integers(0, 256, (SIDE, SIDE, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")


def references(numbers: np.ndarray) -> pl.Series:
    """Different crops: each has its own place and size."""
    steps = np.array([LARGEST, LARGEST, LARGEST, 1]).cumprod()
    sides = [(numbers // FILES // step) % LARGEST for step in (1, *steps[:3].tolist())]
    boxes = np.stack([sides[0], sides[1], sides[2] + 1, sides[3] + 1], axis=1).astype(np.int32)
    paths = pl.format("{}.png", pl.Series(numbers % FILES))
    return pl.select(pl.struct(paths.alias("path"), pl.Series("box", boxes))).to_series()


def frames(count: int, different: int) -> Iterator[pl.DataFrame]:
    for start in range(0, count, 50_000):
        rows = np.arange(start, min(start + 50_000, count))
        row, image = pl.Series("row", rows), references(rows // PER_IMAGE).alias("image")
        texts = [
            pl.format(f"{kind} number {{}} of the many in this file", pl.col("row") % different)
            for kind in KINDS
        ]
        yield pl.DataFrame([row, image]).select(
            id=pl.col("row").cast(pl.String).str.zfill(8),
            images=pl.concat_list("image"),
            captions=pl.concat_list(texts),
            truth=pl.lit([0, 1], dtype=SCHEMA["truth"]),
            groups=pl.concat_list(pl.format("group/{}", pl.col("row") % 7)),
            cluster=pl.format("image {}", pl.col("row") // PER_IMAGE),
        )


def make_cases(path: Path, count: int, different: int, lines: bool) -> None:
    with ParquetGroups(path, SCHEMA, 50_000) as table:
        for frame in frames(count, different):
            table.add(frame.cast(SCHEMA))
    if not lines:
        return
    with path.with_suffix(".jsonl").open("w", encoding="utf-8") as file:
        for frame in frames(count, different):
            for row in frame.iter_rows(named=True):
                file.write(json.dumps({**row, "truth": [[True, True, False]]}) + "\n")


def make_gallery(path: Path, images: int, captions: int) -> None:
    row = {
        "id": "gallery",
        "images": references(np.arange(images)).to_list(),
        "captions": [f"the caption number {number} of the gallery" for number in range(captions)],
        "truth": sorted(n * images // captions * captions + n for n in range(captions)),
        "groups": [],
        "cluster": "gallery",
    }
    write_cases(Cases(pl.DataFrame([row], schema=SCHEMA), path.parent), path)


# --- one process --------------------------------------------------------------------------------


def used() -> tuple[int, float]:
    """The peak of memory in bytes, and the seconds of both processors."""
    found = resource.getrusage(resource.RUSAGE_SELF)
    return found.ru_maxrss * 1024, found.ru_utime + found.ru_stime


def measure(kind: str, path: Path, folder: Path, main: bool) -> None:
    """Print seconds, processor seconds and peak bytes after each stage."""

    def stage(start: float) -> tuple[float, float, int]:
        peak, processor = used()
        return time.perf_counter() - start, processor, peak

    start, stages = time.perf_counter(), []
    cases = read_cases(path)
    stages.append(stage(start))
    if kind != "read":
        run = evaluate(
            (kind, MODELS[kind]()), cases, out=folder / "run", store=folder / "store", progress=None
        )
        del cases
        stages.append(stage(start))
        rows(run, groups=False, main=main)
        stages.append(stage(start))
    print(json.dumps(stages))


def work(what: str, path: str, *more: str) -> None:
    if what == "make":
        make_cases(Path(path), int(more[0]), int(more[1]), more[2] == "True")
    elif what == "gallery":
        make_gallery(Path(path), int(more[0]), int(more[1]))
    else:
        measure(what, Path(path), Path(more[0]), more[1] == "True")


# --- all of them --------------------------------------------------------------------------------


def child(*arguments: object) -> str:
    """What a new process prints. It inherits the peak of this one, which stays small."""
    command = [sys.executable, __file__, "--child", *map(str, arguments)]
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def evaluated(kind: str, path: Path, main: bool) -> list[list[float]]:
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        found: list[list[float]] = json.loads(child(kind, path, folder, main))
        return found


def say(*cells: object) -> None:
    print("| " + " | ".join(map(str, cells)) + " |", flush=True)


def row(what: str, count: int, unit: str, found: list[list[float]], idle: float) -> None:
    """The stages' seconds, and the peak of all and of one item."""
    seconds = np.diff([0, *(stage[0] for stage in found)])
    peaks = [(stage[2] - idle) / 2**20 for stage in found]
    told = [f"{s:,.1f} s, {peak:,.0f} MiB" for s, peak in zip(seconds, peaks, strict=True)]
    told += [""] * (len(STAGES) - len(told))
    total, processor = found[-1][0], found[-1][1]
    say(
        what,
        f"{count:,} {unit}",
        *told,
        f"{total:,.1f}",
        f"{processor:,.1f}",
        f"{1e6 * total / count:,.1f}",
        f"{peaks[-1] * 2**20 / count:,.0f}",
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--cases", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--kinds", nargs="*", default=["read", *MODELS])
    parser.add_argument("--gallery", type=int, nargs=2, default=[1000, 5000], help="0 0: none")
    parser.add_argument("--captions", type=int, default=10**9, help="different ones of each kind")
    parser.add_argument("--main", action="store_true", help="only the numbers that eval prints")
    parser.add_argument("--child", nargs="+", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        return work(*args.child)
    stages = (f"{stage} (seconds, peak so far)" for stage in STAGES)
    say("model", "size", *stages, "seconds", "processor s", "us per item", "peak bytes per item")
    say(*["---"] * 9)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        make_images(place)
        few = place / "few.parquet"
        child("make", few, 10, 10, False)
        idle = {kind: evaluated(kind, few, args.main)[-1][2] for kind in {*args.kinds, "pair"}}
        for count in args.cases:
            path = place / f"{count}.parquet"
            child("make", path, count, args.captions, "read" in args.kinds)
            for kind in args.kinds:
                row(kind, count, "cases", evaluated(kind, path, args.main), idle[kind])
            if "read" in args.kinds:
                lines = path.with_suffix(".jsonl")
                row("read (.jsonl)", count, "cases", evaluated("read", lines, False), idle["read"])
        if all(args.gallery):
            images, captions = args.gallery
            path = place / "gallery.parquet"
            child("gallery", path, images, captions)
            row(
                "pair", images * captions, "pairs", evaluated("pair", path, args.main), idle["pair"]
            )
    return None


if __name__ == "__main__":
    main()
