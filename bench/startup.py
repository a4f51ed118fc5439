"""How long commands take that compute nothing, beside what Python and Typer take themselves.

    python bench/startup.py [--repeat 7]

Seconds from start to end of a process, the fastest of several: the files are in the system's cache.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time

FLOORS = {"python -c pass": ["-c", "pass"]} | {
    f"python -c 'import {name}'": ["-c", f"import {name}"]
    for name in ("typer", "typer.rich_utils", "polars")
}
KINDS = ("models", "protocols", "recipes", "benchmarks", "methods")
COMMANDS = {"--help": ["--help"], "eval --help": ["eval", "--help"]} | {
    f"ls {kind}".strip(): ["ls", *kind.split()] for kind in (*KINDS, "")
}


def fastest(arguments: list[str], repeat: int) -> float:
    times = []
    for _ in range(repeat):
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=True)
        times.append(time.perf_counter() - begin)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    repeat = parser.parse_args().repeat
    programs = FLOORS | {
        f"counterpoint {name}": ["-m", "counterpoint", *words] for name, words in COMMANDS.items()
    }
    for name, arguments in programs.items():
        print(f"{name:36} {fastest(arguments, repeat):.2f} s", flush=True)


if __name__ == "__main__":
    main()
