"""BLA (Chen et al. 2023): an image, two true sentences and two false ones, for three constructions.

Of `active-passive`, the two true sentences say the same in active and passive voice: a published
hard positive. Of `coordination` and `relative-clause`, they say two different things.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from counterpoint.benchmarks.annotations import VisualGenome, number, text
from counterpoint.benchmarks.benchmark import Benchmark, Options
from counterpoint.benchmarks.layouts import object_rows, published_file, unexpected
from counterpoint.cases import Case, Cases, ImageRef, caption_case

TASKS: Final = {"active-passive": 613, "coordination": 654, "relative-clause": 672}  # their rows
_TRUE: Final = ("True1", "True2")
_FALSE: Final = ("False1", "False2")


def _cases(options: Options) -> Cases:
    folder = options.data / "bla"
    genome = VisualGenome(options.data)
    rows = (case for task in TASKS for case in _task(folder, task, options.data, genome))
    return Cases.build(rows, root=options.data, source=str(folder))


def _task(folder: Path, task: str, root: Path, genome: VisualGenome) -> Iterator[Case]:
    path = published_file(folder, [f"{task.replace('-', '_')}_captions.json"], "bla")
    images = path.parent.parent / "images"
    for place, row in enumerate(object_rows(path, ("image_id", "caption_group"), "bla")):
        where = f"{path}: row {place + 1}"
        groups = row["caption_group"]
        if not isinstance(groups, list) or not groups or not isinstance(groups[0], dict):
            raise unexpected(where, "a caption_group of one object or more", groups)
        captions = groups[0]  # the authors take the first
        if any(field not in captions for field in (*_TRUE, *_FALSE)):
            raise unexpected(where, f"captions {', '.join((*_TRUE, *_FALSE))}", captions)
        name = number(row, "image_id", where)
        own = (images / f"{name}.jpg").relative_to(root).as_posix()
        yield caption_case(
            f"{task}/{place}",
            ImageRef(own if (root / own).exists() else genome.find(name) or own),
            [text(captions, field, where) for field in _TRUE],
            [text(captions, field, where) for field in _FALSE],
            (task,),
        )


BLA: Final = Benchmark(
    "bla",
    "active and passive voice, coordination, relative clauses: two true sentences and two false",
    "1 x 4, two true",
    "strict",
    _cases,
    paper="Chen et al. 2023, The BLA Benchmark, arXiv 2310.15061",
    licence="not stated",
    images="with the data set (Visual Genome)",
    count=sum(TASKS.values()),
    ids="task/row, as active-passive/0",
    files=lambda _: TASKS,
    untried=True,
)
