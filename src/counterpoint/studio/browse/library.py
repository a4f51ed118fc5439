"""The runs of a folder: listed without reading their scores, loaded on demand, cached.

Names of runs are data: a name that could be more than a name is rejected.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import time
import unicodedata
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final

import numpy as np
import polars as pl

from counterpoint._util.errors import CounterpointError, RunError, reason
from counterpoint.cases import is_gallery
from counterpoint.metrics import ALL, METRICS, Metric, is_baseline
from counterpoint.runs import (
    Part,
    Row,
    Run,
    case_outcomes,
    load_run,
    members_in,
    read_manifest,
    rows,
)
from counterpoint.studio.security import StudioError

# --- one benchmark of a run -----------------------------------------------------------------------
#
# Outcomes and groups are arrays of row numbers. Captions are searched by a scan in polars, which
# takes a hundredth of a second for 100,000 cases and needs no index (see `bench/browsing.py`: an
# FTS5 table takes seconds to build, and longer to list what a common word finds).


BETWEEN: Final = "\n"  # captions of one case in the searched text
_WORDS: Final = 12  # of a search


@dataclass(frozen=True)
class Index:
    """`members` are the rows of each group; `text` the captions of each case in lower case.

    `whole` are the rows that the numbers of the whole benchmark are made from.
    """

    model: str
    part: Part
    outcomes: np.ndarray
    members: dict[str, np.ndarray]
    whole: np.ndarray
    text: pl.Series

    @property
    def right(self) -> np.ndarray:
        return np.asarray(self.outcomes == "right")

    def bytes(self) -> int:
        frame = self.part.cases.frame.estimated_size() + self.text.estimated_size()
        return int(frame) + self.part.scores.nbytes

    def row_of(self, case_id: str) -> int | None:
        """The row of the case with that id."""
        return self.part.cases.ids.index_of(case_id)

    def shape(self, row: int) -> tuple[int, int]:
        """How many images and captions a case has."""
        frame = self.part.cases.frame
        return len(frame["images"][row]), len(frame["captions"][row])

    def is_large(self, row: int) -> bool:
        return is_gallery(*self.shape(row))

    def scores(self, row: int) -> np.ndarray:
        """A case's scores, flat."""
        start, end = self._starts[row : row + 2]
        return self.part.scores[start:end]

    @cached_property
    def _starts(self) -> np.ndarray:
        return self.part.cases.pair_offsets

    @cached_property
    def counted(self) -> dict[str, np.ndarray]:
        """The rows that each main metric counts: its value is above 0, by the run's protocol."""
        main = [m for m in METRICS.values() if isinstance(m, Metric) and m.main]
        part, found = self.part, dict[str, list[np.ndarray]]()
        for block in part.cases.blocks():
            if is_gallery(*block.truth.shape[1:]):
                continue
            scores = part.cases.scores_of(block, part.scores)
            for metric in main:
                mask = metric.defined(block)
                if mask.any():
                    values = metric.values(scores[mask], block.truth[mask], part.protocol.tie)
                    found.setdefault(metric.name, []).append(block.rows[mask][values > 0])
        return {name: np.concatenate(rows) for name, rows in found.items()}

    def matching(self, words: str) -> np.ndarray:
        """Which cases hold every word (its beginning will do) and every "quoted phrase"."""
        found = pl.repeat(True, len(self.text), eager=True)
        for word in split(words):
            plain = word.isascii() and word.isalnum()
            found &= self.text.str.contains(rf"\b{word}" if plain else word, literal=not plain)
        return found.to_numpy()


def make_index(model: str, part: Part) -> Index:
    text = part.cases.frame["captions"].list.join(BETWEEN).str.to_lowercase()
    groups = members_in(part.cases, part.protocol)
    whole = groups.pop(ALL)
    return Index(model, part, case_outcomes(part), groups, whole, text)


def split(words: str) -> list[str]:
    """The words and quoted phrases of a search, in lower case."""
    try:
        found = shlex.split(words.replace("'", "\\'").lower())
    except ValueError:  # a quotation mark that is not closed yet, while typing
        found = words.lower().replace('"', " ").split()
    return found[:_WORDS]


# --- the runs of a folder -----------------------------------------------------------------------


DEPTH: Final = 3  # folders below the one that was given
_MOST: Final = 2_000  # runs and refusals that are listed
_LONGEST: Final = 200  # characters of a name
_MARKUP: Final = frozenset("<>&\"'`\\")
_MANIFEST: Final = "run.json"


@dataclass(frozen=True, slots=True)
class RunFolder:
    """A run folder. `key` stands for it in addresses; `stamp` changes when the run does."""

    key: str
    name: str
    folder: Path
    stamp: tuple[int, int]


@dataclass(frozen=True, slots=True)
class RunListing:
    """The runs of a folder, in order of their names, and what was refused with a sentence."""

    places: list[RunFolder] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)


def find(root: Path) -> RunListing:
    """The runs at or below `root`, down to `DEPTH` folders."""
    found = RunListing()
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
        found.places.append(RunFolder(key, name, folder, (stat.st_mtime_ns, stat.st_size)))
    return found


def _folders(folder: Path, found: RunListing, depth: int) -> Iterator[Path]:
    """The folders that may be entered, in order; a run's own folders are not."""
    yield folder
    if depth == 0 or (folder / _MANIFEST).is_file():
        return
    try:
        entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
    except OSError as error:
        why = f"The folder cannot be read: {reason(error)}."
        found.refused.append((readable(folder.name), why))
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


_FRESH: Final = 2.0  # seconds for which the folder is not listed again
_HELD: Final = 2 * 2**30  # bytes of cases and scores in memory


@dataclass(frozen=True, slots=True)
class Listed(RunFolder):
    """A run as the list shows it, with nothing read but its manifest."""

    manifest: dict[str, Any]

    @property
    def model(self) -> str:
        return str(self.manifest["model"])

    @property
    def benchmarks(self) -> list[str]:
        return list(self.manifest["benchmarks"])

    def cases(self, benchmark: str) -> int:
        return int(self.manifest["benchmarks"][benchmark]["scored"])


_Key = tuple[str, tuple[int, int], str]


@contextmanager
def _shown_or_refused() -> Iterator[None]:
    """What is wrong with a run becomes an answer: it must not hide the other runs."""
    try:
        yield
    except CounterpointError as error:
        raise StudioError("E-RUN-DAMAGED", f"The run cannot be shown: {error}", 404) from None


class Library:
    """All that is known of the runs below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock, self._loading = RLock(), Lock()
        self._found, self._when = RunListing(), -_FRESH
        self._known: dict[tuple[str, tuple[int, int]], Listed | str] = {}
        self._indexes: OrderedDict[_Key, Index] = OrderedDict()
        self._numbers: dict[_Key, list[Row]] = {}

    def found(self) -> RunListing:
        with self._lock:
            if time.monotonic() - self._when >= _FRESH:
                self._found, self._when = find(self.root), time.monotonic()
            return self._found

    def runs(self) -> list[Listed]:
        """The runs that say what they are, by their folders' names, baselines last."""
        listed = (self._listed(place) for place in self.found().places)
        found = [one for one in listed if isinstance(one, Listed)]
        return sorted(found, key=lambda run: is_baseline(run.model))

    def refused(self) -> list[tuple[str, str]]:
        """Folders that are not shown, with the reason of each."""
        listed = ((place.name, self._listed(place)) for place in self.found().places)
        damaged = [(name, why) for name, why in listed if isinstance(why, str)]
        return [*self.found().refused, *damaged]

    def _listed(self, place: RunFolder) -> Listed | str:
        """A run with what it says of itself, or why it cannot be shown."""
        key = place.key, place.stamp
        with self._lock:
            if key not in self._known:
                try:
                    manifest = read_manifest(place.folder)
                    if not manifest["benchmarks"]:
                        raise RunError("E-RUN-DAMAGED", f"{_MANIFEST} names no benchmark.")
                    about = (place.key, place.name, place.folder, place.stamp)
                    self._known[key] = Listed(*about, manifest)
                except RunError as error:
                    self._known[key] = str(error)
            return self._known[key]

    def run(self, key: str) -> Listed:
        """The run of that key; RequestError (404) if there is none."""
        for listed in self.runs():
            if listed.key == key:
                return listed
        raise StudioError("E-RUN-MISSING", "There is no such run here (any more).", 404)

    def having(self, benchmark: str) -> list[Listed]:
        return [listed for listed in self.runs() if benchmark in listed.benchmarks]

    def index(self, listed: Listed, benchmark: str) -> Index:
        """A benchmark of a run; RequestError (404) if the run has it not or cannot be read."""
        if benchmark not in listed.benchmarks:
            raise StudioError("E-BENCHMARK-UNKNOWN", "This run has no such benchmark.", 404)
        key = (listed.key, listed.stamp, benchmark)
        found = self._held(key)
        if found is not None:
            return found
        with self._loading:  # one at a time: two readers of one run would hold it twice
            found = self._held(key)
            if found is not None:
                return found
            with _shown_or_refused():
                run = load_run(listed.folder)
                made = {name: make_index(run.model, part) for name, part in run.parts.items()}
            self._hold(listed, made)
            return made[benchmark]

    def _held(self, key: _Key) -> Index | None:
        with self._lock:
            if key in self._indexes:
                self._indexes.move_to_end(key)
            return self._indexes.get(key)

    def _hold(self, listed: Listed, made: dict[str, Index]) -> None:
        with self._lock:
            for old in [key for key in self._indexes if key[0] == listed.key]:
                del self._indexes[old]  # the run was made anew
            for name, index in made.items():
                self._indexes[listed.key, listed.stamp, name] = index
                while len(self._indexes) > 1 and self._bytes() > _HELD:
                    self._indexes.popitem(last=False)

    def _bytes(self) -> int:
        return sum(index.bytes() for index in self._indexes.values())

    def numbers(self, listed: Listed, benchmark: str) -> list[Row]:
        """The whole benchmark's rows, with intervals; computed once for each state of the run."""
        key = (listed.key, listed.stamp, benchmark)
        if key not in self._numbers:
            index = self.index(listed, benchmark)
            run = Run(index.model, {benchmark: index.part}, {})
            with _shown_or_refused():
                self._numbers[key] = rows(run, groups=False, main=True)
        return self._numbers[key]

    def knows_numbers(self, benchmark: str) -> bool:
        """Whether every run's numbers are there without computing anything."""
        keys = [(run.key, run.stamp, benchmark) for run in self.having(benchmark)]
        return all(key in self._numbers for key in keys)
