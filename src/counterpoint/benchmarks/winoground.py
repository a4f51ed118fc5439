"""Winoground (Thrush et al. 2022): two images, and two captions of the same words."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, Final

from counterpoint._util.errors import DataError
from counterpoint.benchmarks.annotations import (
    files_below,
    jsonl_rows,
    label,
    number,
    parquet_image,
    parquet_rows,
    read_json,
    text,
)
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.cases import Case, Cases, ImageRef

_IMAGES: Final = ("image_0", "image_1")
_TEXTS: Final = ("id", "caption_0", "caption_1", "collapsed_tag")
_MORE: Final = ("tag", "secondary_tag", "num_main_preds")


TAG_FILE: Final = "new_tag_assignments.json"
CLEAN: Final = "diwan/clean"  # the 171 cases without a tag


def _cases(options: Options) -> Cases:
    folder = options.data / "winoground"
    # The hub holds both forms; Parquet comes with its images, the JSONL's may still be packed.
    tables = files_below(folder, "*.parquet")
    rows = _from_parquet(tables, options.data) if tables else _from_jsonl(folder, options.data)
    tags = _further_tags(folder)
    tagged = (replace(case, groups=(*case.groups, *tags.get(case.id, ()))) for case in rows)
    return Cases.build(tagged, root=options.data, source=str(folder))


def _further_tags(folder: Path) -> dict[str, tuple[str, ...]]:
    """The groups of each case by Diwan et al. 2022, if their file is there.

    They say why a case may be hard for reasons other than word order; without a tag it is clean.
    """
    files = files_below(folder, TAG_FILE)
    if not files:
        return {}
    found = read_json(files[0], "winoground")
    if not isinstance(found, dict) or not all(
        isinstance(tags, list) and all(isinstance(tag, str) for tag in tags)
        for tags in found.values()
    ):
        raise DataError(
            "E-FILE-MALFORMED", f"{files[0]}: should hold a list of tags for each case."
        )
    return {
        id: tuple(f"diwan/{label(tag)}" for tag in tags) or (CLEAN,) for id, tags in found.items()
    }


def _from_parquet(tables: list[Path], root: Path) -> Iterator[Case]:
    for path in tables:
        file = path.relative_to(root).as_posix()
        for row, values in enumerate(parquet_rows(path, _TEXTS, _IMAGES, _MORE)):
            images = tuple(parquet_image(file, column, row) for column in _IMAGES)
            yield _case(values, images, f"{path}: row {row + 1}")


def _from_jsonl(folder: Path, root: Path) -> Iterator[Case]:
    path = files_below(folder, "examples.jsonl", "winoground")[0]
    pictures = {
        file.stem: file for ending in ("png", "jpg") for file in files_below(folder, f"*.{ending}")
    }
    for row, values in enumerate(jsonl_rows(path, "winoground")):
        where = f"{path}: row {row + 1}"
        names = (PurePosixPath(text(values, key, where)).stem for key in _IMAGES)
        files = (pictures.get(name, path.parent / "images" / f"{name}.png") for name in names)
        images = tuple(ImageRef(file.relative_to(root).as_posix()) for file in files)
        yield _case(values, images, where)


def _case(values: dict[str, Any], images: tuple[ImageRef, ...], where: str) -> Case:
    return Case(
        str(number(values, "id", where)),
        images,
        (text(values, "caption_0", where), text(values, "caption_1", where)),
        ((True, False), (False, True)),
        tuple(_groups(values, where)),
    )


def _groups(values: dict[str, Any], where: str) -> Iterator[str]:
    """What the swap is (object, relation or both) comes first; the paper's other tags follow.

    A case may have several secondary tags, with commas between; the name of its one tag may hold
    a comma.
    """
    yield label(text(values, "collapsed_tag", where))
    if values.get("tag"):
        yield f"tag/{label(text(values, 'tag', where))}"
    if values.get("secondary_tag"):
        for tag in text(values, "secondary_tag", where).split(","):
            if tag.strip():
                yield f"secondary/{label(tag)}"
    if values.get("num_main_preds") is not None:
        yield f"preds/{number(values, 'num_main_preds', where)}"


WINOGROUND: Final = Benchmark(
    "winoground",
    "two images and two captions of the same words in another order, written by experts",
    "2 x 2",
    "bivlc",
    _cases,
    paper="Thrush et al. 2022, Winoground, arXiv 2204.03162",
    licence="for research only, by agreement (gated on the hub)",
    images="with the data set (800 images)",
    count=400,
    ids="the source's own id, 0 to 399",
)
