"""How long work reports itself, without the engine knowing of any terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Advance = Callable[[int], None]


class Progress(Protocol):
    """Something that can show a bar."""

    def start(self, what: str, total: int) -> Advance:
        """Show a new bar of `total` steps; call what is returned with the steps done."""


class Quiet:
    """Shows nothing."""

    def start(self, what: str, total: int) -> Advance:
        del what, total
        return lambda steps: None


class Named:
    """Puts a name before what is shown."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.name = progress, name

    def start(self, what: str, total: int) -> Advance:
        return self.progress.start(f"{self.name} {what}", total)
