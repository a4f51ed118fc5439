"""CREPE (Ma et al. 2023): a region of an image, its caption and many negatives.

Productivity asks whether longer captions are harder; systematicity, whether combinations that a
training set (CC-12M, YFCC-15M, LAION-400M) does not hold are.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import (
    VisualGenome,
    files_below,
    number,
    table_rows,
    text,
    whole,
)
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import NO_NEGATIVE, Absent, Case, Cases, ImageRef, caption_case

_TYPES: Final = ("atom", "swap", "negate")
_COMPLEXITIES: Final = range(4, 13)
_SETS: Final = ("cc12m", "laion", "yfcc")


class _File(NamedTuple):
    """A file, what its ids and groups begin with, and what a column of negatives adds to both."""

    path: Path
    id: str
    group: str
    columns: dict[str, str]


def _productivity(options: Options) -> Cases:
    form = r"prod_vg_hard_negs_(atom|swap|negate)_complexity_(\d+)\.csv"
    files = [
        _File(path, f"{kind}/{level}", f"{kind}/complexity_{level}", {"": "hard_negs"})
        for path, kind, level in _files(options, "productivity", "prod_*_complexity_*.csv", form)
    ]
    return _cases(options, files)


def _systematicity(options: Options) -> Cases:
    form = r"syst_vg_hard_negs_(seen|unseen)_compounds_in_(cc12m|yfcc|laion)\.csv"
    lists = {f"/{name}": f"valid_hard_negs_{name}" for name in ("atom", "comp", "combined")}
    files = [
        _File(path, f"{source}/{seen}", f"{source}/{seen}", lists)
        for path, seen, source in _files(options, "systematicity", "syst_*_compounds_*.csv", form)
    ]
    return _cases(options, files)


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


def _cases(options: Options, files: list[_File]) -> Cases:
    genome, absent = VisualGenome(options.data), list[Absent]()
    rows = (case for file in files for case in _rows(file, genome, absent))
    cases = Cases.build(rows, root=options.data, source=str(options.data / "crepe"))
    return Cases(cases.frame, cases.root, absent)


def _rows(file: _File, genome: VisualGenome, absent: list[Absent]) -> Iterator[Case]:
    for place, row in enumerate(table_rows(file.path, "crepe")):
        where = f"{file.path}: row {place + 1}"
        whole(row, where)
        image = ImageRef(genome.path(text(row, "image_id", where)), _box(row, where))
        caption = text(row, "caption", where)
        for name, column in file.columns.items():
            id, group = f"{file.id}{name}/{place}", f"{file.group}{name}"
            listed = _negatives(row, column, where)
            negatives = [negative for negative in listed if negative.strip()]
            if not negatives:
                absent.append(Absent(id, NO_NEGATIVE))
                continue
            if blank := len(listed) - len(negatives):  # the case stays, with fewer negatives
                absent.append(Absent(id, f"{blank} of {len(listed)} negatives are blank", 0))
            yield caption_case(id, image, (caption,), negatives, (group,))


def _box(row: dict[str, str], where: str) -> tuple[int, int, int, int]:
    x, y, width, height = (number(row, key, where) for key in ("x", "y", "width", "height"))
    if width < 1 or height < 1:
        raise DataError(
            "E-ROW-MALFORMED", f"{where}: its region is empty: {width} x {height} pixels."
        )
    return x, y, width, height


def _negatives(row: dict[str, str], column: str, where: str) -> list[str]:
    """A list written as Python writes it; a cell that holds nothing is an empty one."""
    if column not in row:
        raise DataError(
            "E-COLUMN-MISSING", f"{where}: has no column {column!r}, only {', '.join(row)}."
        )
    written = row[column].strip()
    if written in ("", "nan"):
        return []
    try:
        found = ast.literal_eval(written)
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        found = None
    if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
        raise DataError(
            "E-ROW-MALFORMED",
            f"{where}: {column!r} should hold a list of texts, it is {written!r:.60}.",
        )
    return list(found)


PRODUCTIVITY: Final = Benchmark(
    "crepe/productivity",
    "a caption of 4 to 12 parts against negatives with an atom replaced, two swapped, or a not",
    "1 x (1 + n)",
    "crepe",
    _productivity,
    paper="Ma et al. 2023, CREPE, arXiv 2212.07796",
    licence="not stated",
    images="Visual Genome, cropped to a region",
    ids="type/complexity/row, as atom/4/0",
    files=lambda _: {f"{kind}/{level}": None for kind in _TYPES for level in _COMPLEXITIES},
)
SYSTEMATICITY: Final = Benchmark(
    "crepe/systematicity",
    "combinations that a training set holds (seen) or not (unseen), by three lists of negatives",
    "1 x (1 + n)",
    "crepe",
    _systematicity,
    paper="Ma et al. 2023, CREPE, arXiv 2212.07796",
    licence="not stated",
    images="Visual Genome, cropped to a region",
    ids="source/seen/list/row, as cc12m/unseen/atom/0",
    files=lambda _: {f"{source}/{seen}": None for source in _SETS for seen in ("seen", "unseen")},
)
