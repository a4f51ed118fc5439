"""BiVLC (Miranda et al. 2024): SugarCrepe with an image for the negative caption too.

Also its images, and its captions, as a question of what is natural and what is synthetic, which a
detector answers (section 5.4 of the paper): one gallery of two classes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

import polars as pl

from counterpoint.benchmarks.annotations import (
    files_below,
    label,
    parquet_image,
    parquet_rows,
    text,
)
from counterpoint.benchmarks.benchmark import Benchmark, Options, Size
from counterpoint.cases import DETECTION, SCHEMA, TEXT, Case, Cases

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
            where = f"{path}: row {row + 1}"
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


def _detection(options: Options, captions: bool) -> Cases:
    """Every row's two images, or its two captions in the place of images."""
    cases = _cases(options)
    rows = [cases.case(row) for row in range(len(cases))]
    items = [
        TEXT + case.captions[side] if captions else case.images[side].path
        for case in rows
        for side in range(len(DETECTION))
    ]
    row = {
        "id": "0",
        "images": [{"path": path, "box": None} for path in items],
        "captions": list(DETECTION),
        "truth": [2 * number + number % 2 for number in range(len(items))],
        "groups": [],
        "cluster": "bivlc",
    }
    frame = pl.DataFrame([row], schema=SCHEMA)
    return Cases.checked(iter([frame]), options.data, str(options.data / "bivlc"))


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
IMAGE_DETECTION: Final = replace(
    BIVLC,
    id="bivlc/image-detection",
    summary="BiVLC's images, natural or synthetic: the accuracy of detectors",
    shape="images x classes",
    protocol="classification",
    cases=partial(_detection, captions=False),
    count=1,
    ids="0: all images are one case",
    files=lambda _: {"": Size(1, 2 * 2933, len(DETECTION))},
)
TEXT_DETECTION: Final = replace(
    IMAGE_DETECTION,
    id="bivlc/text-detection",
    summary="BiVLC's captions, by people or synthetic: the accuracy of detectors",
    shape="captions x classes",
    cases=partial(_detection, captions=True),
    images="none: captions stand in their place",
    ids="0: all captions are one case",
)
