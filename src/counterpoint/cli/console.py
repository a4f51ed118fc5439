"""Where the command line prints: results to standard output, everything else to standard error."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, ParamSpec

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

from counterpoint.errors import CounterpointError, explain, stop_status
from counterpoint.progress import Bars, bars_on
from counterpoint.untrusted import without_controls

P = ParamSpec("P")

_PIPE_WIDTH = 120  # a file or a pipe has no width of its own


class Terminal(Console):
    """Prints captions and names as the data that they are.

    No markup and no emoji codes ("blind:bow:" is no picture), and control characters are shown and
    not obeyed.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, highlight=False, **options)

    def render(
        self, renderable: RenderableType, options: ConsoleOptions | None = None
    ) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(without_controls(segment.text), segment.style)


output = Terminal(width=None if sys.stdout.isatty() else _PIPE_WIDTH)
errors = Terminal(stderr=True)


def progress_bars() -> AbstractContextManager[Bars]:
    return bars_on(errors)


def plainly(verb: Callable[P, None], *, resumes: bool = False) -> Callable[P, None]:
    """A verb whose errors are one line without a traceback, with the exit status that fits.

    `resumes` says whether the same command, given again, goes on where this one was stopped.
    COUNTERPOINT_TRACEBACK=1 shows the traceback of what is explained here.
    """

    @functools.wraps(verb)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            verb(*args, **kwargs)
        except KeyboardInterrupt as stop:
            told = "what was computed is kept, the same command goes on from there"
            errors.print(f"interrupted; {told if resumes else 'nothing was written'}.")
            raise typer.Exit(stop_status(stop)) from None
        except (BrokenPipeError, typer.Exit):
            raise
        except Exception as error:
            known = str(error) if isinstance(error, CounterpointError) else explain(error)
            if known is None or os.environ.get("COUNTERPOINT_TRACEBACK"):
                raise
            errors.print(f"error: {known}", style="red", soft_wrap=True)
            raise typer.Exit(1) from None

    return run


def print_json(rows: Sequence[dict[str, Any]]) -> None:
    """One JSON array, a row a line; numbers to six significant digits."""
    lines = ",\n".join(
        json.dumps(_rounded(row), ensure_ascii=False, allow_nan=False) for row in rows
    )
    sys.stdout.write(f"[\n{lines}\n]\n" if rows else "[]\n")


def _rounded(value: Any) -> Any:
    """A value with its fractions rounded to what they mean; what is not a number is null."""
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, list | tuple) else value


def percent(value: float) -> str:
    return f"{100 * value:.1f}"


def counted(number: int, what: str) -> str:
    """ "1 case", "2 cases"."""
    return f"{number:,} {what}" + ("" if number == 1 else "s")
