"""NegBench (Alhamoud et al. 2025): what is not in an image.

`negbench` has questions with one right caption of four, on images of COCO and VOC2007. The right
one affirms an object, negates one, or does both (hybrid); the wrong ones claim what is absent or
deny what is there. `negbench/retrieval` is COCO retrieval with captions that also say what is not
in the image; the paper reports text-to-image recall@5.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shown
from counterpoint.benchmarks.annotations import label, number, table_rows, text, whole
from counterpoint.benchmarks.benchmark import Benchmark, Options, Size
from counterpoint.benchmarks.retrieval import gallery
from counterpoint.cases import Absent, Case, Cases, ImageRef, caption_case


class _QuestionFile(NamedTuple):
    source: str
    name: str
    folder: str  # of its images: the paths in the file are those of the authors' machine
    questions: int


_FILES: Final = (
    _QuestionFile("coco", "COCO_val_mcq_llama3.1_rephrased.csv", "coco/val2017", 5_914),
    _QuestionFile("voc2007", "VOC2007_mcq_llama3.1_rephrased.csv", "voc2007/JPEGImages", 5_031),
)
_NEGATED: Final = "COCO_val_negated_retrieval_llama3.1_rephrased_affneg_true.csv"
_ANSWERS: Final = tuple(f"caption_{place}" for place in range(4))
_TEMPLATES: Final = {"positive": "affirmation", "negative": "negation", "hybrid": "hybrid"}


def _cases(options: Options) -> Cases:
    folder = options.data / "negbench"
    rows = (case for file in _FILES for case in _questions(folder / file.name, file))
    return Cases.build(rows, root=options.data, source=str(folder))


def _questions(path: Path, file: _QuestionFile) -> Iterator[Case]:
    for place, fields in enumerate(table_rows(path, "negbench")):
        where = f"{path}: row {place + 1}"
        row: dict[str, Any] = dict(whole(fields, where))
        captions = [text(row, key, where) for key in _ANSWERS]
        right = number(row, "correct_answer", where)
        if not 0 <= right < len(captions):
            raise DataError(
                "E-ROW-MALFORMED",
                f"{where}: 'correct_answer' should be a number from 0 to 3, it is {right}.",
            )
        found = text(row, "correct_answer_template", where)
        template = _TEMPLATES.get(found, label(found))
        image = _image(row, "image_path", file.folder, where)
        yield caption_case(
            f"{file.source}/{place}",
            ImageRef(image),
            [captions.pop(right)],
            captions,
            (f"{file.source}/{template}", template),
        )


def _image(row: dict[str, Any], key: str, folder: str, where: str) -> str:
    return f"{folder}/{PurePosixPath(text(row, key, where)).name}"


def _retrieval(options: Options) -> Cases:
    path = options.data / "negbench" / _NEGATED
    images: list[str] = []
    captions: list[str] = []
    owners: list[int] = []
    blank: list[Absent] = []
    for place, fields in enumerate(table_rows(path, "negbench/retrieval")):
        where = f"{path}: row {place + 1}"
        row: dict[str, Any] = dict(whole(fields, where))
        for caption in _texts(text(row, "captions", where), where):
            if caption.strip():
                captions.append(caption)
                owners.append(place)
            else:  # the authors' language model returned nothing
                blank.append(Absent(f"row {place + 1}", "a caption without text", 0))
        images.append(_image(row, "filepath", "coco/val2017", where))
    made = gallery(images, captions, owners, options.data, "negbench/retrieval")
    return Cases(made.frame, made.root, blank)


def _texts(value: str, where: str) -> list[str]:
    """The texts of a list that was written as Python writes it."""
    try:
        found = ast.literal_eval(value)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        found = value
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise DataError(
            "E-ROW-MALFORMED",
            f"{where}: 'captions' should hold a list of texts, it is {shown(value)}.",
        )
    return found


_PAPER: Final = "Alhamoud et al. 2025, NegBench, arXiv 2501.09425"
_LICENCE: Final = "not stated"
NEGBENCH: Final = Benchmark(
    "negbench",
    "four captions that affirm, negate or do both: which one holds?",
    "1 x 4",
    "strict",
    _cases,
    paper=_PAPER,
    licence=_LICENCE,
    images="COCO val2017 (3,926 images), VOC2007 test (4,951 images)",
    count=sum(file.questions for file in _FILES),
    ids="source/row, as coco/0 and voc2007/0",
    files=lambda _: {file.source: file.questions for file in _FILES},
)
RETRIEVAL: Final = Benchmark(
    "negbench/retrieval",
    "COCO retrieval with captions that say what is not in the image",
    "4,998 x 25,003",
    "retrieval",
    _retrieval,
    paper=_PAPER,
    licence=_LICENCE,
    images="COCO val2017 (4,998 images)",
    count=1,
    ids="0: all images are one case",
    files=lambda _: {"": Size(1, 4_998, 25_003)},
)
