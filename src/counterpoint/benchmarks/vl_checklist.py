"""VL-CheckList (Zhao et al. 2022): objects, attributes and relations, one word replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint.benchmarks import Benchmark, Options
from counterpoint.benchmarks.sources import read_json, require
from counterpoint.cases import Case, Cases, ImageRef, caption_case
from counterpoint.errors import DataError
from counterpoint.protocols import BEYOND_FIRST

_KINDS: Final = ("Object", "Attribute", "Relation")
_FIRST: Final = 1000  # entries of each file that the official protocol uses


def _cases(options: Options) -> Cases:
    folder = require(options.data / "vl_checklist", "vl-checklist")
    folder = folder / "data" if (folder / "data").is_dir() else folder
    files = [
        path
        for kind in _KINDS
        for path in sorted((folder / kind).rglob("*.json"))
        if not path.name.startswith(".")  # a Mac's archive brings ._NAME for each NAME
    ]
    if not files:
        raise DataError(
            f"{folder}: no Object, Attribute or Relation folder with .json files; "
            "see `counterpoint data get vl-checklist`."
        )
    rows = (case for path in files for case in _file(path, path.relative_to(folder)))
    return Cases.build(rows, root=options.data, source=str(folder))


def _file(path: Path, relative: Path) -> Iterator[Case]:
    rows = read_json(path, "vl-checklist")
    if not isinstance(rows, list):
        raise DataError(f"{path}: should hold a list.")
    name, group = relative.with_suffix("").as_posix(), group_of(relative)
    for number, row in enumerate(rows):
        image, positive, negative = _row(row, f"{path}: row {number}")
        groups = (group,) if number < _FIRST else (group, BEYOND_FIRST)
        yield caption_case(
            f"{name}/{number}", ImageRef(_image(image)), (positive,), (negative,), groups
        )


def _row(row: Any, where: str) -> tuple[str, str, str]:
    """[image, {"POS": [...], "NEG": [...]}]: of several captions only the first is used."""
    try:
        image, captions = row
        positive, negative = (_listed(captions[key])[0] for key in ("POS", "NEG"))
    except (TypeError, ValueError, KeyError, IndexError):
        raise DataError(f'{where}: should be [image, {{"POS": [...], "NEG": [...]}}].') from None
    if not all(isinstance(value, str) and value.strip() for value in (image, positive, negative)):
        raise DataError(f"{where}: the image or a caption is no text.")
    return image, positive, negative


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def group_of(file: Path) -> str:
    """kind/aspect/data set/file, the levels of the official means of means.

    Attribute/vg/color.json, Relation/swig_action.json and
    Object/Location/vg_location/vg_subj_center.json all occur.
    """
    kind, stem = file.parts[0], file.stem
    places = [*file.parts[1:-1], stem]
    dataset = next(
        (part.split("_")[0] for part in places if part.split("_")[0] in _DATASETS), "other"
    )
    last = stem.rpartition("_")[2]
    aspect = f"{file.parts[1].lower()}_{last}" if kind == "Object" and len(places) > 1 else last
    return f"{kind}/{aspect}/{dataset}/{stem}"


_DATASETS: Final = ("vg", "vaw", "swig", "hake")


def _image(path: str) -> str:
    if path.startswith("VG_100K"):
        return f"visual_genome/{path}"
    return f"vl_checklist/images/{path}"


VL_CHECKLIST: Final = Benchmark(
    "vl-checklist",
    "objects, attributes and relations of scene graphs, one word replaced",
    "1 x 2",
    "vl-checklist",
    _cases,
    paper="Zhao et al. 2022, VL-CheckList, arXiv 2207.00221",
    licence="MIT",
    images="Visual Genome; SWiG and HAKE under vl_checklist/images",
    ids="file/row, as Attribute/vg/color/0",
)
