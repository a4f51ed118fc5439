"""VL-CheckList (Zhao et al. 2022): objects, attributes and relations, one word replaced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import ImageFolders, read_json, require
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import Case, Cases, ImageRef, caption_case
from counterpoint.metrics import BEYOND_FIRST, FIRST_ROWS, NO_IMAGE

_KINDS: Final = ("Object", "Attribute", "Relation")


def _corpus() -> dict[str, int | None]:
    """The authors' 56 files, by kind, aspect and data set, with their rows where these are known.

    The official number is a mean over all of them.
    """
    roles = ("swig_agent", "swig_destination", "swig_item", "swig_tool")
    files: dict[str, int | None] = {}
    for aspect, places in (
        ("Location", ("center", "mid", "margin")),
        ("Size", ("large", "medium", "small")),
    ):
        for place in places:
            below = {
                "vg": ("vg_obj", "vg_subj"),
                "hake": ("hake_obj",),
                "swig": tuple(f"{role}/{role}" for role in roles),
            }
            for dataset, names in below.items():
                folder = f"Object/{aspect}/{dataset}_{aspect.lower()}"
                files |= dict.fromkeys(f"{folder}/{name}_{place}" for name in names)
    for dataset in ("vg", "vaw"):
        aspects = ("action", "color", "material", "size", "state")
        files |= dict.fromkeys(f"Attribute/{dataset}/{aspect}" for aspect in aspects)
    relations = ("vg/action", "vg/spatial", "swig_action", "hake_action")
    files |= dict.fromkeys(f"Relation/{name}" for name in relations)
    return files | _ROWS


_ROWS: Final[dict[str, int | None]] = {
    "Attribute/vg/action": 1_892,
    "Attribute/vg/color": 11_569,
    "Attribute/vg/material": 2_470,
    "Attribute/vg/size": 2_695,
    "Attribute/vg/state": 941,
    "Attribute/vaw/action": 3_039,
    "Attribute/vaw/material": 11_835,
    "Attribute/vaw/size": 15_321,
    "Attribute/vaw/state": 4_939,
    "Object/Location/hake_location/hake_obj_margin": 10_062,
    "Object/Location/swig_location/swig_agent/swig_agent_margin": 260,
    "Object/Location/swig_location/swig_agent/swig_agent_mid": 5_074,
    "Object/Location/swig_location/swig_destination/swig_destination_center": 1_063,
    "Object/Location/swig_location/swig_destination/swig_destination_margin": 45,
    "Object/Location/swig_location/swig_destination/swig_destination_mid": 530,
    "Object/Location/swig_location/swig_item/swig_item_center": 4_163,
    "Object/Location/swig_location/swig_item/swig_item_margin": 88,
    "Object/Location/swig_location/swig_item/swig_item_mid": 1_715,
    "Object/Location/swig_location/swig_tool/swig_tool_center": 4_056,
    "Object/Location/swig_location/swig_tool/swig_tool_margin": 121,
    "Object/Location/swig_location/swig_tool/swig_tool_mid": 2_226,
    "Object/Location/vg_location/vg_obj_margin": 8_291,
    "Object/Location/vg_location/vg_subj_center": 25_383,
    "Object/Location/vg_location/vg_subj_margin": 5_974,
    "Object/Location/vg_location/vg_subj_mid": 26_294,
    "Object/Size/hake_size/hake_obj_medium": 30_910,
    "Object/Size/hake_size/hake_obj_small": 6_210,
    "Object/Size/swig_size/swig_agent/swig_agent_medium": 442,
    "Object/Size/swig_size/swig_agent/swig_agent_small": 48,
    "Object/Size/swig_size/swig_destination/swig_destination_large": 1_520,
    "Object/Size/swig_size/swig_destination/swig_destination_medium": 109,
    "Object/Size/swig_size/swig_destination/swig_destination_small": 9,
    "Object/Size/swig_size/swig_item/swig_item_large": 5_070,
    "Object/Size/swig_size/swig_item/swig_item_medium": 742,
    "Object/Size/swig_size/swig_item/swig_item_small": 154,
    "Object/Size/swig_size/swig_tool/swig_tool_large": 4_643,
    "Object/Size/swig_size/swig_tool/swig_tool_medium": 1_452,
    "Object/Size/swig_size/swig_tool/swig_tool_small": 308,
    "Object/Size/vg_size/vg_obj_medium": 30_725,
    "Object/Size/vg_size/vg_obj_small": 13_702,
    "Object/Size/vg_size/vg_subj_large": 26_167,
    "Object/Size/vg_size/vg_subj_medium": 20_930,
    "Object/Size/vg_size/vg_subj_small": 10_554,
    "Relation/swig_action": 25_150,
    "Relation/vg/action": 12_733,
    "Relation/vg/spatial": 30_650,
}
CORPUS: Final = _corpus()


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
            "E-FILE-MISSING",
            f"{folder}: no Object, Attribute or Relation folder with .json files; "
            "see `counterpoint data get vl-checklist`.",
        )
    there = ImageFolders(options.data)
    rows = (case for path in files for case in _file(path, path.relative_to(folder), there))
    return Cases.build(rows, root=options.data, source=str(folder))


def _file(path: Path, relative: Path, there: ImageFolders) -> Iterator[Case]:
    """The cases of a file. The authors drop rows without an image before they take the first 1,000.

    If no image of the file is there, the first 1,000 rows count: for models that see no image.
    """
    rows = read_json(path, "vl-checklist")
    if not isinstance(rows, list):
        raise DataError("E-FILE-MALFORMED", f"{path}: should hold a list.")
    name, group = relative.with_suffix("").as_posix(), group_of(relative)
    read = [_row(row, f"{path}: row {number + 1}") for number, row in enumerate(rows)]
    held = [image in there for image, _, _ in read]
    any_held = any(held)
    usable = 0
    for number, (image, positive, negative) in enumerate(read):
        groups = [group]
        if usable == FIRST_ROWS:
            groups.append(BEYOND_FIRST)
        elif any_held and not held[number]:
            groups.append(NO_IMAGE)
        else:
            usable += 1
        yield caption_case(
            f"{name}/{number}", ImageRef(image), (positive,), (negative,), tuple(groups)
        )


def _row(row: Any, where: str) -> tuple[str, str, str]:
    """[image, {"POS": [...], "NEG": [...]}]: of several captions only the first is used."""
    try:
        image, captions = row
        positive, negative = (_listed(captions[key])[0] for key in ("POS", "NEG"))
    except (TypeError, ValueError, KeyError, IndexError):
        raise DataError(
            "E-ROW-MALFORMED", f'{where}: should be [image, {{"POS": [...], "NEG": [...]}}].'
        ) from None
    if not all(isinstance(value, str) and value.strip() for value in (image, positive, negative)):
        raise DataError("E-ROW-MALFORMED", f"{where}: the image or a caption is not a text.")
    return _image(image), positive, negative


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
    files=lambda _: CORPUS,
)
