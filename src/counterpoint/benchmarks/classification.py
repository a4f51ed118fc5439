"""Zero-shot classification and linear probes: one folder of images per class, or a hub table.

classification/NAME/CLASS/*.jpg          one folder per class (also below test/ or val/)
classification/NAME/*.parquet            or tables with an image column and a label column
classification/NAME/classes.txt          class names in the order of the folders (or labels)
classification/NAME/templates.txt        prompts, one per line, with {} for the class name

Prompts are averaged. VTAB has 20 tasks, each with class names and prompts of its own (vtab.toml);
the images of a task are in classification/vtab/TASK or classification/TASK, and CLASS is the label
(a number from 0) or the name of the class. The mean over tasks is the macro average of the protocol
`vtab`.

`probe/NAME` is how well the classes can be told from a model's image vectors. The classifier is
fitted to the images of `train` (a folder, or tables with it in their names) and measured on those
of `test`. NAME may be a task of VTAB, `vtab/dtd`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, NamedTuple

import polars as pl

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import parse_json, shortened, shown
from counterpoint.benchmarks.benchmark import Benchmark, Options, Size, Sizes
from counterpoint.benchmarks.reading import first_there, malformed, parquet_image, require
from counterpoint.benchmarks.retrieval import gallery
from counterpoint.cases import PROMPTS, Cases

_ENDINGS: Final = {".jpg", ".jpeg", ".png", ".webp", ".bmp", ".ppm", ".tif", ".tiff"}
_TEST: Final = ("test", "val", "validation")
_TRAIN: Final = ("train", "training")
_LABELS: Final = ("label", "fine_label", "labels")
_VTAB: Final = "classification/vtab"


class Labelled(NamedTuple):
    """Images as paths under the data root with the number of their class, and the classes."""

    images: list[tuple[str, int]]
    classes: list[str]

    def numbered(self, numbers: Sequence[int]) -> list[tuple[str, int]]:
        """The images with other numbers of their classes."""
        return [(path, numbers[number]) for path, number in self.images]


# --- labelled images -----------------------------------------------------------------------------


def read_labelled(folder: Path, root: Path, split: Sequence[str] | None = None) -> Labelled:
    """The images below a folder: those of `split` alone, else of a test split or all."""
    return _from_tables(folder, root, split) or _from_folders(folder, root, split)


def _from_folders(folder: Path, root: Path, split: Sequence[str] | None) -> Labelled:
    there = next((folder / name for name in split or _TEST if (folder / name).is_dir()), None)
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
    named = ([file for file in every if name in file.name] for name in split or _TEST)
    # Those of one split, if their names say which they are.
    files = next(filter(None, named), [] if split else every)
    if not files:
        return None
    images, classes = [], list[str]()
    for file in files:
        image, labels, names = read_labels(file)
        classes = classes or names
        name = file.relative_to(root).as_posix()
        images += [(parquet_image(name, image, row).path, n) for row, n in enumerate(labels)]
    if not images:
        raise DataError("E-FILE-EMPTY", f"{files[0]}: the table has no rows.")
    numbers = sorted({number for _, number in images})
    classes = classes or [str(number) for number in range(max(numbers) + 1)]
    if numbers[0] < 0 or numbers[-1] >= len(classes):
        raise DataError(
            "E-CLASSES-MISMATCH",
            f"{files[0]}: labels from {numbers[0]} to {numbers[-1]}, and {len(classes)} class "
            "names.",
        )
    return Labelled(images, classes)


def read_labels(file: Path) -> tuple[str, list[int], list[str]]:
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
        what = f"the label is {shown(labels[bad[0]])}, no class number"
        raise malformed(f"{file}: row {bad[0] + 1}", what)
    for key in ("info", "features", label, "names"):
        about = about.get(key) if isinstance(about, dict) else None
    names = about if isinstance(about, list) else []
    return image, labels, [str(name).replace("_", " ") for name in names]


def class_gallery(
    id: str,
    images: Sequence[tuple[str, int]],
    classes: Sequence[str],
    groups: Sequence[str] = (),
    cluster: str = "",
) -> pl.DataFrame:
    """One case: images with the number of their class, and the caption of each class."""
    true = ((place, number) for place, (_, number) in enumerate(images))
    paths = [path for path, _ in images]
    return gallery(paths, classes, true, id=id, groups=groups, cluster=cluster)


# --- prompts -------------------------------------------------------------------------------------


def _class_prompts(class_name: str, templates: Sequence[str]) -> str:
    """The caption of a class."""
    return PROMPTS.join(template.replace("{}", class_name) for template in templates)


def _known_templates(name: str) -> list[str]:
    """The prompts that CLIP's authors publish for a data set, else a plain one."""
    if name == "imagenet":
        from open_clip.zero_shot_metadata import OPENAI_IMAGENET_TEMPLATES

        return [template("{}") for template in OPENAI_IMAGENET_TEMPLATES]
    if name not in ("cifar10", "cifar100"):
        return ["a photo of a {}."]
    kinds = ("", "blurry ", "black and white ", "low contrast ", "high contrast ", "bad ", "good ")
    return [
        template
        for article in ("a", "the")
        for template in (
            *(f"a {kind}photo of {article} {{}}." for kind in kinds),
            *(f"a photo of {article} {size} {{}}." for size in ("small", "big")),
        )
    ]


def _known_classes(name: str, folders: list[str]) -> list[str]:
    if name == "imagenet":
        from open_clip.zero_shot_metadata import IMAGENET_CLASSNAMES

        # The folders are WordNet numbers, whose order is that of the class numbers.
        return list(IMAGENET_CLASSNAMES)
    return [class_name.replace("_", " ") for class_name in folders]


def _lines(path: Path) -> list[str]:
    if not path.is_file():
        return []
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except ValueError:
        raise DataError("E-TEXT-ENCODING", f"{path}: not a text file in UTF-8.") from None
    return [line for line in lines if line.strip()]


# --- classification/NAME -------------------------------------------------------------------------


def folder_benchmark(id: str) -> Benchmark:
    """`classification/NAME`: the folder of that name under the data root."""
    name = _folder_name(id, "classification/")
    return Benchmark(
        id,
        f"zero-shot classification of the folder {name}",
        "images x classes",
        "classification",
        lambda options: classify(options, name),
        ids="0: all images are one case",
    )


def _folder_name(id: str, begin: str) -> str:
    name = id.removeprefix(begin)
    if not name or Path(name).name != name or name == "..":
        raise DataError("E-BENCHMARK-UNKNOWN", f"{id}: after {begin} comes the name of a folder.")
    return name


def classify(options: Options, name: str, published: bool = False) -> Cases:
    folder = options.data / "classification" / name
    if published:
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
    templates = _lines(folder / "templates.txt") or _known_templates(name)
    if bad := [template for template in templates if "{}" not in template]:
        raise DataError(
            "E-TEMPLATE-INVALID",
            f"{folder / 'templates.txt'}: {bad[0]!r} has no {{}} for the class name.",
        )
    prompts = [_class_prompts(class_name, templates) for class_name in classes]
    frame = class_gallery("0", found.images, prompts, cluster=name)
    return Cases.checked(iter([frame]), options.data, str(folder))


# --- VTAB ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class VtabTask:
    """A task of VTAB. `also` has other names of its classes; `needs` says how to get its images."""

    name: str
    category: str
    images: int
    needs: str
    prompts: list[str] | str  # a text names the data set whose prompts it shares
    classes: list[str]
    also: Mapping[str, str] = field(default_factory=dict)

    @property
    def size(self) -> Size:
        return Size(1, self.images, len(self.classes))

    def captions(self) -> list[str]:
        templates = (
            _known_templates(self.prompts) if isinstance(self.prompts, str) else self.prompts
        )
        return [_class_prompts(name, templates) for name in self.classes]

    def folder(self, root: Path) -> Path:
        """Where its images are: in VTAB's folder, or where they are for other uses."""
        return first_there(root / _VTAB / self.name, root / "classification" / self.name)

    def labels(self, found: Labelled, folder: Path) -> list[tuple[str, int]]:
        """The images with VTAB's labels: their classes are known by number or by name."""
        names = found.classes
        if all(name.isdecimal() for name in names):
            known = {name: int(name) for name in names if int(name) < len(self.classes)}
        else:
            names = [_key(name) for name in names]
            known = {_key(name): number for number, name in enumerate(self.classes)}
            known |= {_key(other): self.classes.index(name) for other, name in self.also.items()}
        for name in names:
            if name not in known:
                raise DataError(
                    "E-CLASS-UNKNOWN",
                    f"{folder}: {shown(name)} is no class of {_VTAB}/{self.name}, which has "
                    f"{len(self.classes)}: name folders by class, or by label from 0.",
                )
        return found.numbered([known[name] for name in names])

    def frame(self, root: Path, id: str, groups: Sequence[str] = ()) -> pl.DataFrame:
        folder = self.folder(root)
        images = self.labels(read_labelled(folder, root), folder)
        return class_gallery(id, images, self.captions(), groups, cluster=self.name)


def _key(name: str) -> str:
    """A name without what spellings differ in: `AnnualCrop`, `annual_crop`."""
    return re.sub(r"[\W_]+", "", name).casefold()


@cache
def vtab_tasks() -> dict[str, VtabTask]:
    """The tasks by name."""
    text = (resources.files("counterpoint.benchmarks") / "vtab.toml").read_text("utf-8")
    return {name: VtabTask(name, **about) for name, about in tomllib.loads(text).items()}


def _vtab_task(name: str) -> VtabTask:
    tasks = vtab_tasks()
    if name not in tasks:
        raise NotFoundError("E-BENCHMARK-UNKNOWN", did_you_mean("VTAB task", name, tasks))
    return tasks[name]


def vtab_benchmark(id: str) -> Benchmark:
    """`classification/vtab/TASK`."""
    task = _vtab_task(id.removeprefix(f"{_VTAB}/"))

    def cases(options: Options) -> Cases:
        folder = require(task.folder(options.data), _VTAB)
        return Cases.checked(iter([task.frame(options.data, "0")]), options.data, str(folder))

    return Benchmark(
        id,
        f"zero-shot classification: {task.name} of VTAB",
        "images x classes",
        "classification",
        cases,
        paper="Zhai et al. 2019; prompts: CLIP-Benchmark (Cherti and Beaumont 2022)",
        licence="that of the images",
        images=f"{task.images:,} test images: {task.needs}",
        count=1,
        ids="0: all images are one case",
        files=lambda _: {"": task.size},
    )


def vtab(options: Options) -> Cases:
    """Every task that is there; those which are not are absent from the benchmark."""
    root = options.data
    tasks = [task for task in vtab_tasks().values() if task.folder(root).exists()]
    if not tasks:
        require(root / _VTAB, _VTAB)

    def frames() -> Iterator[pl.DataFrame]:
        for task in tasks:
            yield task.frame(root, f"{task.name}/0", [f"{task.category}/{task.name}"])

    return Cases.checked(frames(), root, str(root / _VTAB))


def vtab_files(options: Options) -> Sizes:
    return {task.name: task.size for task in vtab_tasks().values()}


# --- probe/NAME ----------------------------------------------------------------------------------


def probe_benchmark(id: str) -> Benchmark:
    """`probe/NAME`: the training and test images of the folder classification/NAME."""
    name = id.removeprefix("probe/")
    if name.startswith("vtab/"):
        _vtab_task(name.removeprefix("vtab/"))
    else:
        _folder_name(id, "probe/")
    return Benchmark(
        id,
        f"linear probe on the image vectors of {name}",
        "images x classes",
        "probe",
        lambda options: _probe_split(options, name, _TEST),
        ids="0: all test images are one case",
        training=lambda options: _probe_split(options, name, _TRAIN),
    )


def _probe_split(options: Options, name: str, split: Sequence[str]) -> Cases:
    """The images of one split as one case, whose captions are the names of the classes."""
    root = options.data
    task = _vtab_task(name.removeprefix("vtab/")) if name.startswith("vtab/") else None
    folder = task.folder(root) if task else root / "classification" / name
    if not folder.is_dir():
        raise DataError(
            "E-FILE-MISSING",
            f"probe/{name} needs {folder}, which is not there: folders train and test, each with a "
            "folder of images for each class, or name another data root with --data.",
        )
    if task:
        images = task.labels(read_labelled(folder, root, split), folder)
        classes = [class_name or "none" for class_name in task.classes]
    else:
        classes = read_labelled(folder, root, _TRAIN).classes
        found = read_labelled(folder, root, split)
        if new := sorted(set(found.classes) - set(classes)):
            raise DataError(
                "E-CLASS-UNKNOWN",
                f"{folder}: the class {shown(new[0])} has test images and no training images.",
            )
        images = found.numbered([classes.index(class_name) for class_name in found.classes])
    frame = class_gallery("0", images, classes, cluster=name)
    return Cases.checked(iter([frame]), root, str(folder))
