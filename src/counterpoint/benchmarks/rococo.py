"""RoCOCO (Park et al. 2024): COCO test captions in which one word was replaced, in four ways.

The paper adds the altered captions to the gallery of COCO retrieval and reports how far
image-to-text recall@1 falls: `rococo/retrieval`. `rococo` compares every caption with its own
altered form. With `people=1` a caption by another person stands between the two: how often the
wording of two people decides is the noise that brittleness has to be compared with.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.benchmarks.annotations import json_rows, text
from counterpoint.benchmarks.benchmark import Benchmark, Options, Size
from counterpoint.benchmarks.retrieval import gallery
from counterpoint.cases import Case, Cases, ImageRef, caption_case

METHODS: Final = ("same_concept", "diff_concept", "rand_voca", "danger")
_CAPTIONS: Final = 5  # of each image that were altered; ten images have a sixth, which was not
_IMAGES: Final = 5_000


class _AlteredImage(NamedTuple):
    image: str
    captions: list[str]
    altered: list[str]  # of the first captions, in their order


def _rows(options: Options, method: str, benchmark: str) -> Iterator[_AlteredImage]:
    path = options.data / "rococo" / f"{method}.json"
    for number, row in enumerate(json_rows(path, benchmark)):
        where = f"{path}: row {number + 1}"
        found = row.get("caption")
        if not isinstance(found, list) or len(found) < 2 * _CAPTIONS:
            count = f"{len(found)} of them" if isinstance(found, list) else type(found).__name__
            raise DataError(
                "E-ROW-MALFORMED",
                f"{where}: 'caption' should hold five captions or more and then their five altered "
                f"forms, it holds {count}.",
            )
        texts = [text({"caption": caption}, "caption", where) for caption in found]
        image = f"coco/{text(row, 'image', where)}"
        yield _AlteredImage(image, texts[:-_CAPTIONS], texts[-_CAPTIONS:])


def _cases(options: Options) -> Cases:
    rows = (case for method in METHODS for case in _method_cases(options, method))
    return Cases.build(rows, root=options.data, source=str(options.data / "rococo"))


def _method_cases(options: Options, method: str) -> Iterator[Case]:
    others = options.number("people")
    for number, row in enumerate(_rows(options, method, "rococo")):
        for place, altered in enumerate(row.altered):
            people = row.captions[place:] + row.captions[:place]  # its own caption first
            yield caption_case(
                f"{method}/{number}/{place}",
                ImageRef(row.image),
                people[: 1 + others],
                [altered],
                (method,),
            )


def _retrieval(options: Options) -> Cases:
    method = options.text("altered")
    if method not in METHODS:
        raise NotFoundError(
            "E-OPTION-INVALID", did_you_mean("way of altering captions", method, METHODS)
        )
    rows = list(_rows(options, method, "rococo/retrieval"))
    captions = [caption for row in rows for caption in row.captions]
    altered = [caption for row in rows for caption in row.altered]
    owners = [image for image, row in enumerate(rows) for _ in row.captions]
    return gallery(
        [row.image for row in rows], captions + altered, owners, options.data, "rococo/retrieval"
    )


_PAPER: Final = "Park et al. 2024, RoCOCO, arXiv 2304.10727"
_LICENCE: Final = "MIT; captions CC BY 4.0 (COCO)"
_PHOTOGRAPHS: Final = "COCO val2014 (5,000 images)"
ROCOCO: Final = Benchmark(
    "rococo",
    "COCO captions against themselves with one word replaced, in four ways",
    "1 x 2",
    "strict",
    _cases,
    paper=_PAPER,
    licence=_LICENCE,
    images=_PHOTOGRAPHS,
    count=len(METHODS) * _IMAGES * _CAPTIONS,
    ids="method/row/caption, as danger/0/4",
    defaults={"people": 0},
    files=lambda _: dict.fromkeys(METHODS, _IMAGES * _CAPTIONS),
)
RETRIEVAL: Final = Benchmark(
    "rococo/retrieval",
    "COCO retrieval with the altered captions of one method in the gallery",
    "5,000 x 50,010",
    "retrieval",
    _retrieval,
    paper=_PAPER,
    licence=_LICENCE,
    images=_PHOTOGRAPHS,
    count=1,
    ids="0: the whole test split is one case",
    defaults={"altered": METHODS[0]},
    files=lambda _: {"": Size(1, _IMAGES, 50_010)},
)
