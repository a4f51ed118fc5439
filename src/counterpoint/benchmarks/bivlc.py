"""BiVLC (Miranda et al. 2024): SugarCrepe with an image for the negative caption too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from counterpoint.benchmarks.annotations import (
    files_below,
    label,
    parquet_image,
    parquet_rows,
    text,
)
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import Case, Cases

_TEXTS: Final = ("caption", "negative_caption", "type", "subtype")
_IMAGES: Final = ("image", "negative_image")


def _cases(options: Options) -> Cases:
    folder = options.data / "bivlc"
    return Cases.build(_rows(folder, options.data), root=options.data, source=str(folder))


def _rows(folder: Path, root: Path) -> Iterator[Case]:
    number = 0  # over all files: they are the pieces of one table
    for path in files_below(folder, "*.parquet", "bivlc"):
        file = path.relative_to(root).as_posix()
        for row, values in enumerate(parquet_rows(path, _TEXTS, _IMAGES)):
            where = f"{path}: row {row}"
            caption, negative, kind, part = (text(values, name, where) for name in _TEXTS)
            yield Case(
                str(number),
                tuple(parquet_image(file, column, row) for column in _IMAGES),
                (caption, negative),
                ((True, False), (False, True)),
                (f"{label(kind)}/{label(part)}",),
                # The photograph's name; without one, at least equal captions share a photograph.
                cluster=values["image"] or caption,
            )
            number += 1


BIVLC: Final = Benchmark(
    "bivlc",
    "SugarCrepe's captions and negatives, with an image for each: retrieval in both directions",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Miranda et al. 2024, BiVLC, arXiv 2406.09952",
    licence="MIT",
    images="in the Parquet files (COCO val2017, and 2,933 generated images)",
    count=2933,
    ids="row number from 0, over all files",
)
