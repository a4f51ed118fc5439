"""`counterpoint watch`: evaluate the checkpoints of a training as they appear."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import (
    BatchSizeOrAuto,
    DataFolder,
    Device,
    Limit,
    ProtocolName,
    counted,
    errors,
    output,
    progress_bars,
)

if TYPE_CHECKING:
    from counterpoint.evaluation import Watch
    from counterpoint.runs import Row

    Known = tuple[list[Row], dict[tuple[str, str], str]]  # rows of a run, and how much was scored


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder that a training writes checkpoints to.")],
    benchmark: Annotated[
        list[str],
        typer.Option("-b", "--benchmark", help="Benchmark id or case file; repeat for several."),
    ],
    load_as: Annotated[
        str,
        typer.Option(
            "--as",
            help="Model id of a checkpoint, with {} for its path. Folders of open_clip and of "
            "transformers need none.",
            metavar="ID",
        ),
    ] = "",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the results. Default: in runs/.")
    ] = None,
    once: Annotated[
        bool, typer.Option("--once", help="Evaluate what is there and end, instead of waiting.")
    ] = False,
    every: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 30.0,
    settle: Annotated[
        float,
        typer.Option(min=0.0, help="Seconds without a change: then a checkpoint is complete."),
    ] = 10.0,
    data: DataFolder = None,
    limit: Limit = None,
    protocol: ProtocolName = None,
    batch_size: BatchSizeOrAuto = "auto",
    device: Device = "auto",
    precision: Annotated[str, typer.Option(help="fp32, tf32, bf16, fp16 or auto.")] = "fp32",
) -> None:
    """Evaluate every new checkpoint of a training somewhere else, and plot the course.

    Examples:

    counterpoint watch logs/run/checkpoints -b sugarcrepe --as 'checkpoint:{}@ViT-B-32'

    counterpoint watch output -b world-swap -b world-replace --once -o runs/output

    The results folder has a run for each checkpoint, course.csv and course.svg. After an
    interruption the same command continues; what is done is not done again. See docs/evaluate.md.
    """
    from counterpoint.evaluation import Watch

    given = {"data": data and str(data), "limit": limit, "protocol": protocol}
    settings = {name: value for name, value in given.items() if value is not None}
    size = batch_size if batch_size == "auto" else int(batch_size)
    watched = Watch(
        folder,
        benchmark,
        out or Path("runs") / f"watch-{folder.resolve().name}",
        template=load_as,
        settle=settle,
        settings={**settings, "batch_size": size, "precision": precision},
    )
    known: dict[str, Known] = {}
    _write(watched, known)  # what an earlier command was killed before it wrote
    failed: dict[str, bool] = {}
    while True:
        new, written = watched.look()
        for one in new:
            with progress_bars() as bars:
                reasons = watched.evaluate(one, device, bars)
            failed[one.name] = bool(reasons)
            for why in reasons:
                errors.print(f"failed: {one.name}: {why}", style="red", soft_wrap=True)
            _write(watched, known, one.name)
        if once and not new and not written:
            break
        if not new:  # else there may be more by now
            # A checkpoint that is being written is complete at the earliest after `settle`.
            time.sleep(min(every, settle) if once else every)
    if any(failed.values()):
        raise typer.Exit(1)


def _write(watched: Watch, known: dict[str, Known], name: str = "") -> None:
    """All numbers into the table and the figure; those of one checkpoint to the terminal."""
    from counterpoint.metrics import intervals_note
    from counterpoint.reports import CoursePoint, write_course
    from counterpoint.runs import load_run, part_sizes, results_table, rows

    points = []
    printed: list[Row] = []
    sizes: dict[tuple[str, str], str] = {}
    with errors.status("resampling"):
        for one, folders in watched.runs():
            mine = []
            for folder in folders:
                place = folder.relative_to(watched.out).as_posix()
                if place not in known:
                    run = replace(load_run(folder), model=one.name)
                    known[place] = rows(run, groups=False, main=True), part_sizes([run])
                found, parts = known[place]
                sizes |= parts
                mine += [(replace(row, model=one.name), place) for row in found]
            here = {name: size for (model, name), size in sizes.items() if model == one.name}
            points.append(CoursePoint(one.name, one.step, mine, here))
            printed = [row for row, _ in mine] if one.name == name else printed
    if not points:
        return
    table, figure = write_course(points, watched.out)
    if printed:
        output.print(results_table(printed, sizes=sizes))
        output.print(intervals_note(row.metric for row in printed), style="dim")
        output.print(
            f"{counted(len(points), 'checkpoint')} in {table} and {figure}", soft_wrap=True
        )
