"""`counterpoint import`: make a run from scores of another program."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import (
    AllowMissing,
    AsJson,
    DataFolder,
    Groups,
    Overwrite,
    ProtocolName,
    errors,
    output,
    print_json,
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
    name: Annotated[str, typer.Option("--name", help="Name of the model.")],
    data: DataFolder = None,
    out: Annotated[Path | None, typer.Option(help="Folder of the run. Default: in runs/.")] = None,
    protocol: ProtocolName = None,
    overwrite: Overwrite = False,
    groups: Groups = False,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
) -> None:
    """Make a run from scores that were computed elsewhere, without model or images.

    image and caption count from 0 within the case; docs/benchmarks/index.md has the case ids.

    Example:

    counterpoint import scores.csv -b sugarcrepe --name my-model --data my-data --out runs/mine
    """
    from counterpoint.cli.tables import print_results, report_left_out
    from counterpoint.evaluation import import_scores as make_run
    from counterpoint.runs import as_json as rows_as_json, rows as result_rows

    with errors.status("reading scores"):
        run = make_run(
            file, benchmark, name, data=data, out=out, protocol=protocol, overwrite=overwrite
        )
    with errors.status("resampling"):
        rows = result_rows(run, groups=groups or as_json)
    if as_json:
        print_json(rows_as_json(rows))
    else:
        print_results([run], rows, groups=groups)
        output.print(f"saved {run.folder}", soft_wrap=True)
    report_left_out([run], allow_missing)
