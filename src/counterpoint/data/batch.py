"""Many files at a time. What fails is collected; what breaks off is gone on with next time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import Final

import httpx

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Advance, Progress
from counterpoint._util.writing import whole_file
from counterpoint.data.download import Begin, FetchError, Pause, Wanted, download, new_client

WORKERS: Final = 8
_FEW: Final = 8  # up to so many files have a bar each, in bytes; more have one bar that counts them
_PATIENCE: Final = 8  # files in a row whose hosts do not answer, until the rest is not tried


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be had. `absent`: there is none of this name."""

    path: Path
    reason: str
    absent: bool = False


class _StoppedError(Exception):
    """This worker is to leave everything as it is."""


def download_all(
    wanted: Sequence[Wanted],
    what: str,
    progress: Progress,
    *,
    workers: int = WORKERS,
    pause: Pause | None = None,
) -> list[Failure]:
    """Fetch what is not there. Returns what failed by path, and last what was not tried.

    Ctrl-C ends it within a moment; parts stay. `pause(seconds)` is for tests that do not wait.
    """
    crew = _Crew(progress, few=len(wanted) <= _FEW, pause=pause)
    count = (lambda steps: None) if crew.few else progress.start(what, len(wanted))
    with new_client() as client, ThreadPoolExecutor(workers) as pool:
        futures = {pool.submit(crew.fetch, item, client): item for item in wanted}
        try:
            return _collect(futures, crew, count)
        except BaseException:  # Ctrl-C as well
            crew.stop.set()
            pool.shutdown(wait=True, cancel_futures=True)
            raise


def _collect(futures: dict[Future[None], Wanted], crew: _Crew, count: Advance) -> list[Failure]:
    failures, untried, silent = [], [], 0
    for future in as_completed(futures):
        path = futures[future].path
        try:
            future.result()
            silent = 0
        except FetchError as error:
            failures.append(Failure(path, str(error), error.absent))
            silent = silent + 1 if error.unreachable else 0
            if silent == _PATIENCE:
                crew.stop.set()
        except DataError as error:
            failures.append(Failure(path, str(error)))
        except _StoppedError:
            reason = f"{path.name} was not tried, since {_PATIENCE} before it got no answer."
            untried.append(Failure(path, reason))
        count(1)
    by_path = attrgetter("path")
    return sorted(failures, key=by_path) + sorted(untried, key=by_path)


class _Crew:
    """What the workers share: how they wait, report themselves, and are stopped."""

    def __init__(self, progress: Progress, *, few: bool, pause: Pause | None) -> None:
        self.stop = threading.Event()
        self.progress, self.few = progress, few
        self._sleep: Callable[[float], object] = pause or self.stop.wait

    def fetch(self, item: Wanted, client: httpx.Client) -> None:
        self._check()
        download(item, client, self.pause, self._begin(item))

    def pause(self, seconds: float) -> None:
        self._check()
        self._sleep(seconds)
        self._check()

    def _begin(self, item: Wanted) -> Begin:
        def start(total: int) -> Advance:
            self._check()
            bar = self.progress.start(f"{item.path.name}, bytes", total) if self.few else None

            def advance(steps: int) -> None:
                self._check()
                if bar:
                    bar(steps)

            return advance

        return start

    def _check(self) -> None:
        if self.stop.is_set():
            raise _StoppedError


# --- What came of getting a benchmark's files ---------------------------------------------------


@dataclass(slots=True)
class Report:
    """What was done: files and archives that were fetched and that were there already.

    `by_hand` are instructions for what only a person can get, `notes` those for what a benchmark
    can do without. `listed` is a file that names all failures.
    """

    benchmark: str
    fetched: int = 0
    there: int = 0
    failures: list[Failure] = field(default_factory=list)
    by_hand: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    listed: Path | None = None

    @property
    def complete(self) -> bool:
        return not self.failures and not self.by_hand

    def list_failures(self, root: Path) -> None:
        """All of them into a file; that of an earlier run goes once nothing fails."""
        path = root / f"failed-{self.benchmark.replace('/', '-')}.txt"
        lines = (f"{failure.path}\t{failure.reason}\n" for failure in self.failures)
        try:
            if self.failures:
                with whole_file(path) as draft:
                    draft.write_text("".join(lines), encoding="utf-8")
                self.listed = path
            else:
                path.unlink(missing_ok=True)
        except (OSError, DataError):  # a root that cannot be written to is a failure of its own
            self.listed = None
