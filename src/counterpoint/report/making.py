"""How a report was made: of each run its command, versions and hashes, and of the page its own."""

from __future__ import annotations

import json
import platform
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any, Final

from counterpoint.command_line import recorded_command
from counterpoint.report.gathering import Material
from counterpoint.report.sharing import without_folders
from counterpoint.runs import Run

_PACKAGES: Final = ("counterpoint", "numpy", "polars", "pillow", "scipy", "matplotlib", "jinja2")


@dataclass(frozen=True, slots=True)
class Made:
    """Where a page comes from. `created` is the only thing in it that changes with the clock."""

    command: tuple[str, ...] = ()
    created: str = ""


@dataclass(frozen=True, slots=True)
class Fact:
    what: str
    value: str


def page_facts(made: Made) -> list[Fact]:
    versions = {"python": platform.python_version()} | {p: version(p) for p in _PACKAGES}
    facts = [
        Fact("command", _command([without_folders(word) for word in made.command])),
        Fact("created", made.created),
        Fact("versions", _listed(versions)),
    ]
    return [fact for fact in facts if fact.value]


def run_facts(material: Material) -> dict[str, list[Fact]]:
    """By label. What a run does not say is left out."""
    return {label: _facts(run) for label, run in material.runs.items()}


def _facts(run: Run) -> list[Fact]:
    manifest = run.manifest
    facts = [
        Fact("model", run.model),
        Fact("folder", "" if run.folder is None else run.folder.name),
        Fact("command", _command(manifest.get("command"))),
        Fact("created", _text(manifest.get("created"))),
        Fact("options", _listed(manifest.get("options"))),
        Fact("model fingerprint", _text(manifest.get("fingerprint"))),
        Fact("versions", _listed(manifest.get("versions"))),
        Fact("platform", _text(manifest.get("platform"))),
        *(
            Fact(f"SHA-256 of {name}", _text(digest))
            for name, digest in _pairs(manifest.get("files"))
        ),
        *(
            Fact(f"data hash of {name}", part.data_hash or part.cases.content_hash())
            for name, part in run.parts.items()
        ),
    ]
    return [fact for fact in facts if fact.value]


def _command(command: Any) -> str:
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


def _pairs(values: Any) -> list[tuple[str, Any]]:
    return list(values.items()) if isinstance(values, dict) else []


def _listed(values: Any) -> str:
    said = ((name, value) for name, value in _pairs(values) if value is not None)
    return ", ".join(f"{name} {_text(value)}" for name, value in said)
