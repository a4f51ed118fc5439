"""How fast rules make texts: all of them together, on all cores, and whether memory stays flat.

    python bench/generate.py [CAPTIONS]

CAPTIONS is anything that `counterpoint generate` takes; else captions by a few templates.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from dataclasses import replace
from itertools import islice, product
from multiprocessing import freeze_support
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage

from counterpoint.generation import chosen_methods
from counterpoint.generation.drafts import TextSettings
from counterpoint.generation.inputs.captions import Captions, first_of, open_captions
from counterpoint.generation.language.sentences import tagged
from counterpoint.generation.pairs import KINDS, Kind
from counterpoint.generation.run import generate


def main(name: str) -> None:
    captions = open_captions(name)
    sizes = [size for size in (2_000, 8_000) if len(_some(captions, size)) == size]
    print(f"{name}: {len(os.sched_getaffinity(0))} cores")
    # Before this process tags anything: a new process begins with the memory of its parent.
    rows = [
        (kind, size, *_all_rules(first_of(captions, size), kind), _largest())
        for kind, size in product(KINDS, sizes)
    ]
    alone = _tagging(_some(captions, 2_000))
    print(f"tagging alone: {1 / alone:,.0f} captions/s on one core")
    for kind in KINDS:
        print(f"all {kind} rules: {_one_core(captions, kind) * 1000:.2f} ms of one core a caption")
    for kind, size, seconds, texts, largest in rows:
        print(
            f"all {kind} rules, {size:,} captions: {size / seconds:,.0f} captions/s, "
            f"{texts / size:.1f} texts a caption, {seconds / size / alone:.2f} times as long as "
            f"one core tags, largest process so far {largest:,.0f} MiB"
        )


def _largest() -> float:
    """Memory of the largest process that has ended, in MiB."""
    return getrusage(RUSAGE_CHILDREN).ru_maxrss / 1024


def _some(captions: Captions, count: int) -> list[str]:
    return [source.caption for source in islice(captions, count)]


def _tagging(texts: list[str]) -> float:
    list(tagged(texts[:200]))
    start = time.perf_counter()
    for _ in tagged(texts):
        pass
    return (time.perf_counter() - start) / len(texts)


def _one_core(captions: Captions, kind: Kind) -> float:
    """Processor time for captions 1,001 to 4,000 in one process, after the first 1,000."""
    _all_rules(first_of(captions, 1_000), kind, workers=1)
    some = list(islice(captions, 1_000, 4_000))
    start = time.process_time()
    _all_rules(replace(captions, total=len(some), stream=lambda: iter(some)), kind, workers=1)
    return (time.process_time() - start) / len(some)


def _all_rules(captions: Captions, kind: Kind, workers: int | None = None) -> tuple[float, int]:
    """The start of the processes and the writing included."""
    start = time.perf_counter()
    settings = TextSettings(kind, chosen_methods(["rules"], kind).rules)
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "pairs.parquet"
        texts = generate(captions, settings, out, workers=workers).rows
    return time.perf_counter() - start, texts


if __name__ == "__main__":
    freeze_support()
    main(sys.argv[1] if len(sys.argv) > 1 else "world:size=16000")
