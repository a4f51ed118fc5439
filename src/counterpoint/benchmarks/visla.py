"""VISLA (Dumpala et al. 2024): two captions that mean the same and one that does not."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import first_there, require, table_rows, text, whole
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import NO_NEGATIVE, Absent, Case, Cases, ImageRef, caption_case


class _VislaFile(NamedTuple):
    """A file, under its names in the paper's and in the first version, and its columns."""

    name: str
    cases: int
    files: tuple[str, ...]
    image: str
    positives: tuple[str, str]
    negative: str


_FILES: Final = (
    _VislaFile(
        "generic",
        973,
        ("Generic_VISLA.tsv", "SugarCrepe.tsv"),
        "filename",
        ("caption", "second positive"),
        "negative caption",
    ),
    _VislaFile(
        "spatial",
        640,  # of 652 rows: a dozen has no negative
        ("Spatial_VISLA.tsv", "VSR_spatial.tsv"),
        "image",
        ("sent1", "sent2"),
        "best reference",  # "(Semantically close)"; the other reference has nothing to do with it
    ),
)


def _cases(options: Options) -> Cases:
    folder = options.data / "visla"
    found = [(part, path) for part in _FILES if (path := _find(folder, part)).exists()]
    if not found:
        require(_find(folder, _FILES[0]), "visla")
    unfinished: list[Absent] = []
    rows = (case for part, path in found for case in _rows(part, path, options.data, unfinished))
    cases = Cases.build(rows, root=options.data, source=str(folder))
    return Cases(cases.frame, cases.root, unfinished)


def _find(folder: Path, part: _VislaFile) -> Path:
    return first_there(*(base / file for file in part.files for base in (folder, folder / "data")))


def _rows(part: _VislaFile, path: Path, root: Path, unfinished: list[Absent]) -> Iterator[Case]:
    for number, fields in enumerate(table_rows(path, "visla", separator="\t")):
        id, where = f"{part.name}/{number}", f"{path}: row {number + 1}"
        row = {_column(name): value for name, value in whole(fields, where).items()}
        positives = [_caption(row, key, where) for key in part.positives]
        if part.negative in row and not row[part.negative].strip():
            unfinished.append(Absent(id, NO_NEGATIVE))
            continue
        yield caption_case(
            id,
            ImageRef(_image(text(row, part.image, where), root, where)),
            positives,
            (_caption(row, part.negative, where),),
            (part.name,),
        )


def _column(name: str) -> str:
    """`best reference` for `Best reference (Semantically close)`; blanks for underscores."""
    return name.partition("(")[0].strip().lower().replace("_", " ")


def _caption(row: dict[str, str], key: str, where: str) -> str:
    caption = text(row, key, where)
    if "\t" in caption or "\n" in caption:  # a quotation mark without its pair swallows rows
        raise DataError(
            "E-ROW-MALFORMED",
            f"{where}: {key!r} goes on over several fields; check its quotation marks.",
        )
    return caption


def _image(name: str, root: Path, where: str) -> str:
    """Spatial images are of COCO's training and validation sets; the name does not say which."""
    digits = re.fullmatch(r"(\d{1,12})(?:\.jpg)?", name.strip())
    if not digits:
        raise DataError(
            "E-ROW-MALFORMED", f"{where}: {name!r:.60} is not the name of a COCO image."
        )
    file = f"{digits[1]:0>12}.jpg"
    held = first_there(root / "coco/val2017" / file, root / "coco/train2017" / file)
    return held.relative_to(root).as_posix()


VISLA: Final = Benchmark(
    "visla",
    "a caption, a paraphrase and a negative near in words; generic and spatial",
    "1 x 3",
    "hard-positives",
    _cases,
    paper="Dumpala et al. 2024, VISLA, arXiv 2404.16365",
    licence="not stated",
    images="COCO val2017 and train2017",
    count=sum(part.cases for part in _FILES),
    ids="part/row, as generic/0 and spatial/0",
    files=lambda _: {part.name: part.cases for part in _FILES},
)
