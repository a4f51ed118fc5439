"""Many evaluations or trainings: `counterpoint sweep`, and `watch` for checkpoints."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from counterpoint.cli.console import (
    AsJson,
    BatchSizeOrAuto,
    Benchmarks,
    DataFolder,
    Device,
    Limit,
    ProtocolName,
    RayAddress,
    counted,
    errors,
    output,
    print_json,
    progress_bars,
    remark,
    say,
    warn,
)
from counterpoint.cli.train import training_bars

if TYPE_CHECKING:
    from counterpoint.evaluation import Watch
    from counterpoint.runs import Row, Sheet

    Known = tuple[list[Row], dict[tuple[str, str], str]]  # rows of a run, and how much was scored
    from counterpoint.training import Sweep


def sweep(
    plan: Annotated[
        str,
        typer.Argument(
            metavar="PLAN",
            help="A plan of evaluations (.yaml with models and benchmarks); or, before a grid, a "
            "recipe (`counterpoint ls recipes` or a .yaml file).",
        ),
    ],
    grid: Annotated[
        Path | None,
        typer.Argument(help="A .yaml file of recipe keys with lists of values: lr: [1e-5, 1e-6]"),
    ] = None,
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes that all cells of a grid have."),
    ] = None,
    world: Annotated[
        bool, typer.Option("--world", help="Train on the synthetic world, as `train --world`.")
    ] = False,
    out: Annotated[
        Path | None, typer.Option("-o", "--out", help="Folder of the sweep. Default: in runs/.")
    ] = None,
    devices: Annotated[
        str, typer.Option(help="Devices of a plan, one process each: 0,1 or all or cpu,cpu.")
    ] = "",
    engine: Annotated[
        str, typer.Option(help="Where a plan runs: local, ray or slurm (an array, by submitit).")
    ] = "local",
    ray_address: RayAddress = "local",
    slurm: Annotated[bool, typer.Option("--slurm", help="The same as --engine slurm.")] = False,
    slurm_partition: Annotated[str, typer.Option(help="Partition of Slurm.")] = "",
    slurm_time: Annotated[str, typer.Option(help="Time limit of a cell, as Slurm has it.")] = "",
    slurm_gpus: Annotated[int, typer.Option(min=0, help="GPUs of a cell on Slurm.")] = 0,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print what a plan would run, and what it would take.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Evaluate models x benchmarks by a plan; or train every cell of a grid of recipe values.

    Examples:

    counterpoint sweep plan.yaml --dry-run

    counterpoint sweep plan.yaml --devices 0,1 -o runs/all

    counterpoint sweep plan.yaml --slurm --slurm-partition gpu --slurm-time 4:00:00 --slurm-gpus 1

    counterpoint sweep hp-hn grid.yaml data.path=train.parquet validation.path=val.parquet
    validation.metric=augmented_accuracy -o runs/sweep

    After an interruption the same command continues; finished cells are not run again. See
    docs/evaluate.md for plans and docs/train/index.md for grids.
    """
    placed = devices or slurm or engine != "local"
    if grid is not None and (placed or dry_run):
        raise typer.BadParameter("--devices, --engine, --slurm and --dry-run are for plans")
    if grid is None and world:
        raise typer.BadParameter("--world is for a recipe and a grid")
    if grid is not None:
        _train(plan, grid, changes or [], world, out, as_json)
    elif dry_run:
        _forecast(Path(plan), out, as_json)
    else:
        given = {
            "slurm_partition": slurm_partition,
            "slurm_time": slurm_time,
            "gpus_per_node": slurm_gpus,
        }
        settings = {name: value for name, value in given.items() if value}
        where = "slurm" if slurm else engine
        _evaluate(Path(plan), out, devices, where, ray_address, settings, as_json)


# --- evaluation ----------------------------------------------------------------------------------


def _evaluate(
    plan: Path,
    out: Path | None,
    devices: str,
    engine: str,
    address: str,
    slurm: dict[str, object],
    as_json: bool,
) -> None:
    from counterpoint.evaluation import sweep_evaluations

    with progress_bars() as bars:
        found = sweep_evaluations(
            plan,
            out=out,
            devices=devices,
            engine=engine,
            address=address,
            slurm=slurm,
            progress=bars,
        )
    if as_json:
        print_json(found.as_json())
    else:
        sheet = _sheet("model", "benchmark", "state", "left out", "run")
        for cell in found.cells:
            left_out = f"{cell.left_out:,}" if cell.left_out else ""
            folder = Path(cell.folder).name if cell.folder else ""
            sheet.add(cell.model, cell.benchmark, cell.state, left_out, folder)
        output.print(sheet)
        done = sum(cell.state == "done" for cell in found.cells)
        say(f"{done:,} of {counted(len(found.cells), 'cell')} done in {found.folder}")
    reasons: dict[str, list[str]] = {}
    for cell in found.failed:
        reasons.setdefault(cell.why, []).append(f"{cell.model} on {cell.benchmark}")
    for why, cells in reasons.items():
        more = f" and {len(cells) - 1:,} more" if len(cells) > 1 else ""
        remark(f"failed: {cells[0]}{more}: {why}", "red")
    if found.failed:
        raise typer.Exit(1)


def _forecast(path: Path, out: Path | None, as_json: bool) -> None:
    from counterpoint.evaluation import default_folder, forecast, read_plan

    plan = read_plan(path)
    with errors.status("counting"):
        counts, open_cells = forecast(plan, out or default_folder(path, plan))
    if as_json:
        print_json([one.as_json() for one in open_cells])
        return
    sheet = _sheet("benchmark", "images", "captions", "pairs")
    for one in counts:
        sizes = (one.images, one.captions, one.pairs)
        sheet.add(one.benchmark, *("-" if one.failed else f"{n:,}" for n in sizes))
    output.print(sheet)
    sheet = _sheet("model", "open benchmarks", "images", "captions", "pairs", "hours", "MB")
    for cell in open_cells:
        numbers = (cell.benchmarks, cell.images, cell.captions, cell.pairs)
        sheet.add(
            cell.model,
            *(f"{number:,}" for number in numbers),
            "-" if cell.seconds is None else f"{cell.seconds / 3600:.3f}",
            "-" if cell.bytes is None else f"{cell.bytes / 1e6:,.1f}",
        )
    output.print(sheet)
    known = [(cell.seconds, cell.bytes) for cell in open_cells if cell.seconds and cell.bytes]
    if len(known) < len(open_cells):
        output.print("hours and bytes: unknown until the first cell is done")
    elif known:
        seconds, size = (sum(column) for column in zip(*known, strict=True))
        say(
            f"about {seconds / 3600:.3f} hours on one device, and {size / 1e6:,.1f} MB in the "
            "store and the runs, by what earlier cells took"
        )
    for one in counts:
        if one.failed:
            warn(f"note: {one.benchmark}: {one.failed}")


def _sheet(*columns: str) -> Sheet:
    from counterpoint.runs import Sheet

    texts = ("model", "benchmark", "state", "run")
    return Sheet({name: "name" if name in texts else "amount" for name in columns}, look="open")


# --- training ------------------------------------------------------------------------------------


def _train(
    recipe: str, grid: Path, changes: list[str], world: bool, out: Path | None, as_json: bool
) -> None:
    from counterpoint.training import sweep as run_sweep

    with training_bars() as bars:
        found = run_sweep(
            recipe,
            grid,
            changes,
            world=world,
            out=out,
            display=bars,
            progress=bars,
        )
    if as_json:
        print_json(found.as_json()["cells"])
        return
    _print_cells(found)


def _print_cells(found: Sweep) -> None:
    from counterpoint.runs import Sheet

    best, keys = found.best, list(found.cells[0].values)
    numbers = dict.fromkeys((*keys, found.metric, "step"), "number")
    sheet = Sheet({**numbers, "folder": "name"}, look="open")
    for cell in found.cells:
        value = "-" if cell.best is None else f"{cell.best.value:.4f}"
        sheet.add(
            *(f"{cell.values[key]}" for key in keys),
            f"{value} *" if cell is best else f"{value}  ",
            "-" if cell.best is None else f"{cell.best.step:,}",
            cell.folder.name,
            style="green" if cell is best else "",
        )
    output.print(sheet)
    for cell in found.cells:
        if cell.failed:
            warn(f"note: {cell.folder.name}: {cell.failed}")
    say(f"{counted(len(found.cells), 'cell')} in {found.folder}")
    if best is not None:
        say(f"* the best: use it as -m {best.model}")


# --- watch ------------------------------------------------------------------------------------


def watch(
    folder: Annotated[Path, typer.Argument(help="Folder that a training writes checkpoints to.")],
    benchmark: Benchmarks,
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
    _write_course(watched, known)  # what an earlier command was killed before it wrote
    failed: dict[str, bool] = {}
    while True:
        new, written = watched.look()
        for one in new:
            with progress_bars() as bars:
                reasons = watched.evaluate(one, device, bars)
            failed[one.name] = bool(reasons)
            for why in reasons:
                remark(f"failed: {one.name}: {why}", "red")
            _write_course(watched, known, one.name)
        if once and not new and not written:
            break
        if not new:  # else there may be more by now
            # A checkpoint that is being written is complete at the earliest after `settle`.
            time.sleep(min(every, settle) if once else every)
    if any(failed.values()):
        raise typer.Exit(1)


def _write_course(watched: Watch, known: dict[str, Known], name: str = "") -> None:
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
        say(f"{counted(len(points), 'checkpoint')} in {table} and {figure}")
