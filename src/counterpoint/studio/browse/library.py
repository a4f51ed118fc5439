"""The runs of a folder, read when somebody looks at them and kept while there is room."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock, RLock
from typing import Any, Final

from counterpoint.errors import CounterpointError, RunError
from counterpoint.results import Row, rows
from counterpoint.runs import Run, load_run
from counterpoint.studio.browse.folders import Found, Place, find, read_manifest
from counterpoint.studio.browse.index import Index, make_index
from counterpoint.studio.security import Refused
from counterpoint.wording import is_baseline

_FRESH: Final = 2.0  # seconds for which the folder is not listed again
_HELD: Final = 2 * 2**30  # bytes of cases and scores in memory


@dataclass(frozen=True, slots=True)
class Listed:
    """A run as the list shows it, with nothing read but its manifest."""

    place: Place
    manifest: dict[str, Any]

    @property
    def key(self) -> str:
        return self.place.key

    @property
    def name(self) -> str:
        return self.place.name

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
        raise Refused(f"The run cannot be shown: {error}", 404) from None


class Library:
    """All that is known of the runs below `root`."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock, self._loading = RLock(), Lock()
        self._found, self._when = Found(), -_FRESH
        self._manifests: dict[tuple[str, tuple[int, int]], dict[str, Any] | str] = {}
        self._indexes: OrderedDict[_Key, Index] = OrderedDict()
        self._numbers: dict[_Key, list[Row]] = {}

    def found(self) -> Found:
        with self._lock:
            if time.monotonic() - self._when >= _FRESH:
                self._found, self._when = find(self.root), time.monotonic()
            return self._found

    def runs(self) -> list[Listed]:
        """The runs that say what they are, by their folders' names, baselines last."""
        listed = [(place, self._manifest(place)) for place in self.found().places]
        found = [Listed(place, said) for place, said in listed if not isinstance(said, str)]
        return sorted(found, key=lambda run: is_baseline(run.model))

    def refused(self) -> list[tuple[str, str]]:
        """Folders that are not shown, with the reason of each."""
        listed = [(place.name, self._manifest(place)) for place in self.found().places]
        damaged = [(name, said) for name, said in listed if isinstance(said, str)]
        return [*self.found().refused, *damaged]

    def _manifest(self, place: Place) -> dict[str, Any] | str:
        """What a run says of itself, or why it cannot be shown."""
        key = place.key, place.stamp
        with self._lock:
            if key not in self._manifests:
                try:
                    self._manifests[key] = read_manifest(place)
                except RunError as error:
                    self._manifests[key] = str(error)
            return self._manifests[key]

    def run(self, key: str) -> Listed:
        """The run of that key; Refused (404) if there is none."""
        for listed in self.runs():
            if listed.key == key:
                return listed
        raise Refused("There is no such run here (any more).", 404)

    def having(self, benchmark: str) -> list[Listed]:
        return [listed for listed in self.runs() if benchmark in listed.benchmarks]

    def index(self, listed: Listed, benchmark: str) -> Index:
        """A benchmark of a run; Refused (404) if the run has it not or cannot be read."""
        if benchmark not in listed.benchmarks:
            raise Refused("This run has no such benchmark.", 404)
        key = (listed.key, listed.place.stamp, benchmark)
        found = self._held(key)
        if found is not None:
            return found
        with self._loading:  # one at a time: two readers of one run would hold it twice
            found = self._held(key)
            if found is not None:
                return found
            with _shown_or_refused():
                run = load_run(listed.place.folder)
                made = {name: make_index(run.model, part) for name, part in run.parts.items()}
            for name, index in made.items():
                self._hold((listed.key, listed.place.stamp, name), index)
            return made[benchmark]

    def _held(self, key: _Key) -> Index | None:
        with self._lock:
            if key in self._indexes:
                self._indexes.move_to_end(key)
            return self._indexes.get(key)

    def _hold(self, key: _Key, index: Index) -> None:
        with self._lock:
            for old in [k for k in self._indexes if k[0] == key[0] and k[1] != key[1]]:
                del self._indexes[old]  # the run was made anew
            self._indexes[key] = index
            while len(self._indexes) > 1 and self._bytes() > _HELD:
                self._indexes.popitem(last=False)

    def _bytes(self) -> int:
        return sum(index.bytes() for index in self._indexes.values())

    def numbers(self, listed: Listed, benchmark: str) -> list[Row]:
        """The whole benchmark's rows, with intervals; computed once for each state of the run."""
        key = (listed.key, listed.place.stamp, benchmark)
        if key not in self._numbers:
            index = self.index(listed, benchmark)
            run = Run(index.model, {benchmark: index.part}, {})
            with _shown_or_refused():
                self._numbers[key] = rows(run, groups=False)
        return self._numbers[key]

    def knows_numbers(self, benchmark: str) -> bool:
        """Whether every run's numbers are there without computing anything."""
        keys = [(run.key, run.place.stamp, benchmark) for run in self.having(benchmark)]
        return all(key in self._numbers for key in keys)
