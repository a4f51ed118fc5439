"""What scoring works with."""

from __future__ import annotations

from dataclasses import dataclass

from counterpoint.progress import Progress
from counterpoint.scoring.store import Store


@dataclass(frozen=True, slots=True)
class Work:
    """Where results are kept, how many items are tried at a time, and who is told of progress."""

    store: Store
    batch: int
    progress: Progress
