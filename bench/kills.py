"""Commands that are stopped at random moments and given again: do they end with the same bytes?

    python bench/kills.py --kills 100

Each command runs once undisturbed. Then it is started again and again in a new folder, and stopped
by SIGKILL or SIGTERM, until it gets to its end; what it wrote must be what the undisturbed one
wrote, times and costs aside. Half of the stops come after a random time (seeded), half at a random
change that Python makes to the folder. While nothing is finished, nothing may look finished. After
SIGTERM the exit status must be 143 and no draft may be left.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

import counterpoint

BENCHMARK = "world-swap:size=120,seed=3"
LIMIT = 600  # seconds that one command may take
COSTS = "costs.json"  # of a sweep: no result depends on it
TIMES = re.compile(
    rb'"(created|command|retrieved_timestamp|evaluation_id|checksum)": *("[^"]*"|[0-9.]+)'
    rb"|<dt>created</dt><dd>[^<]*"
)
SUPPORT = Path(__file__).resolve().parents[1] / "tests" / "support"
PATIENCE = 7  # stops of one command before it is left alone: not every command resumes


class Command(NamedTuple):
    """Words of a command, and which of its files must be the same, as a pattern below its folder.

    What the commands of BEFORE made lies in the folder above.
    """

    words: list[str]
    results: str


COMMANDS = {
    "eval": Command(
        ["eval", "-m", "world:base", "-b", BENCHMARK, "--out", "run"],
        "run/*.parquet",
    ),
    "generate": Command(
        ["generate", "negatives", "world:size=1000", "-o", "out.parquet"], "out.parquet"
    ),
    "images": Command(
        ["generate", "images", "../pairs.parquet", "-m", "world", "-o", "out.parquet"],
        "out.parquet",
    ),
    "refine": Command(
        ["refine", "../pairs.parquet", "--blind", "length", "-o", "out.parquet"], "out.parquet"
    ),
    "export": Command(
        ["export", "../made.parquet", "--as", "hf", "-o", "out", "--licence", "mit"], "out/**/*"
    ),
    "import": Command(
        [
            *("import", "../run/scores.parquet", "-b", BENCHMARK),
            *("--name", "mine", "--out", "run"),
        ],
        "run/*.parquet",
    ),
    "train": Command(
        [
            *("train", "hp-hn", "--world", "steps=12", "batch=16", "precision=fp32"),
            *("save_every=2", "benchmarks=[]", "out=out"),
        ],
        "out/model/*.safetensors",
    ),
    "train-sweep": Command(
        [
            *("sweep", "hp-hn", "../grid.yaml", "--world", "steps=4", "batch=8", "precision=fp32"),
            *("save_every=2", "benchmarks=[]", "validation.path=../validation.parquet"),
            *("validation.every=2", "-o", "out"),
        ],
        "out/*/model/*.safetensors",
    ),
    "sweep": Command(["sweep", "../plan.yaml", "-o", "out"], "out/**/*"),
    "watch": Command(
        [
            *("watch", "../logs", "-b", "world-swap:size=40", "-o", "out"),
            *("--once", "--settle", "0"),
        ],
        "out/*/**/*",  # the table and the figure beside these grow with each checkpoint
    ),
    "board": Command(["board", "../run", "-o", "site"], "site/**/*"),
    "publish": Command(["publish", "../run", "-o", "out"], "out/**/*"),
}
BEFORE = (
    ["generate", "negatives", "world:size=300", "-o", "pairs.parquet"],
    ["generate", "images", "pairs.parquet", "-m", "world", "-o", "made.parquet"],
    ["export", "made.parquet", "--as", "training", "-o", "validation.parquet"],
    ["eval", "-m", "random", "-b", BENCHMARK, "--out", "run"],
)
SOURCES = (
    "pairs.parquet",
    "made.parquet",
    "validation.parquet",
    "run",
    "logs",
    "plan.yaml",
    "grid.yaml",
)
PLAN = {
    "models": ["random", "blind:length"],
    "benchmarks": ["world-swap:size=40", "world-bi:size=20"],
}
GRID = {"lr": [1e-4, 1e-5]}


def prepare(folder: Path) -> None:
    """What the commands read: the outputs of BEFORE, a plan, a grid and two checkpoints."""
    for words in BEFORE:
        child = start(words, folder)
        said = child.communicate(timeout=LIMIT)[1].decode()
        if child.returncode:
            sys.exit(f"{' '.join(words)}: {said}")
    for name, content in (("plan.yaml", PLAN), ("grid.yaml", GRID)):
        (folder / name).write_text(json.dumps(content))  # JSON is YAML
    shipped = Path(counterpoint.__file__).parent / "world" / "checkpoints"
    for step, name in enumerate(("base", "hn")):
        shutil.copytree(shipped / name, folder / "logs" / f"step_{step}")


def start(words: list[str], folder: Path, watch: str = "") -> subprocess.Popen[bytes]:
    """A command line. `watch` is a call of `faults`, about the changes that it makes."""
    environment = {**os.environ, "COUNTERPOINT_CACHE": str(folder / "cache")}
    paths = [
        str(Path(path).absolute())
        for path in environment.get("PYTHONPATH", "").split(os.pathsep)
        if path
    ]
    environment["PYTHONPATH"] = os.pathsep.join([str(SUPPORT), *paths])
    watch = f"import faults\nfrom pathlib import Path\nfaults.{watch}" if watch else ""
    return subprocess.Popen(
        [sys.executable, "-c", f"{watch}\nfrom counterpoint.__main__ import main; main()", *words],
        cwd=folder,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,  # its workers are stopped with it
    )


def digests(folder: Path, pattern: str) -> dict[str, str]:
    return {
        str(path.relative_to(folder)): hashlib.sha256(without_times(path)).hexdigest()
        for path in sorted(folder.glob(pattern))
        if path.is_file() and not path.name.startswith(".") and path.name != COSTS
    }


def without_times(path: Path) -> bytes:
    """What a file holds, without the times that two commands cannot have in common."""
    content = path.read_bytes()
    if path.suffix not in (".json", ".jsonl", ".html"):
        return content
    return TIMES.sub(b"", content)


def drafts(folder: Path) -> list[Path]:
    return [path for path in folder.rglob(".draft-*") if "cache" not in path.parts]


class Series:
    """One command, stopped over and over."""

    def __init__(self, command: Command, folder: Path, chance: random.Random) -> None:
        self.command, self.folder, self.chance = command, folder, chance
        self.counts: Counter[str] = Counter()
        calm = folder / "calm"
        calm.mkdir()
        count, began = folder / "changes", time.monotonic()
        child = start(command.words, calm, f"count_changes(Path.cwd(), Path({str(count)!r}))")
        said = child.communicate(timeout=LIMIT)[1].decode()
        if child.returncode:
            sys.exit(f"{' '.join(command.words)}: {said}")
        self.seconds, self.changes = time.monotonic() - began, int(count.read_text())
        self.expected = digests(calm, command.results)
        if not self.expected:
            sys.exit(f"{' '.join(command.words)} wrote nothing that fits {command.results}")

    def run(self, kills: int) -> Counter[str]:
        while self.counts["killed"] + self.counts["terminated"] < kills:
            place = self.folder / f"try-{self.counts['finished']}"
            place.mkdir()
            stops = 0
            while not self._ended(place, alone=stops == PATIENCE):
                stops += 1
            self.counts["finished"] += 1
            if digests(place, self.command.results) != self.expected:
                self.counts["WRONG"] += 1
            if drafts(place):
                self.counts["DRAFT LEFT AT THE END"] += 1
            shutil.rmtree(place)
        return self.counts

    def _ended(self, place: Path, *, alone: bool) -> bool:
        """Start it, and stop it unless it is left alone; whether it got to its end."""
        before = drafts(place)  # of what was killed
        how = self.chance.choice([signal.SIGKILL, signal.SIGTERM])
        at_change = not alone and self.chance.random() < 0.5
        change = self.chance.randint(1, self.changes)
        watch = f"stop_at({change}, {int(how)}, Path.cwd())" if at_change else ""
        child = start(self.command.words, place, watch)
        try:
            leave = alone or at_change
            child.wait(LIMIT if leave else self.chance.uniform(0.1, 1.1) * self.seconds)
        except subprocess.TimeoutExpired:
            os.killpg(child.pid, how)
        said = child.communicate(timeout=LIMIT)[1].decode()
        found = digests(place, self.command.results)
        # An export that was stopped after its last line is not made a second time.
        if child.returncode == 0 or (found == self.expected and "E-OUTPUT-EXISTS" in said):
            return True
        if alone:
            sys.exit(f"{' '.join(self.command.words)}: {said}")
        if any(found[name] != self.expected.get(name) for name in found):
            self.counts["HALF THERE"] += 1
        if how == signal.SIGKILL:
            self.counts["killed"] += 1
            if child.returncode != -signal.SIGKILL:
                self.counts[f"STATUS {child.returncode}"] += 1
        else:
            self.counts["terminated"] += 1
            # Before the first line and after the last, Python itself is ended by the signal.
            if child.returncode not in (143, -signal.SIGTERM):
                self.counts[f"STATUS {child.returncode}"] += 1
            if "Traceback" in said:
                self.counts["TRACEBACK"] += 1
                print(said, file=sys.stderr)
            if set(drafts(place)) - set(before):
                self.counts["DRAFT LEFT"] += 1
        return False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=100, help="over all commands together")
    parser.add_argument("--only", nargs="*", choices=COMMANDS, default=list(COMMANDS))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    console = Console()
    table = Table("command", "seconds alone", "SIGKILL", "SIGTERM", "finished", "bad")
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        for name in options.only:
            own = Path(folder) / name
            own.mkdir()
            for source in SOURCES:
                (own / source).symlink_to(Path(folder) / source)
            series = Series(COMMANDS[name], own, random.Random(f"{options.seed} {name}"))
            counts = series.run(-(-options.kills // len(options.only)))
            wrong = {what: count for what, count in counts.items() if what[0].isupper()}
            bad += sum(wrong.values())
            shown = [counts[what] for what in ("killed", "terminated", "finished")]
            table.add_row(name, f"{series.seconds:.1f}", *map(str, shown), str(wrong or "none"))
            console.print(f"{name}: {dict(counts)}", markup=False)
    console.print(table)
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
