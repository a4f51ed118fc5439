"""Two processes write different things to one place at the same moment: what is there afterwards?

    PYTHONPATH=src python bench/colliding_writers.py

Each pair of processes writes a plain file, a pairs file or a run folder. Afterwards the place must
hold all of what one of them wrote, and this one must have reported success; the other was refused,
or has waited for its turn.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import polars as pl

from counterpoint._util.errors import CounterpointError
from counterpoint._util.writing import whole_file
from counterpoint.cases.table import Cases, ImageRef, caption_case
from counterpoint.generation.pairs import Pair, read_pairs, tabulate, write_pairs
from counterpoint.metrics.protocols import PROTOCOLS
from counterpoint.runs import Part, Run, load_run, save_run

ROWS, PIECES = 200, 10
PAUSE = 0.003  # seconds between pieces, so that the two overlap
OUTCOMES = ("one written, one refused", "both, one after the other", "unreadable", "mixed", "LOST")


def write_plain(place: Path, label: str) -> None:
    with whole_file(place) as draft, draft.open("w") as file:
        for _ in range(PIECES):
            file.write(f"{label}\n" * ROWS)
            file.flush()
            time.sleep(PAUSE)


def read_plain(place: Path) -> list[str]:
    return place.read_text().splitlines()


def write_table(place: Path, label: str) -> None:
    def frames() -> Iterator[pl.DataFrame]:
        for _ in range(PIECES):
            time.sleep(PAUSE)
            pair = Pair("1", None, "a b", label, "negative", "swap", "", "bench", "1", 0)
            yield tabulate([pair] * ROWS)

    write_pairs(place, frames(), {"label": label})


def read_table(place: Path) -> list[str]:
    return read_pairs(place)["text"].to_list()


def write_run(place: Path, label: str) -> None:
    rows = (
        caption_case(str(n), ImageRef("a.png"), [f"{label} {n}"], ["no"])
        for n in range(PIECES * ROWS // 2)
    )
    cases = Cases.build(rows, source="bench")
    scores = np.full(cases.pair_offsets[-1], float(label == "a"), dtype=np.float32)
    save_run(Run(label, {"bench": Part("bench", cases, scores, PROTOCOLS["strict"])}, {}), place)


def read_run(place: Path) -> list[str]:
    run = load_run(place)
    captions = run.parts["bench"].cases.frame["captions"].list.first().to_list()
    scores = ["a" if score else "b" for score in run.parts["bench"].scores.tolist()]
    return [run.model] * len(scores) if {c[0] for c in captions} == {run.model} else scores


KINDS: dict[str, tuple[Callable[[Path, str], None], Callable[[Path], list[str]], str]] = {
    "plain file": (write_plain, read_plain, "out.txt"),
    "pairs file": (write_table, read_table, "out.parquet"),
    "run folder": (write_run, read_run, "run"),
}


def serve(label: str) -> None:
    """Write to the places named on standard input, one per line; say how each went."""
    print("ready", flush=True)
    for line in sys.stdin:
        kind, place = json.loads(line)
        try:
            KINDS[kind][0](Path(place), label)
            answer = "written"
        except CounterpointError as error:
            answer = f"refused: {error}"
        except Exception as error:
            answer = f"error: {error!r}"
        print(json.dumps(answer), flush=True)


def start(label: str) -> subprocess.Popen[str]:
    worker = subprocess.Popen(
        [sys.executable, __file__, "--serve", label],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None and worker.stdout.readline() == "ready\n"
    return worker


def collide(workers: dict[str, subprocess.Popen[str]], kind: str, place: Path) -> str:
    for worker in workers.values():
        assert worker.stdin is not None
        print(json.dumps([kind, str(place)]), file=worker.stdin, flush=True)
    answers = {}
    for label, worker in workers.items():
        assert worker.stdout is not None
        answers[label] = str(json.loads(worker.stdout.readline()))
    winners = {label for label, answer in answers.items() if answer == "written"}
    try:
        found = KINDS[kind][1](place)
    except Exception as error:
        return f"unreadable: {error!r}, {answers}"
    if len(set(found)) != 1 or len(found) != PIECES * ROWS:
        return f"mixed: {Counter(found)}, {answers}"
    if found[0] not in winners or any(answer.startswith("error") for answer in answers.values()):
        return f"LOST: {found[0]}, {answers}"
    return OUTCOMES[0] if len(winners) == 1 else OUTCOMES[1]


def measure(count: int, verbose: bool) -> dict[str, Counter[str]]:
    table: dict[str, Counter[str]] = {kind: Counter() for kind in KINDS}
    workers = {label: start(label) for label in "ab"}
    with tempfile.TemporaryDirectory() as root:
        for number in range(count):
            for kind, (_, _, name) in KINDS.items():
                folder = Path(root) / f"{number} {kind}"
                folder.mkdir()
                outcome = collide(workers, kind, folder / name)
                left = sorted(path.name for path in folder.iterdir() if path.name != name)
                table[kind][outcome.partition(":")[0]] += 1
                if verbose or ":" in outcome or left:
                    print(kind, number, outcome, *left, flush=True)
    for worker in workers.values():
        worker.communicate()
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description="Pairs of processes that write to one place")
    parser.add_argument("--count", type=int, default=40, help="pairs of processes for each kind")
    parser.add_argument("--verbose", action="store_true", help="a line for each of them")
    parser.add_argument("--serve", default="", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        serve(args.serve)
        return
    table = measure(args.count, args.verbose)
    print(f"{'':12}" + "".join(f"{name:>28}" for name in OUTCOMES))
    for kind, counts in table.items():
        print(f"{kind:12}" + "".join(f"{counts[name]:>28}" for name in OUTCOMES))
    if any(counts[bad] for counts in table.values() for bad in OUTCOMES[2:]):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
