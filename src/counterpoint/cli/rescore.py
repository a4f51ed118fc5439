"""`counterpoint rescore`: compute every number again from stored scores, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import AsJson, Clean, Groups, ProtocolName, errors, output, print_json


def rescore(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
    protocol: ProtocolName = None,
    clean: Clean = False,
    groups: Groups = False,
    averages: Annotated[
        bool,
        typer.Option("--averages", help="Also show the micro and macro averages side by side."),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Compute all metrics again from the raw scores of runs, without model, images or data set.

    Examples:

    counterpoint rescore runs/demo

    counterpoint rescore runs/demo/world-base --protocol strict --averages
    """
    from counterpoint.cli.tables import averages_table, left_out_lines, print_results
    from counterpoint.evaluation import with_clean
    from counterpoint.metrics import get_protocol
    from counterpoint.runs import (
        as_json as rows_as_json,
        find_runs,
        fitting,
        load_run,
        rows as result_rows,
        side_by_side,
    )

    wanted = groups or as_json
    with errors.status("resampling"):
        loaded = [load_run(folder) for path in runs for folder in find_runs(path)]
        loaded = with_clean(loaded) if clean else loaded
        chosen = get_protocol(protocol) if protocol else None
        rows = [row for run in loaded for row in result_rows(run, chosen, groups=wanted)]
    if as_json:
        print_json(rows_as_json(rows))
        return
    print_results(loaded, rows, groups=groups, protocol=chosen)
    for line in left_out_lines(loaded):
        errors.print(line, style="yellow", soft_wrap=True)
    for run in loaded if averages else []:
        for part in filter(lambda part: len(part.cases), run.parts.values()):
            used = fitting(part, chosen)
            with errors.status("resampling"):
                found = side_by_side(part, chosen)
            output.print(averages_table(part.benchmark, run.model, found, used))
