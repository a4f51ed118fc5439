"""`counterpoint demo`: the main job with nothing but the package."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import errors, output, progress_bars
from counterpoint.cli.suggesting import command
from counterpoint.wording import TIES, listed

if TYPE_CHECKING:
    from counterpoint.results import Row

OVERSENSITIVE = "world:hn"
TUNED = ("world:base", OVERSENSITIVE, "world:hp-hn", "world:counterpoint")
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
        runs = evaluate(MODELS, benchmarks, out=out, overwrite=True, progress=bars)
    with errors.status("resampling"):
        rows = [row for run in runs for row in results.rows(run, groups=False)]
    print_results(runs, rows)
    for line in left_out_lines(runs):
        errors.print(line, style="yellow")
    print_examples(runs[MODELS.index(OVERSENSITIVE)], benchmarks[0])
    output.print("What to learn:", style="bold")
    for line in _lessons(rows, benchmarks[0]):
        output.print(f"  {line}", soft_wrap=True)
    output.print(f"Saved in {out}: one folder per model, with every raw score.")
    output.print("Try next:", style="bold")
    runs_folder = shlex.quote(str(out))
    for words in (
        f"compare {runs_folder}/world-counterpoint {runs_folder}/world-hp-hn",
        f"report {runs_folder} -o report.html",
        f"rescore {runs_folder}/world-base --groups --averages",
        "eval -m world:base -b world-swap:size=500,seed=7",
        "ls",
    ):
        output.print(f"  {command(words)}", soft_wrap=True)


def _lessons(rows: Sequence[Row], benchmark: str) -> tuple[str, str, str]:
    """What the numbers of one benchmark show, whichever they are."""
    known = {(r.model, r.metric): 100 * r.value for r in rows if r.benchmark == benchmark}

    def accuracies(model: str) -> tuple[float, float]:
        return known[model, "original_accuracy"], known[model, "augmented_accuracy"]

    def loss(model: str) -> str:
        original, augmented = accuracies(model)
        return f"{original - augmented:.1f}"

    base, _, *with_positives = TUNED
    original, augmented = accuracies(OVERSENSITIVE)
    return (
        f"{OVERSENSITIVE} was tuned on hard negatives only. On {benchmark} it is right for "
        f"{original:.1f}% of the original captions and for {augmented:.1f}% when the reworded ones "
        f"must be right too: {loss(OVERSENSITIVE)} points less, against {loss(base)} of {base}.",
        f"{listed(with_positives)} were tuned on hard positives too: "
        f"{listed([loss(model) for model in with_positives])} points less.",
        f"The blind baselines see no image. Their 0.0 with {TIES} means equal scores, which "
        "the protocol counts as wrong, and not guesses worse than chance.",
    )
