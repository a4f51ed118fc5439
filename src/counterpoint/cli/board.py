"""`counterpoint board`: a static site of many runs, and `board check` for what is sent to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Final

import typer

from counterpoint.cli.console import (
    AsJson,
    Called,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
)

_CHECK: Final = Path("check")
_SHOWN: Final = 20  # differences of a submission on the screen; --json has them all


def board(
    runs: Annotated[
        list[Path] | None,
        typer.Argument(
            help="Run folders, or folders of run folders; after the word check, submissions.",
            metavar="[check] RUNS",
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("-o", "--out", help="Folder of the site.")] = None,
    title: Annotated[str, typer.Option(help="Title of the board.")] = "Compositionality board",
    called: Called = None,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", help="For check: folder of the data sets, to compare the cases with."
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a site of many runs, with published values beside them; or check submissions to it.

    The site opens from disk. Models are compared only over the same cases, the best is marked only
    where a test over all models tells it from every other, and every number links to a copy of its
    run. Without runs, it has the published values.

    `board check` computes every number of a submission again: a run folder with results.json, as
    in site/runs or by `counterpoint rescore RUN --json > RUN/results.json`. With --data, its cases
    are compared with those of the benchmark, too. Exit status: 0 all is as it says; 1 refused.

    Examples:

    counterpoint board runs/demo -o site

    counterpoint board -o site

    counterpoint board check site/runs
    """
    given = runs or []
    if given[:1] == [_CHECK]:
        _check(given[1:], data, as_json)
        return
    if out is None:
        raise typer.BadParameter("a folder for the site, as -o site", param_hint="-o")

    from counterpoint.cli.report import made_now, read_names
    from counterpoint.reports.board import BoardOptions, make_board
    from counterpoint.runs import find_runs, load_run

    names = read_names(called or [])
    with progress_bars() as bars:
        folders = list(dict.fromkeys(f for path in given for f in find_runs(path)))
        advance = bars.start("reading runs", len(folders))
        loaded = []
        for folder in folders:
            loaded.append(load_run(folder))
            advance(1)
        options = BoardOptions(title=title, called=names, made=made_now(), progress=bars)
        made = make_board(loaded, out, options)
    values = counted(sum(1 for _ in made.every_value), "published value")
    models = counted(len(made.material.runs), "model")
    output.print(
        f"wrote {out}: {models}, {counted(len(made.benchmarks), 'benchmark')}, {values}; "
        f"open {out / 'index.html'}",
        soft_wrap=True,
    )


def _check(paths: list[Path], data: Path | None, as_json: bool) -> None:
    from counterpoint.evaluation import check_submission, find_submissions

    if not paths:
        raise typer.BadParameter("folders to check, as: board check results", param_hint="RUNS")
    folders = dict.fromkeys(folder for path in paths for folder in find_submissions(path))
    with progress_bars() as bars:
        advance = bars.start("computing again", len(folders))
        found = []
        for folder in folders:
            found.append(check_submission(folder, data=data))
            advance(1)
    if as_json:
        print_json(
            [
                {
                    "folder": str(one.folder),
                    "model": one.model,
                    "numbers": one.numbers,
                    "differences": list(one.differences),
                    "notes": list(one.notes),
                }
                for one in found
            ]
        )
    for one in found if not as_json else []:
        for line in one.differences[:_SHOWN]:
            errors.print(line, style="red", soft_wrap=True)
        if (more := len(one.differences) - _SHOWN) > 0:
            errors.print(f"{one.folder}: and {counted(more, 'more difference')}")
        for line in one.notes:
            errors.print(line, style="yellow", soft_wrap=True)
        said = (
            f"refused, {counted(len(one.differences), 'difference')}"
            if one.differences
            else f"{counted(one.numbers, 'number')} computed again, all the same"
            + ("; the cases are as sent (--data compares them)" if data is None else "")
        )
        output.print(f"{one.folder}: {said}", soft_wrap=True)
    if any(one.differences for one in found):
        raise typer.Exit(1)
