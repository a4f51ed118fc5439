"""A study: recipes trained with several seeds, and every model's value on every case.

Every row is one command, `counterpoint train RECIPE ... seed=S out=FOLDER/ROW/seed-S`, run as a
process of its own, some at a time on one device. What is finished is not done again. The values go
to FOLDER/values/ROW-S.npz, from which `study_tables.py` makes tables: so the folder `values` alone
can be taken to another machine.

A row may start from what another row has become with the same seed (`Study.starts`): that one is
trained first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Final

import numpy as np

from counterpoint.benchmarks import LoadedBenchmark, load_benchmark
from counterpoint.evaluation.evaluating import evaluate
from counterpoint.runs import measure
from counterpoint.scoring import Model

BASE: Final = "base"
_TRAINING: Final = defaultdict[tuple[str, int], threading.Lock](threading.Lock)


@dataclass(frozen=True, slots=True)
class Study:
    """`rows`: a name, and what stands behind `counterpoint train`; `shared` follows it in all.

    `starts`: the row whose model a row starts from. `base` is a model that is scored beside the
    rows, and `trained` the family of what they become: an id is `trained` and the folder. `load`
    gives a benchmark of its name, and `open` what of a model is evaluated: a name and a model, from
    an id, the benchmarks, how many cases of each (--limit), and a folder that may be made for it.
    """

    rows: Mapping[str, Sequence[str]]
    shared: Sequence[str]
    base: str | None
    trained: str
    benchmarks: Sequence[str]
    groups: Sequence[str]
    starts: Mapping[str, str] = field(default_factory=dict)
    load: Callable[[str], LoadedBenchmark] = load_benchmark
    open: Callable[[str, Sequence[LoadedBenchmark], int | None, Path], str | tuple[str, Model]] = (
        lambda id, *_: id
    )


def add_arguments(parser: argparse.ArgumentParser, rows: Iterable[str]) -> None:
    """`rows` are run, unless some of them are named."""
    parser.add_argument("--out", type=lambda path: Path(path).resolve(), required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, help="other than the recipe's")
    parser.add_argument("--parallel", type=int, default=1, help="rows trained at a time")
    parser.add_argument("--workers", type=int, default=1, help="data workers of each")
    parser.add_argument("--recipes", nargs="+", choices=[*rows], default=[*rows], metavar="ROW")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--change", nargs="*", default=[], help="for every row: batch=256 ...")
    parser.add_argument("--limit", type=int, help="cases of each benchmark, to try it")
    parser.add_argument("--score", nargs=2, metavar=("MODEL", "NAME"), help=argparse.SUPPRESS)


def run_study(study: Study, arguments: argparse.Namespace) -> None:
    """As the arguments say: all rows, or what a process of its own has to score."""
    if arguments.score:
        model, name = arguments.score
        score_model(study, model, name, arguments)
        return
    for folder in ("values", "logs", "runs"):
        (arguments.out / folder).mkdir(parents=True, exist_ok=True)
    ends = time.time() + 60 * arguments.minutes
    jobs = [(row, seed) for row in arguments.recipes for seed in arguments.seeds]
    jobs = [(BASE, 0), *jobs] if study.base else jobs
    # The threads of a process's own arithmetic would fight over the cores of the others.
    os.environ.setdefault("OMP_NUM_THREADS", "2")
    with ThreadPoolExecutor(arguments.parallel) as pool:
        running = [pool.submit(run_row, study, row, seed, arguments, ends) for row, seed in jobs]
        for one in running:
            print(one.result(), flush=True)


def run_row(study: Study, row: str, seed: int, arguments: argparse.Namespace, ends: float) -> str:
    """Train and score one row with one seed; says what came of it."""
    name, began = f"{row}-{seed}", time.time()
    values = arguments.out / "values" / f"{name}.npz"
    if values.is_file():
        return f"{name}: was done"
    if began > ends:
        return f"{name}: not begun, the time is up"
    log = arguments.out / "logs" / f"{name}.txt"
    with log.open("w", encoding="utf-8") as told:
        if not train_row(study, row, seed, arguments, told):
            return f"{name}: training FAILED: {_last_line(log)} ({log})"
        trained = time.time()
        score = [sys.executable, *sys.argv, "--score", model_of(study, row, seed, arguments), name]
        if subprocess.run(score, stdout=told, stderr=told).returncode:
            return f"{name}: scoring FAILED: {_last_line(log)} ({log})"
    return f"{name}: trained {trained - began:.0f} s, scored {time.time() - trained:.0f} s"


def _last_line(log: Path) -> str:
    return log.read_text(encoding="utf-8").rstrip().rpartition("\n")[2] or "nothing was said"


def train_row(
    study: Study, row: str, seed: int, arguments: argparse.Namespace, told: IO[str]
) -> bool:
    """Train one row with one seed, and first what it starts from; whether that worked."""
    with _TRAINING[row, seed]:  # several rows may start from it
        folder = arguments.out / row / f"seed-{seed}"
        if (row == BASE and study.base) or (folder / "model").is_dir():
            return True
        start = study.starts.get(row)
        if start and not train_row(study, start, seed, arguments, told):
            return False
        command = training(study, row, seed, arguments)
        return subprocess.run(command, stdout=told, stderr=told).returncode == 0


def model_of(study: Study, row: str, seed: int, arguments: argparse.Namespace) -> str:
    if row == BASE and study.base:
        return study.base
    return f"{study.trained}{arguments.out / row / f'seed-{seed}' / 'model'}"


def training(study: Study, row: str, seed: int, arguments: argparse.Namespace) -> list[str]:
    steps = [f"steps={arguments.steps}"] if arguments.steps else []
    changes = [*steps, f"seed={seed}", *arguments.change]
    # Scored below, all by one procedure; no start is scored again for every seed.
    quick = ["benchmarks=[]", "save_every=0", f"data.workers={arguments.workers}"]
    out = f"out={arguments.out / row / f'seed-{seed}'}"
    train = [sys.executable, "-m", "counterpoint", "train"]
    recipe, *own = study.rows[row]
    start = study.starts.get(row)
    model = [f"model={model_of(study, start, seed, arguments)}"] if start else []
    return [*train, recipe, *study.shared, *own, *model, *changes, *quick, out]


def score_model(study: Study, model: str, name: str, arguments: argparse.Namespace) -> None:
    """Every metric of every case, as it is before any mean, into one file."""
    out: Path = arguments.out
    arrays: dict[str, np.ndarray] = {}
    benchmarks = [study.load(name) for name in study.benchmarks]
    with tempfile.TemporaryDirectory() as folder:
        run = evaluate(
            study.open(model, benchmarks, arguments.limit, Path(folder) / "model"),
            benchmarks,
            out=out / "runs" / name,
            store=Path(folder) / "store",
            batch_size=512,
            limit=arguments.limit,
        )
    for key, part in run.parts.items():
        if not len(part.cases):  # --limit may leave none whose photograph is here
            continue
        measured = measure(part)
        columns, pools = measured.columns, measured.columns.pools
        arrays[f"{key}/values"] = columns.values.astype(np.float32)
        arrays[f"{key}/clusters"] = columns.clusters.astype(np.int32)
        arrays[f"{key}/metrics"] = np.array([metric.name for metric in columns.metrics])
        # A number of all pairs is no mean of values of cases: it is computed here.
        arrays[f"{key}/pooled"] = np.array([pool is not None for pool in pools])
        numbers = measured.means(columns.values, pools)
        for group in study.groups:
            if group in numbers:
                arrays[f"{key}/in/{group}"] = measured.members[group].astype(np.int32)
                arrays[f"{key}/numbers/{group}"] = numbers[group]
    path = out / "values" / f"{name}.npz"
    partial = path.with_name(f".{path.stem}.partial.npz")
    np.savez_compressed(partial, **arrays)  # type: ignore[arg-type]
    partial.rename(path)
