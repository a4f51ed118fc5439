"""SugarCrepe (Hsieh et al. 2023) and SugarCrepe++ (Dumpala et al. 2024).

SugarCrepe has one caption and one negative written by a language model. SugarCrepe++ adds a second
caption that means the same, and two tests: in ITT an image is matched with the three captions; in
TOT there is no image, and each caption must be nearer to the other than the negative is to either.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.benchmarks.annotations import first_there, named_rows, read_json, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import TEXT, Case, Cases, ImageRef, caption_case

SUBSETS: Final = {
    "add_att": 692,
    "add_obj": 2_062,
    "replace_att": 788,
    "replace_obj": 1_652,
    "replace_rel": 1_406,
    "swap_att": 666,
    "swap_obj": 245,
}
PP_SUBSETS: Final = {name: n for name, n in SUBSETS.items() if not name.startswith("add")}
_TRUTH: Final = (True, True, False)


class _SugarRow(NamedTuple):
    id: str
    group: str
    image: str
    captions: tuple[str, ...]


def _rows(folder: Path, subset: str, benchmark: str, *keys: str) -> Iterator[_SugarRow]:
    """The rows of a file, with the captions of these keys."""
    file = f"{subset}.json"
    path = first_there(folder / file, folder / "data" / file)  # as in a clone of the repository
    found = named_rows(path, benchmark) if benchmark == "sugarcrepe-pp" else _numbered(path)
    for key, row in found:
        where = f"{path}: case {key}"
        captions = tuple(text(row, name, where) for name in keys)
        image = f"coco/val2017/{text(row, 'filename', where)}"
        yield _SugarRow(f"{subset}/{key}", subset.replace("_", "/"), image, captions)


def _numbered(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """SugarCrepe's rows by their numbers, which have gaps: a row was removed in 2023."""
    rows = read_json(path, "sugarcrepe")
    if not isinstance(rows, dict):
        raise DataError(
            "E-FILE-MALFORMED", f"{path}: should hold an object of cases by their number."
        )
    for key, row in rows.items():
        if not isinstance(row, dict):
            where = f"{path}: case {key}"
            raise DataError("E-ROW-MALFORMED", f"{where}: should be an object, it is {row!r:.60}.")
        yield key, row


def _cases(options: Options) -> Cases:
    folder = options.data / "sugarcrepe"
    keys = ("caption", "negative_caption")
    rows = (
        caption_case(row.id, ImageRef(row.image), row.captions[:1], row.captions[1:], (row.group,))
        for subset in SUBSETS
        for row in _rows(folder, subset, "sugarcrepe", *keys)
    )
    return Cases.build(rows, root=options.data, source=str(folder))


def _pp_cases(options: Options) -> Cases:
    makers = {"both": (_itt, _tot), "itt": (_itt,), "tot": (_tot,)}
    tests = options.text("tests")
    if tests not in makers:
        raise NotFoundError("E-OPTION-INVALID", did_you_mean("choice of tests", tests, makers))
    folder = options.data / "sugarcrepe_pp"
    keys = ("caption", "caption2", "negative_caption")
    triples = [t for subset in PP_SUBSETS for t in _rows(folder, subset, "sugarcrepe-pp", *keys)]
    rows = (make(triple) for make in makers[tests] for triple in triples)
    return Cases.build(rows, root=options.data, source=str(folder))


def _pp_files(options: Options) -> dict[str, int | None]:
    """By test and subset: the test by text alone has cases of its own."""
    begins = {"both": ("", "tot/"), "itt": ("",), "tot": ("tot/",)}[options.text("tests")]
    return {f"{begin}{subset}": n for begin in begins for subset, n in PP_SUBSETS.items()}


def _itt(triple: _SugarRow) -> Case:
    image = ImageRef(triple.image)
    return Case(triple.id, (image,), triple.captions, (_TRUTH,), (triple.group,))


def _tot(triple: _SugarRow) -> Case:
    """The two captions stand in for images; the group keeps them out of `replace` and `swap`."""
    texts = tuple(ImageRef(TEXT + caption) for caption in triple.captions[:2])
    groups = (f"text-only/{triple.group}",)
    truth = (_TRUTH, _TRUTH)
    return Case(f"tot/{triple.id}", texts, triple.captions, truth, groups, cluster=triple.image)


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
SUGARCREPE_PP: Final = Benchmark(
    "sugarcrepe-pp",
    "SugarCrepe with a paraphrase; with the image (ITT) and by text alone (TOT)",
    "1 x 3 and 2 x 3",
    "sugarcrepe-pp",
    _pp_cases,
    paper="Dumpala et al. 2024, SugarCrepe++, arXiv 2406.11171",
    licence="CC BY 4.0",
    images="COCO val2017",
    count=2 * sum(PP_SUBSETS.values()),
    ids="subset/id, as swap_att/0, and the same after tot/ for the test by text alone",
    defaults={"tests": "both"},
    files=_pp_files,
)
