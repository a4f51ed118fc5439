"""What is published: one benchmark of one run, with its numbers and where they come from.

Names become parts of paths here, and folders of this machine are removed.
"""

from __future__ import annotations

import hashlib
import math
import re
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, Literal, NamedTuple

from counterpoint._util.errors import CounterpointError, RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint._util.untrusted import shown
from counterpoint.data import catalogue
from counterpoint.metrics import RESAMPLES, WHOLE, Protocol, headline
from counterpoint.reports.data import Shared, shared
from counterpoint.reports.provenance import recorded, told_of
from counterpoint.runs import Part, Row, Run, fitting, main_rows, part_size

Relationship = Literal["first_party", "third_party", "collaborative", "other"]


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """`called` maps models to OWNER/NAME on the Hub, `datasets` benchmarks to OWNER/NAME[:TASK].

    `organization` is who evaluated, `relationship` what they are to the model's developer, and
    `source` the address at which the run can be found.
    """

    protocol: Protocol | None = None
    groups: bool = False
    resamples: int = RESAMPLES
    called: Mapping[str, str] = field(default_factory=dict)
    datasets: Mapping[str, str] = field(default_factory=dict)
    organization: str = "unknown"
    relationship: Relationship = "other"
    source: str = ""
    wandb: bool = False
    overwrite: bool = False
    progress: Progress = field(default_factory=Quiet)
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


class HubTask(NamedTuple):
    """A data set of the Hub and, if it is not one per metric, the task of its `eval.yaml`."""

    dataset: str
    task: str = ""


@dataclass(frozen=True)
class PublishedPart:
    """One benchmark of one run. The run has no folders of the machine that made it."""

    run: Run
    part: Part
    protocol: Protocol
    model: str  # OWNER/NAME
    hub: HubTask | None
    options: PublishOptions

    @cached_property
    def uuid(self) -> str:
        """The same for the same scores under the same protocol, so that it can be sent again."""
        digest = hashlib.sha256(self.part.scores.tobytes())
        about = (self.model, self.part.benchmark, self.data_hash, self.protocol.describe())
        digest.update("\0".join(about).encode())
        return str(uuid.UUID(bytes=digest.digest()[:16], version=4))

    @cached_property
    def data_hash(self) -> str:
        return self.part.data_hash or self.part.cases.content_hash()

    @cached_property
    def rows(self) -> list[Row]:
        """Every number, by the path that all numbers of the project take."""
        options, only = self.options, replace(self.run, parts={self.part.benchmark: self.part})
        protocol, groups = options.protocol, options.groups
        return [*only.results(groups=groups, protocol=protocol, resamples=options.resamples)]

    @property
    def main(self) -> list[Row]:
        """The main metrics of the whole benchmark, where they are defined."""
        return [row for row in main_rows(self.rows, groups=False) if math.isfinite(row.value)]

    @property
    def headline(self) -> Row | None:
        first = [row for row in self.main if row.group == WHOLE[0]]
        name = headline(row.metric for row in first)
        return next((row for row in first if row.metric == name), None)

    @property
    def size(self) -> str:
        """How much of the whole benchmark was scored; empty if all of it was."""
        return part_size(self.part, self.run.manifest.get("options", {}))

    @property
    def notes(self) -> list[str]:
        """What to know of the numbers: cases that are not in them, captions that were cut."""
        limit = self.run.manifest.get("options", {}).get("limit")
        limited = [] if limit is None else [f"at most {limit:,} cases were asked for (--limit)."]
        part = [f"A part of the benchmark: {self.size}."] if self.size else []
        return [*part, *limited, *(notice.text for notice in told_of(self.part))]

    @property
    def created(self) -> str:
        return str(self.run.manifest.get("created", ""))

    @property
    def made_with(self) -> str:
        """The command that made the run, without folders and secrets; empty if it has none."""
        return recorded(self.run.manifest.get("command"))

    @property
    def recompute(self) -> str:
        """The command that computes the numbers again from the run folder, without the model."""
        words = ["counterpoint", "rescore", self.folder or "RUN"]
        words += [] if self.options.protocol is None else ["--protocol", self.protocol.name]
        words += ["--groups"] if self.options.groups else []
        return shlex.join(words)

    @property
    def folder(self) -> str:
        return "" if self.run.folder is None else self.run.folder.name

    @property
    def version(self) -> str:
        versions = self.run.manifest.get("versions")
        return str(versions.get("counterpoint", "unknown")) if versions else "unknown"


def gather_parts(runs: Sequence[Run], options: PublishOptions) -> list[PublishedPart]:
    """Every benchmark of every run that has scored cases."""
    if not runs:
        raise RunError("E-RUN-MISSING", "publish needs at least one run.")
    benchmarks = dict.fromkeys(name for run in runs for name in run.parts)
    _refuse_unknown("called", options.called, {run.model for run in runs})
    _refuse_unknown("datasets", options.datasets, set(benchmarks))
    clean = shared(runs)
    hubs = {clean.benchmarks[name]: _hub_task(name, options.datasets) for name in benchmarks}
    names = _model_names(clean, options.called)
    found: dict[str, PublishedPart] = {}  # a run that was given twice is one
    for run in clean.runs:
        for part in run.parts.values():
            if len(part.cases):
                protocol, hub = fitting(part, options.protocol), hubs[part.benchmark]
                one = PublishedPart(run, part, protocol, names[run.model], hub, options)
                found[one.uuid] = one
    if not found:
        models = ", ".join(run.model for run in clean.runs)
        raise RunError(
            "E-RUN-EMPTY",
            f"{models}: no case was scored, so there is nothing to publish; "
            "see `left_out` in run.json.",
        )
    return list(found.values())


# --- names ---------------------------------------------------------------------------------------


_WORD: Final = r"[A-Za-z0-9](?:[\w.-]{0,94}[A-Za-z0-9_])?"
_HUB_ID: Final = re.compile(rf"(?!.*(?:--|\.\.)){_WORD}/{_WORD}", re.A)
_TASK: Final = re.compile(r"[\w.@+-]{1,100}", re.A)
_ODD: Final = re.compile(r"[^A-Za-z0-9._+=-]+")
_RESERVED: Final = re.compile(r"(?i)(con|prn|aux|nul|com\d|lpt\d|data)(\..*)?")
_LONGEST: Final = 96


def safe_name(name: str) -> str:
    """A name as one part of a path, on any operating system and in any repository."""
    safe = _ODD.sub("-", name).strip("-. ")
    if safe and len(safe) <= _LONGEST and not _RESERVED.fullmatch(safe):
        return safe
    digest = hashlib.sha256(name.encode("utf-8", "replace")).hexdigest()[:8]
    return f"{digest}-{safe[: _LONGEST - 9]}".rstrip("-.")


def published_model(model: str) -> str:
    """OWNER/NAME: that of the Hub for a model of the Hub, else its family and its name."""
    family, _, name = model.partition(":")
    if family == "hf" and _HUB_ID.fullmatch(name):
        return name
    return f"{safe_name(family)}/{safe_name(name)}" if name else f"counterpoint/{safe_name(model)}"


def _model_names(clean: Shared, called: Mapping[str, str]) -> dict[str, str]:
    """OWNER/NAME of every model: two models never share one, which would mix their numbers."""
    given = {clean.models[model]: _hub_id(name, "called") for model, name in called.items()}
    if len({name.lower() for name in given.values()}) < len(given):
        raise CounterpointError(
            "E-OPTION-INVALID",
            "called: two models have the same name; publish their runs to folders of their own.",
        )
    models = dict.fromkeys([*given, *clean.models.values()])
    names = names_apart([given.get(model) or published_model(model) for model in models])
    return dict(zip(models, names, strict=True))


def names_apart(names: Sequence[str]) -> Iterator[str]:
    """The names, with a number where one stands for the second time."""
    taken: set[str] = set()
    for name in names:
        new, number = name, 1
        while new.lower() in taken:  # some file systems do not tell capitals
            number += 1
            new = f"{name}-{number}"
        taken.add(new.lower())
        yield new


def _hub_id(name: str, option: str) -> str:
    if not _HUB_ID.fullmatch(name):
        raise CounterpointError(
            "E-OPTION-INVALID",
            f"{option}: {shown(name)} is not an id of the Hub; write OWNER/NAME.",
        )
    return name


def _hub_task(benchmark: str, given: Mapping[str, str]) -> HubTask | None:
    """The data set that was named; else the one that the data came from, if that is on the Hub."""
    if benchmark not in given:
        needs = catalogue().benchmarks.get(benchmark)
        repos = [getattr(source, "repo", "") for source in needs.annotations] if needs else []
        return HubTask(repos[0]) if len(repos) == 1 and repos[0] else None
    dataset, separated, task = given[benchmark].partition(":")
    if separated and not _TASK.fullmatch(task):
        raise CounterpointError(
            "E-OPTION-INVALID",
            f"datasets: {shown(task)} is not the id of a task; write OWNER/NAME:TASK.",
        )
    return HubTask(_hub_id(dataset, "datasets"), task)


def _refuse_unknown(option: str, given: Mapping[str, str], known: set[str]) -> None:
    for name in given:
        if name not in known:
            raise CounterpointError(
                "E-OPTION-INVALID",
                f"{option}: no run has {shown(name)}; the runs have {shown(sorted(known))}.",
            )
