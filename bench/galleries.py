"""Recall of a retrieval gallery, and its scores on disk, against the obvious way of doing it.

python bench/galleries.py [--images 1000] [--captions 5000]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import polars as pl

from counterpoint.cases.table import SCHEMA, Cases
from counterpoint.metrics.rankings import both_standings, recall
from counterpoint.runs.score_files import ScoreWriter


def by_sorting(scores: np.ndarray, truth: np.ndarray, k: int) -> float:
    """Recall@k of the images, a sort a query, as evaluation scripts do."""
    hits = [truth[i][np.argsort(-scores[i])[:k]].any() for i in range(len(scores))]
    return float(np.mean(hits))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--captions", type=int, default=5000)
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    scores = rng.normal(size=(args.images, args.captions)).astype(np.float32)
    owners = np.arange(args.captions) % args.images
    truth = np.zeros(scores.shape, dtype=bool)
    truth[owners, np.arange(args.captions)] = True

    start = time.perf_counter()
    slow = [by_sorting(scores, truth, 5), by_sorting(scores.T, truth.T, 5)]
    sorting = time.perf_counter() - start
    start = time.perf_counter()
    sides = both_standings(scores, truth)
    fast = [float(recall(sides[side], 5, "wrong").mean()) for side in ("images", "captions")]
    counting = time.perf_counter() - start
    assert np.allclose(slow, fast), (slow, fast)
    print(
        f"recall@5 both ways, {scores.size:,} pairs: {sorting / counting:.1f} times a sort a query"
    )

    row = {
        "id": "0",
        "images": [{"path": f"{i}.jpg", "box": None} for i in range(args.images)],
        "captions": [str(i) for i in range(args.captions)],
        "truth": np.flatnonzero(truth).tolist(),
        "groups": [],
        "cluster": "all",
    }
    cases = Cases(pl.DataFrame([row], schema=SCHEMA))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "scores.parquet"
        with ScoreWriter(path) as writer:
            writer.add_scores("gallery", cases, scores.reshape(-1))
        size = path.stat().st_size
    print(f"scores on disk: {size / scores.nbytes:.2f} times the scores alone, indices included")


if __name__ == "__main__":
    main()
