"""VTAB: 20 tasks of zero-shot classification, each with class names and prompts of its own.

classification/vtab/TASK/CLASS/*.jpg     images of a task; so are classification/TASK and tables, as
                                         for any classification
CLASS is the label (a number from 0) or the name of the class. The tasks are in vtab.toml. The mean
over tasks is the macro average of the protocol `vtab`.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final

import polars as pl

from counterpoint._util.errors import DataError, NotFoundError
from counterpoint._util.registry import did_you_mean
from counterpoint._util.untrusted import shown
from counterpoint.benchmarks.annotations import first_there, require
from counterpoint.benchmarks.benchmark import Benchmark, Options, Size
from counterpoint.benchmarks.classification import (
    Labelled,
    class_prompts,
    gallery,
    known_templates,
    read_labelled,
)
from counterpoint.cases import Cases

ID: Final = "classification/vtab"
_PAPER: Final = "Zhai et al. 2019; prompts: CLIP-Benchmark (Cherti and Beaumont 2022)"


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
        shared = isinstance(self.prompts, str)
        templates = known_templates(str(self.prompts)) if shared else self.prompts
        return [class_prompts(name, templates) for name in self.classes]

    def folder(self, root: Path) -> Path:
        """Where its images are: in VTAB's folder, or where they are for other uses."""
        return first_there(root / ID / self.name, root / "classification" / self.name)

    def labels(self, found: Labelled, folder: Path) -> list[tuple[str, int]]:
        """The images with VTAB's labels: their classes are known by number or by name."""
        numbers = self._numbers(found.classes, folder)
        return [(path, numbers[number]) for path, number in found.images]

    def _numbers(self, names: Sequence[str], folder: Path) -> list[int]:
        known = {_key(name): number for number, name in enumerate(self.classes)}
        known |= {_key(other): self.classes.index(name) for other, name in self.also.items()}
        if all(name.isdecimal() for name in names):
            known = {name: int(name) for name in names if int(name) < len(self.classes)}
        else:
            names = [_key(name) for name in names]
        for name in names:
            if name not in known:
                raise DataError(
                    "E-CLASS-UNKNOWN",
                    f"{folder}: {shown(name)} is no class of {ID}/{self.name}, which has "
                    f"{len(self.classes)}: name folders by class, or by label from 0.",
                )
        return [known[name] for name in names]


def _key(name: str) -> str:
    """A name without what spellings differ in: `AnnualCrop`, `annual_crop`."""
    return re.sub(r"[\W_]+", "", name).casefold()


@cache
def vtab_tasks() -> dict[str, VtabTask]:
    """The tasks by name."""
    text = (resources.files("counterpoint.benchmarks") / "vtab.toml").read_text("utf-8")
    return {name: VtabTask(name, **about) for name, about in tomllib.loads(text).items()}


def get_task(name: str) -> VtabTask:
    tasks = vtab_tasks()
    if name not in tasks:
        raise NotFoundError("E-BENCHMARK-UNKNOWN", did_you_mean("VTAB task", name, tasks))
    return tasks[name]


def _frame(task: VtabTask, root: Path, id: str, groups: Sequence[str] = ()) -> pl.DataFrame:
    folder = task.folder(root)
    images = task.labels(read_labelled(folder, root), folder)
    return gallery(id, images, task.captions(), groups, cluster=task.name)


def _task_cases(options: Options, task: VtabTask) -> Cases:
    folder = require(task.folder(options.data), ID)
    return Cases.checked(iter([_frame(task, options.data, "0")]), options.data, str(folder))


def _all_cases(options: Options) -> Cases:
    """Every task that is there; those which are not are absent from the benchmark."""
    tasks = [task for task in vtab_tasks().values() if task.folder(options.data).exists()]
    if not tasks:
        require(options.data / ID, ID)

    def frames() -> Iterator[pl.DataFrame]:
        for task in tasks:
            yield _frame(task, options.data, f"{task.name}/0", [f"{task.category}/{task.name}"])

    return Cases.checked(frames(), options.data, str(options.data / ID))


def task_benchmark(id: str) -> Benchmark:
    """`classification/vtab/TASK`."""
    task = get_task(id.removeprefix(f"{ID}/"))
    return Benchmark(
        id,
        f"zero-shot classification: {task.name} of VTAB",
        "images x classes",
        "classification",
        lambda options: _task_cases(options, task),
        paper=_PAPER,
        licence="that of the images",
        images=f"{task.images:,} test images: {task.needs}",
        count=1,
        ids="0: all images are one case",
        files=lambda _: {"": task.size},
    )


VTAB: Final = Benchmark(
    ID,
    "zero-shot classification, mean of VTAB's 20 tasks (one alone: classification/vtab/TASK)",
    "images x classes",
    "vtab",
    _all_cases,
    paper=_PAPER,
    licence="that of the images",
    images="the test split of each task, in classification/vtab/TASK",
    count=20,
    ids="TASK/0: all images of a task are one case",
    files=lambda _: {task.name: task.size for task in vtab_tasks().values()},
)
