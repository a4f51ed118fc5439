"""The data of a report: a label for each run, the values of every case, and what was counted.

Paths of the machine that made a run are removed from what others may see.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from counterpoint._util.errors import RunError
from counterpoint._util.progress import Progress, Quiet
from counterpoint.metrics import PART_MARK, PART_NOTE, Protocol
from counterpoint.runs import Difference, Measured, Part, Run, measure, part_size

# --- runs without the folders of the machine that made them -------------------------------------


# From where an absolute path begins to its last separator. An address with a host, a relative path
# and a slash between words are none.
_PATH: Final = re.compile(
    r"""(?<![\w./…~<)\]])
    (?: (?:file://)? / (?=[\w.~-]) (?: [^/,;:"'<>\n]* / (?=[^/,;:"'<>\s]) )*
    |   [A-Za-z]:[\\/] (?: [^\\/,;:"'<>\n]* [\\/] (?=[^\\/,;:"'<>\s]) )* )""",
    re.VERBOSE,
)


def without_folders(text: str) -> str:
    """The text with the last part only of every absolute path in it."""
    return _PATH.sub("…/", text)


@dataclass(frozen=True, slots=True)
class Shared:
    """Runs without folders, and what their models and benchmarks are called in them."""

    runs: list[Run]
    models: dict[str, str]
    benchmarks: dict[str, str]

    def differences(self, found: Sequence[Difference]) -> list[Difference]:
        return [replace(d, benchmark=self.benchmarks[d.benchmark]) for d in found]


def shared(runs: Sequence[Run]) -> Shared:
    """What is called alike without its folder gets a number, so that it stays apart."""
    models = _names(run.model for run in runs)
    benchmarks = _names(name for run in runs for name in run.parts)
    clean = []
    for run in runs:
        parts = (_part(benchmarks[name], part) for name, part in run.parts.items())
        named = {part.benchmark: part for part in parts}
        clean.append(Run(models[run.model], named, _cleaned(run.manifest), run.folder))
    return Shared(clean, models, benchmarks)


def _names(names: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in dict.fromkeys(names):
        short, number = without_folders(name), 1
        while short in found.values():
            number += 1
            short = f"{without_folders(name)} ({number})"
        found[name] = short
    return found


def _part(name: str, part: Part) -> Part:
    lost = [
        tuple((without_folders(id), without_folders(why)) for id, why in reasons)
        for reasons in (part.left_out, part.left_out_images)
    ]
    return replace(part, benchmark=name, left_out=lost[0], left_out_images=lost[1])


def _cleaned(value: Any) -> Any:
    if isinstance(value, str):
        return without_folders(value)
    if isinstance(value, dict):
        return {key: _cleaned(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [_cleaned(inner) for inner in value]
    return value


@dataclass(frozen=True, eq=False)
class ScoredPart(Measured):
    """One benchmark of one run. Of runs with the same cases `part.cases` is the same object."""

    label: str
    run: Run


@dataclass(frozen=True, slots=True)
class ReportData:
    """What a report is made from: runs by label, and by benchmark those that scored cases of it."""

    runs: dict[str, Run]
    benchmarks: dict[str, list[ScoredPart]]

    @property
    def labels(self) -> list[str]:
        return list(self.runs)


def gather(
    runs: Sequence[Run],
    protocol: Protocol | None = None,
    progress: Progress | None = None,
    labels: Sequence[str] | None = None,
) -> ReportData:
    """Name the runs and compute every metric of every case.

    Runs of different benchmarks may share one of the `labels`, which are then those of models.
    """
    if not runs:
        raise RunError("E-RUN-MISSING", "a report needs at least one run.")
    pairs = list(zip(_labels(runs) if labels is None else labels, runs, strict=True))
    named = dict(reversed(pairs))  # the first of each label
    named = {label: named[label] for label, _ in pairs}
    parts = [
        (label, run, part) for label, run in pairs for part in run.parts.values() if len(part.cases)
    ]
    advance = (progress or Quiet()).start("computing metrics", len(parts))
    benchmarks: dict[str, list[ScoredPart]] = {}
    for label, run, part in parts:
        several = benchmarks.setdefault(part.benchmark, [])
        found = measure(_sharing(part, several), protocol)
        several.append(ScoredPart(found.part, found.protocol, found.columns, label, run))
        advance(1)
    if not benchmarks:
        raise RunError(
            "E-RUN-EMPTY",
            f"{', '.join(named)}: no case was scored, so there is nothing to report; "
            "see `left_out` in run.json.",
        )
    return ReportData(named, benchmarks)


def _sharing(part: Part, several: Sequence[ScoredPart]) -> Part:
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


# --- numbers of a part of a benchmark, or over other cases than the rest ----------------------


Parts = Mapping[tuple[str, str], str]


def parts_of(material: ReportData) -> dict[tuple[str, str], str]:
    """By label and benchmark what was counted, where that is a part or not what most runs have."""
    found = {}
    for benchmark, several in material.benchmarks.items():
        sizes = {s.label: part_size(s.part, s.run.manifest.get("options", {})) for s in several}
        alike = {s.label: sum(not _other(each, s) for each in several) for s in several}
        usual = max(several, key=lambda one: (not sizes[one.label], alike[one.label]))
        for one in several:
            if said := sizes[one.label] or _other(one, usual):
                found[one.label, benchmark] = said
    return found


def _other(one: ScoredPart, usual: ScoredPart) -> str:
    """How a run's cases or protocol differ from another's; empty if they do not."""
    if one.protocol != usual.protocol:
        return f"protocol {one.protocol.name}"
    mine, theirs = one.part.cases, usual.part.cases
    same = mine is theirs or (len(mine) == len(theirs) and mine.frame.equals(theirs.frame))
    return "" if same else f"{len(mine):,} other cases"


def part_notes(parts: Parts) -> list[str]:
    """What the mark means, and what was counted where it stands."""
    said: dict[str, list[str]] = {}
    for (label, benchmark), size in parts.items():
        said.setdefault(f"{benchmark}: {size}", []).append(label)
    named = [f"{what} ({', '.join(labels)})" for what, labels in said.items()]
    return [f"{PART_MARK} {PART_NOTE} {'; '.join(named)}."] if parts else []
