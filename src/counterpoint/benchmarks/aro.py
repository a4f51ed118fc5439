"""ARO (Yuksekgonul et al. 2023): VG-Relation and VG-Attribution, on crops of Visual Genome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks import Benchmark, Options
from counterpoint.benchmarks.sources import json_rows, label, number, text
from counterpoint.cases import Case, Cases, ImageRef, caption_case
from counterpoint.errors import DataError

Row = dict[str, Any]
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
        """The image of this name, which may stand behind folders (`data/VG_100K_2/1.jpg`)."""
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
        where = f"{path}: row {place}"
        image = ImageRef(images.path(text(row, "image_path", where)), box(row, where))
        original, negative = (text(row, key, where) for key in ("true_caption", "false_caption"))
        yield caption_case(str(place), image, (original,), (negative,)), row, where


def _grouped(case: Case, group: str) -> Case:
    return Case(case.id, case.images, case.captions, case.truth, (label(group),), case.cluster)


def _relation(options: Options) -> Cases:
    rows = (
        _grouped(case, text(row, "relation_name", where))
        for case, row, where in _read(options, "visual_genome_relation.json", "aro/vg-relation")
    )
    return Cases.build(rows, root=options.data, source="aro/vg-relation")


def read_attribution(options: Options, benchmark: str) -> Iterator[Case]:
    """VG-Attribution, each case in the group of its two attributes."""
    for case, row, where in _read(options, "visual_genome_attribution.json", benchmark):
        pair = row.get("attributes")
        if not isinstance(pair, list) or len(pair) != 2 or not all(map(_is_text, pair)):
            raise DataError(f"{where}: 'attributes' should hold two texts, it is {pair!r:.60}.")
        yield _grouped(case, f"{pair[0]}_{pair[1]}")


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _attribution(options: Options) -> Cases:
    rows = read_attribution(options, "aro/vg-attribution")
    return Cases.build(rows, root=options.data, source="aro/vg-attribution")


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
