"""COCO's test captions by their COCO ids, for benchmarks that name captions by id.

ECCV Caption lists the five caption ids of each image of the Karpathy test split, and the Karpathy
file has the texts without ids. The ids of an image in ascending order are those of its texts in the
order of that file. For ten images the file has six texts: which of them has no id is unknown, and
the captions of these images are left out.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shortened, shown
from counterpoint.benchmarks.annotations import KARPATHY_FILES, annotated_images, read_json
from counterpoint.benchmarks.benchmark import Options

UNKNOWN_TEXT: Final = "the caption's text is unknown"
_NUMBER: Final = re.compile(r"(\d{1,12})\.jpg$")


class CaptionById(NamedTuple):
    image: int  # the COCO id of its image
    text: str


class CocoCaptions(NamedTuple):
    """The images of the test split by their COCO ids, and the captions whose ids are known."""

    images: dict[int, str]
    captions: dict[int, CaptionById]
    unknown: dict[int, int]  # captions whose text is unknown, and their images


def coco_captions(options: Options, benchmark: str) -> CocoCaptions:
    path = options.data / "eccv_caption" / "original_image_to_caption.json"
    ids = ids_by_id(path, benchmark)
    images: dict[int, str] = {}
    captions: dict[int, CaptionById] = {}
    unknown: dict[int, int] = {}
    karpathy = options.data / "coco" / KARPATHY_FILES["coco"]
    for row, found in enumerate(annotated_images(options, "coco", benchmark)):
        image = image_id(found.image, f"{karpathy}: row {row + 1}")
        images[image] = found.image
        if image not in ids:
            raise DataError(
                "E-FILE-MALFORMED",
                f"{path}: has no captions of image {image}, which is in {karpathy}.",
            )
        mine = sorted(ids[image])
        if len(mine) == len(found.captions):
            texts = zip(mine, found.captions, strict=True)
            captions |= {id: CaptionById(image, text) for id, text in texts}
        else:
            unknown |= dict.fromkeys(mine, image)
    return CocoCaptions(images, captions, unknown)


def image_id(name: str, where: str) -> int:
    """365325 of `COCO_val2014_000000365325.jpg`."""
    digits = _NUMBER.search(name)
    if digits is None:
        raise DataError(
            "E-ROW-MALFORMED", f"{where}: {shown(name)} is not the name of a COCO image."
        )
    return int(digits[1])


def ids_by_id(path: Path, benchmark: str) -> dict[int, Sequence[int]]:
    """A JSON object of lists of ids by id, as ECCV Caption publishes them."""
    found = read_json(path, benchmark)
    if not isinstance(found, dict):
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: should hold an object of lists of ids by id, it is {shown(found)}.",
        )
    return {
        _id(key, path): [_id(one, path) for one in _ids(key, found[key], path)] for key in found
    }


def _ids(key: str, value: Any, path: Path) -> list[Any]:
    if isinstance(value, list) and value:
        return value
    where = f"{path}: {shortened(key)}"
    raise DataError("E-ROW-MALFORMED", f"{where}: should be a list of ids, it is {shown(value)}.")


def _id(value: Any, path: Path) -> int:
    if type(value) is int or (isinstance(value, str) and value.isdecimal() and len(value) < 13):
        return int(value)
    raise DataError("E-ROW-MALFORMED", f"{path}: {shown(value)} is not an id.")
