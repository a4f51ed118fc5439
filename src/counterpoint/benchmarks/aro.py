"""ARO (Yuksekgonul et al. 2023).

VG-Relation and VG-Attribution: two objects or their attributes swapped, on crops of Visual Genome.
COCO-Order and Flickr30k-Order: a caption against four shuffles of its words.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import CaseError, DataError
from counterpoint._util.store import default_store, digest
from counterpoint.benchmarks.annotations import (
    KARPATHY_FILES,
    annotated_images,
    json_rows,
    label,
    number,
    require,
    text,
)
from counterpoint.benchmarks.benchmark import DRAWN, Benchmark, Options, over_seeds
from counterpoint.benchmarks.word_order import (
    ORDER,
    SHUFFLES,
    Shuffler,
    tag_captions,
    version,
)
from counterpoint.cases import Case, Cases, ImageRef, caption_case, read_cases, write_cases
from counterpoint.metrics import UNCOUNTED_RELATIONS

Row = dict[str, Any]
_VERSION: Final = 1  # of the shuffles: raise it when their code changes
SPATIAL_RELATIONS: Final = frozenset(
    (
        *("above", "at", "behind", "below", "beneath", "in", "in front of", "inside", "on"),
        *("on top of", "to the left of", "to the right of", "under"),
    )
)
PAPER: Final = "Yuksekgonul et al. 2023, When and why VLMs behave like bags-of-words, ICLR"


class AroImages:
    """Where ARO's images are: in its own folder, or else in Visual Genome's."""

    _FOLDERS: Final = ("aro/images", "visual_genome/VG_100K", "visual_genome/VG_100K_2")

    def __init__(self, root: Path) -> None:
        found = {folder: root / folder for folder in self._FOLDERS}
        self._there = {
            folder: {file.name for file in path.iterdir()} if path.is_dir() else set()
            for folder, path in found.items()
        }

    def path(self, name: str) -> str:
        """The image of this name, which may include folders (`data/VG_100K_2/1.jpg`)."""
        plain = name.rpartition("/")[2]
        for folder, names in self._there.items():
            if plain in names:
                return f"{folder}/{plain}"
        behind = name.removeprefix("data/")
        return f"visual_genome/{behind}" if behind.startswith("VG_") else f"aro/images/{plain}"


def box(row: dict[str, Any], where: str) -> tuple[int, int, int, int]:
    """The smallest box that holds both objects."""
    x, y, w, h = (number(row, f"bbox_{side}", where) for side in "xywh")
    return x, y, w, h


def _read(options: Options, name: str, benchmark: str) -> Iterator[tuple[Case, Row, str]]:
    """Every row as a case without a group, with the row itself and where it is."""
    path = options.data / "aro" / name
    images = AroImages(options.data)
    for place, row in enumerate(json_rows(path, benchmark)):
        where = f"{path}: row {place + 1}"
        image = ImageRef(images.path(text(row, "image_path", where)), box(row, where))
        original, negative = (text(row, key, where) for key in ("true_caption", "false_caption"))
        yield caption_case(str(place), image, (original,), (negative,)), row, where


def _grouped(case: Case, group: str, *more: str) -> Case:
    groups = (label(group), *more)
    return Case(case.id, case.images, case.captions, case.truth, groups, case.cluster)


def _relation(options: Options) -> Cases:
    """Each case in the group of its relation and, if that counts, of its kind of relation."""
    rows = (
        _grouped(case, name, *_kind(name))
        for case, row, where in _read(options, "visual_genome_relation.json", "aro/vg-relation")
        for name in (text(row, "relation_name", where).strip(),)
    )
    return Cases.build(rows, root=options.data, source="aro/vg-relation")


def _kind(relation: str) -> tuple[str, ...]:
    """The paper's Table 2 has two parts: 13 spatial relations, and all others as verbs."""
    if relation in UNCOUNTED_RELATIONS:
        return ()
    return ("spatial",) if relation in SPATIAL_RELATIONS else ("verbs",)


def read_attribution(options: Options, benchmark: str) -> Iterator[Case]:
    """VG-Attribution, each case in the group of its two attributes."""
    for case, row, where in _read(options, "visual_genome_attribution.json", benchmark):
        pair = row.get("attributes")
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_text, pair)):
            raise DataError(
                "E-ROW-MALFORMED",
                f"{where}: 'attributes' should hold two texts, it is {pair!r:.60}.",
            )
        yield _grouped(case, f"{pair[0]}_{pair[1]}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _attribution(options: Options) -> Cases:
    rows = read_attribution(options, "aro/vg-attribution")
    return Cases.build(rows, root=options.data, source="aro/vg-attribution")


def _order(name: str) -> Callable[[Options], Cases]:
    def cases(options: Options) -> Cases:
        source, file = f"aro/{name}-order", options.data / name / KARPATHY_FILES[name]

        def draw(seed: int) -> Cases:
            what = f"{source} {_VERSION} seed={seed} {version()}"
            return cached_cases(what, require(file, source), options.data, lambda: build(seed))

        def build(seed: int) -> Cases:
            rows = _shuffled(options, name, source, seed)
            return Cases.build(rows, root=options.data, source=source)

        return over_seeds(options, draw)

    return cases


def _shuffled(options: Options, name: str, benchmark: str, seed: int) -> Iterator[Case]:
    shuffler = Shuffler(seed)
    found = annotated_images(options, name, benchmark)
    images = [image for image, captions in found for _ in captions]
    texts = (caption for _, captions in found for caption in captions)
    for place, (image, words) in enumerate(zip(images, tag_captions(texts), strict=True)):
        negatives = [SHUFFLES[how](shuffler, words) for how in ORDER]
        yield caption_case(str(place), ImageRef(image), (words.text,), negatives)


def cached_cases(what: str, source: Path, root: Path, build: Callable[[], Cases]) -> Cases:
    """The table that `build` makes, from the cache folder if it was made before.

    It depends on `what` and on the bytes of `source` alone. `root` is the folder that the paths of
    its images start from.
    """
    key = digest(what, source.read_bytes()).hex()
    path = default_store().parent / "cases" / f"{key}.parquet"
    with suppress(CaseError):  # not there, or damaged: made anew
        return Cases(read_cases(path).frame, root)
    cases = build()
    with suppress(CaseError):  # a full disk or a read-only cache costs time, not the result
        write_cases(cases, path)
    return cases


RELATION: Final = Benchmark(
    "aro/vg-relation",
    "two objects of a relation swapped, on the crop that holds both",
    "1 x 2",
    "vg-relation",
    _relation,
    paper=PAPER,
    licence="MIT",
    images="Visual Genome, cropped",
    count=23_937,
)
ATTRIBUTION: Final = Benchmark(
    "aro/vg-attribution",
    "the attributes of two objects swapped, on the crop that holds both",
    "1 x 2",
    "vg-attribution",
    _attribution,
    paper=PAPER,
    licence="MIT",
    images="Visual Genome, cropped",
    count=28_748,
)


def _benchmark(name: str, title: str, count: int, images: str) -> Benchmark:
    return Benchmark(
        f"aro/{name}-order",
        f"{title} captions against four shuffles of their words",
        "1 x 5",
        "aro-order",
        _order(name),
        paper=PAPER,
        licence="MIT",
        images=images,
        count=count,
        ids="caption number from 0, in the order of the file; seed/number of several seeds",
        defaults=DRAWN,
        files=lambda options: options.files(count),
    )


COCO: Final = _benchmark("coco", "COCO", 25_010, "COCO val2014 (5,000 images)")
FLICKR30K: Final = _benchmark("flickr30k", "Flickr30k", 5_000, "Flickr30k (1,000 images, by form)")
