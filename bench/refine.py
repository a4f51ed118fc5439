"""How long the balancing of a million pairs takes, against a loop over pairs and cells.

    PYTHONPATH=src python bench/refine.py

First the grid alone, in one to three dimensions, with the loop on the same gaps; both have to keep
the same pairs. Then a whole file: read, scored by length and format, balanced, written.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np
import polars as pl

from counterpoint._util.progress import Quiet
from counterpoint._util.store import Store
from counterpoint.generation.pairs import SCHEMA, write_pairs
from counterpoint.generation.refinement import RefineSettings, refine
from counterpoint.generation.refinement.negatives import BINS, ZERO_BINS, balanced
from counterpoint.scoring.kinds import Work

PIECE = 50_000


def naive(gaps: list[list[float]], keys: list[int]) -> set[int]:
    """Row by row and cell by cell."""
    members: dict[tuple[int, ...], list[int]] = defaultdict(list)
    kept = set()
    for row, gap in enumerate(gaps):
        bins = ZERO_BINS if 0 in gap else BINS
        cell = tuple(
            0 if g == 0 else (1 if g > 0 else -1) * min(int(abs(g) * bins) + 1, bins) for g in gap
        )
        if any(cell):
            members[cell].append(row)
        else:
            kept.add(row)
    for cell, rows in members.items():
        mirror = members.get(tuple(-number for number in cell), [])
        kept.update(sorted(rows, key=keys.__getitem__)[: len(mirror)])
    return kept


def grid(pairs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    for dimensions in (1, 2, 3):
        gaps = np.clip(rng.normal(0.05, 0.2, (pairs, dimensions)), -1, 1)
        gaps[rng.random(gaps.shape) < 0.02] = 0
        keys = rng.permutation(pairs)
        start = time.perf_counter()
        kept = balanced(gaps, keys)
        fast = time.perf_counter() - start
        lists = gaps.tolist(), keys.tolist()
        start = time.perf_counter()
        slowly = naive(*lists)
        slow = time.perf_counter() - start
        if set(np.flatnonzero(kept).tolist()) != slowly:
            raise SystemExit("the loop keeps other pairs: time means nothing")
        print(
            f"{f'grid, {dimensions} blind models':28}{fast:10.2f} s  loop {slow:6.2f} s  "
            f"ratio {slow / fast:5.1f}  kept {kept.mean():.0%}"
        )


def frame(start: int, rows: int, rng: np.random.Generator) -> pl.DataFrame:
    """Pairs of three to a caption, whose texts are a little longer."""
    numbers = np.arange(start, start + rows)
    words = [
        f"a {n} dog on the {n % 97} grass near {n % 13} trees" for n in (numbers // 3).tolist()
    ]
    extra = rng.integers(0, 9, rows).tolist()
    texts = [f"{w} {'x' * e}{n % 5}" for w, e, n in zip(words, extra, numbers, strict=True)]
    columns = {
        "source": [str(n // 3) for n in numbers.tolist()],
        "caption": [f"{w}{'y' * (e * 5 % 9)}" for w, e in zip(words, extra, strict=True)],
        "text": texts,
        "kind": ["negative"] * rows,
        "type": ["replace"] * rows,
        "subtype": [("obj", "att", "rel")[n % 3] for n in numbers.tolist()],
        "refused": [""] * rows,
    }
    return pl.DataFrame({name: columns.get(name, [None] * rows) for name in SCHEMA}, schema=SCHEMA)


def whole_file(pairs: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        starts = range(0, pairs, PIECE)
        frames = (frame(start, min(PIECE, pairs - start), rng) for start in starts)
        write_pairs(folder / "in.parquet", frames, {})
        with Store(folder / "store") as store:
            start = time.perf_counter()
            settings = RefineSettings(blind=("length", "format"))
            work = Work(store, 8192, Quiet())
            found = refine(folder / "in.parquet", folder / "out.parquet", settings, work)
            seconds = time.perf_counter() - start
        kept = found.after / found.before
        print(f"{'whole file':28}{seconds:10.2f} s  {found.before:,} pairs, kept {kept:.0%}")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{'peak memory, all of it':28}{peak:10.0f} MiB")


def main() -> None:
    parser = argparse.ArgumentParser(description="Seconds for the refinement of many pairs")
    parser.add_argument("--pairs", type=int, default=1_000_000, help="on the grid")
    parser.add_argument("--file", type=int, default=300_000, help="in the file")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    print(f"{args.pairs:,} pairs on a grid of {BINS} bins a side")
    grid(args.pairs, args.seed)
    whole_file(args.file, args.seed)


if __name__ == "__main__":
    main()
