"""Make the file of positives that ships for a benchmark: a case's id and one positive, no more.

    counterpoint generate positives ID -M synonyms -M conjuncts -M converse \\
        --data DATA -o PAIRS
    python scripts/ship_positives.py ID PAIRS --data DATA

For benchmarks of one image and one true caption a case. Only where the licence allows it. No
doubtful positive ships, and none that is a negative of its case.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from counterpoint.benchmarks.positives import SHIPPED, accepted_positives
from counterpoint.benchmarks.registry import load_benchmark


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--data", type=Path, help="folder of the data sets")
    given = parser.parse_args()
    _, cases = load_benchmark(given.benchmark, given.data)
    found = accepted_positives(cases, given.pairs)
    rows = [(id, positive.text) for id, positives in found.items() for positive in positives]
    table = pl.DataFrame(rows, schema=["case_id", "text"], orient="row")
    out = SHIPPED / f"{given.benchmark.replace('/', '-')}.parquet"
    table.write_parquet(out, compression="zstd", compression_level=19)
    share = 100 * len(table) / len(cases)
    print(f"{out}: {len(table):,} of {len(cases):,} cases have a positive ({share:.0f} %)")


if __name__ == "__main__":
    main()
