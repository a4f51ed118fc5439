"""Make the file of positives that ships for a benchmark: a case's id and one positive, no more.

    counterpoint generate positives ID -M synonyms -M conjuncts -M converse --no-wordnet -o PAIRS
    python scripts/ship_positives.py PAIRS -o src/counterpoint/benchmarks/shipped/NAME.parquet

For benchmarks of one image and one true caption a case. Only where the licence allows it.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import polars as pl

from counterpoint.benchmarks.positives import chosen_positives


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("pairs", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    given = parser.parse_args()
    rows = [(source, text) for source, _, text in chosen_positives(given.pairs)]
    table = pl.DataFrame(rows, schema=["case_id", "text"], orient="row")
    table.write_parquet(given.out, compression="zstd", compression_level=19)
    print(f"{len(table):,} positives, {given.out.stat().st_size / 1024:,.0f} KiB")


if __name__ == "__main__":
    main()
