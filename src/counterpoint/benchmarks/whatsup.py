"""What'sUp (Kamath et al. 2023): prepositions of place, balanced.

`whatsup` has photographs of two household objects in four arrangements each, A and B, with one
caption for each arrangement. With `whatsup:together=2` a case is a pair of photographs (left and
right, or the other two), with `together=4` a set of all four, and each has to get its own caption:
`image_to_text` is then the paper's pair and set accuracy. `whatsup/coco` and `whatsup/gqa` have
photographs of COCO and GQA, with one object or two, and the caption with the opposite preposition.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from counterpoint.benchmarks.annotations import VisualGenome, read_json, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import (
    chosen_option,
    object_rows,
    published_file,
    unexpected,
)
from counterpoint.cases import Case, Cases, ImageRef, caption_case

_PLACES: Final = ("left", "right", "above", "below", "top", "bottom", "front", "behind")
_ARRANGED: Final = ("left_of", "right_of", "in-front_of", "behind", "on", "under", "other")
_NAME, _WITH = "whatsup", "together"
TOGETHER: Final = ("1", "2", "4")  # photographs that have to be right at once


class _SpatialFile(NamedTuple):
    name: str
    group: str
    cases: int


_CONTROLLED: Final = (
    _SpatialFile("controlled_images_dataset.json", "a", 412),
    _SpatialFile("controlled_clevr_dataset.json", "b", 408),
)
_QUESTIONS: Final = {
    "coco": (
        _SpatialFile("coco_qa_one_obj.json", "one", 2_247),
        _SpatialFile("coco_qa_two_obj.json", "two", 440),
    ),
    "gqa": (
        _SpatialFile("vg_qa_one_obj.json", "one", 1_160),
        _SpatialFile("vg_qa_two_obj.json", "two", 291),
    ),
}


class _Photograph(NamedTuple):
    row: int
    name: str
    image: ImageRef
    captions: list[str]  # the right one first


def _cases(options: Options) -> Cases:
    folder, together = options.data / "whatsup", int(chosen_option(options, _WITH, TOGETHER, _NAME))
    rows = (
        case
        for file in _CONTROLLED
        for case in _controlled(published_file(folder, [file.name], _NAME), file.group, together)
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _controlled(path: Path, group: str, together: int) -> Iterator[Case]:
    if together == 1:
        for one in _photographs(path):
            right, *wrong = one.captions
            label, source = f"{group}/{_arrangement(one.name)}", f"{group}/{_objects(one.name)}"
            yield caption_case(
                f"{group}/{one.row}", one.image, [right], wrong, (label,), cluster=source
            )
        return
    sets: dict[str, list[_Photograph]] = {}
    for one in _photographs(path):
        sets.setdefault(_objects(one.name), []).append(one)
    for objects, four in sets.items():
        if len(four) != 4:
            raise unexpected(path, f"four photographs of {objects}", [one.name for one in four])
        four.sort(key=lambda one: _ARRANGED.index(_arrangement(one.name)))
        for start in range(0, 4, together):
            some = four[start : start + together]
            captions = [one.captions[0] for one in some]
            captions += sorted({text for one in some for text in one.captions} - {*captions})
            truth = tuple(tuple(n == m for m in range(len(captions))) for n in range(together))
            label = "+".join([_arrangement(one.name) for one in some])
            yield Case(
                f"{group}/{some[0].row}",
                tuple(one.image for one in some),
                tuple(captions),
                truth,
                (f"{group}/{label}",),
                f"{group}/{objects}",
            )


def _photographs(path: Path) -> Iterator[_Photograph]:
    for place, row in enumerate(object_rows(path, ("image_path", "caption_options"), _NAME)):
        where = f"{path}: row {place + 1}"
        captions = row["caption_options"]
        if not isinstance(captions, list) or len(captions) != 4:
            raise unexpected(where, "four caption_options, the right one first", captions)
        # The path is that of the authors' machine: its last two parts are folder and file.
        parts = PurePosixPath(text(row, "image_path", where)).parts
        if len(parts) < 2:
            raise unexpected(where, "an image_path of folder and file", row["image_path"])
        folder, name = parts[-2:]
        said = [text({"caption": one}, "caption", where) for one in captions]
        yield _Photograph(place, name, ImageRef(f"whatsup/{folder}/{name}"), said)


def _arrangement(name: str) -> str:
    """`beer-bottle_left_of_armchair.jpeg` is `left_of`."""
    return next((word for word in _ARRANGED if f"_{word}_" in name), _ARRANGED[-1])


def _objects(name: str) -> str:
    """The four photographs of the same two objects are one source."""
    return PurePosixPath(name.replace(f"_{_arrangement(name)}_", "_")).stem


def _spatial(options: Options, source: str) -> Cases:
    folder, benchmark = options.data / "whatsup", f"whatsup/{source}"
    genome = VisualGenome(options.data)
    rows = (
        case
        for file in _QUESTIONS[source]
        for case in _questions(
            published_file(folder, [file.name], benchmark), file.group, source, options, genome
        )
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _questions(
    path: Path, group: str, source: str, options: Options, genome: VisualGenome
) -> Iterator[Case]:
    rows = read_json(path, f"whatsup/{source}")
    if not isinstance(rows, list):
        raise unexpected(path, "a list of [image, right caption, wrong caption]", rows)
    for place, row in enumerate(rows):
        where = f"{path}: row {place + 1}"
        if not isinstance(row, list) or len(row) != 3 or not isinstance(row[0], int | str):
            raise unexpected(where, "[image, right caption, wrong caption]", row)
        right, wrong = (text({"caption": one}, "caption", where) for one in row[1:])
        yield caption_case(
            f"{group}/{place}",
            ImageRef(_image(row[0], source, options, genome)),
            [right],
            [wrong],
            (f"{group}/{_preposition(right)}",),
        )


def _image(image: Any, source: str, options: Options, genome: VisualGenome) -> str:
    if source == "coco":
        return f"coco/val2017/{str(image).zfill(12)}.jpg"
    own = f"whatsup/vg_images/{image}.jpg"
    return own if (options.data / own).exists() else genome.find(image) or own


def _preposition(caption: str) -> str:
    """The preposition of the right caption: with one object, its last word."""
    words = caption.lower().rstrip(". ").split()
    return next((word for word in reversed(words) if word in _PLACES), "other")


_PAPER: Final = 'Kamath et al. 2023, What\'s "up" with vision-language models?, arXiv 2310.19785'
_LICENCE: Final = "MIT"
WHATSUP: Final = Benchmark(
    "whatsup",
    "four captions of two household objects: left, right, on, under, in front or behind",
    "1 x 4",
    "whatsup",
    _cases,
    paper=_PAPER,
    licence=_LICENCE,
    images="with the data set (820 photographs)",
    count=sum(file.cases for file in _CONTROLLED),
    ids="subset/row, as a/0",
    files=lambda options: {
        file.group: file.cases // max(1, options.number(_WITH)) for file in _CONTROLLED
    },
    defaults={_WITH: 1},
    untried=True,
)


def _two_captions(source: str, name: str, images: str) -> Benchmark:
    files = _QUESTIONS[source]
    return Benchmark(
        f"whatsup/{source}",
        f"{name}-spatial: captions with a preposition of place and with its opposite",
        "1 x 2",
        "whatsup",
        partial(_spatial, source=source),
        paper=_PAPER,
        licence=_LICENCE,
        images=images,
        count=sum(file.cases for file in files),
        ids="objects/row, as one/0",
        files=lambda _: {file.group: file.cases for file in files},
        untried=True,
    )


COCO: Final = _two_captions("coco", "COCO", "COCO val2017")
GQA: Final = _two_captions("gqa", "GQA", "Visual Genome, in whatsup/vg_images or visual_genome")
