"""MMVP-VLM (Tong et al. 2024): pairs of images that CLIP takes for alike, in nine visual patterns.

The authors put "a photo of" before every statement, and count a pair as right if both statements
prefer their own image: `text_to_image` is their number.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks.annotations import number, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import IDENTITY, object_rows, published_file, unexpected
from counterpoint.cases import Case, Cases, ImageRef

# In the order of the questions, 30 each.
PATTERNS: Final = (
    "Orientation and Direction",
    "Presence of Specific Features",
    "State and Condition",
    "Quantity and Count",
    "Positional and Relational Context",
    "Color and Appearance",
    "Structural Characteristics",
    "Texts",
    "Viewpoint and Perspective",
)
_QUESTIONS: Final = 30
_FIELDS: Final = ("Question ID", "Type", "Statement")
_FOLDERS: Final = ("MLLM_VLM Images", "MMVP_VLM_Images")  # on the hub, in the authors' README


def _cases(options: Options) -> Cases:
    path = published_file(options.data / "mmvp_vlm", ["Questions.csv"], "mmvp-vlm")
    return Cases.build(_rows(path, options.data), root=options.data, source=str(path))


def _rows(path: Path, root: Path) -> Iterator[Case]:
    folder = next((path.parent / name for name in _FOLDERS if (path.parent / name).is_dir()), None)
    images = (folder or path.parent / _FOLDERS[0]).relative_to(root).as_posix()
    rows = list(object_rows(path, _FIELDS, "mmvp-vlm"))
    for place in range(0, len(rows), 2):
        pair = rows[place : place + 2]
        where = f"{path}: row {place + 1}"
        numbers = [number(row, "Question ID", where) for row in pair]
        pattern, kind = (numbers[0] - 1) // _QUESTIONS, text(pair[0], "Type", where)
        if (
            len(pair) < 2
            or numbers[1] != numbers[0] + 1
            or numbers[0] % 2 == 0
            or not 0 <= pattern < len(PATTERNS)
            or kind != pair[1]["Type"]
        ):
            raise unexpected(
                where,
                "two rows of one type with the numbers n, odd and from 1 to 269, and n + 1",
                _said(pair),
            )
        yield Case(
            str(numbers[0]),
            tuple(ImageRef(f"{images}/{kind}/{question}.jpg") for question in numbers),
            tuple(f"a photo of {text(row, 'Statement', where)}" for row in pair),
            IDENTITY,
            (PATTERNS[pattern],),
        )


def _said(pair: list[dict[str, Any]]) -> str:
    return " and ".join(f"{row['Question ID']} of type {row['Type']}" for row in pair)


MMVP_VLM: Final = Benchmark(
    "mmvp-vlm",
    "two images that CLIP takes for alike and their captions, in nine visual patterns; "
    "officially only text_to_image is reported",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Tong et al. 2024, Eyes Wide Shut?, arXiv 2401.06209",
    licence="MIT",
    images="with the data set (270 images)",
    count=len(PATTERNS) * _QUESTIONS // 2,
    ids="the number of the first question, as 1",
    untried=True,
)
