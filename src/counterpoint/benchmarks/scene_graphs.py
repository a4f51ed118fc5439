"""Benchmarks whose negatives were made from scene graphs of images, most of them Visual Genome's.

CREPE (Ma et al. 2023) has a region of an image, its caption and many negatives. Productivity asks
whether longer captions are harder; systematicity, whether combinations that a training set (CC-12M,
YFCC-15M, LAION-400M) does not hold are.

VL-CheckList (Zhao et al. 2022) has objects, attributes and relations, with one word replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.benchmark import Options
from counterpoint.benchmarks.reading import (
    GENOME,
    ImageIndex,
    box,
    files_below,
    genome_name,
    malformed,
    read_json,
    require,
    table_rows,
    text,
    written_list,
)
from counterpoint.cases import NO_NEGATIVE, Absent, Case, Cases, ImageRef, caption_case
from counterpoint.metrics import BEYOND_FIRST, FIRST_ROWS, NO_IMAGE

# --- CREPE ---------------------------------------------------------------------------------------


class _File(NamedTuple):
    """A file, what its ids and groups begin with, and what a column of negatives adds to both."""

    path: Path
    id: str
    group: str
    columns: Mapping[str, str]


def productivity(options: Options) -> Cases:
    form = r"prod_vg_hard_negs_(atom|swap|negate)_complexity_(\d+)\.csv"
    files = [
        _File(path, f"{kind}/{level}", f"{kind}/complexity_{level}", {"": "hard_negs"})
        for path, kind, level in _files(options, "productivity", "prod_*_complexity_*.csv", form)
    ]
    return _crepe(options, files)


def systematicity(options: Options) -> Cases:
    form = r"syst_vg_hard_negs_(seen|unseen)_compounds_in_(cc12m|yfcc|laion)\.csv"
    lists = {f"/{name}": f"valid_hard_negs_{name}" for name in ("atom", "comp", "combined")}
    files = [
        _File(path, f"{source}/{seen}", f"{source}/{seen}", lists)
        for path, seen, source in _files(options, "systematicity", "syst_*_compounds_*.csv", form)
    ]
    return _crepe(options, files)


def _files(options: Options, half: str, pattern: str, form: str) -> list[tuple[Path, str, str]]:
    """The files whose names have a form, with its two parts, in order of these.

    The archives also hold files of all complexities together, which must not count twice.
    """
    found: dict[tuple[str, str], Path] = {}
    for path in files_below(options.data / "crepe", pattern, f"crepe/{half}"):
        if match := re.fullmatch(form, path.name):
            earlier = found.setdefault((match[1], match[2]), path)
            if earlier != path:
                raise DataError(
                    "E-FILE-AMBIGUOUS", f"{earlier} and {path} are the same file; keep one."
                )
    in_order = sorted(found, key=lambda parts: (parts[0], parts[1].zfill(2)))  # 4 before 12
    return [(found[parts], *parts) for parts in in_order]


def _crepe(options: Options, files: list[_File]) -> Cases:
    images, absent = ImageIndex(options.data, *GENOME), list[Absent]()
    rows = (case for file in files for case in _crepe_cases(file, images, absent))
    cases = Cases.build(rows, root=options.data, source=str(options.data / "crepe"))
    return Cases(cases.frame, cases.root, absent)


def _crepe_cases(file: _File, images: ImageIndex, absent: list[Absent]) -> Iterator[Case]:
    for place, (where, row) in enumerate(table_rows(file.path, "crepe")):
        name = genome_name(text(row, "image_id", where))
        image = ImageRef(images.path(name), _region(row, where))
        caption = text(row, "caption", where)
        for suffix, column in file.columns.items():
            id, group = f"{file.id}{suffix}/{place}", f"{file.group}{suffix}"
            listed = _negatives(row, column, where)
            negatives = [negative for negative in listed if negative.strip()]
            if not negatives:
                absent.append(Absent(id, NO_NEGATIVE))
                continue
            if blank := len(listed) - len(negatives):  # the case stays, with fewer negatives
                absent.append(Absent(id, f"{blank} of {len(listed)} negatives are blank", 0))
            yield caption_case(id, image, (caption,), negatives, (group,))


def _region(row: dict[str, str], where: str) -> tuple[int, int, int, int]:
    region = box(row, ("x", "y", "width", "height"), where)
    if min(region[2:]) < 1:
        raise malformed(where, f"its region is empty: {region[2]} x {region[3]} pixels")
    return region


def _negatives(row: dict[str, str], column: str, where: str) -> list[str]:
    """A list written as Python writes it; a cell that holds nothing is an empty one."""
    if column not in row:
        raise DataError(
            "E-COLUMN-MISSING", f"{where}: has no column {column!r}, only {', '.join(row)}."
        )
    written = row[column].strip()
    if written in ("", "nan"):
        return []
    if (negatives := written_list(written)) is None:
        what = f"{column!r} should hold a list of texts, it is {written!r:.60}"
        raise malformed(where, what)
    return negatives


# --- VL-CheckList --------------------------------------------------------------------------------

_KINDS: Final = ("Object", "Attribute", "Relation")
_DATASETS: Final = ("vg", "vaw", "swig", "hake")


def vl_checklist(options: Options) -> Cases:
    folder = require(options.data / "vl_checklist", "vl-checklist")
    folder = folder / "data" if (folder / "data").is_dir() else folder
    files = [path for kind in _KINDS for path in files_below(folder / kind, "*.json")]
    if not files:
        raise DataError(
            "E-FILE-MISSING",
            f"{folder}: no Object, Attribute or Relation folder with .json files; "
            "see `counterpoint data get vl-checklist`.",
        )
    images = ImageIndex(options.data)
    rows = (case for path in files for case in _vlc_cases(path, path.relative_to(folder), images))
    return Cases.build(rows, root=options.data, source=str(folder))


def _vlc_cases(path: Path, relative: Path, images: ImageIndex) -> Iterator[Case]:
    """The cases of a file. The authors drop rows without an image before they take the first 1,000.

    If no image of the file is there, the first 1,000 rows count: for models that see no image.
    """
    rows = read_json(path, "vl-checklist")
    if not isinstance(rows, list):
        raise DataError("E-FILE-MALFORMED", f"{path}: should hold a list.")
    name, group = relative.with_suffix("").as_posix(), group_of(relative)
    triples = [_vlc_row(row, f"{path}: row {number + 1}") for number, row in enumerate(rows)]
    held = [image in images for image, _, _ in triples]
    any_held = any(held)
    usable = 0
    for number, (image, positive, negative) in enumerate(triples):
        groups = [group]
        if usable == FIRST_ROWS:
            groups.append(BEYOND_FIRST)
        elif any_held and not held[number]:
            groups.append(NO_IMAGE)
        else:
            usable += 1
        id = f"{name}/{number}"
        yield caption_case(id, ImageRef(image), (positive,), (negative,), tuple(groups))


def _vlc_row(row: Any, where: str) -> tuple[str, str, str]:
    """[image, {"POS": [...], "NEG": [...]}]: of several captions only the first is used."""
    try:
        image, captions = row
        lists = [captions[key] for key in ("POS", "NEG")]
        if not all(isinstance(one, list) for one in lists):
            raise TypeError
        texts = [image, *(one[0] for one in lists)]
    except (TypeError, ValueError, KeyError, IndexError):
        raise malformed(where, 'should be [image, {"POS": [...], "NEG": [...]}]') from None
    if not all(isinstance(value, str) and value.strip() for value in texts):
        raise malformed(where, "the image or a caption is not a text")
    image, positive, negative = texts
    folder = "visual_genome" if image.startswith("VG_100K") else "vl_checklist/images"
    return f"{folder}/{image}", positive, negative


def group_of(file: Path) -> str:
    """kind/aspect/data set/file, the levels of the official means of means.

    Attribute/vg/color.json, Relation/swig_action.json and
    Object/Location/vg_location/vg_subj_center.json all occur.
    """
    kind, stem = file.parts[0], file.stem
    places = [*file.parts[1:-1], stem]
    begins = (part.split("_")[0] for part in places)
    dataset = next((begin for begin in begins if begin in _DATASETS), "other")
    last = stem.rpartition("_")[2]
    aspect = f"{file.parts[1].lower()}_{last}" if kind == "Object" and len(places) > 1 else last
    return f"{kind}/{aspect}/{dataset}/{stem}"
