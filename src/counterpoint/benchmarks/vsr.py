"""VSR (Liu et al. 2023): an image and a caption with a spatial relation, true or false.

A model gives a score and no verdict, so the label is a grade, 0 or 1: `auroc` says how often a true
pair scores above a false one. The paper's accuracy needs a threshold or training on the train
split.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from counterpoint.benchmarks.annotations import first_there, label, require, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import chosen_option, object_rows, unexpected
from counterpoint.cases import Case, Cases, ImageRef

SPLITS: Final = {"random": 2_195, "zeroshot": 1_222}  # and their test pairs
_FIELDS: Final = ("image", "image_link", "caption", "label", "relation")
_SETS: Final = ("train2017", "val2017")


def _cases(options: Options) -> Cases:
    split = _split(options)
    folder = options.data / "vsr"
    path = first_there(
        folder / "splits" / split / "test.jsonl",
        folder / "data" / "splits" / split / "test.jsonl",
        folder / split / "test.jsonl",
    )
    rows = _rows(require(path, "vsr"))
    return Cases.build(rows, root=options.data, source=str(path))


def _split(options: Options) -> str:
    return chosen_option(options, "split", list(SPLITS), "vsr")


def _rows(path: Path) -> Iterator[Case]:
    for place, row in enumerate(object_rows(path, _FIELDS, "vsr")):
        where = f"{path}: row {place + 1}"
        if row["label"] not in (0, 1):
            raise unexpected(where, "the label 0 or 1", row["label"])
        yield Case(
            str(place),
            (ImageRef(_image(row, where)),),
            (text(row, "caption", where),),
            ((bool(row["label"]),),),
            (label(text(row, "relation", where)),),
            grades=(float(row["label"]),),
        )


def _image(row: dict[str, Any], where: str) -> str:
    """`http://images.cocodataset.org/train2017/000000050403.jpg` is coco/train2017/..."""
    parts = urlsplit(text(row, "image_link", where)).path.split("/")
    if len(parts) < 3 or parts[-2] not in _SETS or parts[-1] != row["image"]:
        raise unexpected(
            where, "an image_link that ends in train2017 or val2017 and image", row["image_link"]
        )
    return f"coco/{parts[-2]}/{parts[-1]}"


VSR: Final = Benchmark(
    "vsr",
    "is a caption with a spatial relation true of the image? auroc is the number to read",
    "1 x 1",
    "strict",
    _cases,
    paper="Liu et al. 2023, Visual Spatial Reasoning, arXiv 2205.00363",
    licence="Apache-2.0",
    images="COCO train2017 and val2017",
    count=SPLITS["random"],
    defaults={"split": "random"},
    files=lambda options: {"": SPLITS[_split(options)]},
    untried=True,
)
