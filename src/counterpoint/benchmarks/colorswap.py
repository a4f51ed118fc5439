"""ColorSwap (Burapacheep et al. 2024): two images, and two captions whose colour words are swapped.

The test split of the hub's tables, or `test.json` and `images/` of the authors' archive.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks.annotations import files_below, label
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import PairColumns, file_below, pair_cases, published_file
from counterpoint.cases import Cases

_COLUMNS: Final = PairColumns(("image_1", "image_2"), ("caption_1", "caption_2"), "id")
_SOURCES: Final = ("caption_source", "image_source")


def _cases(options: Options) -> Cases:
    folder = options.data / "colorswap"
    tables = files_below(folder, "test*.parquet")
    files = tables or [published_file(folder, ["test.json"], "colorswap")]

    def image(path: Path, name: str) -> str:
        return file_below(path.parent, name, options.data)

    rows = pair_cases(
        files, _COLUMNS, options, "colorswap", image=image, groups=_groups, more=_SOURCES
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _groups(row: dict[str, Any]) -> Iterator[str]:
    """Who wrote the captions and which program drew the images."""
    for source in _SOURCES:
        if isinstance(row.get(source), str):
            yield f"{source.partition('_')[0]}/{label(row[source])}"


COLORSWAP: Final = Benchmark(
    "colorswap",
    "two images and two captions of the same words, with the colours swapped; the test split",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Burapacheep et al. 2024, ColorSwap, arXiv 2402.04492",
    licence="MIT (gated on the hub)",
    images="with the data set (600 generated images)",
    count=300,
    ids="the source's own id",
    untried=True,
)
