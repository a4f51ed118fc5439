"""`counterpoint demo`: the main job with nothing but the package."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import errors, output, progress_bars

TUNED = ("world:base", "world:hn", "world:hp-hn", "world:counterpoint")
MODELS = (*TUNED, "blind:length", "blind:format", "blind:bow", "random")
BENCHMARKS = ("world-replace", "world-swap", "world-bi")


def demo(
    out: Annotated[Path, typer.Option(help="Where the runs go.")] = Path("runs/demo"),
    size: Annotated[int, typer.Option(min=1, help="Cases of each benchmark.")] = 1000,
) -> None:
    """Evaluate the bundled models and the blind baselines on the synthetic world.

    The models are a base and what three recipes made of it: hard negatives only (hn), hard
    negatives and positives (hp-hn), and counterpoint. Needs no network, no weights and no data set.

    Example:

    counterpoint demo --size 500
    """
    from counterpoint import results
    from counterpoint.cli.examples import print_examples
    from counterpoint.cli.tables import left_out_lines, print_results
    from counterpoint.evaluation import evaluate

    benchmarks = [f"{name}:size={size}" for name in BENCHMARKS]
    with progress_bars() as bars:
        runs = evaluate(MODELS, benchmarks, out=out, progress=bars)
    with errors.status("resampling"):
        rows = [row for run in runs for row in results.rows(run, groups=False)]
    print_results(runs, rows)
    for line in left_out_lines(runs):
        errors.print(line, style="yellow")
    print_examples(runs[0], benchmarks[1])
    output.print(f"Saved in {out}: a folder a model, with every raw score.")
    output.print("Try next:", style="bold")
    for command in (
        f"counterpoint compare {out}/world-counterpoint {out}/world-hp-hn",
        f"counterpoint report {out} -o report.html",
        f"counterpoint rescore {out}/world-base --groups --averages",
        "counterpoint eval -m world:base -b world-swap:size=500,seed=7",
        "counterpoint ls",
    ):
        output.print(f"  {command}", soft_wrap=True)
