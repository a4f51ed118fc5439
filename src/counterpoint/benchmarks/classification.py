"""Zero-shot classification: one folder of images per class, or a hub table; prompts are averaged.

classification/NAME/CLASS/*.jpg          one folder per class (also below test/ or val/)
classification/NAME/*.parquet            or tables with an image column and a label column
classification/NAME/classes.txt          class names in the order of the folders (or labels)
classification/NAME/templates.txt        prompts, one per line, with {} for the class name
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint.benchmarks.annotations import parquet_image, require
from counterpoint.benchmarks.benchmark import Benchmark, Options, Size
from counterpoint.cases import PROMPTS, SCHEMA, Cases

_ENDINGS: Final = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff"}
TEST: Final = ("test", "val", "validation")
TRAIN: Final = ("train", "training")
_LABELS: Final = ("label", "fine_label", "labels")
_PUBLISHED: Final = ("cifar10", "cifar100", "imagenet")
_SIMPLE: Final = ("a photo of a {}.",)


class Labelled(NamedTuple):
    """Images as paths under the data root with the number of their class, and the classes."""

    images: list[tuple[str, int]]
    classes: list[str]


def _cases(options: Options, name: str) -> Cases:
    folder = options.data / "classification" / name
    if name in _PUBLISHED:
        require(folder, f"classification/{name}")
    elif not folder.is_dir():
        raise DataError(
            "E-FILE-MISSING",
            f"classification/{name} needs {folder}, which is not there: a folder of images for "
            "each class, or name another data root with --data.",
        )
    found = read_labelled(folder, options.data)
    classes = _lines(folder / "classes.txt") or _known_classes(name, found.classes)
    if len(classes) != len(found.classes):
        raise DataError(
            "E-CLASSES-MISMATCH",
            f"{folder}: {len(found.classes)} classes of images and {len(classes)} class names.",
        )
    templates = _lines(folder / "templates.txt") or known_templates(name)
    if bad := [template for template in templates if "{}" not in template]:
        raise DataError(
            "E-TEMPLATE-INVALID",
            f"{folder / 'templates.txt'}: {bad[0]!r} has no {{}} for the class name.",
        )
    prompts = [class_prompts(class_name, templates) for class_name in classes]
    frame = gallery("0", found.images, prompts, cluster=name)
    return Cases.checked(iter([frame]), options.data, str(folder))


def gallery(
    id: str,
    images: Sequence[tuple[str, int]],
    classes: Sequence[str],
    groups: Sequence[str] = (),
    cluster: str = "",
) -> pl.DataFrame:
    """One case: images with the number of their class, and the caption of each class."""
    row = {
        "id": id,
        "images": [{"path": path, "box": None} for path, _ in images],
        "captions": list(classes),
        "truth": [place * len(classes) + number for place, (_, number) in enumerate(images)],
        "groups": list(groups),
        "cluster": cluster,
    }
    return pl.DataFrame([row], schema=SCHEMA)


def class_prompts(class_name: str, templates: Sequence[str]) -> str:
    """The caption of a class."""
    return PROMPTS.join(template.replace("{}", class_name) for template in templates)


def read_labelled(folder: Path, root: Path, split: Sequence[str] | None = None) -> Labelled:
    """The images below a folder: those of `split` alone, else of a test split or all."""
    return _from_tables(folder, root, split) or _from_folders(folder, root, split)


def _from_folders(folder: Path, root: Path, split: Sequence[str] | None) -> Labelled:
    there = next((folder / name for name in split or TEST if (folder / name).is_dir()), None)
    if there is None and split:
        raise DataError(
            "E-FILE-MISSING",
            f"{folder}: no folder {' or '.join(split)} with a folder of images for each class, and "
            "no .parquet file with such a name.",
        )
    below = (there or folder).iterdir()
    classes = sorted(path for path in below if path.is_dir() and not _hidden(path))
    images = [
        (file.relative_to(root).as_posix(), number)
        for number, path in enumerate(classes)
        for file in sorted(path.rglob("*"))
        if file.suffix.lower() in _ENDINGS and not _hidden(file)
    ]
    if not images:
        raise DataError(
            "E-IMAGE-MISSING",
            f"{folder}: no images in a folder for each class, and no .parquet file.",
        )
    return Labelled(images, [path.name for path in classes])


def _hidden(path: Path) -> bool:
    return path.name.startswith(".")


def _from_tables(folder: Path, root: Path, split: Sequence[str] | None) -> Labelled | None:
    every = [file for file in sorted(folder.rglob("*.parquet")) if not _hidden(file)]
    named = ([file for file in every if name in file.name] for name in split or TEST)
    # Those of one split, if their names say which they are.
    files = next(filter(None, named), [] if split else every)
    if not files:
        return None
    images, classes = [], list[str]()
    for file in files:
        image, labels, names = _read_labels(file)
        classes = classes or names
        name = file.relative_to(root).as_posix()
        images += [(parquet_image(name, image, row).path, n) for row, n in enumerate(labels)]
    if not images:
        raise DataError("E-FILE-EMPTY", f"{files[0]}: the table has no rows.")
    found = sorted({number for _, number in images})
    classes = classes or [str(number) for number in range(max(found) + 1)]
    if found[0] < 0 or found[-1] >= len(classes):
        raise DataError(
            "E-CLASSES-MISMATCH",
            f"{files[0]}: labels from {found[0]} to {found[-1]}, and {len(classes)} class names.",
        )
    return Labelled(images, classes)


def _read_labels(file: Path) -> tuple[str, list[int], list[str]]:
    """The image column, every row's label, and the class names that the hub's metadata has."""
    import pyarrow as pa  # slow to import
    import pyarrow.parquet as pq

    try:
        schema = pq.read_schema(file)
        image = next((name for name in schema.names if name in ("image", "img")), None)
        label = next((name for name in _LABELS if name in schema.names), None)
        if image is None or label is None:
            raise DataError(
                "E-COLUMN-MISSING", f"{file}: needs a column image (or img) and a column label."
            )
        labels = pq.read_table(file, columns=[label]).column(label).to_pylist()
    except (pa.ArrowException, OSError, ValueError) as error:
        why = shortened(error).rstrip(". ")
        raise DataError("E-FILE-MALFORMED", f"{file}: not a readable table: {why}.") from None
    about = parse_json((schema.metadata or {}).get(b"huggingface", b"{}"), f"{file}: its metadata")
    if bad := [row for row, value in enumerate(labels) if type(value) is not int]:
        raise DataError(
            "E-ROW-MALFORMED",
            f"{file}: row {bad[0] + 1}: the label is {shown(labels[bad[0]])}, no class number.",
        )
    for key in ("info", "features", label, "names"):
        about = about.get(key) if isinstance(about, dict) else None
    names = about if isinstance(about, list) else []
    return image, labels, [str(name).replace("_", " ") for name in names]


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except ValueError:
        raise DataError("E-TEXT-ENCODING", f"{path}: not a text file in UTF-8.") from None
    return [line for line in lines if line.strip()]


def _known_classes(name: str, found: list[str]) -> list[str]:
    if name == "imagenet":
        from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

        # The folders are WordNet numbers, whose order is that of the class numbers.
        return list(IMAGENET_CLASSNAMES)
    return [class_name.replace("_", " ") for class_name in found]


def known_templates(name: str) -> list[str]:
    """The prompts that CLIP's authors publish for a data set, else a plain one."""
    if name == "imagenet":
        from open_clip.zero_shot_metadata import OPENAI_IMAGENET_TEMPLATES

        return [template("{}") for template in OPENAI_IMAGENET_TEMPLATES]
    return list(_cifar_templates() if name in ("cifar10", "cifar100") else _SIMPLE)


def _cifar_templates() -> Iterator[str]:
    """The prompts that CLIP's authors publish for CIFAR: nine, with two articles."""
    for article in ("a", "the"):
        yield f"a photo of {article} {{}}."
        for kind in ("blurry", "black and white", "low contrast", "high contrast", "bad", "good"):
            yield f"a {kind} photo of {article} {{}}."
        for size in ("small", "big"):
            yield f"a photo of {article} {size} {{}}."


def folder_benchmark(id: str) -> Benchmark:
    """`classification/NAME`: the folder of that name under the data root."""
    name = id.removeprefix("classification/")
    if not name or Path(name).name != name or name == "..":
        raise DataError(
            "E-BENCHMARK-UNKNOWN", f"{id}: after classification/ comes the name of a folder."
        )
    return Benchmark(
        id,
        f"zero-shot classification of the folder {name}",
        "images x classes",
        "classification",
        lambda options: _cases(options, name),
        ids="0: all images are one case",
    )


def _known(name: str, title: str, paper: str, licence: str, images: str, size: Size) -> Benchmark:
    return replace(
        folder_benchmark(f"classification/{name}"),
        summary=f"zero-shot classification of {title}",
        paper=f"{paper}; prompts: Radford et al. 2021",
        licence=licence,
        images=images,
        count=1,
        files=lambda _: {"": size},
    )


_TABLE: Final = "10,000 test images, inside the hub's table"
CIFAR10: Final = _known(
    "cifar10", "CIFAR-10", "Krizhevsky 2009", "not stated", _TABLE, Size(1, 10_000, 10)
)
CIFAR100: Final = _known(
    "cifar100", "CIFAR-100", "Krizhevsky 2009", "not stated", _TABLE, Size(1, 10_000, 100)
)
IMAGENET: Final = _known(
    "imagenet",
    "ImageNet-1k, with 80 prompts",
    "Russakovsky et al. 2015",
    "research only",
    "50,000 validation images, in folders by WordNet number",
    Size(1, 50_000, 1_000),
)
