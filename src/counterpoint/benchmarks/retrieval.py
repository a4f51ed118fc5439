"""Retrieval on the Karpathy test splits, with ARO's shuffles of captions and of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

import polars as pl

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.benchmarks.annotations import annotated_images
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.word_order import (
    SHUFFLES,
    TAGGED,
    Shuffler,
    tag_captions,
)
from counterpoint.cases import SCHEMA, Cases
from counterpoint.images import PIECES, shuffle_reference

_PLAIN: Final = "plain"
_CAPTIONS: Final = 5  # of each image, as is usual: some COCO images have six or seven


def _cases(name: str) -> Callable[[Options], Cases]:
    def cases(options: Options) -> Cases:
        benchmark = f"retrieval/{name}"
        found = annotated_images(options, name, benchmark)
        images = [one.image for one in found]
        captions = [caption for one in found for caption in one.captions[:_CAPTIONS]]
        owners = [i for i, one in enumerate(found) for _ in one.captions[:_CAPTIONS]]
        width = len(captions)
        row = {
            "id": "0",
            "images": [{"path": p, "box": None} for p in _shuffle_images(images, options)],
            "captions": _shuffle_captions(captions, options),
            "truth": [image * width + caption for caption, image in enumerate(owners)],
            "groups": [],
            "cluster": name,
        }
        frame = pl.DataFrame([row], schema=SCHEMA)
        return Cases.checked(iter([frame]), options.data, benchmark)

    return cases


def _shuffle_captions(captions: list[str], options: Options) -> list[str]:
    how = _choice(options, "captions", SHUFFLES)
    if how == _PLAIN:
        return captions
    shuffler = Shuffler(options.number("seed"))
    read = tag_captions(captions, tagged=how in TAGGED)
    return [SHUFFLES[how](shuffler, words) for words in read]


def _shuffle_images(images: list[str], options: Options) -> list[str]:
    how = _choice(options, "images", PIECES)
    if how == _PLAIN:
        return images
    # Every image has an order of its own, which does not depend on the others.
    first = options.number("seed") * 1_000_000
    return [shuffle_reference(how, first + number, image) for number, image in enumerate(images)]


def _choice(options: Options, name: str, known: Iterable[str]) -> str:
    chosen = options.text(name)
    names = [_PLAIN, *known]
    if chosen not in names:
        raise NotFoundError(
            "E-OPTION-INVALID",
            did_you_mean(f"shuffle of {name}", chosen, names),
            option=name,
            value=chosen,
        )
    return chosen


def _benchmark(name: str, title: str, images: str, shape: str, count: int) -> Benchmark:
    return Benchmark(
        f"retrieval/{name}",
        f"{title}: find the captions of an image and the image of a caption",
        shape,
        "retrieval",
        _cases(name),
        paper="Karpathy and Fei-Fei 2015; shuffles: Yuksekgonul et al. 2023",
        licence="CC BY 4.0 (annotations)" if name == "coco" else "research only",
        images=images,
        count=1,
        ids="0: the whole test split is one case",
        defaults={"captions": _PLAIN, "images": _PLAIN, "seed": 1},
        files=lambda _: {"": count},
    )


COCO: Final = _benchmark("coco", "COCO", "COCO val2014 (5,000 images)", "5,000 x 25,000", 5_000)
FLICKR30K: Final = _benchmark(
    "flickr30k", "Flickr30k", "Flickr30k (by form)", "1,000 x 5,000", 1_000
)
