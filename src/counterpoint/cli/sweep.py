"""`counterpoint sweep`: train every cell of a grid over recipe values, and compare them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich import box
from rich.table import Table

from counterpoint.cli.console import AsJson, counted, errors, output, print_json
from counterpoint.cli.train import Preparing, TrainingBar, training_bars

if TYPE_CHECKING:
    from counterpoint.training import Sweep


def sweep(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (`counterpoint ls recipes`) or a .yaml file.")
    ],
    grid: Annotated[
        Path, typer.Argument(help="A .yaml file of keys with lists of values: lr: [1e-5, 1e-6]")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes that all cells have."),
    ] = None,
    world: Annotated[
        bool, typer.Option("--world", help="Train on the synthetic world, as `train --world`.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the sweep. Default: in runs/.")
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Train every cell of a grid and mark the one with the best validation.

    Examples:

    counterpoint sweep negclip grid.yaml data.path=train.parquet validation.path=val.parquet

    counterpoint sweep hp-hn grid.yaml data.path=train.parquet validation.path=val.parquet
    validation.metric=augmented_accuracy -o runs/sweep

    One folder per cell. After an interruption the same command continues; finished cells are not
    run again. See docs/train/index.md.
    """
    from counterpoint.training import sweep as run_sweep

    with training_bars() as bars:
        found = run_sweep(
            recipe,
            grid,
            changes or [],
            world=world,
            out=out,
            display=TrainingBar(bars),
            progress=Preparing(bars),
        )
    if as_json:
        print_json(found.as_json()["cells"])
        return
    _print(found)


def _print(found: Sweep) -> None:
    best, keys = found.best, list(found.cells[0].values)
    table = Table(header_style="bold", box=box.SIMPLE_HEAD)
    for key in keys:
        table.add_column(key, justify="right", no_wrap=True)
    table.add_column(found.metric, justify="right", no_wrap=True)
    table.add_column("step", justify="right", no_wrap=True)
    table.add_column("folder", overflow="fold")
    for cell in found.cells:
        value = "-" if cell.best is None else f"{cell.best.value:.4f}"
        table.add_row(
            *(f"{cell.values[key]}" for key in keys),
            f"{value} *" if cell is best else f"{value}  ",
            "-" if cell.best is None else f"{cell.best.step:,}",
            cell.folder.name,
            style="green" if cell is best else "",
        )
    output.print(table)
    for cell in found.cells:
        if cell.failed:
            errors.print(f"note: {cell.folder.name}: {cell.failed}", style="yellow", soft_wrap=True)
    output.print(f"{counted(len(found.cells), 'cell')} in {found.folder}", soft_wrap=True)
    if best is not None:
        output.print(f"* the best: use it as -m {best.model}", soft_wrap=True)
