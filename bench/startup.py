"""How long commands take that compute nothing, beside what Python and Typer take themselves.

    PYTHONPATH=src python bench/startup.py [--repeat 7]

Seconds from start to end of a process, and seconds of a core, which say more on a machine that is
shared; the least of several: the files are in the system's cache, and compiled, as those of an
installed package are.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from typing import NamedTuple

FLOORS = {"python -c pass": ["-c", "pass"]} | {
    f"python -c 'import {name}'": ["-c", f"import {name}"]
    for name in ("typer", "typer.rich_utils", "polars")
}
KINDS = ("models", "protocols", "recipes", "benchmarks", "methods")
COMMANDS = {"--version": ["--version"], "--help": ["--help"], "eval --help": ["eval", "--help"]} | {
    f"ls {kind}".strip(): ["ls", *kind.split()] for kind in (*KINDS, "")
}


class Fastest(NamedTuple):
    clock: float
    core: float


def fastest(arguments: list[str], repeat: int, compiled: str) -> Fastest:
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": compiled}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    clocks, cores = [], []
    for _ in range(1 + repeat):  # the first one compiles
        begin, before = time.perf_counter(), os.times()
        program = [sys.executable, *arguments]
        subprocess.run(program, stdout=subprocess.DEVNULL, check=True, env=environment)
        after = os.times()
        clocks.append(time.perf_counter() - begin)
        cores.append(sum(after[2:4]) - sum(before[2:4]))  # of children
    return Fastest(min(clocks[1:]), min(cores[1:]))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    programs = FLOORS | {
        f"counterpoint {name}": ["-m", "counterpoint", *words] for name, words in COMMANDS.items()
    }
    print(f"{'':36} {'clock':>8} {'core':>8}")
    with tempfile.TemporaryDirectory() as compiled:
        for name, arguments in programs.items():
            clock, core = fastest(arguments, repeat, compiled)
            print(f"{name:36} {clock:6.2f} s {core:6.2f} s", flush=True)


if __name__ == "__main__":
    main()
