"""A pairs file with drawn images as what a detector of synthetic images and captions learns from.

Each negative with a chosen image gives four examples, as BiVLC's authors took them from TROHN-Img:
the caption and its image are natural, the negative and its image synthetic.
"""

from __future__ import annotations

from pathlib import Path

from counterpoint._util.errors import DataError
from counterpoint.cases import ImageRef
from counterpoint.generation.pairs import read_pairs, root_of
from counterpoint.images import Picture
from counterpoint.models.detector import LabelledItems


def detector_items(pairs: Path, images: Path | None = None) -> LabelledItems:
    """The examples; `images` is the folder of the captions' images, if not the one PAIRS names."""
    found, root = LabelledItems([], []), images or root_of(pairs)
    for frame in read_pairs(pairs):
        for row in frame.iter_rows(named=True):
            if row["kind"] != "negative" or not row["image"] or not row["text_image"]:
                continue
            box = None if row["box"] is None else tuple(row["box"])
            natural = Picture(ImageRef(row["image"], box), root)
            drawn = Picture(ImageRef(row["text_image"]), pairs.parent)
            found.images.extend([(natural, 0), (drawn, 1)])
            found.captions.extend([(row["caption"], 0), (row["text"], 1)])
    if not found.captions:
        raise DataError(
            "E-EXAMPLES-FEW",
            f"{pairs}: no negative has an image of its caption and a drawn one of its own; "
            "draw them with `counterpoint generate images`.",
        )
    return found
