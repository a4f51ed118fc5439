"""What came of getting a benchmark's files."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from counterpoint.data.batch import Failure
from counterpoint.errors import DataError
from counterpoint.writing import whole_file


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
