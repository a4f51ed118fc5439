"""The fuzzers of tests/, for longer: how many damaged inputs end otherwise than they should?

    python bench/fuzz.py --inputs 2000 --seed 1

Every input must end in a result or in one sentence (a CounterpointError), and some inputs of each
reader in a result: else it was refused for another reason than its damage. Prints a table of tries
and failures per reader, and ends with status 1 if there were any. An input that failed is kept as a
file in --keep.
"""

from __future__ import annotations

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

import fuzz_targets_core
import fuzz_targets_data
import fuzz_targets_models
import fuzz_targets_submissions
from polars.exceptions import PanicException
from rich.console import Console
from rich.table import Table

from counterpoint._util.errors import CounterpointError

READERS = {
    **fuzz_targets_core.TARGETS,
    **fuzz_targets_data.TARGETS,
    **fuzz_targets_models.TARGETS,
    **fuzz_targets_submissions.TARGETS,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=2000, help="for each reader")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", help="readers whose name holds this text")
    parser.add_argument("--keep", type=Path, help="folder for inputs that failed")
    options = parser.parse_args()
    table = Table("reader", "tries", "results", "sentences", "failures", "seconds")
    total = failed = 0
    with tempfile.TemporaryDirectory() as place:
        for name, (run, inputs) in READERS.items():
            if options.only and options.only not in name:
                continue
            folder = Path(place) / f"work-{total}"
            folder.mkdir()
            began, ends = time.monotonic(), {"result": 0, "sentence": 0, "failure": 0}
            for data in inputs(options.inputs, options.seed):
                total += 1
                try:
                    run(data, folder)
                    ends["result"] += 1
                except CounterpointError:
                    ends["sentence"] += 1
                except (Exception, PanicException) as error:
                    ends["failure"] += 1
                    print(f"{name}: {type(error).__name__}: {str(error)[:200]}", file=sys.stderr)
                    if options.keep:
                        options.keep.mkdir(parents=True, exist_ok=True)
                        (options.keep / f"{total}.bin").write_bytes(data)
            if not ends["result"]:
                ends["failure"] += 1
                print(f"{name}: no input was read", file=sys.stderr)
            failed += ends["failure"]
            counts = [sum(ends.values()), *ends.values()]
            table.add_row(name, *map(str, counts), f"{time.monotonic() - began:.1f}")
    Console().print(table)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(f"{total:,} inputs, {failed:,} failures, at most {peak:.1f} GiB of memory")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
