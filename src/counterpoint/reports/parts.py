"""Numbers of a part of a benchmark, and numbers over other cases than the rest of their column."""

from __future__ import annotations

from collections.abc import Mapping

from counterpoint.metrics import PART_MARK, PART_NOTE
from counterpoint.reports.gathering import ReportData, ScoredPart
from counterpoint.runs import part_size

Parts = Mapping[tuple[str, str], str]


def parts_of(material: ReportData) -> dict[tuple[str, str], str]:
    """By label and benchmark what was counted, where that is a part or not what most runs have."""
    found = {}
    for benchmark, several in material.benchmarks.items():
        sizes = {one.label: _size(one) for one in several}
        usual = max(several, key=lambda one: (not sizes[one.label], _fellows(one, several)))
        for one in several:
            if said := sizes[one.label] or _other(one, usual):
                found[one.label, benchmark] = said
    return found


def _size(one: ScoredPart) -> str:
    return part_size(one.part, one.run.manifest.get("options", {}))


def _fellows(one: ScoredPart, several: list[ScoredPart]) -> int:
    return sum(not _other(each, one) for each in several)


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
