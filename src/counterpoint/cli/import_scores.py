"""`counterpoint import`: scores from elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import errors, output, print_json
from counterpoint.cli.options import (
    AllowMissing,
    AsJson,
    DataFolder,
    Groups,
    Overwrite,
    ProtocolName,
)


def import_scores(
    file: Annotated[
        Path,
        typer.Argument(
            help="A .csv, .tsv, .jsonl or .parquet: case_id, image, caption, score; "
            "or case_id, C0I0, C0I1, C1I0, C1I1 (caption and image), also as .txt."
        ),
    ],
    benchmark: Annotated[str, typer.Option("-b", "--benchmark", help="Benchmark id or case file.")],
    name: Annotated[str, typer.Option("--name", help="What to call the model.")],
    data: DataFolder = None,
    out: Annotated[Path | None, typer.Option(help="The run's folder. Else: in runs/.")] = None,
    protocol: ProtocolName = None,
    overwrite: Overwrite = False,
    groups: Groups = False,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
) -> None:
    """Make a run from scores that were computed elsewhere; no model and no image is needed.

    image and caption count from 0 within the case; docs/benchmarks/index.md has each
    benchmark's ids.

    Example:

    counterpoint import scores.csv -b sugarcrepe --name my-model --data my-data --out runs/mine
    """
    from counterpoint import results
    from counterpoint.cli.left_out import report_left_out
    from counterpoint.cli.tables import print_results
    from counterpoint.importing import import_scores as make_run

    with errors.status("reading scores"):
        run = make_run(
            file, benchmark, name, data=data, out=out, protocol=protocol, overwrite=overwrite
        )
    with errors.status("resampling"):
        rows = results.rows(run, groups=groups or as_json)
    if as_json:
        print_json(results.as_json(rows))
    else:
        print_results([run], rows, groups=groups)
        output.print(f"saved {run.folder}", soft_wrap=True)
    report_left_out([run], allow_missing)
