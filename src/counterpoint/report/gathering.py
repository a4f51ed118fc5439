"""Runs as a report needs them: a name for each, and the values of every case, once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from counterpoint.columns import Columns, columns_of
from counterpoint.errors import RunError
from counterpoint.progress import Progress, Quiet
from counterpoint.protocols import Protocol
from counterpoint.results import fitting
from counterpoint.runs import Part, Run


@dataclass(frozen=True, slots=True)
class Scored:
    """One benchmark of one run, with the values of its cases.

    Of runs with the same cases `part.cases` is the same object.
    """

    label: str
    run: Run
    part: Part
    protocol: Protocol
    columns: Columns

    def metric(self, name: str) -> int | None:
        """The column of a metric, if its cases define it."""
        names = [metric.name for metric in self.columns.metrics]
        return names.index(name) if name in names else None


@dataclass(frozen=True, slots=True)
class Material:
    """What a report is made from: runs by label, and by benchmark those that scored cases of it."""

    runs: dict[str, Run]
    benchmarks: dict[str, list[Scored]]

    @property
    def labels(self) -> list[str]:
        return list(self.runs)


def gather(
    runs: Sequence[Run], protocol: Protocol | None = None, progress: Progress | None = None
) -> Material:
    """Name the runs and compute every metric of every case."""
    if not runs:
        raise RunError("a report needs at least one run.")
    named = dict(zip(_labels(runs), runs, strict=True))
    parts = [
        (label, run, part)
        for label, run in named.items()
        for part in run.parts.values()
        if len(part.cases)
    ]
    advance = (progress or Quiet()).start("computing metrics", len(parts))
    benchmarks: dict[str, list[Scored]] = {}
    for label, run, part in parts:
        used = fitting(part, protocol)
        several = benchmarks.setdefault(part.benchmark, [])
        shared = _sharing(part, several)
        several.append(Scored(label, run, shared, used, columns_of(part, used.tie)))
        advance(1)
    if not benchmarks:
        raise RunError(
            f"{', '.join(named)}: no case was scored, so there is nothing to report; "
            "see `left_out` in run.json."
        )
    return Material(named, benchmarks)


def _sharing(part: Part, several: Sequence[Scored]) -> Part:
    """The part with the very table of a run before it, if the cases are the same.

    Tables are then kept and compared once: the same cases are the same object.
    """
    for scored in several:
        known = scored.part.cases
        if known.root == part.cases.root and known.frame.equals(part.cases.frame):
            return replace(part, cases=known)
    return part


def _labels(runs: Sequence[Run]) -> list[str]:
    """The models' names; where runs share one, their folders tell them apart."""
    models = Counter(run.model for run in runs)
    folders = Counter((run.model, _folder(run)) for run in runs)
    labels = []
    for number, run in enumerate(runs, start=1):
        if models[run.model] == 1:
            labels.append(run.model)
        elif folders[run.model, _folder(run)] == 1 and run.folder is not None:
            labels.append(f"{run.model} ({_folder(run)})")
        else:
            labels.append(f"{run.model} ({number})")
    return labels


def _folder(run: Run) -> str:
    return "" if run.folder is None else run.folder.name
