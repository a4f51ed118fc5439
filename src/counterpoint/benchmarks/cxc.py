"""Crisscrossed Captions (Parekh et al. 2021): people's grades, from 0 to 5, of pairs of COCO.

An image and a caption (`cxc/image-text`), or two images (`cxc/image-image`); a case is one pair.
The number is the rank correlation of scores with grades. The authors draw half of the queries and
one graded pair of each, 1,000 times, and average Spearman's correlation; here each pair weighs one
over the graded pairs of its query, to which that average tends. A pair graded 3 or more is true, as
in the authors' retrieval.

`cxc/renderings` is ours: two photographs that people graded 4.5 or more (the option `grade`) are
renderings of one scene. The false image is the best graded one of the same query below 3; where
there is none, there is no case. With two captions of the query and one of the false image, a case
is 3 x 3. The grades are of the images: that a caption of one is true of the other follows as far as
they are near 5.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shown
from counterpoint.benchmarks.benchmark import Options, Sizes
from counterpoint.benchmarks.reading import malformed, table_rows, text
from counterpoint.benchmarks.retrieval import (
    KARPATHY_FILES,
    UNKNOWN_TEXT,
    coco_captions,
    coco_id,
)
from counterpoint.cases import PICTURE, Absent, Case, Cases, ImageRef

_MATCH: Final = 3.0  # a grade from which a pair is true
_HIGHEST: Final = 5.0
_SENTENCE: Final = ":sentid:"
_FOLDER: Final = "coco/val2014"
_TWO_OF_EACH: Final = ((True, True, False), (True, True, False), (False, False, True))


def _rows(options: Options, file: str, benchmark: str) -> Iterator[tuple[str, dict[str, Any]]]:
    return table_rows(options.data / "cxc" / file, benchmark)


def _grade(row: dict[str, Any], where: str) -> float:
    try:
        grade = float(text(row, "agg_score", where))
    except ValueError:
        grade = float("nan")
    if 0 <= grade <= _HIGHEST:
        return grade
    what = f"'agg_score' should be a grade from 0 to 5, it is {shown(row['agg_score'])}"
    raise malformed(where, what)


def _pair(id: str, image: str, caption: str, grade: float, group: str, source: str) -> Case:
    truth = ((grade >= _MATCH,),)
    return Case(id, (ImageRef(image),), (caption,), truth, (group,), source, (grade,))


def image_text(options: Options) -> Cases:
    benchmark = "cxc/image-text"
    known = coco_captions(options, benchmark)
    lost: list[Absent] = []

    def cases() -> Iterator[Case]:
        for where, row in _rows(options, "sits_test.csv", benchmark):
            name = text(row, "image", where)
            sentence = text(row, "caption", where).partition(_SENTENCE)[2]
            caption = int(sentence) if sentence.isdecimal() and len(sentence) < 13 else -1
            image = coco_id(name, where)
            id = f"{caption}/{image}"
            if caption in known.unknown:
                lost.append(Absent(id, UNKNOWN_TEXT))
                continue
            if caption not in known.captions:
                raise DataError(
                    "E-ROW-MALFORMED",
                    f"{where}: 'caption' is {shown(row['caption'])}, which is no caption of "
                    f"{options.data / 'coco' / KARPATHY_FILES['coco']}: the form is "
                    "COCO_val2014:sentid:732091, and the file must be whole.",
                )
            found = known.captions[caption]
            source = known.images[found.image]
            group = "same image" if found.image == image else "other image"
            pair = _pair(id, f"{_FOLDER}/{name}", found.text, _grade(row, where), group, source)
            yield replace(pair, query=str(caption))  # some texts are of several captions

    made = Cases.build(cases(), root=options.data, source=benchmark)
    return Cases(made.frame, made.root, lost)


def image_image(options: Options) -> Cases:
    benchmark = "cxc/image-image"

    def cases() -> Iterator[Case]:
        for where, row in _rows(options, "sis_test.csv", benchmark):
            query, other = (text(row, name, where) for name in ("image1", "image2"))
            id = f"{coco_id(query, where)}/{coco_id(other, where)}"
            source = f"{_FOLDER}/{query}"
            grade = _grade(row, where)
            yield _pair(id, f"{_FOLDER}/{other}", PICTURE + source, grade, "image pair", source)

    return Cases.build(cases(), root=options.data, source=benchmark)


def renderings(options: Options, **_: object) -> Cases:
    benchmark = "cxc/renderings"
    least = _least(options)
    known = coco_captions(options, benchmark)
    texts: dict[int, list[str]] = {}
    for caption in known.captions.values():
        texts.setdefault(caption.image, []).append(caption.text)
    graded: dict[str, list[tuple[float, str, str]]] = {}
    for where, row in _rows(options, "sis_test.csv", benchmark):
        one = (_grade(row, where), text(row, "image2", where), where)
        graded.setdefault(text(row, "image1", where), []).append(one)
    lost: list[Absent] = []

    def cases() -> Iterator[Case]:
        for query, pairs in graded.items():
            false = max((p for p in pairs if p[0] < _MATCH), default=None, key=lambda p: p[0])
            for grade, other, where in pairs:
                if grade < least or other == query or false is None:
                    continue
                mine, theirs = (texts.get(coco_id(n, where), []) for n in (query, false[1]))
                id = f"{coco_id(query, where)}/{coco_id(other, where)}"
                if len(mine) < 2 or not theirs:
                    lost.append(Absent(id, UNKNOWN_TEXT))
                    continue
                images = tuple(ImageRef(f"{_FOLDER}/{name}") for name in (query, other, false[1]))
                captions = (*mine[:2], theirs[0])
                half = min(int(2 * grade) / 2, 4.5)
                group = f"grade {half:g} to {half + 0.5:g}"
                yield Case(id, images, captions, _TWO_OF_EACH, (group,), images[0].path)

    made = Cases.build(cases(), root=options.data, source=benchmark)
    return Cases(made.frame, made.root, lost)


def renderings_files(options: Options, cases: Mapping[str, int]) -> Sizes:
    """`cases` are by the least grade."""
    return {"": {float(grade): count for grade, count in cases.items()}.get(_least(options))}


def _least(options: Options) -> float:
    given = options.text("grade")
    try:
        least = float(given)
    except ValueError:
        least = float("nan")
    if _MATCH <= least <= _HIGHEST:
        return least
    raise DataError(
        "E-OPTION-INVALID",
        f"cxc/renderings: grade must be a number from 3 to 5, it is {shown(given)}.",
    )
