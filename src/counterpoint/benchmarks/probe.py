"""Linear probes: how well the classes of labelled images can be told from a model's image vectors.

classification/NAME/train/CLASS/*.jpg    images that the classifier is fitted to
classification/NAME/test/CLASS/*.jpg     images that it is measured on (or val/)

Tables of the hub with `train` and `test` in their names do as well. NAME may be a task of VTAB,
`vtab/dtd`.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from counterpoint._util.errors import DataError
from counterpoint._util.untrusted import shown
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.classification import (
    TEST,
    TRAIN,
    Labelled,
    gallery,
    read_labelled,
)
from counterpoint.benchmarks.vtab import get_task
from counterpoint.cases import Cases

_VTAB: Final = "vtab/"


def _split(options: Options, name: str, split: Sequence[str]) -> Cases:
    """The images of one split as one case, whose captions are the names of the classes."""
    if name.startswith(_VTAB):
        task = get_task(name.removeprefix(_VTAB))
        folder = _there(task.folder(options.data), name)
        found = read_labelled(folder, options.data, split)
        images, classes = task.labels(found, folder), [name or "none" for name in task.classes]
    else:
        folder = _there(options.data / "classification" / name, name)
        classes = read_labelled(folder, options.data, TRAIN).classes
        images = _numbered(read_labelled(folder, options.data, split), classes, folder)
    frame = gallery("0", images, classes, cluster=name)
    return Cases.checked(iter([frame]), options.data, str(folder))


def _there(folder: Path, name: str) -> Path:
    if not folder.is_dir():
        raise DataError(
            "E-FILE-MISSING",
            f"probe/{name} needs {folder}, which is not there: folders train and test, each with a "
            "folder of images for each class, or name another data root with --data.",
        )
    return folder


def _numbered(found: Labelled, classes: list[str], folder: Path) -> list[tuple[str, int]]:
    """The images with their classes' numbers among those of the training split."""
    if new := sorted(set(found.classes) - set(classes)):
        raise DataError(
            "E-CLASS-UNKNOWN",
            f"{folder}: the class {shown(new[0])} has test images and no training images.",
        )
    numbers = [classes.index(name) for name in found.classes]
    return [(path, numbers[number]) for path, number in found.images]


def probe_benchmark(id: str) -> Benchmark:
    """`probe/NAME`: the training and test images of the folder classification/NAME."""
    name = id.removeprefix("probe/")
    if name.startswith(_VTAB):
        get_task(name.removeprefix(_VTAB))
    elif not name or Path(name).name != name or name == "..":
        raise DataError("E-BENCHMARK-UNKNOWN", f"{id}: after probe/ comes the name of a folder.")
    return Benchmark(
        id,
        f"linear probe on the image vectors of {name}",
        "images x classes",
        "probe",
        lambda options: _split(options, name, TEST),
        ids="0: all test images are one case",
        training=lambda options: _split(options, name, TRAIN),
    )
