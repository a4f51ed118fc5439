"""ARO's COCO-Order and Flickr30k-Order: a caption against four shuffles of its words."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from counterpoint.benchmarks import Benchmark, Options
from counterpoint.benchmarks.aro import PAPER
from counterpoint.benchmarks.karpathy import FILES, annotated_images
from counterpoint.benchmarks.remembered import remembered
from counterpoint.benchmarks.sources import require
from counterpoint.benchmarks.word_order import ORDER, SHUFFLES, Shuffler, read_words, version
from counterpoint.cases import Case, Cases, ImageRef, caption_case

_VERSION: Final = 1  # of the shuffles: raise it when their code changes


def _cases(name: str) -> Callable[[Options], Cases]:
    def cases(options: Options) -> Cases:
        source, file = f"aro/{name}-order", options.data / name / FILES[name]
        what = f"{source} {_VERSION} seed={options.number('seed')} {version()}"

        def build() -> Cases:
            return Cases.build(_shuffled(options, name, source), root=options.data, source=source)

        return remembered(what, require(file, source), options.data, build)

    return cases


def _shuffled(options: Options, name: str, benchmark: str) -> Iterator[Case]:
    shuffler = Shuffler(options.number("seed"))
    found = annotated_images(options, name, benchmark)
    images = [image for image, captions in found for _ in captions]
    texts = (caption for _, captions in found for caption in captions)
    for number, (image, words) in enumerate(zip(images, read_words(texts), strict=True)):
        negatives = [SHUFFLES[how](shuffler, words) for how in ORDER]
        yield caption_case(str(number), ImageRef(image), (words.text,), negatives)


def _benchmark(name: str, title: str, count: int, images: str) -> Benchmark:
    return Benchmark(
        f"aro/{name}-order",
        f"{title} captions against four shuffles of their words",
        "1 x 5",
        "aro-order",
        _cases(name),
        paper=PAPER,
        licence="MIT",
        images=images,
        count=count,
        ids="caption number from 0, in the order of the file",
        defaults={"seed": 1},
    )


COCO: Final = _benchmark("coco", "COCO", 25_010, "COCO val2014 (5,000 images)")
FLICKR30K: Final = _benchmark("flickr30k", "Flickr30k", 5_000, "Flickr30k (1,000 images, by form)")
