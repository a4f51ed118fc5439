"""What a run lacks, printed, and the exit status that follows from it."""

from __future__ import annotations

from collections.abc import Sequence

import typer

from counterpoint.cli.console import errors
from counterpoint.cli.options import LEFT_OUT
from counterpoint.cli.tables import left_out_lines
from counterpoint.runs import Run


def report_left_out(runs: Sequence[Run], allow_missing: bool) -> None:
    """Print what was left out; unless that is allowed, exit with a status of its own."""
    for line in left_out_lines(runs):
        errors.print(line, style="yellow", soft_wrap=True)
    if any(run.left_out for run in runs) and not allow_missing:
        errors.print("Cases were left out; --allow-missing accepts that.", style="yellow")
        raise typer.Exit(LEFT_OUT)
