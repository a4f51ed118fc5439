"""How much memory and time a million cases take to load.

    PYTHONPATH=src python bench/cases.py

The table is written in one process and read in a fresh one, whose peak memory is then that of
reading alone.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

LIMIT = 1024  # MiB for a million cases


def write(path: Path, count: int) -> None:
    """Cases of one image, an original, a hard positive and a hard negative."""
    import polars as pl  # not at the top: the reading process should pay for what it uses only

    number, image = pl.col("number"), pl.col("number") // 3
    captions = [
        pl.format(f"a small red {noun} to the left of a striped ball, number {{}}", number)
        for noun in ("cube", "block", "cone")
    ]
    place = pl.struct(
        pl.format("images/{}.jpg", image).alias("path"),
        pl.lit(None, dtype=pl.Array(pl.Int32(), 4)).alias("box"),
    )
    pl.DataFrame({"number": pl.int_range(count, eager=True)}).select(
        pl.format("case-{}", number).alias("id"),
        pl.concat_list(place).alias("images"),
        pl.concat_list(captions).alias("captions"),
        pl.concat_list(pl.lit(i, dtype=pl.Int32()) for i in (0, 1)).alias("truth"),
        pl.concat_list(pl.format("replace/{}", number % 5)).alias("groups"),
        pl.format("image-{}", image).alias("cluster"),
    ).write_parquet(path)


def peak() -> float:
    """The most memory this process has held, in MiB."""
    status = Path("/proc/self/status")
    if status.exists():  # getrusage would count what the parent held when it started this process
        return int(status.read_text().split("VmHWM:")[1].split()[0]) / 1024
    unit = 2**20 if sys.platform == "darwin" else 2**10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit


def read(path: Path) -> None:
    from counterpoint.cases.files import read_cases

    before, start = peak(), time.perf_counter()
    cases = read_cases(path)
    seconds = time.perf_counter() - start
    print(f"{len(cases):,} cases, a file of {path.stat().st_size / 2**20:.0f} MiB")
    print(f"{'load':28}{seconds:10.2f} s")
    print(f"{'peak memory':28}{peak():10.0f} MiB  ({before:.0f} before reading)")
    print(f"{'table in memory':28}{cases.frame.estimated_size('mb'):10.0f} MiB")
    start = time.perf_counter()
    blocks = sum(len(block.rows) for block in cases.blocks())
    print(f"{'blocks':28}{time.perf_counter() - start:10.2f} s  ({blocks:,} cases)")
    start = time.perf_counter()
    cases.content_hash()
    print(f"{'content hash':28}{time.perf_counter() - start:10.2f} s")
    print(f"{'peak memory after all':28}{peak():10.0f} MiB")
    if len(cases) == 1_000_000:
        print(f"target of {LIMIT} MiB: {'met' if peak() < LIMIT else 'MISSED'}")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Memory and seconds to load a large case table")
    parser.add_argument("--cases", type=int, default=1_000_000)
    parser.add_argument("--read", type=Path, help="read this table instead of writing one")
    return parser.parse_args()


def main() -> None:
    args = arguments()
    if args.read is not None:
        read(args.read)
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.parquet"
        write(path, args.cases)
        subprocess.run([sys.executable, __file__, "--read", str(path)], check=True)


if __name__ == "__main__":
    main()
