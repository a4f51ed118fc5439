"""Where the command line prints: results to standard output, everything else to standard error."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, ParamSpec

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from counterpoint.errors import CounterpointError
from counterpoint.progress import Advance

P = ParamSpec("P")

_PIPE_WIDTH = 120  # a file or a pipe has no width of its own

# No markup and no emoji codes: captions and names are data, "blind:bow:" is no picture.
output = Console(
    markup=False, emoji=False, highlight=False, width=None if sys.stdout.isatty() else _PIPE_WIDTH
)
errors = Console(stderr=True, markup=False, emoji=False, highlight=False)


class Bars:
    """Progress bars for the engine."""

    def __init__(self, bars: Progress) -> None:
        self.bars = bars

    def start(self, what: str, total: int | None) -> Advance:
        self.bars.start()  # only now: what never starts leaves no empty line behind
        task = self.bars.add_task(what, total=total)
        return lambda steps: self.bars.update(task, advance=steps)


@contextmanager
def progress_bars() -> Iterator[Bars]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    bars = Progress(*columns, console=errors)
    try:
        yield Bars(bars)
    finally:
        if bars.live.is_started:
            bars.stop()


def plainly(verb: Callable[P, None]) -> Callable[P, None]:
    """A verb whose errors are one line without a traceback, with the exit status that fits."""

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except CounterpointError as error:
            errors.print(f"error: {error}", style="red", soft_wrap=True)
            raise typer.Exit(1) from None
        except KeyboardInterrupt:
            errors.print(
                "interrupted; what was computed is kept, the same command goes on from there.",
                soft_wrap=True,
            )
            raise typer.Exit(130) from None

    return run


def print_json(rows: Sequence[dict[str, Any]]) -> None:
    """One JSON array, a row a line."""
    lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    sys.stdout.write(f"[\n{lines}\n]\n" if rows else "[]\n")


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def counted(number: int, what: str) -> str:
    """ "1 case", "2 cases"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
