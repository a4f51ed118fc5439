"""NaturalBench-Retrieval (Li et al. 2024): two photographs and two captions that models mix up.

NaturalBench itself asks questions about pairs of images. This is its other half: the pairs of
images and captions that CLIP and BLIP-2 got wrong, from which the questions were made.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import PairColumns, file_below, pair_cases, published_file
from counterpoint.cases import Cases

_COLUMNS: Final = PairColumns(("image_0", "image_1"), ("caption_0", "caption_1"), "index")


def _cases(options: Options) -> Cases:
    folder, benchmark = options.data / "naturalbench", "naturalbench/retrieval"
    path = published_file(folder, ["metadata.json"], benchmark)

    def image(path: Path, name: str) -> str:
        return file_below(path.parent / "images", name, options.data)

    rows = pair_cases([path], _COLUMNS, options, benchmark, image=image, groups=lambda _: ())
    return Cases.build(rows, root=options.data, source=str(path))


RETRIEVAL: Final = Benchmark(
    "naturalbench/retrieval",
    "two photographs and two captions that CLIP and BLIP-2 mix up",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Li et al. 2024, NaturalBench, arXiv 2410.14669",
    licence="not stated",
    images="with the data set",
    ids="the source's own index",
    untried=True,
)
