"""The runs of a folder. Names are data: one that could be more than a name is refused."""

from __future__ import annotations

import hashlib
import os
import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from counterpoint.errors import RunError, reason
from counterpoint.runs import FORMAT
from counterpoint.untrusted import parse_json, shown

DEPTH: Final = 3  # folders below the one that was given
_MOST: Final = 2_000  # runs and refusals that are listed
_LONGEST: Final = 200  # characters of a name
_MARKUP: Final = frozenset("<>&\"'`\\")
_MANIFEST: Final = "run.json"
_MANIFEST_BYTES: Final = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Place:
    """A run folder. `key` stands for it in addresses; `stamp` changes when the run does."""

    key: str
    name: str
    folder: Path
    stamp: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Found:
    """The runs of a folder, in order of their names, and what was refused with a sentence."""

    places: list[Place] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def find(root: Path) -> Found:
    """The runs at or below `root`, down to `DEPTH` folders."""
    found = Found()
    for folder in _folders(root, found, DEPTH):
        manifest = folder / _MANIFEST
        if len(found.places) + len(found.refused) >= _MOST:
            found.refused.append(("...", f"More than {_MOST:,} runs: the rest is not listed."))
            break
        if manifest.is_symlink() or not manifest.is_file():
            continue
        name = folder.relative_to(root).as_posix() if folder != root else folder.name
        stat = manifest.stat()
        key = hashlib.sha256(name.encode("utf-8", "surrogateescape")).hexdigest()[:12]
        found.places.append(Place(key, name, folder, (stat.st_mtime_ns, stat.st_size)))
    return found


def _folders(folder: Path, found: Found, depth: int) -> Iterator[Path]:
    """The folders that may be entered, in order; a run's own folders are not."""
    yield folder
    if depth == 0 or (folder / _MANIFEST).is_file():
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        found.refused.append(
            (readable(folder.name), f"The folder cannot be read: {reason(error)}.")
        )
        return
    for entry in entries:
        if entry.name.startswith(".") or not entry.is_dir():
            continue
        why = refusal(entry.name, link=entry.is_symlink())
        if not why:
            yield from _folders(Path(entry.path), found, depth - 1)
        elif len(found.refused) < _MOST:
            found.refused.append((readable(entry.name), why))


def refusal(name: str, *, link: bool = False) -> str:
    """Why a folder of that name is not opened, in a sentence; empty if it is."""
    if link:
        return "The folder is a link, and links may lead out of the folder of runs."
    if len(name) > _LONGEST:
        return f"The folder's name is longer than {_LONGEST} characters."
    if any(_is_odd(character) for character in name):
        return "The folder's name holds control characters or characters that cannot be written."
    if _MARKUP & set(name):
        return "The folder's name holds characters of markup or quotation."
    return ""


def _is_odd(character: str) -> bool:
    # Controls, bytes that are no text, and invisible signs that turn the writing around.
    return unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


def readable(name: str) -> str:
    """A name with everything odd in it written out, cut to a length that fits a line."""
    plain = "".join(f"\\u{ord(c):04x}" if _is_odd(c) else c for c in name)
    return plain if len(plain) <= 80 else plain[:79] + "…"


def read_manifest(place: Place) -> dict[str, Any]:
    """What a run says of itself, without its scores; RunError if it is no manifest of a run."""
    path = place.folder / _MANIFEST
    try:
        if path.stat().st_size > _MANIFEST_BYTES:
            raise RunError(f"{_MANIFEST} is larger than {_MANIFEST_BYTES // 2**20} MB.")
        manifest = parse_json(path.read_bytes(), _MANIFEST, RunError)
    except OSError as error:
        raise RunError(f"{_MANIFEST} cannot be read: {reason(error)}.") from None
    if not isinstance(manifest, dict) or "format" not in manifest:
        raise RunError(f"{_MANIFEST} is damaged: it does not describe a run.")
    if manifest["format"] != FORMAT:
        version = shown(manifest["format"])
        raise RunError(f"{_MANIFEST} has run format {version}, this version reads {FORMAT}.")
    if not isinstance(manifest.get("model"), str):
        raise RunError(f"{_MANIFEST} is damaged: it names no model.")
    benchmarks = manifest.get("benchmarks")
    if not isinstance(benchmarks, dict) or not benchmarks:
        raise RunError(f"{_MANIFEST} is damaged: it names no benchmark.")
    for name, about in benchmarks.items():
        scored = about.get("scored") if isinstance(about, dict) else None
        if type(scored) is not int or scored < 0:
            raise RunError(
                f"{_MANIFEST} is damaged: it lacks the number of cases of {shown(name)}."
            )
    return manifest
