"""`counterpoint match`: test-time matching, in which a model learns from its own matchings."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from counterpoint.cli.console import (
    AsJson,
    DataFolder,
    Device,
    Limit,
    output,
    print_json,
    progress_bars,
)


def match(
    model: Annotated[str, typer.Argument(help="Model id: a dual encoder that can be trained.")],
    benchmark: Annotated[
        str, typer.Option("-b", "--benchmark", help="Benchmark of 2 x 2 cases, such as world-bi.")
    ],
    out: Annotated[Path, typer.Option("-o", "--out", help="Folder of all iterations.")],
    iterations: Annotated[int, typer.Option(min=1, help="Of matching and finetuning.")] = 10,
    epochs: Annotated[int, typer.Option(min=1, help="Of finetuning in each iteration.")] = 20,
    batch: Annotated[int, typer.Option(min=1, help="Cases in a batch, of two pairs each.")] = 50,
    lr: Annotated[float, typer.Option(help="Learning rate of the first iteration.")] = 4e-5,
    first: Annotated[
        float, typer.Option(min=0.01, max=1, help="Share of cases that the first iteration keeps.")
    ] = 0.5,
    seed: Annotated[int, typer.Option(min=0)] = 42,
    data: DataFolder = None,
    limit: Limit = None,
    device: Device = "auto",
    as_json: AsJson = False,
) -> None:
    """Test-time matching: match images and captions, finetune on the matchings, and repeat.

    No truth is used, but the images and captions of the benchmark are trained on: the result is not
    comparable with that of a model that has not seen them.

    Examples:

    counterpoint match world:base -b world-bi:size=200 -o runs/match --iterations 3 --epochs 5

    After an interruption the same command continues where it stopped. See docs/train/matching.md.
    """
    from dataclasses import asdict

    from counterpoint.training import MatchingSettings, match_at_test_time

    settings = MatchingSettings(iterations, epochs, batch, lr, first=first, seed=seed)
    with progress_bars() as bars:
        found = match_at_test_time(
            model, benchmark, out, settings, data=data, limit=limit, device=device, progress=bars
        )
    if as_json:
        print_json([asdict(one) for one in found])
        return
    from rich.table import Table

    from counterpoint.metrics import interval_text
    from counterpoint.runs import percent

    names = list(found[0].values)
    table = Table("iteration", *(name.replace("_", " ") for name in names), "kept", "right")
    for one in found:
        shown = [
            f"{percent(value)} {interval_text(value, low, high, percent)}"
            for value, low, high in one.values.values()
        ]
        kept = [f"{one.kept:,}", f"{100 * one.right / one.kept:.1f} %"] if one.kept else ["-", "-"]
        table.add_row(str(one.iteration), *shown, *kept)
    output.print(table)
    last = out / f"iteration-{iterations:02d}" / "scores"
    output.print(
        f"saved {out}; paired: counterpoint compare {out / 'iteration-00' / 'scores'} {last}\n"
        f"use the last model as -m {found[-1].model}",
        soft_wrap=True,
    )
