"""SugarCrepe (Hsieh et al. 2023): one caption, one negative written by a language model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import first_there, read_json, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import Case, Cases, ImageRef, caption_case

SUBSETS: Final = {
    "add_att": 692,
    "add_obj": 2_062,
    "replace_att": 788,
    "replace_obj": 1_652,
    "replace_rel": 1_406,
    "swap_att": 666,
    "swap_obj": 245,
}


def _cases(options: Options) -> Cases:
    folder = options.data / "sugarcrepe"
    rows = (case for subset in SUBSETS for case in _subset(folder, subset))
    return Cases.build(rows, root=options.data, source=str(folder))


def _subset(folder: Path, subset: str) -> Iterator[Case]:
    file = f"{subset}.json"
    path = first_there(folder / file, folder / "data" / file)  # as in a clone of the repository
    rows = read_json(path, "sugarcrepe")
    if not isinstance(rows, dict):
        raise DataError(
            "E-FILE-MALFORMED",
            f"{path}: should hold an object of cases by their number.",
            path=path,
        )
    kind, _, part = subset.partition("_")
    for key, row in rows.items():  # the numbers have gaps: a row was removed in 2023
        where = f"{path}: case {key}"
        if not isinstance(row, dict):
            raise DataError(
                "E-ROW-MALFORMED", f"{where}: should be an object, it is {row!r:.60}.", where=where
            )
        image = ImageRef(f"coco/val2017/{text(row, 'filename', where)}")
        yield caption_case(
            f"{subset}/{key}",
            image,
            (text(row, "caption", where),),
            (text(row, "negative_caption", where),),
            (f"{kind}/{part}",),
        )


SUGARCREPE: Final = Benchmark(
    "sugarcrepe",
    "objects, attributes and relations replaced, swapped or added by a language model",
    "1 x 2",
    "sugarcrepe",
    _cases,
    paper="Hsieh et al. 2023, SugarCrepe, arXiv 2306.14610",
    licence="MIT",
    images="COCO val2017 (1,560 images)",
    count=sum(SUBSETS.values()),
    ids="subset/key, as add_att/0",
    files=lambda _: SUBSETS,
)
