"""VALSE (Parcalabescu et al. 2022): a caption and a foil, for eleven linguistic phenomena.

Images come from five data sets, so each is looked for by its name: in valse/images and all folders
below it, then among COCO's images. Names do not clash: those of each data set have a form of their
own, and the first place in alphabetical order is taken if there are copies.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from counterpoint.benchmarks.annotations import (
    files_below,
    label,
    named_rows,
    number,
    require,
    text,
)
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.completeness import NO_VOTES
from counterpoint.cases import Absent, Case, Cases, ImageRef, caption_case

PIECES: Final = {
    "actant-swap": 1_042,
    "action-replacement": 779,
    "coreference-hard": 141,
    "coreference-standard": 916,
    "counting-adversarial": 756,
    "counting-hard": 1_000,
    "counting-small-quant": 1_000,
    "existence": 534,
    "foil-it": 1_000,
    "plurals": 1_000,
    "relations": 614,
}
UNCONFIRMED: Final = "unconfirmed"
ENOUGH: Final = 2  # of three annotators chose the caption and not the foil
_COCO: Final = {
    r"COCO_val2014_\d{12}\.jpg": "coco/val2014",
    r"COCO_train2014_\d{12}\.jpg": "coco/train2014",
    r"\d{12}\.jpg": "coco/val2017",
}


def _cases(options: Options) -> Cases:
    folder = options.data / "valse"
    form = "[!.]*.json"  # archives packed on a Mac hold a `._NAME` beside every NAME
    pieces = sorted(folder.glob(form)) or sorted((folder / "data").glob(form))
    if not pieces:
        require(folder / "*.json", "valse")
    images = _Images(options.data)
    lost: Counter[str] = Counter()
    rows = (case for path in pieces for case in _piece(path, images, lost))
    made = Cases.build(rows, root=options.data, source=str(folder))
    # Every published row has votes: without them the number would be that of fewer rows.
    without = [Absent(piece, NO_VOTES, count) for piece, count in lost.items()]
    return Cases(made.frame, made.root, without)


def _piece(path: Path, images: _Images, lost: Counter[str]) -> Iterator[Case]:
    for key, row in named_rows(path, "valse"):
        where = f"{path}: case {key}"
        groups = [label(path.stem)]
        votes = _votes(row, where)
        if votes is None:
            lost[path.stem] += 1
        if votes is None or votes < ENOUGH:
            groups.append(UNCONFIRMED)
        yield caption_case(
            f"{path.stem}/{key}",
            ImageRef(images.path(text(row, "image_file", where))),
            (_sentence(row, "caption", where),),
            (_sentence(row, "foil" if "foil" in row else "foils", where),),
            tuple(groups),
        )


def _votes(row: dict[str, Any], where: str) -> int | None:
    """How many people chose the caption; None if the row does not say it."""
    votes = row.get("mturk")
    if not isinstance(votes, dict) or votes.get("caption") is None:
        return None
    return number(votes, "caption", f"{where}, mturk")


def _sentence(row: dict[str, Any], key: str, where: str) -> str:
    """A text; early versions of the files have a list of one."""
    value = row.get(key)
    return text({key: value[0]} if isinstance(value, list) and len(value) == 1 else row, key, where)


class _Images:
    """Where an image is, by its name."""

    def __init__(self, root: Path) -> None:
        self._root = root
        files = files_below(root / "valse" / "images", "*")
        self._files = {file.name: file.relative_to(root).as_posix() for file in reversed(files)}

    def path(self, image_file: str) -> str:
        name = PurePosixPath(image_file).name
        return self._files.get(name) or self._in_coco(name) or f"valse/images/{image_file}"

    def _in_coco(self, name: str) -> str | None:
        for form, folder in _COCO.items():
            if re.fullmatch(form, name) and (self._root / folder / name).exists():
                return f"{folder}/{name}"
        return None


VALSE: Final = Benchmark(
    "valse",
    "existence, plurality, counting, relations, actions, coreference, nouns: caption against foil",
    "1 x 2",
    "valse",
    _cases,
    paper="Parcalabescu et al. 2022, VALSE, arXiv 2112.07566",
    licence="not stated",
    images="Visual7W, COCO, SWiG and VisDial, in valse/images",
    count=sum(PIECES.values()),
    ids="piece/key, as existence/existence_test_0",
    files=lambda _: PIECES,
)
