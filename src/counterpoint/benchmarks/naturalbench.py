"""NaturalBench (Li et al. 2024): two photographs that models mix up.

`naturalbench` asks two questions about them, each with the answer yes for one and no for the other.
A question stands in the place of a caption and is true of the photograph whose answer is yes; a
generative model gets it as it is (`vqa:MODEL?template={caption} Please answer Yes or No.`).
`naturalbench/answers` has all questions, also those with two options, with either answer behind
them: a question is a case of two photographs and two texts, for models that score a text by its
likelihood (`lm:`). Both photographs answered right (`image_to_text`) is the paper's Q-Acc.
`naturalbench/retrieval` has the captions of CLIP's and BLIP-2's mistakes, from which the questions
were made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks.annotations import files_below, parquet_image, parquet_rows, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import (
    PairColumns,
    file_below,
    pair_cases,
    published_file,
    unexpected,
)
from counterpoint.cases import Case, Cases, ImageRef

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
_PAIRS: Final = {"yes_no": ("Yes", "No"), "multiple_choice": ("A", "B")}
Asked = tuple[str, tuple[ImageRef, ImageRef], dict[str, Any], str]  # id, images, row, place


def _questions(options: Options) -> Cases:
    return _built(options, "naturalbench", _whole)


def _answers(options: Options) -> Cases:
    return _built(options, "naturalbench/answers", _by_question)


def _built(options: Options, benchmark: str, cases: Callable[[Asked], Iterator[Case]]) -> Cases:
    folder = options.data / "naturalbench"
    tables = files_below(folder, "*.parquet")
    if not tables:
        published_file(folder, ["*.parquet"], benchmark)  # says how to get them
    rows = (case for path in tables for row in _asked(path, options) for case in cases(row))
    return Cases.build(rows, root=options.data, source=str(folder))


def _asked(path: Path, options: Options) -> Iterator[Asked]:
    file = path.relative_to(options.data).as_posix()
    fields = [*_ASKED, *(name for line in _ANSWERS for name in line), "Question_Type"]
    for number, row in enumerate(parquet_rows(path, fields, _IMAGES, ("Index", "Source"))):
        where = f"{path}: row {number}"
        own = row.get("Index")
        id = str(own) if isinstance(own, int | str) and own != "" else f"{path.stem}/{number}"
        first, second = (parquet_image(file, name, number) for name in _IMAGES)
        yield id, (first, second), row, where


def _whole(asked: Asked) -> Iterator[Case]:
    """Both questions, if their answers are yes and no."""
    id, images, row, where = asked
    if text(row, "Question_Type", where) == "yes_no":
        answers = [_known(row, line, _PAIRS["yes_no"], where) for line in _ANSWERS]
        truth = tuple(tuple(_ANSWER[answer] for answer in line) for line in answers)
        yield Case(
            id, images, tuple(text(row, name, where) for name in _ASKED), truth, _groups(row)
        )


def _by_question(asked: Asked) -> Iterator[Case]:
    """Each question with either answer; the photographs of a row make one cluster."""
    id, images, row, where = asked
    kind = text(row, "Question_Type", where)
    if kind not in _PAIRS:
        raise unexpected(where, "the types yes_no and multiple_choice", kind)
    for number, name in enumerate(_ASKED):
        answers = _known(row, [line[number] for line in _ANSWERS], _PAIRS[kind], where)
        texts = tuple(f"{text(row, name, where)} {answer}" for answer in _PAIRS[kind])
        truth = tuple(tuple(answer == one for one in _PAIRS[kind]) for answer in answers)
        groups = (f"{kind}/{source}" for source in _groups(row) or ("",))
        yield Case(f"{id}/{number}", images, texts, truth, tuple(g.rstrip("/") for g in groups))


def _known(
    row: dict[str, Any], names: Sequence[str], answers: tuple[str, str], where: str
) -> list[str]:
    found = [text(row, name, where) for name in names]
    for answer in found:
        if answer not in answers:
            raise unexpected(where, f"the answers {' and '.join(answers)}", answer)
    return found


def _groups(row: dict[str, Any]) -> tuple[str, ...]:
    source = row.get("Source")
    return (source,) if isinstance(source, str) and source else ()


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
ANSWERS: Final = Benchmark(
    "naturalbench/answers",
    "each question with either answer behind it, by likelihood; two photographs",
    "2 x 2",
    "bivlc",
    _answers,
    paper=_PAPER,
    licence="not stated",
    images="in the Parquet files",
    ids="the source's own index, and the question's number",
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
