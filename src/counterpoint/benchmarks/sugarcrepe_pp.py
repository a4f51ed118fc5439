"""SugarCrepe++ (Dumpala et al. 2024): SugarCrepe with a second caption that means the same.

Two tests: in ITT an image is matched with the three captions; in TOT there is no image, and each
caption must be nearer to the other than the negative is to either.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from counterpoint._util.errors import NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint.benchmarks.annotations import first_there, named_rows, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import TEXT, Case, Cases, ImageRef

SUBSETS: Final = {
    "replace_att": 788,
    "replace_obj": 1_652,
    "replace_rel": 1_406,
    "swap_att": 666,
    "swap_obj": 245,
}
_TRUTH: Final = (True, True, False)


class _Triple(NamedTuple):
    id: str
    group: str
    image: str
    captions: tuple[str, str, str]


def _cases(options: Options) -> Cases:
    makers = {"both": (_itt, _tot), "itt": (_itt,), "tot": (_tot,)}
    tests = options.text("tests")
    if tests not in makers:
        raise NotFoundError(
            "E-OPTION-INVALID",
            did_you_mean("choice of tests", tests, makers),
            benchmark="sugarcrepe-pp",
            option="tests",
            value=tests,
        )
    folder = options.data / "sugarcrepe_pp"
    triples = [triple for subset in SUBSETS for triple in _subset(folder, subset)]
    rows = (make(triple) for make in makers[tests] for triple in triples)
    return Cases.build(rows, root=options.data, source=str(folder))


def _subset(folder: Path, subset: str) -> Iterator[_Triple]:
    file = f"{subset}.json"
    path = first_there(folder / file, folder / "data" / file)
    kind, _, part = subset.partition("_")
    for key, row in named_rows(path, "sugarcrepe-pp"):
        where = f"{path}: case {key}"
        captions = (
            text(row, "caption", where),
            text(row, "caption2", where),
            text(row, "negative_caption", where),
        )
        image = f"coco/val2017/{text(row, 'filename', where)}"
        yield _Triple(f"{subset}/{key}", f"{kind}/{part}", image, captions)


def _files(options: Options) -> dict[str, int | None]:
    """By test and subset: the test by text alone has cases of its own."""
    begins = {"both": ("", "tot/"), "itt": ("",), "tot": ("tot/",)}[options.text("tests")]
    return {f"{begin}{subset}": n for begin in begins for subset, n in SUBSETS.items()}


def _itt(triple: _Triple) -> Case:
    image = ImageRef(triple.image)
    return Case(triple.id, (image,), triple.captions, (_TRUTH,), (triple.group,))


def _tot(triple: _Triple) -> Case:
    """The two captions stand in for images; the group keeps them out of `replace` and `swap`."""
    texts = tuple(ImageRef(TEXT + caption) for caption in triple.captions[:2])
    groups = (f"text-only/{triple.group}",)
    truth = (_TRUTH, _TRUTH)
    return Case(f"tot/{triple.id}", texts, triple.captions, truth, groups, cluster=triple.image)


SUGARCREPE_PP: Final = Benchmark(
    "sugarcrepe-pp",
    "SugarCrepe with a paraphrase; with the image (ITT) and by text alone (TOT)",
    "1 x 3 and 2 x 3",
    "sugarcrepe-pp",
    _cases,
    paper="Dumpala et al. 2024, SugarCrepe++, arXiv 2406.11171",
    licence="CC BY 4.0",
    images="COCO val2017",
    count=2 * sum(SUBSETS.values()),
    ids="subset/id, as swap_att/0, and the same after tot/ for the test by text alone",
    defaults={"tests": "both"},
    files=_files,
)
