"""Retrieval on the Karpathy test splits, with ARO's shuffles of captions and of images."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final

import polars as pl

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.benchmarks.annotations import Annotated, annotated_images
from counterpoint.benchmarks.benchmark import DRAWN, Benchmark, Options, Size, over_seeds
from counterpoint.benchmarks.word_order import (
    SHUFFLES,
    TAGGED,
    Shuffler,
    tag_captions,
)
from counterpoint.cases import CAPTION_FORMATS, SCHEMA, Cases
from counterpoint.images import PIECES, shuffle_reference

_PLAIN: Final = "plain"
_ARO: Final = "aro-retrieval"
_CAPTIONS: Final = 5  # of each image, as is usual: some COCO images have six or seven


def _cases(name: str) -> Callable[[Options], Cases]:
    benchmark = f"retrieval/{name}"

    def cases(options: Options) -> Cases:
        if len(options.seeds) > 1 and {options.text("captions"), options.text("images")} == {
            _PLAIN
        }:
            raise NotFoundError(
                "E-OPTION-INVALID",
                f"{benchmark}: seeds={len(options.seeds)}, and nothing is shuffled; choose a "
                "shuffle of captions or of images.",
            )
        found = annotated_images(options, name, benchmark)
        return over_seeds(options, lambda seed: _gallery(found, name, options, seed))

    return cases


def _gallery(found: list[Annotated], name: str, options: Options, seed: int) -> Cases:
    images = [one.image for one in found]
    aro = options.protocol == _ARO
    kept = [one.captions if aro else one.captions[:_CAPTIONS] for one in found]
    captions = [CAPTION_FORMATS["aro" if aro else "raw"](text) for own in kept for text in own]
    owners = [i for i, own in enumerate(kept) for _ in own]
    return gallery(
        _shuffle_images(images, options, seed),
        _shuffle_captions(captions, options, seed),
        owners,
        options.data,
        f"retrieval/{name}",
    )


def gallery(
    images: Sequence[str],
    captions: Sequence[str],
    owners: Iterable[int],
    root: Path,
    source: str,
) -> Cases:
    """All images and captions as one case. `owners` has the image of each of the first captions;
    the captions after these are true of no image.
    """
    width = len(captions)
    row = {
        "id": "0",
        "images": [{"path": path, "box": None} for path in images],
        "captions": list(captions),
        "truth": sorted(image * width + caption for caption, image in enumerate(owners)),
        "groups": [],
        "cluster": source.rpartition("/")[2],
    }
    return Cases.checked(iter([pl.DataFrame([row], schema=SCHEMA)]), root, source)


def _shuffle_captions(captions: list[str], options: Options, seed: int) -> list[str]:
    how = _choice(options, "captions", SHUFFLES)
    if how == _PLAIN:
        return captions
    shuffler = Shuffler(seed)
    read = tag_captions(captions, tagged=how in TAGGED)
    return [SHUFFLES[how](shuffler, words) for words in read]


def _shuffle_images(images: list[str], options: Options, seed: int) -> list[str]:
    how = _choice(options, "images", PIECES)
    if how == _PLAIN:
        return images
    # Every image has an order of its own, which does not depend on the others.
    first = seed * 1_000_000
    return [shuffle_reference(how, first + number, image) for number, image in enumerate(images)]


def _choice(options: Options, name: str, known: Iterable[str]) -> str:
    chosen = options.text(name)
    names = [_PLAIN, *known]
    if chosen not in names:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean(f"shuffle of {name}", chosen, names))
    return chosen


def _benchmark(name: str, title: str, images: str, shape: str, size: Size, all: int) -> Benchmark:
    """`all` is the number of captions that ARO takes."""
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
        ids="0: the whole test split is one case; seed/0 of several seeds",
        defaults={"captions": _PLAIN, "images": _PLAIN, **DRAWN},
        files=lambda options: options.files(
            size._replace(captions=all) if options.protocol == _ARO else size
        ),
        loads=(_ARO,),
    )


COCO: Final = _benchmark(
    "coco", "COCO", "COCO val2014 (5,000 images)", "5,000 x 25,000", Size(1, 5_000, 25_000), 25_010
)
FLICKR30K: Final = _benchmark(
    "flickr30k", "Flickr30k", "Flickr30k (by form)", "1,000 x 5,000", Size(1, 1_000, 5_000), 5_000
)
