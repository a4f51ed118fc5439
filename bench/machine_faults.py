"""Commands on a machine in trouble: each must end with one sentence, and leave nothing half done.

    sudo python bench/machine_faults.py

Faults are real: a tmpfs that is full or mounted read-only (which needs root), names of 300 letters,
a file where a folder should be, a current folder that was removed. A row counts as bad if the
command ended with a traceback, by a signal, with success where it could not succeed, with more than
one line of error, or left a draft behind.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

BENCHMARK = "world-swap:size=40,seed=3"


class Place:
    """Where a command writes, where its cache is, and where it is started."""

    def __init__(self, out: Path, cache: Path, start: Path) -> None:
        self.out, self.cache, self.start = out, cache, start


def commands(inputs: Path) -> dict[str, tuple[str, list[str]]]:
    """By name: the ending of what is written, and the words of the command."""
    run, pairs = str(inputs / "run"), str(inputs / "pairs.parquet")
    made = str(inputs / "made.parquet")
    return {
        "eval": ("", ["eval", "-m", "random", "-b", BENCHMARK, "--out", "{out}"]),
        "eval a tower": ("", ["eval", "-m", "world:base", "-b", BENCHMARK, "--out", "{out}"]),
        "import": (
            "",
            [
                "import",
                f"{run}/scores.parquet",
                "-b",
                BENCHMARK,
                "--name",
                "mine",
                "--out",
                "{out}",
            ],
        ),
        "report": (".html", ["report", run, "-o", "{out}"]),
        "report md": (".md", ["report", run, "-o", "{out}"]),
        "compare": (".html", ["compare", run, str(inputs / "other"), "--html", "{out}"]),
        "generate": (".parquet", ["generate", "negatives", "world:size=300", "-o", "{out}"]),
        "images": (".parquet", ["generate", "images", made, "-m", "world", "-o", "{out}"]),
        "refine": (".parquet", ["refine", pairs, "--blind", "length", "-o", "{out}"]),
        "export benchmark": (".parquet", ["export", made, "--as", "benchmark", "-o", "{out}"]),
        "export training": (".jsonl", ["export", made, "--as", "training", "-o", "{out}"]),
        "export hf": ("", ["export", made, "--as", "hf", "-o", "{out}", "--licence", "mit"]),
        "campaign": (
            ".db",
            ["campaign", "new", "a", BENCHMARK, "--as", "image-to-text", "--db", "{out}"],
        ),
    }


def counterpoint(words: list[str], place: Place) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "counterpoint", *words]
    environment = {**os.environ, "COUNTERPOINT_CACHE": str(place.cache)}
    if "PYTHONPATH" in environment:
        environment["PYTHONPATH"] = str(Path(environment["PYTHONPATH"]).absolute())
    return subprocess.run(
        command, cwd=place.start, env=environment, text=True, capture_output=True, timeout=300
    )


# --- faults ------------------------------------------------------------------------------------


@contextmanager
def disk(folder: Path, *, full: bool) -> Iterator[Path]:
    """A small disk of its own: full, or read-only."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", folder], check=True)
    try:
        if full:
            (folder / "filler").write_bytes(b"x" * 256 * 1024)
        else:
            subprocess.run(["mount", "-o", "remount,ro", folder], check=True)
        yield folder
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def full_output(base: Path, ending: str) -> Iterator[Place]:
    with disk(base / "disk", full=True) as small:
        yield Place(small / f"out{ending}", base / "cache", base)


@contextmanager
def full_cache(base: Path, ending: str) -> Iterator[Place]:
    with disk(base / "disk", full=True) as small:
        yield Place(base / f"out{ending}", small, base)


@contextmanager
def read_only_output(base: Path, ending: str) -> Iterator[Place]:
    with disk(base / "disk", full=False) as small:
        yield Place(small / f"out{ending}", base / "cache", base)


@contextmanager
def long_name(base: Path, ending: str) -> Iterator[Place]:
    yield Place(base / ("n" * 300 + ending), base / "cache", base)


@contextmanager
def file_in_the_way(base: Path, ending: str) -> Iterator[Place]:
    (base / "file").write_text("x", encoding="utf-8")
    yield Place(base / "file" / f"out{ending}", base / "cache", base)


FAULTS = {
    "full disk": full_output,
    "full cache": full_cache,
    "read-only": read_only_output,
    "long name": long_name,
    "file in the way": file_in_the_way,
}


def verdict(done: subprocess.CompletedProcess[str], place: Place, fault: str) -> str:
    """`told`, or `done` where the fault does not concern the command; else what is bad."""
    if done.returncode < 0 or done.returncode in (134, 135, 139):
        return f"SIGNAL {done.returncode}"
    if "Traceback" in done.stderr:
        return "TRACEBACK"
    if any(path.name.startswith(".draft") for path in drafts(place)):
        return "LEFTOVER"
    if done.returncode in (0, 3):
        return "done" if fault == "full cache" else "NOT NOTICED"
    said = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    return "told" if len(said) == 1 and done.returncode == 1 else f"UNCLEAR {done.returncode}"


def drafts(place: Place) -> list[Path]:
    try:
        return list(place.out.parent.iterdir())
    except OSError:
        return []


def prepare(inputs: Path) -> None:
    place = Place(inputs, inputs / "cache", inputs)
    for words in (
        ["eval", "-m", "random", "-b", BENCHMARK, "--out", "run"],
        ["eval", "-m", "blind:length", "-b", BENCHMARK, "--out", "other"],
        ["generate", "negatives", "world:size=200", "-o", "pairs.parquet"],
        ["generate", "images", "pairs.parquet", "-m", "world", "-o", "made.parquet"],
    ):
        done = counterpoint(words, place)
        if done.returncode:
            sys.exit(f"{' '.join(words)}: {done.stderr}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="commands whose name holds this text")
    parser.add_argument("--say", action="store_true", help="print what each command said")
    options = parser.parse_args()
    if os.geteuid() != 0:
        sys.exit("mounting small disks needs root: sudo python bench/machine_faults.py")
    console = Console()
    table = Table("command", *FAULTS)
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        inputs = Path(folder) / "inputs"
        inputs.mkdir()
        prepare(inputs)
        for name, (ending, words) in commands(inputs).items():
            if options.only and options.only not in name:
                continue
            cells = []
            for number, (fault, make) in enumerate(FAULTS.items()):
                base = Path(folder) / f"{len(total)}-{name.replace(' ', '-')}-{number}"
                base.mkdir()
                with make(base, ending) as place:
                    done = counterpoint([w.format(out=place.out) for w in words], place)
                    cells.append(verdict(done, place, fault))
                total[cells[-1]] += 1
                if options.say:
                    console.print(f"{name}, {fault}: {cells[-1]}\n{done.stderr}", markup=False)
            table.add_row(name, *cells)
    console.print(table)
    console.print(dict(total))
    if any(cell.isupper() or cell.split()[0].isupper() for cell in total):
        sys.exit(1)


if __name__ == "__main__":
    main()
