"""How long work reports itself, without the engine knowing of any terminal."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

Advance = Callable[[int], None]


class Progress(Protocol):
    """Something that can show a bar, and a line of text."""

    def start(self, what: str, total: int | None) -> Advance:
        """Show a new bar of `total` steps, None if nobody knows how many there are.

        What is returned is called with the number of steps done.
        """

    def note(self, text: str) -> None:
        """Tell something that should be known before the work is done."""


class Quiet:
    """Shows nothing."""

    def start(self, what: str, total: int | None) -> Advance:
        del what, total
        return lambda steps: None

    def note(self, text: str) -> None:
        del text


class Named:
    """Puts a name before what is shown."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.name = progress, name

    def start(self, what: str, total: int | None) -> Advance:
        return self.progress.start(f"{self.name} {what}", total)

    def note(self, text: str) -> None:
        self.progress.note(f"{self.name} {text}")
