"""What an evaluation does when its store has been damaged: a table of outcomes.

    PYTHONPATH=src python bench/damaged_stores.py

One evaluation fills a store. Each copy of it is then damaged in one place, and the same evaluation
runs again on the copy, in a process that the damage may kill. Its scores must be those of the
undamaged store, or it must refuse with one sentence.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

BENCHMARK = "world-swap:size=60"
WIDTHS = (16, 512)  # short vectors, so that much of the file is structure, and long ones
PAGE = 16384
TOLD = "computed again and told"
OUTCOMES = ("same scores", TOLD, "refused in a sentence", "other error", "crashed", "WRONG")


class Tiny:
    """A dual encoder whose vectors are hashes: the same for an item whatever its batch is."""

    context_length: int | None = None

    def __init__(self, width: int) -> None:
        self.width, self.fingerprint = width, f"tiny {width}"

    def preprocess(self, image: Image.Image) -> bytes:
        return image.tobytes()

    def count_tokens(self, captions: Sequence[str]) -> np.ndarray:
        return np.array([len(caption.split()) for caption in captions])

    def encode_images(self, images: Sequence[bytes]) -> np.ndarray:
        vectors = []
        for image in images:
            seed = int.from_bytes(hashlib.blake2b(image, digest_size=8).digest(), "little")
            vector = np.random.default_rng(seed).normal(size=self.width)
            vectors.append(vector / np.linalg.norm(vector))
        return np.array(vectors, dtype=np.float32)

    def encode_captions(self, captions: Sequence[str]) -> np.ndarray:
        return self.encode_images([caption.encode() for caption in captions])


# --- damage ------------------------------------------------------------------------------------


def flip(data: bytearray, rng: np.random.Generator) -> None:
    data[rng.integers(len(data))] ^= 1 << int(rng.integers(8))


def cut(data: bytearray, rng: np.random.Generator) -> None:
    del data[int(rng.integers(len(data))) :]


def zero(data: bytearray, rng: np.random.Generator) -> None:
    start = int(rng.integers(len(data) // PAGE)) * PAGE
    data[start : start + PAGE] = bytes(PAGE)


def misplace(data: bytearray, rng: np.random.Generator) -> None:
    """One page in the place of another, as a lost write leaves it."""
    one, two = (int(page) * PAGE for page in rng.integers(len(data) // PAGE, size=2))
    data[one : one + PAGE] = data[two : two + PAGE]


DAMAGE: dict[str, tuple[Callable[[bytearray, np.random.Generator], None], int]] = {
    "one bit flipped": (flip, 12),
    "one page zero": (zero, 3),
    "cut short": (cut, 3),
    "one page misplaced": (misplace, 2),
}


def data_file(store: Path) -> Path:
    return max(store.iterdir(), key=lambda file: file.stat().st_size)


# --- the evaluations, in processes of their own --------------------------------------------------


def evaluate(folder: Path, width: int) -> str:
    """Evaluate with the store of a folder; what happened, in a few words."""
    import counterpoint
    from counterpoint._util.errors import StoreError

    try:
        [run] = counterpoint.evaluate(
            [("tiny", Tiny(width))], BENCHMARK, store=folder / "store", out=folder / "run"
        )
    except StoreError as error:
        text = str(error)
        whole = text.endswith(".") and "\n" not in text
        return f"refused in a sentence: {text}" if whole else f"other error: {text!r}"
    except Exception as error:
        return f"other error: {error!r}"
    [part] = run.parts.values()
    expected = np.load(folder.parent / f"{width}.npy", allow_pickle=False)
    if not np.array_equal(part.scores, expected):
        return f"WRONG: {int((part.scores != expected).sum())} of {len(expected)} scores"
    return TOLD if run.manifest["model_info"].get("notes") else "same scores"


def serve() -> None:
    """Evaluate the folders named on standard input, one per line; answer each with a line."""
    for line in sys.stdin:
        folder, width = json.loads(line)
        print(json.dumps(evaluate(Path(folder), width)), flush=True)


class Worker:
    """A process that evaluates, and another one when it has been killed."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def ask(self, folder: Path, width: int) -> str:
        if self.process is None:
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--serve"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
        assert self.process.stdin is not None and self.process.stdout is not None
        print(json.dumps([str(folder), width]), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        if answer:
            return str(json.loads(answer))
        status, self.process = self.process.wait(), None
        return f"crashed: exit status {status}"

    def stop(self) -> None:
        if self.process is not None:
            self.process.communicate()


# --- the table ---------------------------------------------------------------------------------


def fill(folder: Path, width: int) -> Path:
    import counterpoint

    store = folder / f"store-{width}"
    [run] = counterpoint.evaluate(
        [("tiny", Tiny(width))], BENCHMARK, store=store, out=folder / f"run-{width}"
    )
    [part] = run.parts.values()
    np.save(folder / f"{width}.npy", part.scores)
    return store


def measure(count: int, seed: int, verbose: bool) -> dict[str, Counter[str]]:
    rng, worker = np.random.default_rng(seed), Worker()
    kinds = [name for name, (_, share) in DAMAGE.items() for _ in range(share)]
    table: dict[str, Counter[str]] = {name: Counter() for name in DAMAGE}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        stores = {width: fill(root, width) for width in WIDTHS}
        for number in range(count):
            kind, width = kinds[number % len(kinds)], WIDTHS[number // len(kinds) % len(WIDTHS)]
            folder = root / str(number)
            shutil.copytree(stores[width], folder / "store")
            file = data_file(folder / "store")
            data = bytearray(file.read_bytes())
            DAMAGE[kind][0](data, rng)
            file.write_bytes(data)
            answer = worker.ask(folder, width)
            table[kind][answer.partition(":")[0]] += 1
            if verbose:
                print(f"{number:4} {kind:20} {width:4} {answer}", flush=True)
            shutil.rmtree(folder)
        worker.stop()
    return table


def show(table: dict[str, Counter[str]]) -> None:
    rows: list[tuple[Any, ...]] = [("damage", *OUTCOMES)]
    rows += [(kind, *(counts[name] for name in OUTCOMES)) for kind, counts in table.items()]
    total: Counter[str] = sum(table.values(), Counter())
    rows.append(("all", *(total[name] for name in OUTCOMES)))
    for first, *rest in rows:
        print(f"{first:20}" + "".join(f"{cell!s:>25}" for cell in rest))


def main() -> None:
    parser = argparse.ArgumentParser(description="Evaluations on damaged stores")
    parser.add_argument("--count", type=int, default=300, help="damaged stores")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="a line for each of them")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve()
        return
    table = measure(args.count, args.seed, args.verbose)
    show(table)
    if any(counts[bad] for counts in table.values() for bad in OUTCOMES[3:]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
