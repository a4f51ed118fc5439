"""The recipes in the world: train them with several seeds and evaluate them.

    python scripts/world_study.py --out FOLDER --seeds 0 1 2 --parallel 12
    python scripts/world_tables.py FOLDER

Every row is one command, `counterpoint train RECIPE --world seed=S ... out=FOLDER/ROW/seed-S`, run
as a process of its own, some at a time on one device. What is finished is not done again. Each
model's value on every case goes to FOLDER/values/ROW-S.npz, from which `world_tables.py` makes the
tables and plots: so the folder `values` alone can be taken to another machine.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import numpy as np

from counterpoint.evaluation.evaluating import evaluate
from counterpoint.metrics.statistics import ALL
from counterpoint.runs.columns import columns_of
from counterpoint.runs.results import members_in

BENCHMARKS: Final = (
    *("world-replace", "world-swap", "world-bi"),
    *("world-retrieval", "world-classification"),
)
BASE: Final = "base"
GROUPS: Final = (ALL, "attributes", "relations", "replace", "swap", "usual", "unusual")

# `counterpoint` with the images of which its negatives are true.
TWINS: Final = [
    "loss.counterpart.weight=1",
    "data.negative_images=true",
]
# The rows: a name, and what stands behind `counterpoint train`. NegCLIP's published negatives are
# flagged as perhaps true in 12 % of cases (docs/generate/checks.md): hence the share that is
# disguised.
ROWS: Final[dict[str, list[str]]] = {
    "clip-ft": ["clip-ft"],
    "hn": ["hn"],
    "hp-hn": ["hp-hn"],
    "counterpoint": ["counterpoint"],
    "hp": ["hp"],
    "hp-hn-swap": ["hp-hn", "only=swap"],
    "hp-hn-replace": ["hp-hn", "only=replace"],
    "hn-swap": ["hn", "only=swap"],
    "hn-replace": ["hn", "only=replace"],
    "hp-hn-0.25": ["hp-hn", "hn_weight=0.25"],
    "hp-hn-0.5": ["hp-hn", "hn_weight=0.5"],
    "hp-hn-0.75": ["hp-hn", "hn_weight=0.75"],
    "counterpoint-no-listwise": ["counterpoint", "hn_weight=0"],
    "counterpoint-no-agreement": ["counterpoint", "loss.agreement.weight=0"],
    "counterpoint-no-hold": ["counterpoint", "loss.hold.weight=0"],
    "counterpoint-no-analogy": ["counterpoint", "loss.analogy.weight=0"],
    "counterpoint-no-margin": ["counterpoint", "margin=0"],
    "counterpoint-wise": ["counterpoint", "wise=0.75"],
    "counterpoint-twins": ["counterpoint", *TWINS],
    "hp-hn-disguised": ["hp-hn", "data.disguised=0.12"],
    "counterpoint-disguised": ["counterpoint", "data.disguised=0.12"],
}


# --- training and scoring ----------------------------------------------------------------------


def command(row: str, seed: int, arguments: argparse.Namespace) -> list[str]:
    steps = [f"steps={arguments.steps}"] if arguments.steps else []
    shared = [*steps, f"seed={seed}", *arguments.change]
    # Scored below, all by one procedure; no start is scored again for every seed.
    quick = ["benchmarks=[]", "save_every=0", f"data.workers={arguments.workers}"]
    out = f"out={arguments.out / row / f'seed-{seed}'}"
    train = [sys.executable, "-m", "counterpoint", "train"]
    return [*train, *ROWS[row], "--world", *shared, *quick, out]


def run_row(row: str, seed: int, arguments: argparse.Namespace, ends: float) -> str:
    """Train and score one row with one seed; says what came of it."""
    name, began = f"{row}-{seed}", time.time()
    values = arguments.out / "values" / f"{name}.npz"
    if values.is_file():
        return f"{name}: was done"
    if began > ends:
        return f"{name}: not begun, the time is up"
    model = "world:base"
    log = arguments.out / "logs" / f"{name}.txt"
    with log.open("w", encoding="utf-8") as told:
        if row != BASE:
            model = f"open_clip:local-dir:{arguments.out / row / f'seed-{seed}' / 'model'}"
            if subprocess.run(command(row, seed, arguments), stdout=told, stderr=told).returncode:
                return f"{name}: training FAILED, see {log}"
        trained = time.time()
        score = [sys.executable, __file__, "--out", str(arguments.out), "--score", model, name]
        if subprocess.run(score, stdout=told, stderr=told).returncode:
            return f"{name}: scoring FAILED, see {log}"
    return f"{name}: trained {trained - began:.0f} s, scored {time.time() - trained:.0f} s"


def score_model(model: str, name: str, out: Path) -> None:
    """Every metric of every case, as it is before any mean, into one file."""
    arrays: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as store:
        run = evaluate(model, BENCHMARKS, out=out / "runs" / name, store=store, batch_size=512)
    for key, part in run.parts.items():
        columns = columns_of(part, part.protocol.tie)
        members = columns.members(members_in(part.cases.frame, part.protocol))
        arrays[f"{key}/values"] = columns.values.astype(np.float32)
        arrays[f"{key}/clusters"] = columns.clusters.astype(np.int32)
        arrays[f"{key}/metrics"] = np.array([metric.name for metric in columns.metrics])
        for group in GROUPS:
            if group in members:
                arrays[f"{key}/in/{group}"] = members[group].astype(np.int32)
    path = out / "values" / f"{name}.npz"
    partial = path.with_name(f".{path.stem}.partial.npz")
    np.savez_compressed(partial, **arrays)  # type: ignore[arg-type]
    partial.rename(path)


def train_all(arguments: argparse.Namespace) -> None:
    for folder in ("values", "logs", "runs"):
        (arguments.out / folder).mkdir(parents=True, exist_ok=True)
    ends = time.time() + 60 * arguments.minutes
    jobs = [(BASE, 0), *((row, seed) for row in arguments.recipes for seed in arguments.seeds)]
    # The threads of a process's own arithmetic would fight over the cores of the others.
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    with ThreadPoolExecutor(arguments.parallel) as pool:
        running = [pool.submit(run_row, row, seed, arguments, ends) for row, seed in jobs]
        for one in running:
            print(one.result(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="other than the recipe's")
    parser.add_argument("--parallel", type=int, default=1, help="rows trained at a time")
    parser.add_argument("--workers", type=int, default=1, help="data workers of each")
    parser.add_argument("--recipes", nargs="+", choices=[*ROWS], default=[*ROWS], metavar="ROW")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--change", nargs="*", default=[], help="for every row: batch=256 ...")
    parser.add_argument("--score", nargs=2, metavar=("MODEL", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    if arguments.score:
        model, name = arguments.score
        score_model(model, name, arguments.out)
        return
    train_all(arguments)


if __name__ == "__main__":
    main()
