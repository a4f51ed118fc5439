"""Images with five captions each: COCO's and Flickr30k's test split by Karpathy."""

from __future__ import annotations

from typing import Final, NamedTuple

from counterpoint.benchmarks import Options
from counterpoint.benchmarks.sources import json_rows, text
from counterpoint.errors import DataError


class Annotated(NamedTuple):
    """An image, as a path under the data root, and its captions."""

    image: str
    captions: list[str]


FILES: Final = {"coco": "coco_karpathy_test.json", "flickr30k": "flickr30k_test.json"}


def annotated_images(options: Options, name: str, benchmark: str) -> list[Annotated]:
    """The test split of `coco` or `flickr30k`."""
    path = options.data / name / FILES[name]
    found = []
    for number, row in enumerate(json_rows(path, benchmark)):
        where = f"{path}: row {number}"
        captions = row.get("caption")
        if not isinstance(captions, list) or not captions:
            raise DataError(f"{where}: 'caption' should hold a list of texts.")
        texts = [text({"caption": caption}, "caption", where) for caption in captions]
        found.append(Annotated(f"{name}/{text(row, 'image', where)}", texts))
    return found
