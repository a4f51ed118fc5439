"""SVO-Probes (Hendricks and Nematzadeh 2021): one sentence and two images.

The images differ in the subject, the verb or the object. The authors ask whether each image
matches, yes or no; later papers ask which of the two images it is, and so does this loader.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks.annotations import files_below, number, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import object_rows, published_file, unexpected
from counterpoint.cases import Case, Cases, ImageRef

FILE: Final = "svo_probes.csv"
_KINDS: Final = {"subj_neg": "subject", "verb_neg": "verb", "obj_neg": "object"}
_FIELDS: Final = ("sentence", "pos_image_id", "neg_image_id", *_KINDS)
_TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


def _cases(options: Options) -> Cases:
    path = published_file(options.data / "svo_probes", [FILE], "svo-probes")
    return Cases.build(_rows(path, options.data), root=options.data, source=str(path))


def _rows(path: Path, root: Path) -> Iterator[Case]:
    pictures = {
        file.stem: file.relative_to(root).as_posix()
        for file in files_below(root / "svo_probes" / "images", "*")
    }
    for place, row in enumerate(object_rows(path, _FIELDS, "svo-probes")):
        where = f"{path}: row {place + 1}"
        names = [str(number(row, field, where)) for field in ("pos_image_id", "neg_image_id")]
        right, wrong = (
            ImageRef(pictures.get(name, f"svo_probes/images/{name}.jpg")) for name in names
        )
        yield Case(
            str(place),
            (right, wrong),
            (text(row, "sentence", where),),
            ((True,), (False,)),
            (_kind(row, where),),
        )


def _kind(row: dict[str, Any], where: str) -> str:
    """What differs. The authors leave rows out in which it is not one thing: `several`."""
    marks = [_TRUTH.get(str(row[field]).strip().lower()) for field in _KINDS]
    if None in marks:
        expected = f"True or False in {', '.join(_KINDS)}"
        raise unexpected(where, expected, ", ".join(str(row[field]) for field in _KINDS))
    kinds = [kind for kind, mark in zip(_KINDS.values(), marks, strict=True) if mark]
    return kinds[0] if len(kinds) == 1 else "several"


SVO_PROBES: Final = Benchmark(
    "svo-probes",
    "one sentence and two images, which differ in the subject, the verb or the object",
    "2 x 1",
    "svo-probes",
    _cases,
    paper="Hendricks and Nematzadeh 2021, SVO-Probes, arXiv 2106.09141",
    licence="CC BY 4.0; images of web pages, some no longer there",
    images="by their addresses, in svo_probes/images as ID.jpg",
    count=36_841,
    untried=True,
)
