"""NaturalBench (Li et al. 2024): two photographs that models mix up, and two questions about them.

`naturalbench` has the questions with the answer yes for one photograph and no for the other. A
question stands in the place of a caption and is true of the photograph whose answer is yes; a
generative model gets it as it is (`vqa:MODEL?template={caption} Please answer Yes or No.`).
`naturalbench/answers` has all questions, also those with two options. A case has both questions of
its photographs, with either answer behind them: four texts, for models that score a text by its
likelihood (`lm:`). Its metrics are the paper's Acc, Q-Acc, I-Acc and G-Acc.
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
_TYPES: Final = ("Question_Type", "Question Type")  # the hub's file has had both names
_PAIRS: Final = {"yes_no": ("Yes", "No"), "multiple_choice": ("A", "B")}
Asked = tuple[str, tuple[ImageRef, ImageRef], dict[str, Any], str]  # id, images, row, place


def _questions(options: Options) -> Cases:
    return _built(options, "naturalbench", _whole)


def _answers(options: Options) -> Cases:
    return _built(options, "naturalbench/answers", _with_answers)


def _built(options: Options, benchmark: str, cases: Callable[[Asked], Iterator[Case]]) -> Cases:
    folder = options.data / "naturalbench"
    tables = files_below(folder, "*.parquet")
    if not tables:
        published_file(folder, ["*.parquet"], benchmark)  # says how to get them
    rows = (case for path in tables for row in _asked(path, options) for case in cases(row))
    return Cases.build(rows, root=options.data, source=str(folder))


def _asked(path: Path, options: Options) -> Iterator[Asked]:
    file = path.relative_to(options.data).as_posix()
    fields = [*_ASKED, *(name for line in _ANSWERS for name in line)]
    optional = ("Index", "Source", *_TYPES)
    for number, row in enumerate(parquet_rows(path, fields, _IMAGES, optional)):
        where = f"{path}: row {number + 1}"
        own = row.get("Index")
        id = str(own) if isinstance(own, int | str) and own != "" else f"{path.stem}/{number}"
        first, second = (parquet_image(file, name, number) for name in _IMAGES)
        yield id, (first, second), row, where


def _whole(asked: Asked) -> Iterator[Case]:
    """Both questions, if their answers are yes and no."""
    id, images, row, where = asked
    if _kind(row, where) == "yes_no":
        answers = [_known(row, line, _PAIRS["yes_no"], where) for line in _ANSWERS]
        truth = tuple(tuple(_ANSWER[answer] for answer in line) for line in answers)
        yield Case(
            id, images, tuple(text(row, name, where) for name in _ASKED), truth, _groups(row)
        )


def _with_answers(asked: Asked) -> Iterator[Case]:
    """Both questions, each with either answer."""
    id, images, row, where = asked
    kind = _kind(row, where)
    answers = [_known(row, line, _PAIRS[kind], where) for line in _ANSWERS]
    texts = (f"{text(row, name, where)} {answer}" for name in _ASKED for answer in _PAIRS[kind])
    truth = tuple(tuple(one == own for own in line for one in _PAIRS[kind]) for line in answers)
    group = "/".join((kind, *_groups(row)))
    yield Case(id, images, tuple(texts), truth, (group,), questions=len(_ASKED))


def _kind(row: dict[str, Any], where: str) -> str:
    kind = text(row, next((name for name in _TYPES if name in row), _TYPES[0]), where)
    if kind not in _PAIRS:
        raise unexpected(where, f"the types {' and '.join(_PAIRS)}", kind)
    return kind


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
    count=1_450,  # 5,800 of the paper's questions about one image, four to a case
    ids="the source's own index",
    untried=True,
)
ANSWERS: Final = Benchmark(
    "naturalbench/answers",
    "two photographs, two questions with either answer behind them, by likelihood",
    "2 x 4, two questions",
    "bivlc",
    _answers,
    paper=_PAPER,
    licence="not stated",
    images="in the Parquet files",
    count=1_900,
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
    count=1_227,  # the percentages of the paper's Table 7 are shares of so many
    ids="the source's own index",
    untried=True,
)
