"""ECCV Caption (Chun et al. 2022): COCO retrieval in which all true matches are known.

The gallery is the Karpathy test split. The queries are the 1,261 images and 1,332 captions for
which people judged what five models retrieved: recall@1, R-precision and mAP@R, both ways.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from counterpoint.benchmarks.benchmark import Benchmark, Options, Size
from counterpoint.benchmarks.coco_captions import UNKNOWN_TEXT, coco_captions, ids_by_id
from counterpoint.cases import OPTIONAL, SCHEMA, Absent, Cases

_ID: Final = "eccv-caption"


def _cases(options: Options) -> Cases:
    folder = options.data / "eccv_caption"
    known = coco_captions(options, _ID)
    of_image = ids_by_id(folder / "eccv_image_to_caption.json", _ID)
    of_caption = ids_by_id(folder / "eccv_caption_to_image.json", _ID)
    images = {id: place for place, id in enumerate(known.images)}
    captions = {id: place for place, id in enumerate(known.captions)}
    width = len(captions)

    # What was judged replaces COCO's own pairs, for images and captions that are queries.
    pairs = {
        (caption.image, id)
        for id, caption in known.captions.items()
        if caption.image not in of_image and id not in of_caption
    }
    pairs |= {(image, caption) for image, several in of_image.items() for caption in several}
    pairs |= {(image, caption) for caption, several in of_caption.items() for image in several}
    row = {
        "id": "0",
        "images": [{"path": path, "box": None} for path in known.images.values()],
        "captions": [caption.text for caption in known.captions.values()],
        "truth": sorted(
            images[image] * width + captions[caption]
            for image, caption in pairs
            if image in images and caption in captions
        ),
        "groups": [],
        "cluster": _ID,
        "queries": sorted(images[image] for image in of_image if image in images)
        + sorted(len(images) + captions[one] for one in of_caption if one in captions),
    }
    schema = {**SCHEMA, "queries": OPTIONAL["queries"]}
    made = Cases.checked(iter([pl.DataFrame([row], schema=schema)]), options.data, _ID)
    lost = [Absent(f"caption {id}", UNKNOWN_TEXT, 0) for id in known.unknown if id in of_caption]
    return Cases(made.frame, made.root, lost)


ECCV_CAPTION: Final = Benchmark(
    _ID,
    "COCO retrieval with all true matches of 1,261 images and 1,332 captions",
    "5,000 x 24,950",
    "retrieval",
    _cases,
    paper="Chun et al. 2022, ECCV Caption, arXiv 2204.03359",
    licence="MIT; captions CC BY 4.0 (COCO)",
    images="COCO val2014 (5,000 images)",
    count=1,
    ids="0: the whole test split is one case",
    # Of 25,000 captions 50 have no text that is known, and of 2,593 queries three.
    files=lambda _: {"": Size(1, 5_000, 24_950, 2_590)},
)
