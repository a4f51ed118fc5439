"""NaturalBench (Li et al. 2024): two photographs that models mix up.

`naturalbench` asks two questions about them, each with the answer yes for one and no for the other.
A question stands in the place of a caption and is true of the photograph whose answer is yes; a
generative model gets it as it is (`vqa:MODEL?template={caption} Please answer Yes or No.`).
`naturalbench/retrieval` has the captions of CLIP's and BLIP-2's mistakes, from which the questions
were made.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from counterpoint.benchmarks.annotations import files_below, parquet_image, parquet_rows, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import (
    PairColumns,
    file_below,
    pair_cases,
    published_file,
    unexpected,
)
from counterpoint.cases import Case, Cases

_COLUMNS: Final = PairColumns(("image_0", "image_1"), ("caption_0", "caption_1"), "index")


def _cases(options: Options) -> Cases:
    folder, benchmark = options.data / "naturalbench", "naturalbench/retrieval"
    path = published_file(folder, ["metadata.json"], benchmark)

    def image(path: Path, name: str) -> str:
        return file_below(path.parent / "images", name, options.data)

    rows = pair_cases([path], _COLUMNS, options, benchmark, image=image, groups=lambda _: ())
    return Cases.build(rows, root=options.data, source=str(path))


_IMAGES: Final = ("Image_0", "Image_1")
_ASKED: Final = ("Question_0", "Question_1")
_ANSWERS: Final = tuple(tuple(f"{image}_{asked}" for asked in _ASKED) for image in _IMAGES)
_ANSWER: Final = {"Yes": True, "No": False}


def _questions(options: Options) -> Cases:
    folder = options.data / "naturalbench"
    tables = files_below(folder, "*.parquet")
    if not tables:
        published_file(folder, ["*.parquet"], "naturalbench")  # says how to get them
    rows = (case for path in tables for case in _asked(path, options))
    return Cases.build(rows, root=options.data, source=str(folder))


def _asked(path: Path, options: Options) -> Iterator[Case]:
    """Questions with the answers yes and no; those with two options have other answers."""
    file = path.relative_to(options.data).as_posix()
    fields = [*_ASKED, *(name for line in _ANSWERS for name in line), "Question_Type"]
    for number, row in enumerate(parquet_rows(path, fields, _IMAGES, ("Index", "Source"))):
        where = f"{path}: row {number}"
        if text(row, "Question_Type", where) != "yes_no":
            continue
        answers = [[text(row, name, where) for name in line] for line in _ANSWERS]
        for answer in (answer for line in answers for answer in line):
            if answer not in _ANSWER:
                raise unexpected(where, "the answers Yes and No", answer)
        own, source = row.get("Index"), row.get("Source")
        yield Case(
            str(own) if isinstance(own, int | str) and own != "" else f"{path.stem}/{number}",
            tuple(parquet_image(file, name, number) for name in _IMAGES),
            tuple(text(row, name, where) for name in _ASKED),
            tuple(tuple(_ANSWER[answer] for answer in line) for line in answers),
            (source,) if isinstance(source, str) and source else (),
        )


_PAPER: Final = "Li et al. 2024, NaturalBench, arXiv 2410.14669"
QUESTIONS: Final = Benchmark(
    "naturalbench",
    "two questions with the answers yes and no about two photographs, by P(yes)",
    "2 x 2",
    "bivlc",
    _questions,
    paper=_PAPER,
    licence="not stated",
    images="in the Parquet files",
    ids="the source's own index",
    untried=True,
)
RETRIEVAL: Final = Benchmark(
    "naturalbench/retrieval",
    "two photographs and two captions that CLIP and BLIP-2 mix up",
    "2 x 2",
    "bivlc",
    _cases,
    paper=_PAPER,
    licence="not stated",
    images="with the data set",
    ids="the source's own index",
    untried=True,
)
