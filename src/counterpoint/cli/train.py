"""Finetuned models: `counterpoint train`, `match` at test time, and `wise`, which mixes weights."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from counterpoint._util.progress import Bars
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
    remark,
    say,
    warn,
)
from counterpoint.training import Display

if TYPE_CHECKING:
    from counterpoint.runs import Row, Run
    from counterpoint.training import Trained


class TrainingBars(Bars, Display):
    """Bars of what comes before training, then one with the loss, its terms and the speed; without
    a terminal, nothing but remarks."""

    _task: Any = None

    def start(self, what: str, total: int | None) -> Any:
        self.bars.start()
        task = self.bars.add_task(what, total=total, values="")
        return lambda steps: self.bars.update(task, advance=steps)

    def begin(self, what: str, total: int, done: int) -> None:
        self.bars.start()
        self._task = self.bars.add_task(what, total=total, completed=done, values="")

    def show(self, done: int, line: str) -> None:
        self.bars.update(self._task, completed=done, values=line)

    def say(self, line: str) -> None:
        remark(line)


@contextmanager
def training_bars() -> Iterator[TrainingBars]:
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[values]}", markup=False),
    )
    bars = Progress(*columns, console=errors)
    try:
        yield TrainingBars(bars)
    finally:
        if bars.live.is_started:
            bars.stop()


def train(
    recipe: Annotated[
        str, typer.Argument(help="A recipe (`counterpoint ls recipes`) or a .yaml file.")
    ],
    changes: Annotated[
        list[str] | None,
        typer.Argument(metavar="[KEY=VALUE]...", help="Changes: lr=1e-5 data.path=train.parquet"),
    ] = None,
    world: Annotated[
        bool,
        typer.Option(
            "--world", help="Train on the synthetic world: its base model, scenes drawn on the fly."
        ),
    ] = False,
    show: Annotated[
        bool, typer.Option("--show", help="Print the recipe with the changes and exit.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Finetune a model with hard positives and hard negatives.

    Examples:

    counterpoint train hp-hn --world out=runs/hp-hn

    counterpoint train negclip data.path=train.parquet data.images=coco/train2014

    torchrun --nproc-per-node 4 -m counterpoint train hp-hn data.path=train.parquet

    counterpoint train clip-ft model=hf:FOLDER lock=image data.path=train.parquet

    counterpoint train --show hp-hn

    After an interruption the same command continues from the last checkpoint.
    See docs/train/index.md.
    """
    from counterpoint.training import load_recipe

    if show:
        _show_recipe(recipe, changes or [], world)
        return
    chosen = load_recipe(recipe, changes or [], world=world)
    from counterpoint.training import train as run_training

    with training_bars() as bars:
        trained = run_training(chosen, bars, bars)
    if trained is None:  # under torchrun the first process speaks
        return
    _tell(trained, as_json)


def _show_recipe(recipe: str, changes: list[str], world: bool) -> None:
    from counterpoint.training import as_yaml, check, merged, recipe_text

    if not changes and not world:
        say(recipe_text(recipe).rstrip())
        return
    values = merged(recipe, changes, world=world)
    check(recipe, values)
    say(as_yaml(values).rstrip())


def _tell(trained: Trained, as_json: bool) -> None:
    from counterpoint.runs import as_json as rows_as_json

    for problem, number in trained.problems.items():
        warn(f"note: {counted(number, 'time')}: {problem}")
    if trained.outcome is None:
        errors.print(
            "note: the recipe names no benchmarks, so there is no table and no outcome.json; the "
            "same command with benchmarks=[BENCHMARK,...] evaluates this model and its start",
            markup=False,
            style="yellow",
            soft_wrap=True,
        )
    if as_json:
        told: dict[str, Any] = {"folder": str(trained.folder), "model": trained.model}
        changes = [] if trained.outcome is None else rows_as_json(trained.outcome.changes)
        if trained.best is not None:
            best = trained.best
            told["best"] = {"step": best.step, "metric": best.metric, "value": best.value}
        print_json([{**told, "steps": trained.steps, "outcome": changes}])
        return
    if trained.outcome is not None:
        from counterpoint.cli.tables import print_outcome

        print_outcome(trained.outcome)
    if trained.best is not None:
        say(
            f"best validation: {trained.best.metric} {trained.best.value:.4f} after step "
            f"{trained.best.step:,}, whose weights are kept"
        )
    say(f"trained {counted(trained.steps, 'step')}: use it as -m {trained.model}")


# --- match ------------------------------------------------------------------------------------


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
    from counterpoint.metrics import interval_text
    from counterpoint.runs import Sheet, percent

    names = [name.replace("_", " ") for name in found[0].values]
    sheet = Sheet(dict.fromkeys(("iteration", *names, "kept", "right"), "text"))
    for one in found:
        shown = [
            f"{percent(value)} {interval_text(value, low, high, percent)}"
            for value, low, high in one.values.values()
        ]
        kept = [f"{one.kept:,}", f"{100 * one.right / one.kept:.1f} %"] if one.kept else ["-", "-"]
        sheet.add(str(one.iteration), *shown, *kept)
    output.print(sheet)
    last = out / f"iteration-{iterations:02d}" / "scores"
    say(
        f"saved {out}; paired: counterpoint compare {out / 'iteration-00' / 'scores'} {last}\n"
        f"use the last model as -m {found[-1].model}"
    )


# --- wise -------------------------------------------------------------------------------------


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
    from counterpoint.runs import rows

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
            found = {
                alpha: rows(run, groups=groups or as_json, main=not as_json)
                for alpha, run in zip(chosen, runs, strict=True)
            }
        _print_line(found, runs, (base, tuned), groups=groups, as_json=as_json)
        if plot is not None:
            from counterpoint.reports import draw_line

            draw_line(found, plot, f"from {base} to {tuned}")
            _say(f"drawn {plot}", as_json)
    if save is not None:
        save_mixed(line, *save)
        _say(f"saved {save[1]}: use it as -m open_clip:local-dir:{save[1]}", as_json)
    from counterpoint.cli.tables import report_left_out

    for note in dict.fromkeys(n for r in runs for n in r.manifest["model_info"].get("notes", ())):
        warn(f"note: {note}")
    report_left_out(runs, allow_missing)


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


def _print_line(
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
    say(f"alpha 0 = {ends[0]}\nalpha 1 = {ends[1]}")
    folder = runs[0].folder
    where = folder if folder is None or len(runs) == 1 else folder.parent
    say(f"saved {counted(len(runs), 'run')} in {where}")


def _say(line: str, as_json: bool) -> None:
    (errors if as_json else output).print(line, soft_wrap=True)
