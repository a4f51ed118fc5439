"""Downloads of many files at a time, and the report of a benchmark's files.

Failures are collected, not raised. Interrupted downloads are continued next time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final

from counterpoint._util.errors import DataError
from counterpoint._util.progress import Advance, Progress
from counterpoint._util.writing import whole_file
from counterpoint.data.download import Begin, FetchError, Pause, WantedFile, download, new_client

if TYPE_CHECKING:
    import httpx

WORKERS: Final = 8
_FEW: Final = 8  # up to this many files have their own bar, in bytes; more share one bar
_PATIENCE: Final = 8  # files in a row without an answer, until the others are not tried


@dataclass(frozen=True, slots=True)
class Failure:
    """A file that could not be fetched. `absent`: there is no file of this name."""

    path: Path
    reason: str
    absent: bool = False


class _StoppedError(Exception):
    """The worker was asked to stop."""


def download_all(
    wanted: Sequence[WantedFile],
    what: str,
    progress: Progress,
    *,
    workers: int = WORKERS,
    pause: Pause | None = None,
) -> list[Failure]:
    """Fetch the files that are not there. Returns failures by path; files not tried come last.

    Ctrl-C stops it at once; partial files stay. `pause(seconds)` is for tests that do not wait.
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


def _collect(futures: dict[Future[None], WantedFile], crew: _Crew, count: Advance) -> list[Failure]:
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
    """What the workers share: how they wait, show progress and are stopped."""

    def __init__(self, progress: Progress, *, few: bool, pause: Pause | None) -> None:
        self.stop = threading.Event()
        self.progress, self.few = progress, few
        self._sleep: Callable[[float], object] = pause or self.stop.wait

    def fetch(self, item: WantedFile, client: httpx.Client) -> None:
        self._check()
        download(item, client, self.pause, self._begin(item))

    def pause(self, seconds: float) -> None:
        self._check()
        self._sleep(seconds)
        self._check()

    def _begin(self, item: WantedFile) -> Begin:
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


@dataclass(slots=True)
class DownloadReport:
    """The files and archives of a benchmark: how many were fetched, how many were there already.

    `by_hand` are instructions for files that only a person can get, `notes` those for optional
    files. `listed` is a file that lists all failures.
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
        """Write all failures to a file; without failures, remove the file of an earlier run."""
        path = root / f"failed-{self.benchmark.replace('/', '-')}.txt"
        lines = (f"{failure.path}\t{failure.reason}\n" for failure in self.failures)
        try:
            if self.failures:
                with whole_file(path) as draft:
                    draft.write_text("".join(lines), encoding="utf-8")
                self.listed = path
            else:
                path.unlink(missing_ok=True)
        except (OSError, DataError):  # that the root cannot be written is reported as a failure
            self.listed = None
