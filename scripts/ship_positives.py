"""Make the file of positives that ships for a benchmark: a case's id, one positive, its doubt.

    counterpoint generate positives ID -M synonyms -M conjuncts -M converse --no-wordnet --doubtful \\
        --data DATA -o PAIRS
    python scripts/ship_positives.py ID PAIRS --data DATA

For benchmarks of one image and one true caption a case. Only where the licence allows it. Of the
doubtful words only narrower ones ship, marked, and only for cases that have no other positive.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

import polars as pl

from counterpoint.benchmarks import load_benchmark
from counterpoint.benchmarks.positives import SHIPPED, accepted_positives

_DOUBTS = ("", "narrower")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("benchmark")
    parser.add_argument("pairs", type=Path)
    parser.add_argument("--data", type=Path)
    parser.add_argument("-o", "--out", type=Path, help="if it is not to replace what ships")
    given = parser.parse_args()
    _, cases = load_benchmark(given.benchmark, given.data)
    found = accepted_positives(cases, given.pairs, doubtful=True)
    rows = [(id, one.text, one.doubt) for id, of_case in found.items() for one in of_case[:1]]
    table = pl.DataFrame(rows, schema=["case_id", "text", "doubt"], orient="row")
    table = table.filter(pl.col("doubt").is_in(_DOUBTS))
    out = given.out or SHIPPED / f"{given.benchmark.replace('/', '-')}.parquet"
    table.write_parquet(out, compression="zstd", compression_level=19)
    counts = Counter(table["doubt"].to_list())
    print(f"{len(cases):,} cases, {counts['']:,} with a sure positive, ", end="")
    print(f"{counts['narrower']:,} with a narrower one only; {out.stat().st_size / 1024:,.0f} KiB")


if __name__ == "__main__":
    main()
