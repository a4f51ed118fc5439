"""`counterpoint wise`: evaluate mixtures of a model and its finetuned form."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import (
    AllowMissing,
    AsJson,
    BatchSize,
    DataFolder,
    Device,
    Groups,
    Limit,
    ProtocolName,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
    refuse_missing_folder,
)

if TYPE_CHECKING:
    from counterpoint.runs import Row, Run


def wise(
    base: Annotated[str, typer.Argument(help="Model id of the model before finetuning.")],
    tuned: Annotated[str, typer.Argument(help="Model id of the finetuned model.")],
    benchmark: Annotated[
        list[str] | None,
        typer.Option("-b", "--benchmark", help="Benchmark id or case file; repeat for several."),
    ] = None,
    alphas: Annotated[
        str, typer.Option(help="Shares of the tuned weights, separated by commas.")
    ] = "0,0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9,1",
    data: DataFolder = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Folder of the runs, one sub-folder per alpha. Default: in runs/."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Write a figure of all alphas to this SVG file.", metavar="FILE.svg"),
    ] = None,
    save: Annotated[
        tuple[float, Path] | None,
        typer.Option(
            help="Save the model of one alpha as a folder (model id open_clip:local-dir:FOLDER)."
        ),
    ] = None,
    limit: Limit = None,
    protocol: ProtocolName = None,
    batch_size: BatchSize = 128,
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16 or fp16.")] = "fp32",
    groups: Groups = False,
    allow_missing: AllowMissing = False,
    as_json: AsJson = False,
) -> None:
    """Mix the weights of two models (WiSE-FT), (1 - alpha) x base + alpha x tuned, and evaluate.

    Examples:

    counterpoint wise world:base open_clip:local-dir:runs/hn/model -b world-swap --plot line.svg

    counterpoint wise world:base open_clip:local-dir:runs/hn/model --save 0.5 half

    Choose alpha on other cases than those that you report.
    """
    chosen = read_alphas(alphas)
    if not benchmark and save is None:
        raise typer.BadParameter("a benchmark, or --save ALPHA FOLDER", param_hint="-b")
    if plot is not None and (plot.suffix != ".svg" or not benchmark):
        raise typer.BadParameter("a FILE.svg, and -b BENCHMARK to draw", param_hint="--plot")
    if save is not None and not 0 <= save[0] <= 1:
        raise typer.BadParameter("an alpha between 0 and 1, and a folder", param_hint="--save")

    refuse_missing_folder(plot)

    from counterpoint.evaluation import Line, evaluate_line
    from counterpoint.models import LoadOptions

    line = Line(base, tuned, LoadOptions(device, precision))
    if save is not None:
        from counterpoint.evaluation import refuse_other_model, save_mixed

        refuse_other_model(save[1], line)  # now, and not after the evaluation
    runs: list[Run] = []
    if benchmark:
        with progress_bars() as bars:
            runs = evaluate_line(
                line,
                benchmark,
                chosen,
                out=out,
                data=data,
                limit=limit,
                protocol=protocol,
                batch_size=batch_size,
                progress=bars,
            )
        with errors.status("resampling"):
            found = _found(chosen, runs, groups=groups or as_json, main=not as_json)
        _print(found, runs, (base, tuned), groups=groups, as_json=as_json)
        if plot is not None:
            from counterpoint.reports import draw_line

            draw_line(found, plot, f"from {base} to {tuned}")
            _say(f"drawn {plot}", as_json)
    if save is not None:
        save_mixed(line, *save)
        _say(f"saved {save[1]}: use it as -m open_clip:local-dir:{save[1]}", as_json)
    _print_left_out(runs, allow_missing)


def read_alphas(text: str) -> list[float]:
    """`0,0.5,1` in ascending order, each once."""
    try:
        found = sorted({float(part) for part in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(0 <= alpha <= 1 for alpha in found):
        raise typer.BadParameter(
            "numbers between 0 and 1 with commas between, as 0,0.5,1", param_hint="--alphas"
        )
    return found


def _found(
    alphas: list[float], runs: list[Run], *, groups: bool, main: bool
) -> dict[float, list[Row]]:
    from counterpoint.runs import rows

    return {
        alpha: rows(run, groups=groups, main=main) for alpha, run in zip(alphas, runs, strict=True)
    }


def _print(
    found: dict[float, list[Row]],
    runs: list[Run],
    ends: tuple[str, str],
    *,
    groups: bool,
    as_json: bool,
) -> None:
    from dataclasses import replace

    from counterpoint.cli.tables import print_results
    from counterpoint.runs import as_json as plain

    if as_json:
        print_json(
            [{"alpha": alpha, **row} for alpha, rows in found.items() for row in plain(rows)]
        )
        return
    named = [
        replace(row, model=f"alpha {alpha:g}") for alpha, rows in found.items() for row in rows
    ]
    print_results(runs, named, groups=groups)
    output.print(f"alpha 0 = {ends[0]}\nalpha 1 = {ends[1]}", soft_wrap=True)
    folder = runs[0].folder
    where = folder if folder is None or len(runs) == 1 else folder.parent
    output.print(f"saved {counted(len(runs), 'run')} in {where}", soft_wrap=True)


def _say(line: str, as_json: bool) -> None:
    (errors if as_json else output).print(line, soft_wrap=True)


def _print_left_out(runs: list[Run], allow_missing: bool) -> None:
    from counterpoint.cli.tables import report_left_out

    notes = dict.fromkeys(n for run in runs for n in run.manifest["model_info"].get("notes", ()))
    for note in notes:
        errors.print(f"note: {note}", style="yellow", soft_wrap=True)
    report_left_out(runs, allow_missing)
