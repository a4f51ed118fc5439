"""The recipes in the world: train them with several seeds, evaluate them, make the tables.

    python scripts/world_study.py --out FOLDER --seeds 0 1 2 --steps 500 --parallel 12
    python scripts/world_study.py --out FOLDER --tables-only

Every row is one command, `counterpoint train RECIPE --world seed=S ... out=FOLDER/ROW/seed-S`, run
as a process of its own, some at a time on one device. What is finished is not done again. Each
model's value on every case goes to FOLDER/values/ROW-S.npz, from which the tables are made: so the
folder `values` alone can be taken to another machine. FOLDER/table.csv has every number,
FOLDER/table.md those that docs/results.md shows.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl

from counterpoint.columns import columns_of
from counterpoint.evaluation import evaluate
from counterpoint.results import members_in
from counterpoint.statistics import ALL, LEVEL, Averaging, estimate

BENCHMARKS: Final = ("world-replace", "world-swap", "world-bi", "world-retrieval")
BASE: Final = "base"
GROUPS: Final = (ALL, "attributes", "relations", "replace", "swap", "usual", "unusual")
AGAINST: Final = ("hp-hn", "clip-ft")
RESAMPLES: Final = 2000
# Student's t for a 95 % interval of a mean of so many seeds.
STUDENT: Final = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78}

# `counterpoint` with the images of which its negatives are true.
TWINS: Final = [
    "loss.counterpart.weight=1",
    "data.negative_images=true",
]
# The rows: a name, and what stands behind `counterpoint train`. NegCLIP's published negatives are
# flagged as perhaps true in 12 % of cases (docs/checks.md): hence the share that is disguised.
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
    "counterpoint-twins": ["counterpoint", *TWINS],
    "hp-hn-disguised": ["hp-hn", "data.disguised=0.12"],
    "counterpoint-disguised": ["counterpoint", "data.disguised=0.12"],
}


@dataclass(frozen=True, slots=True)
class Number:
    """One metric of one row: the mean over its seeds, and how sure it is.

    `case_low`, `case_high`: bootstrap over cases of the mean over seeds. `seed_low`, `seed_high`:
    Student's interval over seeds. `verdicts`: against other rows, paired by case and seed; not
    "tied" if the bootstrap over cases says so and every seed has the same sign.
    """

    row: str
    benchmark: str
    group: str
    metric: str
    value: float
    case_low: float
    case_high: float
    seed_low: float | None
    seed_high: float | None
    seeds: str
    differences: str = ""
    verdicts: str = ""


# --- training and scoring ----------------------------------------------------------------------


def command(row: str, seed: int, arguments: argparse.Namespace) -> list[str]:
    shared = [f"steps={arguments.steps}", f"seed={seed}", *arguments.change]
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
        [run] = evaluate(model, BENCHMARKS, out=out / "runs" / name, store=store, batch_size=512)
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


# --- tables ------------------------------------------------------------------------------------


def numbers(folder: Path) -> list[Number]:
    """Every metric of every row that has values, over its seeds."""
    files: dict[str, dict[int, Path]] = {}
    for path in sorted(folder.glob("[!.]*.npz")):
        row, _, seed = path.stem.rpartition("-")
        files.setdefault(row, {})[int(seed)] = path
    loaded = {row: {s: dict(np.load(p)) for s, p in of.items()} for row, of in files.items()}
    rows = [row for row in (BASE, *ROWS) if row in loaded]
    return [
        number
        for row in rows
        for benchmark in BENCHMARKS
        for group in GROUPS
        for number in _numbers(loaded, row, benchmark, group)
    ]


def _numbers(
    loaded: dict[str, dict[int, dict[str, np.ndarray]]], row: str, benchmark: str, group: str
) -> list[Number]:
    mine = loaded[row]
    one = next(iter(mine.values()))
    if (members := one.get(f"{benchmark}/in/{group}")) is None:
        return []
    clusters, metrics = one[f"{benchmark}/clusters"], one[f"{benchmark}/metrics"].tolist()
    table = {s: of[f"{benchmark}/values"].astype(float)[members] for s, of in mine.items()}
    levels = _estimates(np.mean(list(table.values()), axis=0), clusters[members])
    means = np.array([np.nanmean(values, axis=0) for values in table.values()])
    told = {name: ([""] * len(metrics), [""] * len(metrics)) for name in AGAINST}
    for other in AGAINST:
        if other in loaded and other != row and row != BASE:
            theirs = {s: of[f"{benchmark}/values"][members] for s, of in loaded[other].items()}
            told[other] = _against(table, theirs, clusters[members])
    found = []
    for j, metric in enumerate(metrics):
        low, high = _over_seeds(means[:, j])
        found.append(
            Number(
                row,
                benchmark,
                group,
                metric,
                levels[j][0],
                levels[j][1],
                levels[j][2],
                low,
                high,
                " ".join(f"{value:.4f}" for value in means[:, j]),
                "; ".join(f"{o}: {told[o][0][j]}" for o in AGAINST if told[o][0][j]),
                "; ".join(f"{o}: {told[o][1][j]}" for o in AGAINST if told[o][1][j]),
            )
        )
    return found


def _against(
    mine: dict[int, np.ndarray], theirs: dict[int, np.ndarray], clusters: np.ndarray
) -> tuple[list[str], list[str]]:
    """The difference with its interval, and in words: paired by seed and case."""
    seeds = sorted(set(mine) & set(theirs))
    gaps = [mine[seed] - theirs[seed] for seed in seeds]
    found = _estimates(np.mean(gaps, axis=0), clusters)
    signs = np.sign([np.nanmean(gap, axis=0) for gap in gaps])
    agree = (np.abs(signs.sum(axis=0)) == len(seeds)).tolist()
    shown = [f"{value:+.4f} [{low:+.4f}, {high:+.4f}]" for value, low, high, _ in found]
    words = [
        ("higher" if value > 0 else "lower") if p < 1 - LEVEL and same else "tied"
        for (value, _, _, p), same in zip(found, agree, strict=True)
    ]
    return shown, words


def _estimates(values: np.ndarray, clusters: np.ndarray) -> list[tuple[float, float, float, float]]:
    members = {ALL: np.arange(len(values))}
    numbered = np.unique(clusters, return_inverse=True)[1].reshape(-1)
    found = estimate(values, numbered, members, Averaging(()), resamples=RESAMPLES)[ALL]
    return [(e.value, e.low, e.high, e.p) for e in found]


def _over_seeds(means: np.ndarray) -> tuple[float | None, float | None]:
    if len(means) not in STUDENT:
        return None, None
    half = STUDENT[len(means)] * means.std(ddof=1) / len(means) ** 0.5
    return float(means.mean() - half), float(means.mean() + half)


def markdown(found: list[Number]) -> str:
    """Tables in the form of the hard-positives paper's, then scores, retrieval and verdicts."""
    by = {(n.row, n.benchmark, n.group, n.metric): n for n in found}
    rows = list(dict.fromkeys(n.row for n in found))
    replace, swap, bi, one = BENCHMARKS
    orig, aug, brittle = "original_accuracy", "augmented_accuracy", "brittleness"
    scores = [f"mean_score_{kind}" for kind in ("original", "positive", "negative")]
    sections = {
        "accuracy": [(b, ALL, m) for b in (replace, swap) for m in (orig, aug, brittle)],
        "by group": [
            (b, g, m)
            for b in (replace, swap)
            for g in ("attributes", "relations")
            for m in (orig, aug, brittle)
        ],
        "world-bi and retrieval": [
            *((bi, ALL, m) for m in ("image_to_text", "text_to_image", "group")),
            *((one, ALL, f"{m}_recall@1") for m in ("image_to_text", "text_to_image")),
        ],
        "mean scores": [(b, ALL, m) for b in (replace, swap) for m in scores],
    }
    lines = []
    for title, columns in sections.items():
        lines += ["", f"## {title}", ""]
        heads = [" ".join(dict.fromkeys((b, g if g != ALL else "", m))) for b, g, m in columns]
        lines += [f"| row | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
        lines += [
            f"| {row} | {' | '.join(_cell(by.get((row, *key))) for key in columns)} |"
            for row in rows
        ]
    return "\n".join(lines).strip() + "\n"


def _cell(number: Number | None) -> str:
    """The mean, half of the interval over seeds, and the verdicts: against hp-hn / clip-ft."""
    if number is None:
        return "-"
    share = "score" not in number.metric
    one, digits = (100, 1) if share else (1, 3)
    low, high = number.seed_low, number.seed_high
    spread = "" if low is None or high is None else f" ±{one * (high - low) / 2:.{digits}f}"
    signs = {"higher": "↑", "lower": "↓", "tied": "="}
    told = dict(part.split(": ") for part in number.verdicts.split("; ") if part)
    marks = "/".join(signs[told[name]] if name in told else "·" for name in AGAINST)
    return f"{one * number.value:.{digits}f}{spread}" + (f" {marks}" if told else "")


def write_tables(out: Path) -> None:
    found = numbers(out / "values")
    pl.DataFrame([asdict(number) for number in found], infer_schema_length=None).write_csv(out / "table.csv")
    (out / "table.md").write_text(markdown(found), encoding="utf-8")
    print(f"{len(found):,} numbers: {out / 'table.csv'}, {out / 'table.md'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--parallel", type=int, default=1, help="rows trained at a time")
    parser.add_argument("--workers", type=int, default=1, help="data workers of each")
    parser.add_argument("--recipes", nargs="+", choices=[*ROWS], default=[*ROWS], metavar="ROW")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin nothing after so many")
    parser.add_argument("--change", nargs="*", default=[], help="for every row: batch=256 ...")
    parser.add_argument("--tables-only", action="store_true")
    parser.add_argument("--score", nargs=2, metavar=("MODEL", "NAME"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.out = arguments.out.resolve()
    if arguments.score:
        model, name = arguments.score
        score_model(model, name, arguments.out)
        return
    if not arguments.tables_only:
        train_all(arguments)
        about = {"steps": arguments.steps, "seeds": arguments.seeds, "change": arguments.change}
        (arguments.out / "study.json").write_text(json.dumps(about) + "\n", encoding="utf-8")
    write_tables(arguments.out)


if __name__ == "__main__":
    main()
