"""COCO-Counterfactuals (Le et al. 2023): generated images of a COCO caption and of the same caption
with another noun.
"""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Final

from counterpoint.benchmarks.annotations import files_below
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import PairColumns, pair_cases, published_file
from counterpoint.cases import Cases

_COLUMNS: Final = PairColumns(("image_0", "image_1"), ("caption_0", "caption_1"), "id")


def _cases(options: Options) -> Cases:
    folder = options.data / "coco_counterfactuals"
    path = published_file(folder, ["examples.jsonl"], "coco-counterfactuals")
    pictures = {file.stem: file for file in files_below(folder, "*.jpg")}

    def image(path: Path, name: str) -> str:
        stem = PurePosixPath(name).name.removesuffix(".jpg")
        file = pictures.get(stem, path.parent / "images" / f"{stem}.jpg")
        return file.relative_to(options.data).as_posix()

    rows = pair_cases(
        [path], _COLUMNS, options, "coco-counterfactuals", image=image, groups=lambda _: ()
    )
    return Cases.build(rows, root=options.data, source=str(path))


COCO_COUNTERFACTUALS: Final = Benchmark(
    "coco-counterfactuals",
    "a COCO caption and the same with another noun, with a generated image of each",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Le et al. 2023, COCO-Counterfactuals, arXiv 2309.14356",
    licence="CC BY 4.0",
    images="with the data set (generated)",
    ids="the source's own id",
    untried=True,
)
