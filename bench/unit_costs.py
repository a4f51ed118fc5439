"""Unit costs of large runs: bytes and seconds per vector, key, score and tar member.

    python bench/unit_costs.py [COUNT]

The numbers of docs/scaling.md. Everything is made in a temporary folder; the files are in the
page cache, so this is the cost of the code and not of a disk.
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from counterpoint._util.store import Store, digest
from counterpoint.cases import Cases, ImageRef, caption_case
from counterpoint.images import read_member, tar_members
from counterpoint.models import load_model, write_vectors
from counterpoint.runs.score_files import ScoreWriter

DIMENSIONS = 512
IMAGE = 100_000  # bytes of a member of the tar file


def timed(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def units(count: int) -> np.ndarray:
    found = np.random.default_rng(0).normal(size=(count, DIMENSIONS)).astype(np.float32)
    return found / np.linalg.norm(found, axis=1, keepdims=True)


def measure_store(folder: Path, count: int) -> None:
    keys = [digest("key", str(number)) for number in range(count)]
    vectors = units(count)
    with Store(folder) as store:

        def fill() -> None:
            for start in range(0, count, 128):
                chosen = keys[start : start + 128]
                rows = vectors[start : start + 128]
                store.put({key: row.tobytes() for key, row in zip(chosen, rows, strict=True)})

        written = timed(fill)
        order = np.random.default_rng(1).permutation(count).tolist()
        shuffled = [keys[number] for number in order]
        read = timed(lambda: store.get(shuffled))
        missing = timed(lambda: store.missing([digest("none", key) for key in keys]))
    say("store: bytes per vector", size(folder) / count)
    say("store: seconds to write 1e6 vectors, commits of 128", written / count * 1e6)
    say("store: seconds to look up 1e6 keys that are there", read / count * 1e6)
    say("store: seconds to look up 1e6 keys that are not", missing / count * 1e6)


def measure_scores(folder: Path, count: int) -> None:
    folder.mkdir()
    cases = Cases.build(
        (
            caption_case(str(n), ImageRef(f"coco/{n:012}.jpg"), ["a b", "b a"], ["a a"])
            for n in range(count)
        ),
        source="bench",
    )
    scores = np.random.default_rng(0).normal(size=3 * count).astype(np.float32)
    path = folder / "scores.parquet"

    def write() -> None:
        with ScoreWriter(path) as writer:
            writer.add_scores("bench", cases, scores)

    seconds = timed(write)
    say("scores.parquet: bytes per score (1 x 3 cases)", path.stat().st_size / len(scores))
    say("scores.parquet: seconds per 1e6 scores", seconds / len(scores) * 1e6)


def measure_tar(folder: Path, count: int) -> None:
    folder.mkdir()
    path = folder / "shard.tar"
    with tarfile.open(path, "w") as tar:
        for number in range(count):
            info = tarfile.TarInfo(f"{number:08}.jpg")
            info.size = IMAGE
            tar.addfile(info, io.BytesIO(bytes(IMAGE)))
    index = timed(lambda: tar_members(path))
    names = [f"{n:08}.jpg" for n in np.random.default_rng(0).integers(0, count, 5 * count)]

    def read() -> None:
        for name in names:
            read_member(path, name)

    say("tar: members indexed per second", count / index)
    say("tar: members of 100 kB read at random per second", len(names) / timed(read))


def measure_vectors(folder: Path, count: int) -> None:
    rows = units(count)
    for form in ("npy", "parquet"):
        place = folder / form
        place.mkdir(parents=True)
        for side in ("images", "captions"):
            names = [f"{side} {number}" for number in range(count)]
            write_vectors(place, side, form, names, np.array_split(rows, max(1, count // 16_384)))
        say(f"vectors ({form}): bytes per vector", size(place) / (2 * count))
        seconds = timed(lambda place=place: load_model(f"vectors:{place}"))  # type: ignore[misc]
        say(f"vectors ({form}): seconds to open 1e6 vectors", seconds / (2 * count) * 1e6)


def say(what: str, value: float) -> None:
    print(f"{what:60} {value:14,.2f}", flush=True)


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 100_000
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        measure_store(place / "store", count)
        measure_scores(place / "scores", count)
        measure_tar(place / "tar", max(1, count // 100))
        measure_vectors(place / "vectors", count)


if __name__ == "__main__":
    main()
