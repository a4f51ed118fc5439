"""`counterpoint publish`: runs as the Hub, Every Eval Ever and W&B read them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from counterpoint.cli.console import (
    Groups,
    ProtocolName,
    counted,
    errors,
    output,
    progress_bars,
)

Relationship = Literal["first_party", "third_party", "collaborative", "other"]


def publish(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, or folders of run folders.")],
    out: Annotated[Path, typer.Option("-o", "--out", help="The folder to write.")],
    called: Annotated[
        list[str] | None,
        typer.Option(
            "--as",
            help="MODEL=OWNER/NAME: the id of a run's model on the Hub; repeat for several.",
        ),
    ] = None,
    datasets: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset",
            help="BENCHMARK=OWNER/NAME: the data set of a benchmark on the Hub, for .eval_results, "
            "with one task per metric; OWNER/NAME:TASK for the main metric as this task.",
        ),
    ] = None,
    organization: Annotated[str, typer.Option(help="Who evaluated.")] = "unknown",
    relationship: Annotated[
        Relationship, typer.Option(help="What the evaluator is to the model's developer.")
    ] = "other",
    source: Annotated[str, typer.Option(help="Address at which the run folder can be found.")] = "",
    groups: Groups = False,
    protocol: ProtocolName = None,
    wandb: Annotated[bool, typer.Option("--wandb", help="Write a W&B table, too.")] = False,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace other published runs at --out.")
    ] = False,
) -> None:
    """Write runs as other programs read them: files to upload. Nothing is uploaded.

    For a model's repository on the Hugging Face Hub: .eval_results and a section of the model card.
    For Every Eval Ever: aggregate results with intervals, and one line per sample and metric.

    Examples:

    counterpoint publish runs/demo -o published

    counterpoint publish runs/demo/world-base -o published --as world:base=me/base --wandb
    """
    from counterpoint.metrics import get_protocol
    from counterpoint.reports.publishing import PublishOptions, publish as write
    from counterpoint.runs import find_runs, load_run

    named = _pairs(called, "--as", "MODEL=OWNER/NAME")
    on_hub = _pairs(datasets, "--dataset", "BENCHMARK=OWNER/NAME")
    with progress_bars() as bars:
        folders = dict.fromkeys(folder for path in runs for folder in find_runs(path))
        parts = write(
            [load_run(folder) for folder in folders],
            out,
            PublishOptions(
                protocol=get_protocol(protocol) if protocol else None,
                groups=groups,
                called=named,
                datasets=on_hub,
                organization=organization,
                relationship=relationship,
                source=source,
                wandb=wandb,
                overwrite=overwrite,
                progress=bars,
            ),
        )
    models = counted(len({part.model for part in parts}), "model")
    benchmarks = counted(len({part.part.benchmark for part in parts}), "benchmark")
    output.print(f"wrote {out}: {models} on {benchmarks}; nothing was uploaded", soft_wrap=True)
    apart = list(dict.fromkeys(part.part.benchmark for part in parts if part.hub is None))
    if apart:
        errors.print(
            f"no .eval_results for {', '.join(apart)}: no data set of the Hub is known; name it "
            f"with --dataset {apart[0]}=OWNER/NAME",
            soft_wrap=True,
        )
    for note in dict.fromkeys(note for part in parts for note in part.notes):
        errors.print(note, style="yellow", soft_wrap=True)


def _pairs(given: list[str] | None, option: str, form: str) -> dict[str, str]:
    """`KEY=VALUE`; the id of a model or benchmark may hold an equals sign, one of the Hub not."""
    pairs = [text.rpartition("=") for text in given or []]
    if any(not key or not value for key, _, value in pairs):
        raise typer.BadParameter(form, param_hint=option)
    return {key: value for key, _, value in pairs}
