"""EqBen (Wang et al. 2023): two images that differ in little, and their captions.

The whole annotation, in pairs of images (`private_info_global.json`) or as the authors' evaluation
reads it, one image and one caption in each row (`ann_json_finegrained_random.json`); or the
authors' subset of a tenth. The frames of YouCook2 are NumPy arrays, no images: in the place of
NAME.npy, a converted NAME.png or NAME.jpg is taken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Any, Final

from counterpoint.benchmarks.annotations import label, number, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import (
    IDENTITY,
    file_below,
    object_rows,
    published_file,
    unexpected,
)
from counterpoint.cases import Case, Cases, ImageRef

_SINGLES: Final = "ann_json_finegrained_random.json"
FILES: Final = ("private_info_global.json", _SINGLES, "eqben_subset_10percent_final.json")
PARTS: Final = {  # as the authors' evaluation script counts them
    "eqbenag": 195_872,
    "eqbenyoucook2": 45_849,
    "eqbengebc": 1_814,
    "eqbenkubric_loc": 2_000,
    "eqbenkubric_attr": 2_000,
    "eqbenkubric_cnt": 2_000,
    "eqbensd": 1_513,
}
_FIELDS: Final = ("image0", "image1", "caption0", "caption1")
_FOLDERS: Final = ("image_full", "image_subset", "images", "image")  # of the two archives


def _cases(options: Options) -> Cases:
    folder = options.data / "eqben"
    path = published_file(folder, FILES, "eqben")
    images = next((folder / name for name in _FOLDERS if (folder / name).is_dir()), folder)
    return Cases.build(_rows(path, images, options.data), root=options.data, source=str(path))


def _rows(path: Path, images: Path, root: Path) -> Iterator[Case]:
    counts: Counter[str] = Counter()
    rows = _paired(path) if path.name == _SINGLES else object_rows(path, _FIELDS, "eqben")
    for place, row in enumerate(rows):
        where = f"{path}: row {place + 1}"
        names = [text(row, field, where) for field in _FIELDS[:2]]
        part = label(PurePosixPath(names[0]).parts[0])
        yield Case(
            f"{part}/{counts[part]}",
            tuple(ImageRef(_image(file_below(images, name, root), root)) for name in names),
            tuple(_caption(row, field, where) for field in _FIELDS[2:]),
            IDENTITY,
            (part,),
            # Frames of one video are one source.
            cluster=PurePosixPath(names[0]).parent.as_posix() if "/" in names[0] else "",
        )
        counts[part] += 1


def _paired(path: Path) -> Iterator[dict[str, Any]]:
    """Rows of one image and one caption, of which four in any order make a pair of images.

    The name of a row says which of the captions and of the images it has, as `c0i1`.
    """
    pairs: dict[int, dict[str, Any]] = {}
    for place, row in enumerate(object_rows(path, ("image", "caption", "private_info"), "eqben")):
        where, info = f"{path}: row {place + 1}", row["private_info"]
        name = info.get("name") if isinstance(info, dict) else None
        if name not in ("c0i0", "c0i1", "c1i0", "c1i1"):
            raise unexpected(where, "private_info with a name as c0i1 and sample_cnt", info)
        pair = pairs.setdefault(number(info, "sample_cnt", where), {})
        pair |= {f"caption{name[1]}": row["caption"], f"image{name[3]}": row["image"]}
    for count, pair in sorted(pairs.items()):
        if len(pair) < len(_FIELDS):
            raise unexpected(path, f"two images and two captions of sample {count}", pair)
        yield pair


def _caption(row: dict[str, Any], field: str, where: str) -> str:
    """Of several captions (Action Genome) the authors take the first."""
    value = row[field]
    return text({field: value[0] if isinstance(value, list) and value else value}, field, where)


def _image(name: str, root: Path) -> str:
    if not name.endswith(".npy"):
        return name
    converted = (name.removesuffix(".npy") + ending for ending in (".png", ".jpg"))
    return next((other for other in converted if (root / other).exists()), name)


EQBEN: Final = Benchmark(
    "eqben",
    "two images that differ in little, from videos or made by programs, and their captions",
    "2 x 2",
    "eqben",
    _cases,
    paper="Wang et al. 2023, EqBen, arXiv 2303.14465",
    licence="not stated",
    images="in an archive of about 100 GB, or of 10 GB for a tenth",
    count=sum(PARTS.values()),
    ids="part/row, as eqbensd/0",
    files=lambda _: PARTS,
    untried=True,
)
