"""What a reader must know before the first number: what was not scored, and what does not match."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

from counterpoint.benchmarks.completeness import describe_absent
from counterpoint.galleries import gallery_rows
from counterpoint.report.gathering import Material
from counterpoint.runs import Part, Run
from counterpoint.wording import reasons

_NAMED: Final = 200  # left-out cases that the page names


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence, and the cases it is about, as far as there is room."""

    text: str
    cases: tuple[tuple[str, str], ...] = ()
    more: int = 0


def notices(material: Material) -> list[Notice]:
    """Cases and images left out, captions cut, notes of models, and runs on different data."""
    told: dict[Notice, list[str]] = {}  # what holds of several runs is said once
    for label, run in material.runs.items():
        for part in run.parts.values():
            for notice in _of_part(part):
                told.setdefault(notice, []).append(label)
        for note in _notes(run):
            told.setdefault(Notice(note), []).append(label)
    everyone = len(material.runs) > 1
    found = []
    for notice, labels in told.items():
        whole = everyone and len(labels) == len(material.runs)
        who = "all runs" if whole else ", ".join(labels)
        found.append(replace(notice, text=f"{who}: {notice.text}"))
    return [*found, *_unlike(material)]


def _of_part(part: Part) -> Iterator[Notice]:
    where = part.benchmark
    if part.absent:
        yield _named(
            f"{where}, the data were not the whole benchmark ({describe_absent(part.absent)}).",
            [(one.what, one.reason) for one in part.absent],
        )
    if part.left_out:
        total = len(part.left_out) + len(part.cases)
        yield _named(
            f"{where}, {len(part.left_out):,} of {total:,} cases were left out "
            f"({reasons(part.left_out)}); the numbers are those of the other {len(part.cases):,}.",
            part.left_out,
        )
    if part.lost_images:
        lost = len(part.lost_images)
        total = lost + int(part.cases.image_counts[gallery_rows(part.cases)].sum())
        yield _named(
            f"{where}, {lost:,} of {total:,} images were left out, with the captions that are "
            f"theirs alone ({reasons(part.lost_images)}).",
            part.lost_images,
        )
    if part.cut_captions:
        yield Notice(
            f"{where}, {part.cut_captions:,} captions were longer than the model's context and "
            "were cut, as the protocol does."
        )


def _named(text: str, cases: Sequence[tuple[str, str]]) -> Notice:
    return Notice(text, tuple(cases[:_NAMED]), max(0, len(cases) - _NAMED))


def _notes(run: Run) -> list[str]:
    info = run.manifest.get("model_info")
    notes = info.get("notes", ()) if isinstance(info, dict) else ()
    return [str(note) for note in notes]


def _unlike(material: Material) -> Iterator[Notice]:
    """Numbers that stand in one column and were not made from the same question."""
    for benchmark, several in material.benchmarks.items():
        if len({scored.protocol for scored in several}) > 1:
            names = ", ".join(f"{s.label}: {s.protocol.name}" for s in several)
            yield Notice(
                f"{benchmark}: the runs used different protocols ({names}); they are not tested "
                "against each other."
            )
        hashes = {scored.part.data_hash for scored in several if scored.part.data_hash}
        if len(hashes) > 1:
            yield Notice(
                f"{benchmark}: the runs were asked for different cases (see the data hashes "
                "below); they are tested on the cases that both scored."
            )
    for label, run in material.runs.items():
        missing = [name for name in material.benchmarks if name not in run.parts]
        if missing:
            yield Notice(f"{label} was not evaluated on {', '.join(missing)}.")
