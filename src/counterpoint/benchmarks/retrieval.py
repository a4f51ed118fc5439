"""Retrieval: all images and all captions of a test split as one case, a gallery.

`retrieval/coco` and `retrieval/flickr30k` are the test splits by Karpathy, with ARO's shuffles of
captions and of images.

ECCV Caption (Chun et al. 2022) is COCO's with all true matches of 1,261 images and 1,332 captions,
for which people judged what five models retrieved: recall@1, R-precision and mAP@R, both ways. It
names captions by COCO's ids, and the Karpathy file has their texts without ids. The ids of an image
in ascending order are those of its texts in the order of that file. For ten images the file has six
texts: which of them has no id is unknown, and the captions of these images are left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.untrusted import shortened, shown
from counterpoint.benchmarks.benchmark import Options, Size, Sizes, over_seeds
from counterpoint.benchmarks.reading import (
    chosen_option,
    json_rows,
    malformed,
    read_json,
    text,
)
from counterpoint.benchmarks.word_order import SHUFFLES, TAGGED, Shuffler, tag_captions
from counterpoint.cases import CAPTION_FORMATS, OPTIONAL, SCHEMA, Absent, Cases
from counterpoint.images import PIECES, shuffle_reference

KARPATHY_FILES: Final = {"coco": "coco_karpathy_test.json", "flickr30k": "flickr30k_test.json"}
UNKNOWN_TEXT: Final = "the caption's text is unknown"
_PLAIN: Final = "plain"
_ARO: Final = "aro-retrieval"
_CAPTIONS: Final = 5  # of each image, as is usual: some COCO images have six or seven
_COCO_NAME: Final = re.compile(r"(\d{1,12})\.jpg$")


def gallery(
    images: Sequence[str],
    captions: Sequence[str],
    true: Iterable[tuple[int, int]],
    *,
    id: str = "0",
    groups: Sequence[str] = (),
    cluster: str = "",
    queries: Sequence[int] | None = None,
) -> pl.DataFrame:
    """One case of many images and captions. `true` pairs the numbers of an image and a caption;
    `queries`, if not all are, has those of images, and of captions after all images.
    """
    row = {
        "id": id,
        "images": [{"path": path, "box": None} for path in images],
        "captions": list(captions),
        "truth": sorted(image * len(captions) + caption for image, caption in true),
        "groups": list(groups),
        "cluster": cluster,
    }
    if queries is None:
        return pl.DataFrame([row], schema=SCHEMA)
    schema = {**SCHEMA, "queries": OPTIONAL["queries"]}
    return pl.DataFrame([{**row, "queries": list(queries)}], schema=schema)


def owned_gallery(
    images: Sequence[str], captions: Sequence[str], owners: Iterable[int], root: Path, source: str
) -> Cases:
    """`owners` has the image of each of the first captions; those after these are of no image."""
    true = ((image, caption) for caption, image in enumerate(owners))
    frame = gallery(images, captions, true, cluster=source.rpartition("/")[2])
    return Cases.checked(iter([frame]), root, source)


# --- the test splits by Karpathy -----------------------------------------------------------------


class CaptionedImage(NamedTuple):
    """An image, as a path under the data root, and its captions."""

    image: str
    captions: list[str]


def captioned_images(path: Path, folder: str, benchmark: str) -> list[CaptionedImage]:
    """The rows of a file in Karpathy's form. `folder` is that of the images."""
    found = []
    for number, row in enumerate(json_rows(path, benchmark), start=1):
        where = f"{path}: row {number}"
        captions = row.get("caption")
        if not isinstance(captions, list) or not captions:
            raise malformed(where, "'caption' should hold a list of texts")
        texts = [text({"caption": caption}, "caption", where) for caption in captions]
        found.append(CaptionedImage(f"{folder}/{text(row, 'image', where)}", texts))
    return found


def split_images(options: Options, name: str, benchmark: str) -> list[CaptionedImage]:
    """The test split of `coco` or `flickr30k`: images with five captions each."""
    return captioned_images(options.data / name / KARPATHY_FILES[name], name, benchmark)


def karpathy(options: Options, name: str, **_: object) -> Cases:
    benchmark = f"retrieval/{name}"
    seeds, shuffled = len(options.seeds), (options.text("captions"), options.text("images"))
    if seeds > 1 and shuffled == (_PLAIN, _PLAIN):
        raise NotFoundError(
            "E-OPTION-INVALID",
            f"{benchmark}: seeds={seeds}, and nothing is shuffled; choose a shuffle of captions or "
            "of images.",
        )
    rows = split_images(options, name, benchmark)
    return over_seeds(options, lambda seed: _split_gallery(rows, benchmark, options, seed))


def karpathy_files(options: Options, size: Sequence[int], aro: int, **_: object) -> Sizes:
    """`aro` is the number of captions that ARO takes."""
    images, captions = size
    return options.files(Size(1, images, aro if options.protocol == _ARO else captions))


def _split_gallery(
    rows: list[CaptionedImage], benchmark: str, options: Options, seed: int
) -> Cases:
    aro = options.protocol == _ARO
    kept = [one.captions if aro else one.captions[:_CAPTIONS] for one in rows]
    captions = [CAPTION_FORMATS["aro" if aro else "raw"](text) for own in kept for text in own]
    owners = [image for image, own in enumerate(kept) for _ in own]
    how = chosen_option(options, "captions", [_PLAIN, *SHUFFLES], "shuffle of captions")
    if how != _PLAIN:
        shuffler = Shuffler(seed)
        tagged = tag_captions(captions, tagged=how in TAGGED)
        captions = [SHUFFLES[how](shuffler, words) for words in tagged]
    images = [one.image for one in rows]
    how = chosen_option(options, "images", [_PLAIN, *PIECES], "shuffle of images")
    if how != _PLAIN:  # every image has an order of its own, which does not depend on the others
        first = seed * 1_000_000
        images = [shuffle_reference(how, first + n, image) for n, image in enumerate(images)]
    return owned_gallery(images, captions, owners, options.data, benchmark)


# --- COCO's captions by their ids ----------------------------------------------------------------


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
    known = CocoCaptions({}, {}, {})
    file = options.data / "coco" / KARPATHY_FILES["coco"]
    for number, row in enumerate(split_images(options, "coco", benchmark), start=1):
        image = coco_id(row.image, f"{file}: row {number}")
        known.images[image] = row.image
        if image not in ids:
            raise DataError(
                "E-FILE-MALFORMED",
                f"{path}: has no captions of image {image}, which is in {file}.",
            )
        captions = sorted(ids[image])
        if len(captions) == len(row.captions):
            texts = zip(captions, row.captions, strict=True)
            known.captions.update((id, CaptionById(image, text)) for id, text in texts)
        else:
            known.unknown.update(dict.fromkeys(captions, image))
    return known


def coco_id(name: str, where: str) -> int:
    """365325 of `COCO_val2014_000000365325.jpg`."""
    digits = _COCO_NAME.search(name)
    if digits is None:
        raise malformed(where, f"{shown(name)} is not the name of a COCO image")
    return int(digits[1])


def ids_by_id(path: Path, benchmark: str) -> Mapping[int, Sequence[int]]:
    """A JSON object of lists of ids by id, as ECCV Caption publishes them."""
    rows = read_json(path, benchmark)
    if not isinstance(rows, dict):
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: should hold an object of lists of ids by id, it is {shown(rows)}.",
        )
    for key, ids in rows.items():
        if not isinstance(ids, list) or not ids:
            where = f"{path}: {shortened(key)}"
            raise malformed(where, f"should be a list of ids, it is {shown(ids)}")
    return {_id(key, path): [_id(one, path) for one in ids] for key, ids in rows.items()}


def _id(value: Any, path: Path) -> int:
    if type(value) is int or (isinstance(value, str) and value.isdecimal() and len(value) < 13):
        return int(value)
    raise malformed(str(path), f"{shown(value)} is not an id")


def eccv_caption(options: Options) -> Cases:
    benchmark, folder = "eccv-caption", options.data / "eccv_caption"
    known = coco_captions(options, benchmark)
    of_image = ids_by_id(folder / "eccv_image_to_caption.json", benchmark)
    of_caption = ids_by_id(folder / "eccv_caption_to_image.json", benchmark)
    images = {id: place for place, id in enumerate(known.images)}
    captions = {id: place for place, id in enumerate(known.captions)}

    # What was judged replaces COCO's own pairs, for images and captions that are queries.
    pairs = {
        (caption.image, id)
        for id, caption in known.captions.items()
        if caption.image not in of_image and id not in of_caption
    }
    pairs |= {(image, caption) for image, several in of_image.items() for caption in several}
    pairs |= {(image, caption) for caption, several in of_caption.items() for image in several}
    frame = gallery(
        list(known.images.values()),
        [caption.text for caption in known.captions.values()],
        ((images[i], captions[c]) for i, c in pairs if i in images and c in captions),
        cluster=benchmark,
        queries=[
            *sorted(images[image] for image in of_image if image in images),
            *sorted(len(images) + captions[one] for one in of_caption if one in captions),
        ],
    )
    cases = Cases.checked(iter([frame]), options.data, benchmark)
    lost = [Absent(f"caption {id}", UNKNOWN_TEXT, 0) for id in known.unknown if id in of_caption]
    return Cases(cases.frame, cases.root, lost)
