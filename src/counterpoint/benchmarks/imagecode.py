"""ImageCoDe (Krojer et al. 2022): one description and ten images that are much alike.

Images are frames of one video or, in `static` sets, similar photographs. The validation split: of
the test split the authors keep the answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from counterpoint.benchmarks.annotations import read_json, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import published_file, unexpected
from counterpoint.cases import Case, Cases, ImageRef

FILE: Final = "valid_data.json"
_IMAGES: Final = 10
_PLACES: Final = ("", "image-sets", "games")  # folders of sets, beside the file
_STATIC: Final = "open-images"
_FRAME: Final = re.compile(r"img(\d{1,9})\.jpg")


def _cases(options: Options) -> Cases:
    path = published_file(options.data / "imagecode", [FILE], "imagecode")
    return Cases.build(_rows(path, options.data), root=options.data, source=str(path))


def _rows(path: Path, root: Path) -> Iterator[Case]:
    sets = read_json(path, "imagecode")
    if not isinstance(sets, dict):
        raise unexpected(path, "an object with the descriptions of each set", sets)
    for name, descriptions in sets.items():
        where = f"{path}: set {name}"
        if PurePosixPath(name).name != name:
            raise unexpected(where, "the name of a folder", name)
        if not isinstance(descriptions, dict):
            raise unexpected(where, "an object with a description for each image", descriptions)
        images = _images(path.parent, name, where)
        for image in descriptions:
            if not (image.isdecimal() and len(image) < 3 and int(image) < _IMAGES):
                raise unexpected(where, "images from 0 to 9", descriptions)
            yield Case(
                f"{name}/{image}",
                tuple(ImageRef(file.relative_to(root).as_posix()) for file in images),
                (text(descriptions, image, where).strip(),),
                tuple((place == int(image),) for place in range(_IMAGES)),
                ("static" if _STATIC in name else "video",),
                cluster=name,
            )


def _images(folder: Path, name: str, where: str) -> list[Path]:
    """The ten images of a set in the order of their numbers, which are those of video frames."""
    places = (folder / part / name for part in _PLACES)
    found = next((place for place in places if place.is_dir()), None)
    if found is None:
        return [folder / name / f"img{number}.jpg" for number in range(_IMAGES)]
    numbered = [(frame, file) for file in found.iterdir() if (frame := _FRAME.fullmatch(file.name))]
    if len(numbered) != _IMAGES:
        raise unexpected(where, f"ten images img0.jpg ... in {found}", found)
    return [file for _, file in sorted(numbered, key=lambda pair: int(pair[0][1]))]


IMAGECODE: Final = Benchmark(
    "imagecode",
    "one description and ten images that are much alike, most of them frames of one video",
    "10 x 1",
    "imagecode",
    _cases,
    paper="Krojer et al. 2022, ImageCoDe, arXiv 2203.15867",
    licence="MIT",
    images="with the data set",
    count=2_302,
    ids="set/image, as MSR-VTT-videoTrainValVideo_video2044-shot1_0/6",
    numbered=False,
    untried=True,
)
