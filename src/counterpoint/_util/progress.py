"""Progress of long work: a protocol, and bars in a terminal or a notebook."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal, Protocol

from counterpoint._util.untrusted import without_controls

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as RichProgress


Advance = Callable[[int], None]


class Progress(Protocol):
    """Shows bars and lines of text."""

    def start(self, what: str, total: int | None) -> Advance:
        """Show a new bar of `total` steps, None if their number is unknown.

        Returns a function that is called with the number of steps done.
        """

    def note(self, text: str) -> None:
        """Show a line of text before the work is done."""


class Quiet:
    """Shows nothing."""

    def start(self, what: str, total: int | None) -> Advance:
        del what, total
        return lambda steps: None

    def note(self, text: str) -> None:
        del text


class Named:
    """Puts a name before everything that is shown."""

    def __init__(self, progress: Progress, name: str) -> None:
        self.progress, self.name = progress, name

    def start(self, what: str, total: int | None) -> Advance:
        return self.progress.start(f"{self.name} {what}", total)

    def note(self, text: str) -> None:
        self.progress.note(f"{self.name} {text}")


class Bars:
    """Progress bars drawn by rich."""

    def __init__(self, bars: RichProgress) -> None:
        self.bars = bars

    def start(self, what: str, total: int | None) -> Advance:
        self.bars.start()  # only now: without a bar no empty line is left behind
        task = self.bars.add_task(without_controls(what), total=total)
        return lambda steps: self.bars.update(task, advance=steps)

    def note(self, text: str) -> None:
        self.bars.console.print(without_controls(text), style="yellow", soft_wrap=True)


@contextmanager
def bars_on(console: Console) -> Iterator[Bars]:
    from rich import progress  # slow to import, and most of the library shows nothing

    columns = (
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        progress.MofNCompleteColumn(),
        progress.TimeRemainingColumn(),
    )
    # In a notebook rich would say at every step that it needs ipywidgets; notes are shown anyway.
    bare = console.is_jupyter and find_spec("ipywidgets") is None
    bars = progress.Progress(*columns, console=console, disable=bare)
    try:
        yield Bars(bars)
    finally:
        if bars.live.is_started:
            bars.stop()


@contextmanager
def shown(progress: Progress | Literal["auto"] | None) -> Iterator[Progress]:
    """The progress that a caller asked for.

    `auto` is bars on standard error if it is a terminal or a notebook; None is no progress.
    """
    if progress == "auto":
        from rich.console import Console

        console = Console(stderr=True, markup=False, emoji=False, highlight=False)
        if console.is_terminal or console.is_jupyter:
            with bars_on(console) as bars:
                yield bars
            return
        progress = None
    yield progress or Quiet()
