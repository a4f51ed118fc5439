"""How long the nearest images of a data set take, and how much memory, against the whole matrix.

    PYTHONPATH=src python bench/neighbours.py

Each way runs in a process of its own, whose peak memory is then its own. The naive way makes the
n x n matrix of similarities and sorts every row of it.
"""

from __future__ import annotations

import argparse
import hashlib
import subprocess
import sys
import time
from pathlib import Path

import numpy as np


def vectors(count: int, width: int) -> np.ndarray:
    """Unit vectors in a cone, as an image tower's are."""
    made = np.random.default_rng(0).normal(0.3, 1, (count, width)).astype(np.float32)
    return made / np.linalg.norm(made, axis=1, keepdims=True)


def naive(made: np.ndarray, k: int) -> np.ndarray:
    matrix = made @ made.T
    np.fill_diagonal(matrix, -np.inf)
    return np.argsort(-matrix, axis=1, kind="stable")[:, :k]


def peak() -> float:
    """The most memory this process has held, in MiB."""
    return int(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def run(way: str, args: argparse.Namespace) -> None:
    """Time one way, and print seconds, MiB beyond the vectors and a digest of the neighbours."""
    made = vectors(args.count, args.width)
    from counterpoint.generation.images.nearest import neighbours

    before = peak()
    start = time.perf_counter()
    found = naive(made, args.k) if way == "naive" else neighbours(made, args.k, args.block)[0]
    seconds = time.perf_counter() - start
    print(seconds, peak() - before, hashlib.sha256(found.astype(np.int64).tobytes()).hexdigest())


def measured(way: str, args: argparse.Namespace) -> tuple[float, float, str]:
    sizes = [str(n) for n in (args.count, args.width, args.k, args.block)]
    command = [sys.executable, __file__, "--way", way, "--count", sizes[0], "--width", sizes[1]]
    command += ["-k", sizes[2], "--block", sizes[3]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, memory, digest = done.stdout.split()
    return float(seconds), float(memory), digest


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Seconds and memory for nearest neighbours")
    parser.add_argument("--count", type=int, default=10_000, help="images")
    parser.add_argument("--width", type=int, default=512, help="of a vector")
    parser.add_argument("-k", type=int, default=3)
    parser.add_argument("--block", type=int, default=256)
    parser.add_argument("--way", choices=("naive", "blocks"), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.way:
        run(args.way, args)
        return
    slow, matrix, expected = measured("naive", args)
    fast, tiles, found = measured("blocks", args)
    if found != expected:
        raise SystemExit("the neighbours are not those of the full sort: time means nothing")
    print(f"{args.k} neighbours of each of {args.count:,} vectors of {args.width}")
    print(f"{'in blocks':28}{fast:10.2f} s{tiles:10.0f} MiB")
    print(f"{'whole matrix, sorted':28}{slow:10.2f} s{matrix:10.0f} MiB")
    print(f"{'ratio to naive':28}{slow / fast:10.1f}  {matrix / tiles:10.1f}")


if __name__ == "__main__":
    main()
