"""Notices at the top of a report, and facts at its end.

Notices say what was not scored and what does not match. Facts say how runs and page were made:
command, versions and hashes.
"""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib.metadata import version
from typing import Any, Final

from counterpoint._util.untrusted import recorded_command
from counterpoint.benchmarks import describe_absent
from counterpoint.cases import gallery_rows
from counterpoint.metrics import count_reasons
from counterpoint.reports.data import ReportData, without_folders
from counterpoint.runs import Part, Run

# --- facts --------------------------------------------------------------------------------------


_PACKAGES: Final = ("counterpoint", "numpy", "polars", "pillow", "matplotlib", "jinja2")


@dataclass(frozen=True, slots=True)
class Provenance:
    """Where a page comes from. `created` is the only thing in it that changes with the clock."""

    command: tuple[str, ...] = ()
    created: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    what: str
    value: str


def page_facts(made: Provenance) -> list[Fact]:
    versions = {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES}
    return _known(
        command=recorded([without_folders(word) for word in made.command]),
        created=made.created,
        versions=_listed(versions),
    )


def facts_of(run: Run) -> list[Fact]:
    manifest = run.manifest
    files = manifest.get("files")
    digests = files if isinstance(files, dict) else {}
    hashes = {name: p.data_hash or p.cases.content_hash() for name, p in run.parts.items()}
    return _known(
        **{
            "model": run.model,
            "folder": "" if run.folder is None else run.folder.name,
            "command": recorded(manifest.get("command")),
            "created": _text(manifest.get("created")),
            "options": _listed(manifest.get("options")),
            "model fingerprint": _text(manifest.get("fingerprint")),
            "versions": _listed(manifest.get("versions")),
            "platform": _text(manifest.get("platform")),
            **{f"SHA-256 of {name}": _text(digest) for name, digest in digests.items()},
            **{f"data hash of {name}": digest for name, digest in hashes.items()},
        }
    )


def _known(**facts: str) -> list[Fact]:
    """What is not said is left out."""
    return [Fact(what, value) for what, value in facts.items() if value]


def recorded(command: Any) -> str:
    """As it was typed, but for where the program lies and for secrets."""
    if isinstance(command, str) or not isinstance(command, Sequence) or not command:
        return _text(command)
    first, *words = recorded_command(command)
    program = re.split(r"[\\/]", first)[-1]
    # `python -m counterpoint` is called by the name of its file.
    return shlex.join(["counterpoint" if program == "__main__.py" else program, *words])


def _text(value: Any) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False, default=str)


def _listed(values: Any) -> str:
    pairs = values.items() if isinstance(values, dict) else ()
    return ", ".join(f"{name} {_text(value)}" for name, value in pairs if value is not None)


# --- notices ------------------------------------------------------------------------------------


_NAMED: Final = 200  # left-out cases that the page names


@dataclass(frozen=True, slots=True)
class Notice:
    """A sentence, and the cases it is about, as far as there is room."""

    text: str
    cases: tuple[tuple[str, str], ...] = ()
    more: int = 0

    @classmethod
    def naming(cls, text: str, cases: Sequence[tuple[str, str]]) -> Notice:
        return cls(text, tuple(cases[:_NAMED]), max(0, len(cases) - _NAMED))


def notices(material: ReportData) -> list[Notice]:
    """Cases and images left out, captions cut, benchmarks that were trained on, notes of models,
    and runs on different data."""
    told: dict[Notice, list[str]] = {}  # what holds of several runs is said once
    for label, run in material.runs.items():
        info = run.manifest.get("model_info")
        notes = info.get("notes", ()) if isinstance(info, dict) else ()
        of_parts = [notice for part in run.parts.values() for notice in told_of(part)]
        for notice in (*of_parts, *(Notice(str(note)) for note in notes)):
            told.setdefault(notice, []).append(label)
    found = []
    for notice, labels in told.items():
        whole = len(labels) == len(material.runs) > 1
        who = "all runs" if whole else ", ".join(labels)
        found.append(replace(notice, text=f"{who}: {notice.text}"))
    return [*found, *_unlike(material)]


def told_of(part: Part) -> Iterator[Notice]:
    """What was trained on; cases and images left out or absent, and captions cut."""
    where = part.benchmark
    if part.trained_on:
        yield Notice(f"{where}, {part.trained_on}.")
    if part.absent:
        yield Notice.naming(
            f"{where}, the data were not those of the published benchmark "
            f"({describe_absent(part.absent)}).",
            [(one.what, one.reason) for one in part.absent],
        )
    if part.left_out:
        total = len(part.left_out) + len(part.cases)
        yield Notice.naming(
            f"{where}, {len(part.left_out):,} of {total:,} cases were left out "
            f"({count_reasons(part.left_out)}); the numbers are those of the other "
            f"{len(part.cases):,}.",
            part.left_out,
        )
    if part.left_out_images:
        lost = len(part.left_out_images)
        total = lost + int(part.cases.image_counts[gallery_rows(part.cases)].sum())
        yield Notice.naming(
            f"{where}, {lost:,} of {total:,} images were left out, with the captions that are "
            f"theirs alone ({count_reasons(part.left_out_images)}).",
            part.left_out_images,
        )
    if part.cut_captions:
        yield Notice(
            f"{where}, {part.cut_captions:,} captions were longer than the model's context and "
            "were cut, as the protocol does."
        )


def _unlike(material: ReportData) -> Iterator[Notice]:
    """Numbers in one column that do not measure the same thing."""
    for benchmark, several in material.benchmarks.items():
        if len({scored.protocol for scored in several}) > 1:
            names = ", ".join(f"{s.label}: {s.protocol.name}" for s in several)
            yield Notice(
                f"{benchmark}: the runs used different protocols ({names}); they are not tested "
                "against each other."
            )
        if len({scored.part.data_hash for scored in several} - {""}) > 1:
            yield Notice(
                f"{benchmark}: the runs were asked for different cases (see the data hashes "
                "below); they are tested on the cases that both scored."
            )
    for label, run in material.runs.items():
        missing = [name for name in material.benchmarks if name not in run.parts]
        if missing:
            yield Notice(f"{label} was not evaluated on {', '.join(missing)}.")
